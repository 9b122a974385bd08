#include "quantize/reference.h"

#include <cstring>

#include <fmt/format.h>

#include "quantize/float_network.h"
#include "support/error.h"

namespace gradsync::quantize {

namespace {

void load(const CheckpointFile& checkpoint, const std::string& name, torch::Tensor& into) {
  const TensorPlace* place = checkpoint.find(name);
  if (place == nullptr || place->end - place->begin != into.nbytes())
    throw Error(ExitCode::kBadData, fmt::format("checkpoint '{}' has no '{}' that fits",
                                                checkpoint.path().string(), name));
  torch::Tensor values = torch::empty(into.sizes(), into.options());
  std::memcpy(values.data_ptr(), checkpoint.bytes(*place).data(), values.nbytes());
  into.copy_(values);
}

}  // namespace

std::shared_ptr<Network> trained_network(const CheckpointFile& checkpoint,
                                         const std::string& model) {
  const torch::NoGradGuard no_grad;
  auto network = make_network(model, 1);
  for (auto& item : network->named_parameters()) {
    load(checkpoint, "parameters/" + item.key(), item.value());
    if (item.value().dim() == 4)
      item.value().set_data(item.value().data().contiguous(at::MemoryFormat::ChannelsLast));
  }
  for (auto& item : network->named_buffers())
    load(checkpoint, "buffers/" + item.key(), item.value());
  network->eval();
  return network;
}

double folding_difference(Network& trained, const FloatModel& folded, const torch::Tensor& images) {
  constexpr double kLargest = 1e-3;
  const torch::NoGradGuard no_grad;
  const torch::Tensor expected = trained.forward(images);
  const torch::Tensor found = FloatNetwork(folded).forward(images);
  const double difference = ((found - expected).abs().max() / expected.abs().max()).item<double>();
  if (!(difference <= kLargest))
    throw Error(
        ExitCode::kInternal,
        fmt::format("the folded network's logits differ by {:.1e} of the largest one", difference));
  return difference;
}

}  // namespace gradsync::quantize
