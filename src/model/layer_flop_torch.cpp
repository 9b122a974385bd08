// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <map>
#include <utility>

#include <ATen/record_function.h>

#include "model/image_batch.h"
#include "model/network.h"
#include "model/replica.h"

namespace gradsync {

namespace {

constexpr std::int64_t kImages = 2;  // batch norm takes no single value a channel
constexpr double kPerProduct = 2;    // a multiplication and an addition

using Inputs = c10::ArrayRef<const c10::IValue>;

double product(at::IntArrayRef sizes) {
  double result = 1;
  for (const std::int64_t size : sizes)
    result *= static_cast<double>(size);
  return result;
}

/// Operations of a convolution whose output has these sizes: each is a sum over a filter. A
/// transposed one is the reverse: each value of its input goes to as many outputs as a filter has
/// values.
double convolution_flop(at::IntArrayRef summed, at::IntArrayRef weight) {
  return kPerProduct * product(summed) * product(weight.slice(1));
}

/// Operations of `aten::convolution`: input, weight, bias, stride, padding, dilation, transposed.
double forward_convolution(Inputs inputs) {
  const auto sizes = inputs[0].toTensor().sizes(), weight = inputs[1].toTensor().sizes();
  const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(),
             dilation = inputs[5].toIntVector();
  if (inputs[6].toBool()) return convolution_flop(sizes, weight);
  std::vector<std::int64_t> output = {sizes[0], weight[0]};
  for (std::size_t i = 0; i + 2 < sizes.size(); ++i)
    output.push_back(
        (sizes[i + 2] + 2 * padding[i] - dilation[i] * (weight[i + 2] - 1) - 1) / stride[i] + 1);
  return convolution_flop(output, weight);
}

/// Operations of `aten::convolution_backward`: gradient of the output, input, weight, sizes of the
/// bias, stride, padding, dilation, transposed, …, and last which of the gradients of input, weight
/// and bias are computed.
double backward_convolution(Inputs inputs) {
  const std::size_t summed = inputs[7].toBool() ? 1 : 0;
  const double one =
      convolution_flop(inputs[summed].toTensor().sizes(), inputs[2].toTensor().sizes());
  const auto wanted = inputs.back().toBoolList();
  return (wanted[0] ? one : 0) + (wanted[1] ? one : 0);
}

/// Operations of a product of the tensors `first` and `first` + 1; batched ones have the batch
/// first.
double matmul_flop(Inputs inputs, std::size_t first) {
  return kPerProduct * product(inputs[first].toTensor().sizes()) *
         static_cast<double>(inputs[first + 1].toTensor().sizes().back());
}

struct Operation {
  const char* name;
  const char* kind;
  double (*flop)(Inputs);
  std::size_t weight;  ///< which input may be a parameter
};
const Operation kOperations[] = {
    {"aten::convolution", "convolution", forward_convolution, 1},
    {"aten::convolution_backward", "convolution", backward_convolution, 2},
    {"aten::mm", "matmul", [](Inputs inputs) { return matmul_flop(inputs, 0); }, 1},
    {"aten::bmm", "matmul", [](Inputs inputs) { return matmul_flop(inputs, 0); }, 1},
    {"aten::addmm", "matmul", [](Inputs inputs) { return matmul_flop(inputs, 1); }, 2},
    {"aten::baddbmm", "matmul", [](Inputs inputs) { return matmul_flop(inputs, 1); }, 2}};

const Operation* operation_named(const char* name) {
  for (const Operation& one : kOperations)
    if (std::string_view(one.name) == name) return &one;
  return nullptr;
}

/// Counts what this thread's LibTorch does while it lives; a backward pass on the CPU runs in the
/// thread that asks for it. One at a time in a thread.
class Counter {
 public:
  Counter(const Replica& replica, std::int64_t samples) : samples_(samples) {
    for (std::size_t i = 0; i < replica.parameters.size(); ++i) {
      const std::string& name = replica.names[i];
      const std::string layer = name.substr(0, name.rfind('.'));
      if (rows_.empty() || rows_.back().name != layer) rows_.push_back({layer, "", 0});
      rows_.back().parameters += replica.parameters[i].numel();
      layer_by_data_[replica.parameters[i].data_ptr()] = rows_.size() - 1;
    }
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(began, ended)
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~Counter() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void backward_begins() { backward_ = true; }
  std::vector<LayerRow> rows() const { return rows_; }

 private:
  static std::unique_ptr<at::ObserverContext> began(const at::RecordFunction& function) {
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION)
      current_->nodes_.push_back(function.seqNr());
    else if (const Operation* operation = operation_named(function.name()))
      current_->add(*operation, function);
    return nullptr;
  }

  static void ended(const at::RecordFunction& function, at::ObserverContext*) {
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) current_->nodes_.pop_back();
  }

  void add(const Operation& operation, const at::RecordFunction& function) {
    const Inputs inputs = function.inputs();
    LayerRow& row = rows_[layer(operation, inputs, function.seqNr())];
    row.operation = operation.kind;
    double& flop = backward_ ? row.backward_flop : row.forward_flop;
    flop = (std::isnan(flop) ? 0 : flop) + operation.flop(inputs) / static_cast<double>(samples_);
  }

  /// The layer by the parameter among the inputs, else by the node of the graph: autograd numbers
  /// the nodes of the forward pass, and a backward function has the number of its node.
  std::size_t layer(const Operation& operation, Inputs inputs, std::int64_t number) {
    const auto known = layer_by_data_.find(inputs[operation.weight].toTensor().data_ptr());
    if (known != layer_by_data_.end()) {
      if (!backward_) layer_by_node_[number] = known->second;
      return known->second;
    }
    if (backward_ && !nodes_.empty())
      if (const auto node = layer_by_node_.find(nodes_.back()); node != layer_by_node_.end())
        return node->second;
    return without_parameters();
  }

  /// Products of activations alone are a row of their own.
  std::size_t without_parameters() {
    if (rows_.back().parameters != 0) rows_.push_back({"activations", "", 0});
    return rows_.size() - 1;
  }

  static thread_local Counter* current_;  // LibTorch calls functions without data of their own
  std::int64_t samples_;
  std::vector<LayerRow> rows_;
  std::map<const void*, std::size_t> layer_by_data_;
  std::map<std::int64_t, std::size_t> layer_by_node_;
  std::vector<std::int64_t> nodes_;  ///< backward functions that have begun
  bool backward_ = false;
  at::CallbackHandle handle_{};
};

thread_local Counter* Counter::current_ = nullptr;

}  // namespace

std::vector<LayerRow> layer_flop(const std::string& model, const NetworkInput& input,
                                 std::int64_t batch) {
  const Replica replica = make_replica(model, 1, Layout::kNchw);
  const std::int64_t count = input.tokens() ? 1
                             : is_script(model)
                                 ? trial_samples(*replica.network, input, Layout::kNchw, batch)
                                 : kImages;
  const torch::Tensor samples = torch::zeros(batch_sizes(input, count));
  Counter counter(replica, count);
  const torch::Tensor outputs = replica.network->forward(samples);
  counter.backward_begins();
  outputs.sum().backward();
  return counter.rows();
}

}  // namespace gradsync
