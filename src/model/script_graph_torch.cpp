#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_set>

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include "model/script_graph.h"

namespace gradsync {

namespace {

namespace prim = c10::prim;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
using Names = std::set<std::string>;

/// Operations whose result, or whose number of results, depends on the values of a tensor, and not
/// on its sizes and type alone.
bool reads_values(const Node& node) {
  static const std::unordered_set<std::string> kReading = {
      "aten::item",          "aten::Bool",           "aten::Int",
      "aten::Float",         "aten::Complex",        "aten::IntImplicit",
      "aten::FloatImplicit", "aten::ScalarImplicit", "aten::is_nonzero",
      "aten::equal",         "aten::allclose",       "aten::tolist",
      "prim::tolist",        "aten::nonzero",        "aten::nonzero_numpy",
      "aten::masked_select", "aten::_unique2",       "aten::unique_dim",
      "aten::argwhere",      "aten::count_nonzero",  "aten::unique_consecutive"};
  if (kReading.count(node.kind().toQualString()) == 0) return false;
  return std::any_of(node.inputs().begin(), node.inputs().end(), [](const Value* input) {
    return input->type()->isSubtypeOf(*c10::TensorType::get());
  });
}

/// What is the same of a tensor whatever its values are.
bool reads_type(const Node& node) {
  static const std::unordered_set<std::string> kReading = {
      "aten::dim",    "aten::is_floating_point", "prim::dtype",
      "prim::device", "prim::is_cuda",           "prim::requires_grad"};
  return kReading.count(node.kind().toQualString()) > 0;
}

/// Whether values of tensors decide on `value`.
class ChosenByValues {
 public:
  bool operator()(const Value* value) {
    if (!seen_.insert(value).second) return false;
    const Node* node = value->node();
    if (reads_values(*node)) return true;
    if (reads_type(*node)) return false;
    // A loop's variables come from before it and from the end of its body.
    if (node->kind() == prim::Param && node->owningBlock()->owningNode())
      return of(node->owningBlock()->owningNode());
    return of(node);
  }

 private:
  bool of(const Node* node) {
    for (const Value* input : node->inputs())
      if ((*this)(input)) return true;
    for (const Block* block : node->blocks())
      for (const Value* output : block->outputs())
        if ((*this)(output)) return true;
    return false;
  }

  std::unordered_set<const Value*> seen_;
};

bool is_chosen(const Value* value) {
  return ChosenByValues()(value);
}

/// "encoder.weight" of a value that is an attribute of the module or of one inside it, the module
/// itself is "".
std::optional<std::string> path_of(const Value* value, const Value* self) {
  if (value == self) return "";
  const Node* node = value->node();
  if (node->kind() != prim::GetAttr) return std::nullopt;
  const auto owner = path_of(node->input(), self);
  if (!owner) return std::nullopt;
  const std::string& name = node->s(torch::jit::attr::name);
  return owner->empty() ? name : *owner + "." + name;
}

/// What a block uses.
struct Uses {
  Names always, at_times;
};

void merge(Names& into, const Names& names) {
  into.insert(names.begin(), names.end());
}

Names common(const Names& a, const Names& b) {
  Names both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::inserter(both, both.end()));
  return both;
}

bool raises(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(),
                     [](const Node* node) { return node->kind() == prim::RaiseException; });
}

Uses uses_in(const Block* block, const Value* self);

/// Uses of a branch. One that sizes, types or constants choose is the same in every pass, and both
/// arms count here: the pass that is tried shows which is taken.
Uses uses_of_branch(const Node* node, const Value* self) {
  const Block *yes = node->blocks()[0], *no = node->blocks()[1];
  Uses one = uses_in(yes, self);
  const Uses other = uses_in(no, self);
  merge(one.at_times, other.at_times);
  if (!is_chosen(node->input())) {
    merge(one.always, other.always);
    return one;
  }
  merge(one.at_times, one.always);
  merge(one.at_times, other.always);
  if (raises(yes))
    one.always = other.always;
  else if (!raises(no))
    one.always = common(one.always, other.always);
  return one;
}

/// Its inputs are how many rounds it makes at most and whether it begins.
Uses uses_of_loop(const Node* node, const Value* self) {
  Uses uses = uses_in(node->blocks()[0], self);
  if (!is_chosen(node->input(0)) && !is_chosen(node->input(1))) return uses;
  merge(uses.at_times, uses.always);
  uses.always.clear();
  return uses;
}

void add_inputs(Names& names, const Node* node, const Value* self) {
  if (node->kind() == prim::GetAttr) return;
  for (const Value* input : node->inputs())
    if (const auto path = path_of(input, self)) names.insert(*path);
}

Uses uses_in(const Block* block, const Value* self) {
  Uses all;
  add_inputs(all.always, block->return_node(), self);
  for (const Node* node : block->nodes()) {
    add_inputs(all.always, node, self);
    if (node->blocks().empty()) continue;
    const Uses inner = node->kind() == prim::If     ? uses_of_branch(node, self)
                       : node->kind() == prim::Loop ? uses_of_loop(node, self)
                                                    : uses_in(node->blocks()[0], self);
    merge(all.always, inner.always);
    merge(all.at_times, inner.at_times);
  }
  return all;
}

template <typename Visit>
void for_each_node(const Block* block, const Visit& visit) {
  for (const Node* node : block->nodes()) {
    visit(node);
    for (const Block* inner : node->blocks())
      for_each_node(inner, visit);
  }
}

bool is_container(const Value* value) {
  const auto kind = value->type()->kind();
  return kind == c10::TypeKind::ListType || kind == c10::TypeKind::DictType ||
         kind == c10::TypeKind::TupleType;
}

/// Whether an operation writes to `value`, or to what is taken out of it or is a view of it.
bool is_written(const Value* value) {
  return std::any_of(value->uses().begin(), value->uses().end(), [](const torch::jit::Use& use) {
    const Node& user = *use.user;
    const auto outputs = user.outputs();
    if (user.kind() == prim::ListUnpack || user.kind() == prim::TupleUnpack ||
        user.kind() == prim::TupleIndex)
      return std::any_of(outputs.begin(), outputs.end(), is_written);
    const auto* schema = user.maybeSchema();
    if (!schema || use.offset >= schema->arguments().size()) return false;
    const auto* alias = schema->arguments()[use.offset].alias_info();
    if (!alias) return false;
    if (alias->isWrite()) return true;
    for (std::size_t i = 0; i < outputs.size() && i < schema->returns().size(); ++i)
      if (schema->returns()[i].alias_info() && is_written(outputs[i])) return true;
    return false;
  });
}

}  // namespace

ScriptGraph::ScriptGraph(const torch::jit::Module& module) {
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  const Value* self = graph->inputs().at(0);
  for_each_node(graph->block(), [&](const Node* node) {
    const bool assigns = node->kind() == prim::SetAttr;
    if (!assigns && node->kind() != prim::GetAttr) return;
    const std::string& name = node->s(torch::jit::attr::name);
    const auto owner = path_of(node->input(0), self);
    const std::string path = !owner || owner->empty() ? name : *owner + "." + name;
    if (assigns)
      assigned.insert(path);
    else if (is_container(node->output()) && is_written(node->output()))
      changed.insert(path);
  });
  const Uses uses = uses_in(graph->block(), self);
  used = uses.always;
  std::set_difference(uses.at_times.begin(), uses.at_times.end(), used.begin(), used.end(),
                      std::inserter(chosen, chosen.end()));
}

}  // namespace gradsync
