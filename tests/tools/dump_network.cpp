// SPDX-License-Identifier: BSD-3-Clause
// dump_network MODEL FILE SAMPLES [SEQUENCE-LENGTH]: a network with seed 1, a batch of samples, and
// what it makes of them, in the safetensors layout (8 bytes of header length, JSON header, raw
// little-endian values), for tests/python/networks.py to compare with PyTorch's Python modules.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "model/network.h"
#include "model/replica.h"
#include "train/batch_source.h"
#include "train/iteration.h"

namespace {

class Dump {
 public:
  void add(const std::string& name, const torch::Tensor& tensor) {
    const torch::Tensor values = tensor.detach().to(torch::kFloat32).contiguous();
    const auto* bytes = static_cast<const char*>(values.data_ptr());
    const std::size_t begin = data_.size();
    data_.insert(data_.end(), bytes, bytes + values.nbytes());
    header_[name] = {
        {"dtype", "F32"}, {"shape", values.sizes().vec()}, {"data_offsets", {begin, data_.size()}}};
  }

  /// The order of the modules, which the header's names are not in, and the operations for one
  /// sample; whole numbers.
  void add_facts(const std::vector<std::string>& order,
                 const std::vector<gradsync::LayerRow>& layers) {
    double forward = 0, backward = 0;
    for (const gradsync::LayerRow& layer : layers) {
      forward += std::isnan(layer.forward_flop) ? 0 : layer.forward_flop;
      backward += std::isnan(layer.backward_flop) ? 0 : layer.backward_flop;
    }
    header_["__metadata__"] = {{"order", fmt::format("{}", fmt::join(order, " "))},
                               {"forward_flop", std::to_string(std::llround(forward))},
                               {"backward_flop", std::to_string(std::llround(backward))}};
  }

  void write(const std::string& path) const {
    const std::string header = header_.dump();
    const std::uint64_t length = header.size();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length);
    file << header;
    file.write(data_.data(), static_cast<std::streamsize>(data_.size()));
  }

 private:
  nlohmann::json header_;
  std::vector<char> data_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  gradsync::TrainOptions options;
  options.model = argv[1];
  if (gradsync::is_script(options.model)) {
    options.input = "3x32x32";
    options.classes = 10;
  }
  if (argc > 4) options.sequence_length = std::stoll(argv[4]);
  const gradsync::NetworkInput input = gradsync::network_input(options);
  std::vector<std::int64_t> which(std::stoul(argv[3]));
  std::iota(which.begin(), which.end(), 0);
  const gradsync::FeedBatch batch =
      gradsync::SyntheticData(input, 1, torch::kCPU).batch(which, gradsync::Layout::kNhwc);
  gradsync::Replica replica = gradsync::make_replica(options.model, 1, gradsync::Layout::kNhwc);
  // In double, so that what differs is the network and not the order of a sum.
  replica.network->to(torch::kFloat64);
  Dump dump;
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    dump.add("parameter." + replica.names[i], replica.parameters[i].clone());
  const torch::Tensor samples = batch.images.to(torch::kFloat64);
  dump.add("samples", samples);
  dump.add("labels", batch.labels);
  const torch::Tensor outputs = replica.network->forward(samples);
  dump.add("outputs", outputs);
  const gradsync::PassLoss loss = gradsync::cross_entropy(outputs, batch.labels, 1, 1);
  dump.add("loss", loss.loss);
  loss.loss.backward();
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    dump.add("gradient." + replica.names[i], replica.parameters[i].grad());
  replica.network->eval();
  dump.add("outputs_eval", replica.network->forward(samples));
  dump.add_facts(replica.names, gradsync::layer_flop(options.model, input, 1));
  dump.write(argv[2]);
}
