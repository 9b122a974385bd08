#include "quantize/script_network.h"

#include <fmt/format.h>
#include <torch/types.h>

namespace gradsync::quantize {

namespace {

std::string value(std::size_t number) {
  return fmt::format("v{}", number);
}

/// Weights [out][row][column][in] as LibTorch has them.
torch::Tensor weights_of(const Node& node, const std::vector<float>& values) {
  const auto size = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  const torch::Tensor weights = torch::tensor(values)
                                    .view({size(node.out_channels), size(node.kernel),
                                           size(node.kernel), size(node.in_channels)})
                                    .permute({0, 3, 1, 2})
                                    .contiguous();
  return node.linear ? weights.flatten(1) : weights;
}

std::string convolution_text(const Node& node, std::size_t number, bool biased) {
  const std::string bias = biased ? fmt::format("self.b{}", number) : "None";
  if (node.linear)
    return fmt::format("torch.linear({}.flatten(1), self.w{}, {})", value(node.input), number,
                       bias);
  return fmt::format("torch.conv2d({}, self.w{}, {}, [{s}, {s}], [{p}, {p}])", value(node.input),
                     number, bias, fmt::arg("s", node.stride), fmt::arg("p", node.padding));
}

std::string node_text(const Node& node, std::size_t number, bool biased) {
  std::string text;
  if (node.kind == NodeKind::kConvolution)
    text = convolution_text(node, number, biased);
  else if (node.kind == NodeKind::kMaxPool)
    text = fmt::format("torch.max_pool2d({}, [{k}, {k}])", value(node.input),
                       fmt::arg("k", node.kernel));
  else
    text = fmt::format("torch.mean({}, [2, 3], True)", value(node.input));
  if (node.added >= 0) text += " + " + value(static_cast<std::size_t>(node.added));
  if (node.relu) text = "torch.relu(" + text + ")";
  return fmt::format("  {} = {}\n", value(number + 1), text);
}

}  // namespace

torch::jit::Module script_network(const FloatModel& model) {
  torch::jit::Module module("quantized");
  std::string source = "def forward(self, v0):\n";
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
    const Node& node = model.plan.nodes[i];
    const FloatLayer& layer = model.layers[i];
    if (model.plan.weighted(i))
      module.register_parameter(fmt::format("w{}", i), weights_of(node, layer.weights), false);
    if (!layer.bias.empty())
      module.register_parameter(fmt::format("b{}", i), torch::tensor(layer.bias), false);
    source += node_text(node, i, !layer.bias.empty());
  }
  module.define(source + fmt::format("  return {}\n", value(model.plan.nodes.size())));
  module.eval();
  return torch::jit::optimize_for_inference(module);
}

}  // namespace gradsync::quantize
