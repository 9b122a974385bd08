// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parse.h"
#include "model/image_batch.h"
#include "model/network.h"
#include "model/replica.h"

namespace gradsync {

namespace {

/// What the graph of a TorchScript module's forward pass, with all that it calls, says of every
/// pass: a pass that is tried shows what one batch and one draw of random numbers lead to.
/// Attributes are named by their path: "encoder.layer.weight".
struct ScriptGraph {
  explicit ScriptGraph(const torch::jit::Module& module);

  /// Attributes that a pass assigns: `self.mean = …`.
  std::set<std::string> assigned;
  /// Lists, dictionaries and tuples that it changes, or tensors in them.
  std::set<std::string> changed;
  /// Attributes that it uses in every pass, and those that it uses only in a branch or loop that
  /// values of tensors choose: of samples, of what was drawn, of parameters.
  std::set<std::string> used, chosen;
};

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

/// A loop, whose inputs are how many rounds it makes at most and whether it begins.
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

/// The first operation in any method of the module or its parts that opens files or makes an object
/// of C++ code; empty if there is none.
std::string operation_on_files(const torch::jit::Module& module) {
  static const std::unordered_set<std::string> kOnFiles = {"aten::from_file", "aten::save",
                                                           "aten::load", "aten::get_file_path"};
  std::string found;
  for (const torch::jit::Module& part : module.modules())
    for (const torch::jit::Method& method : part.get_methods()) {
      const auto graph = method.graph()->copy();
      torch::jit::Inline(*graph);
      for_each_node(graph->block(), [&](const Node* node) {
        const std::string kind = node->kind().toQualString();
        const bool custom =
            node->kind() == prim::CreateObject &&
            node->output()->type()->annotation_str().starts_with("__torch__.torch.classes.");
        if (custom) found = node->output()->type()->annotation_str();
        if (kOnFiles.contains(kind)) found = kind;
      });
    }
  return found;
}

}  // namespace

namespace nn = torch::nn;

namespace {

constexpr std::int64_t kTrialSamples = 2;  // batch norm takes no single value a channel

const std::string kSaveAgain =
    "save the module that is to be trained: torch.jit.script(module.train()).save(\"FILE.pt\")";

[[noreturn]] void refuse(const std::string& path, const std::string& why,
                         const std::string& fix = kSaveAgain) {
  throw Error(ExitCode::kBadData, fmt::format("'{}' cannot be trained: {}", path, why), fix);
}

/// The interpreter's texts end with the reason, LibTorch's begin with it.
std::string reason_of(const std::exception& error) {
  const std::string text = error.what(), mark = "Error: ";
  const auto last = text.rfind(mark);
  const std::string reason = last == std::string::npos ? text : text.substr(last + mark.size());
  return reason.substr(0, reason.find('\n'));
}

/// Calls `body`; what LibTorch throws becomes the refusal of the module, behind `why`, but where
/// memory ran out.
template <typename Body>
auto or_refuse(const std::string& path, const std::string& why, const std::string& fix, Body body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    if (tells_out_of_memory(error.what())) throw;
    refuse(path, why + ": " + reason_of(error), fix);
  }
}

torch::jit::Module module_in(const std::string& path) {
  if (!std::filesystem::is_regular_file(path))
    throw Error(ExitCode::kNoInput, fmt::format("--model {}: there is no such file", path),
                "give the path of a TorchScript module");
  return or_refuse(path, "it holds no TorchScript module that this LibTorch reads", kSaveAgain,
                   [&] { return torch::jit::load(path, torch::Device(torch::kCPU)); });
}

/// What a buffer may hold; a checkpoint holds them all.
constexpr torch::ScalarType kBufferTypes[] = {torch::kFloat32, torch::kBool,  torch::kUInt8,
                                              torch::kInt8,    torch::kInt16, torch::kInt32,
                                              torch::kInt64};

/// A TorchScript module as a network of ours, whose modules hold the same tensors under the same
/// names. Parameters that do not require a gradient are buffers, and so is every other tensor that
/// the module holds: all that a pass reads is a parameter or a buffer, each dense.
class ScriptNetwork : public Network {
 public:
  explicit ScriptNetwork(const std::string& path) : path_(path), script_(module_in(path)) {
    if (const std::string operation = operation_on_files(script_); !operation.empty())
      refuse(path_,
             fmt::format("it uses {}: it opens files or runs other code, which no network needs",
                         operation),
             "ask who wrote it; a TorchScript file is a program");
    script_.train();
    mirror(script_, *this, "");
    if (parameters().empty()) refuse(path_, "it has no parameters that require a gradient");
    const ScriptGraph graph(script_);
    note_assigned(graph);
    require_certain_gradients(graph);
  }

  std::vector<Layer> layers() const override { return {{this, this}}; }

  torch::Tensor forward(torch::Tensor samples) override {
    const auto* all = this;
    at(all);
    // An interpreter that learns from the first passes would run others, in other kernels.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    // What a pass assigns is copied into our tensor, which autograd must not hold.
    for (const Held& one : assigned_)
      one.put(one.ours.clone());
    const c10::IValue outputs = run(std::move(samples));
    for (const Held& one : assigned_)
      take_back(one);
    if (!outputs.isTensor()) refuse(path_, "its output is no tensor, but " + outputs.tagKind());
    return outputs.toTensor();
  }

