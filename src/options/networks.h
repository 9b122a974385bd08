// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

/// One sample as a network takes it, and what the network is trained to answer.
struct NetworkInput {
  std::vector<std::int64_t> sizes = {3, 32, 32};  ///< channels, height, width; of tokens: how many
  std::int64_t classes = 10;                      ///< of a sample; of tokens: the vocabulary
  bool cifar10 = true;  ///< an image of --data; else drawn from --seed (SyntheticData)

  bool tokens() const { return sizes.size() == 1; }
  /// Numbers in a sample.
  std::int64_t values() const;
  /// "3 x 224 x 224 values of 1000 classes", "1024 tokens of 50257".
  std::string text() const;
};

/// Whether --model `model` means the network whose form in networks.def is `form`.
bool is_network(std::string_view form, std::string_view model);

/// Whether `model` is a file that holds a TorchScript module.
bool is_script(std::string_view model);

/// The numbers of "mlp:WIDTHxDEPTH".
struct MlpShape {
  std::int64_t width = 0, depth = 0;  ///< of the hidden layers
};
MlpShape mlp_shape(const std::string& model);

/// The numbers of "synthetic:parameters=350M,compute=120ms,tensors=200".
struct SyntheticShape {
  std::int64_t parameters = 0, tensors = 0;
  double compute_s = 0;  ///< of a forward and a backward pass
};
SyntheticShape synthetic_shape(const std::string& model);

/// "3x224x224": channels, height, width.
std::vector<std::int64_t> image_sizes(const std::string& text);

/// Throws Error kUsage unless --model takes it. The functions above that read a text throw the
/// same: what() ends a sentence.
void require_network(const std::string& model);

}  // namespace gradsync
