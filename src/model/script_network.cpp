#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include "model/image_batch.h"
#include "model/network.h"
#include "support/error.h"

namespace gradsync {

namespace nn = torch::nn;

namespace {

constexpr std::int64_t kProbeSamples = 2;  // batch norm takes no single value a channel

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

/// Calls `body`; what LibTorch throws becomes the refusal of the module, behind `why`.
template <typename Body>
auto or_refuse(const std::string& path, const std::string& why, const std::string& fix, Body body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
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

/// A TorchScript module as a network of ours, whose modules hold the same tensors under the same
/// names. Parameters that do not require a gradient are buffers.
class ScriptNetwork : public Network {
 public:
  explicit ScriptNetwork(const std::string& path) : path_(path), script_(module_in(path)) {
    script_.train();
    mirror(script_, *this, "");
    if (parameters().empty()) refuse(path_, "it has no parameters that require a gradient");
  }

  torch::Tensor forward(torch::Tensor samples) override {
    const auto* all = this;
    at(all);
    // An interpreter that learns from the first passes would run others, in other kernels.
    const torch::jit::GraphOptimizerEnabledGuard plain(false);
    const c10::IValue outputs = script_.forward({std::move(samples)});
    if (!outputs.isTensor()) refuse(path_, "its output is no tensor, but " + outputs.tagKind());
    return outputs.toTensor();
  }

  void train(bool on = true) override {
    Network::train(on);
    script_.train(on);
  }

 private:
  void mirror(const torch::jit::Module& script, nn::Module& here, const std::string& path) {
    for (const auto& item : script.named_parameters(/*recurse=*/false))
      take(here, path, item.name, item.value, item.value.requires_grad());
    for (const auto& item : script.named_buffers(/*recurse=*/false))
      take(here, path, item.name, item.value, /*trained=*/false);
    for (const auto& child : script.named_children())
      mirror(child.value, *here.register_module(child.name, std::make_shared<nn::Module>()),
             path + child.name + ".");
  }

  /// One that several modules share is the first one's.
  void take(nn::Module& here, const std::string& path, const std::string& name,
            const torch::Tensor& tensor, bool trained) {
    const std::string full = path + name;
    for (const auto& [other, known] : taken_) {
      if (known.is_same(tensor)) return;
      if (trained && tensor.numel() > 0 && known.storage().is_alias_of(tensor.storage()))
        refuse(path_, fmt::format("its parameters {} and {} are parts of one tensor", other, full));
    }
    if (tensor.is_floating_point() && tensor.scalar_type() != torch::kFloat32)
      refuse(path_,
             fmt::format("its {} is {}, and gradsync exchanges float32", full,
                         c10::toString(tensor.scalar_type())),
             "save it after module.float(); --precision chooses what it computes in");
    if (!trained)
      here.register_buffer(name, tensor);
    else if (!tensor.is_leaf() || !tensor.is_non_overlapping_and_dense())
      refuse(path_, fmt::format("its parameter {} is a view", full));
    else
      here.register_parameter(name, tensor, /*requires_grad=*/true);
    taken_.emplace_back(full, tensor);
  }

  std::string path_;
  torch::jit::Module script_;
  std::vector<std::pair<std::string, torch::Tensor>> taken_;
};

void require_logits(const torch::Tensor& outputs, const std::string& path,
                    const NetworkInput& input) {
  if (!outputs.is_floating_point() || outputs.dim() != 2 || outputs.size(0) != kProbeSamples ||
      outputs.size(1) != input.classes)
    refuse(path,
           fmt::format("its output for {} samples is {} of the sizes {}, not {} logits of each",
                       kProbeSamples, c10::toString(outputs.scalar_type()),
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

void require_trainable_script(const std::string& path, const NetworkInput& input) {
  const auto network = make_script(path);
  const torch::Tensor outputs =
      or_refuse(path, fmt::format("it rejects samples of {}", input.text()),
                "give the sizes that it takes: --input CHANNELSxHEIGHTxWIDTH",
                [&] { return network->forward(torch::zeros(batch_sizes(input, kProbeSamples))); });
  require_logits(outputs, path, input);
  or_refuse(path, "its backward pass fails", kSaveAgain,
            [&] { outputs.to(torch::kFloat32).logsumexp(1).mean().backward(); });
  for (const auto& item : network->named_parameters())
    require_gradient(item.value().grad(), path, item.key());
}

}  // namespace gradsync