  void train(bool on = true) override {
    Network::train(on);
    script_.train(on);
  }

 private:
  /// A tensor under one of the names that the module has for it.
  struct Held {
    torch::jit::Module owner;
    std::string name;
    torch::Tensor theirs, ours;  ///< in the file, and in this network

    void put(const torch::Tensor& tensor) const {
      torch::jit::Module(owner).setattr(name, tensor);  // a handle
    }
  };

  c10::IValue run(torch::Tensor samples) {
    const auto sizes = samples.sizes().vec();
    try {
      return script_.forward({std::move(samples)});
    } catch (const std::exception& error) {
      if (tells_out_of_memory(error.what())) throw;
      const std::string reason = reason_of(error);
      const bool of_layout = reason.find("view size is not compatible") != std::string::npos;
      refuse(path_,
             fmt::format("it rejects {} of {}: {}", count_text(sizes[0], "sample"),
                         fmt::join(sizes.begin() + 1, sizes.end(), " x "), reason),
             of_layout ? "--layout nchw, or a module that calls reshape"
                       : "give the sizes that it takes: --input CHANNELSxHEIGHTxWIDTH; a module of "
                         "one batch size needs it as --batch-per-rank, and --last-batch drop");
    }
  }

  void take_back(const Held& one) const {
    const c10::IValue value = one.owner.attr(one.name);
    if (!value.isTensor() || value.toTensor().sizes() != one.ours.sizes())
      refuse(path_, fmt::format("its forward pass gives {} another shape", one.name));
    const torch::NoGradGuard no_grad;
    one.ours.copy_(value.toTensor());
    one.put(one.ours);
  }

  void mirror(const torch::jit::Module& script, nn::Module& here, const std::string& path) {
    for (std::size_t i = 0; i < script.type()->numAttributes(); ++i) {
      const Held held{script, script.type()->getAttributeName(i), {}, {}};
      const c10::IValue value = script.attr(held.name);
      if (value.isTensor() && value.toTensor().defined())
        take(held, value.toTensor(), script.type()->is_parameter(i), here, path + held.name);
    }
    for (const auto& child : script.named_children())
      mirror(child.value, *here.register_module(child.name, std::make_shared<nn::Module>()),
             path + child.name + ".");
  }

  /// A parameter that several modules share is the first one's.
  void take(Held held, const torch::Tensor& tensor, bool is_parameter, nn::Module& here,
            const std::string& full) {
    const bool trained = is_parameter && tensor.requires_grad();
    held.theirs = held.ours = tensor;
    if (const Held* known = shared_with(tensor)) {
      held.ours = known->ours;
      held.put(held.ours);
    } else {
      require_type(tensor, trained, full);
      require_own_memory(tensor, trained, full);
      if (trained && (!tensor.is_leaf() || !tensor.is_non_overlapping_and_dense()))
        refuse(path_, fmt::format("its parameter {} is a view", full));
      if (trained)
        here.register_parameter(held.name, tensor, /*requires_grad=*/true);
      else
        here.register_buffer(held.name, held.ours = dense_buffer(held));
    }
    held_.emplace(full, held);
  }

  const Held* shared_with(const torch::Tensor& tensor) const {
    for (const auto& [name, known] : held_)
      if (known.theirs.is_same(tensor) || known.ours.is_same(tensor)) return &known;
    return nullptr;
  }

  void require_type(const torch::Tensor& tensor, bool trained, const std::string& full) const {
    const torch::ScalarType type = tensor.scalar_type();
    const bool fits = trained ? type == torch::kFloat32
                              : std::count(std::begin(kBufferTypes), std::end(kBufferTypes), type);
    if (tensor.layout() != torch::kStrided) refuse(path_, fmt::format("its {} is sparse", full));
    if (fits) return;
    if (tensor.is_floating_point())
      refuse(path_,
             fmt::format("its {} is {}, and gradsync exchanges float32", full, c10::toString(type)),
             "save it after module.float(); --precision chooses what it computes in");
    refuse(path_,
           fmt::format("its {} is {}, and checkpoints hold float32, bool and whole numbers", full,
                       c10::toString(type)),
           "keep it in such tensors: a complex one as its real and its imaginary part");
  }

  /// Parameters move into memory of the exchange, and tensors that are not dense are copied: what
  /// shares memory with them would be another tensor then.
  void require_own_memory(const torch::Tensor& tensor, bool trained,
                          const std::string& full) const {
    if (tensor.numel() == 0) return;
    for (const auto& [name, known] : held_) {
      if (known.theirs.numel() == 0 || !known.theirs.storage().is_alias_of(tensor.storage()))
        continue;
      if (trained || known.ours.requires_grad() || !tensor.is_non_overlapping_and_dense() ||
          !known.theirs.is_non_overlapping_and_dense())
        refuse(path_, fmt::format("its {} and {} are parts of one tensor", name, full),
               "give each of them a clone() before it is saved");
    }
  }

