// dump_network MODEL FILE: a network with seed 1, a batch of images, and what it makes of them, in
// the safetensors layout (8 bytes of header length, JSON header, raw little-endian values), for
// tests/python/networks.py to compare with PyTorch's Python modules.
#include <cmath>
#include <cstdint>
#include <fstream>
#include <vector>

#include <nlohmann/json.hpp>

#include "model/layer_flop.h"
#include "model/replica.h"
#include "step/loss.h"

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

  /// Operations for one image; whole numbers.
  void add_flop(const std::vector<gradsync::LayerRow>& layers) {
    double forward = 0, backward = 0;
    for (const gradsync::LayerRow& layer : layers) {
      forward += std::isnan(layer.forward_flop) ? 0 : layer.forward_flop;
      backward += std::isnan(layer.backward_flop) ? 0 : layer.backward_flop;
    }
    header_["__metadata__"] = {{"forward_flop", std::to_string(std::llround(forward))},
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
  if (argc != 3) return 64;
  gradsync::Replica replica = gradsync::make_replica(argv[1], 1, gradsync::Layout::kNhwc);
  // In double, so that what differs is the network and not the order of a sum.
  replica.network->to(torch::kFloat64);
  Dump dump;
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    dump.add("parameter." + replica.names[i], replica.parameters[i].clone());
  const torch::Tensor images = torch::randn({8, 3, 32, 32}).to(torch::kFloat64),
                      labels = torch::arange(8);
  dump.add("images", images);
  const torch::Tensor outputs =
      replica.network->forward(images.contiguous(at::MemoryFormat::ChannelsLast));
  dump.add("outputs", outputs);
  const gradsync::PassLoss loss = gradsync::cross_entropy(outputs, labels, 1, 1);
  dump.add("loss", loss.loss);
  loss.loss.backward();
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    dump.add("gradient." + replica.names[i], replica.parameters[i].grad());
  replica.network->eval();
  dump.add("outputs_eval", replica.network->forward(images));
  dump.add_flop(gradsync::layer_flop(argv[1]));
  dump.write(argv[2]);
}