  /// The tensor, or a copy without gaps and repeats in its place.
  static torch::Tensor dense_buffer(const Held& held) {
    if (held.theirs.is_non_overlapping_and_dense()) return held.theirs.set_requires_grad(false);
    torch::Tensor copy = held.theirs.detach().contiguous();
    held.put(copy);
    return copy;
  }

  void note_assigned(const ScriptGraph& graph) {
    const std::string fix = "keep it in a buffer, and change that";
    for (const std::string& name : graph.changed)
      refuse(path_,
             fmt::format("its forward pass changes the list {}, which no checkpoint holds", name),
             fix);
    for (const std::string& name : graph.assigned) {
      const auto found = held_.find(name);
      if (found == held_.end())
        refuse(path_,
               fmt::format("its forward pass assigns the attribute {}, which is no tensor: no "
                           "checkpoint holds it",
                           name),
               fix);
      if (found->second.ours.requires_grad())
        refuse(path_, fmt::format("its forward pass assigns the parameter {}", name));
      assigned_.push_back(found->second);
    }
  }

  /// What a pass that is tried cannot show.
  void require_certain_gradients(const ScriptGraph& graph) const {
    const auto is_used = [&](const torch::Tensor& parameter) {
      return std::any_of(graph.used.begin(), graph.used.end(), [&](const std::string& name) {
        const auto found = held_.find(name);
        return found != held_.end() && found->second.ours.is_same(parameter);
      });
    };
    for (const std::string& name : graph.chosen) {
      const auto found = held_.find(name);
      if (found == held_.end() || !found->second.ours.requires_grad()) continue;
      if (!is_used(found->second.ours))
        refuse(path_,
               fmt::format("its parameter {} is used only in a branch that values of tensors "
                           "choose: it has no gradient in some iterations",
                           name),
               "compute the branch in every pass, and multiply its result by 0 or 1");
    }
  }

  std::string path_;
  torch::jit::Module script_;
  std::map<std::string, Held> held_;  ///< by its full name
  std::vector<Held> assigned_;        ///< those that a pass assigns
};

torch::Tensor zero_samples(const NetworkInput& input, Layout layout, std::int64_t count) {
  const auto sizes = batch_sizes(input, count);
  return torch::empty_strided(sizes, batch_strides(sizes, layout)).zero_();
}

void require_logits(const torch::Tensor& outputs, const std::string& path,
                    const NetworkInput& input, std::int64_t samples) {
  if (!outputs.is_floating_point() || outputs.dim() != 2 || outputs.size(0) != samples ||
      outputs.size(1) != input.classes)
    refuse(path,
           fmt::format("its output for {} is {} of the sizes {}, not {} logits of each",
                       count_text(samples, "sample"), c10::toString(outputs.scalar_type()),
                       c10::str(outputs.sizes()), input.classes),
           "give the number of its outputs: --classes N");
  if (!outputs.requires_grad())
    refuse(path,
           "it is not differentiable: no operation with a gradient leads from its "
           "parameters to its output");
}

void require_gradient(const torch::Tensor& gradient, const std::string& path,
                      const std::string& name) {
  if (!gradient.defined())
    refuse(path,
           fmt::format("its parameter {} is unused: the backward pass gives it no gradient", name),
           "remove the parameter, or call requires_grad_(False) on it before it is saved");
  if (gradient.layout() != torch::kStrided)
    refuse(path, fmt::format("the gradient of its parameter {} is sparse", name),
           "make the embedding with sparse=False");
}

}  // namespace

std::shared_ptr<Network> make_script(const std::string& model) {
  return std::make_shared<ScriptNetwork>(model);
}

std::int64_t trial_samples(Network& network, const NetworkInput& input, Layout layout,
                           std::int64_t batch) {
  const torch::NoGradGuard no_grad;
  try {
    const torch::Tensor outputs = network.forward(zero_samples(input, layout, kTrialSamples));
    return outputs.dim() > 0 && outputs.size(0) == kTrialSamples ? kTrialSamples : batch;
  } catch (const Error&) {
    return batch;
  }
}

void require_trainable_script(const std::string& path, const NetworkInput& input, Layout layout,
                              const std::set<std::int64_t>& batches) {
  const Replica replica = make_replica(path, 1, layout);
  const std::int64_t samples = trial_samples(*replica.network, input, layout, *batches.rbegin());
  const auto logits_of = [&](std::int64_t count) {
    const torch::Tensor outputs = replica.network->forward(zero_samples(input, layout, count));
    require_logits(outputs, path, input, count);
    return outputs;
  };
  const torch::Tensor outputs = logits_of(samples);
  or_refuse(path, "its backward pass fails", kSaveAgain,
            [&] { outputs.to(torch::kFloat32).logsumexp(1).mean().backward(); });
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    require_gradient(replica.parameters[i].grad(), path, replica.names[i]);
  if (samples != kTrialSamples)
    for (const std::int64_t batch : batches)
      logits_of(batch);
}

}  // namespace gradsync
