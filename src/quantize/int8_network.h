#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quantize/convolution.h"

namespace gradsync::quantize {

/// A quantized network that runs in integers: int8 activations and weights, int32 sums. Memory for
/// a few images is its own; use one object a thread.
class Int8Network {
 public:
  /// Images that go through a layer together, so that its weights are read once for them.
  static constexpr std::size_t kTogether = 8;

  /// With the fastest kernel this processor has, or the portable one.
  explicit Int8Network(const Int8Model& model, bool portable = false);

  /// `images`: whole images of [row][column][channel] floats, as the network was trained on;
  /// `logits`: classes() for each. Throws Error kInternal if the sizes do not fit.
  void run(std::span<const float> images, std::span<float> logits);

  std::size_t classes() const { return plan_.classes(); }
  /// "AVX-512 VNNI" or "portable".
  std::string kernel_name() const;

 private:
  /// A value of the plan for kTogether images.
  struct Value {
    std::size_t side = 0, channels = 0, border = 0;
    std::vector<std::uint8_t> bytes;
    std::size_t row_bytes() const { return (side + 2 * border) * channels; }
    std::size_t image_bytes() const { return (side + 2 * border) * row_bytes(); }
    /// The first channel of a pixel; the border begins at −border.
    std::size_t at(std::size_t row, std::size_t column) const {
      return (row + border) * row_bytes() + (column + border) * channels;
    }
  };

  void run_together(std::span<const float> images, std::size_t count, float* logits);
  void quantize_images(std::span<const float> images, std::size_t count);
  void convolve(std::size_t node, std::size_t count, float* logits);
  void convolve_blocks(std::size_t node, std::size_t count, std::size_t first, std::size_t last,
                       float* logits);
  void max_pool(std::size_t node, std::size_t count);
  void mean_pool(std::size_t node, std::size_t count);

  Plan plan_;
  ConvolutionKernel kernel_;
  Quantizer input_;
  std::vector<PackedLayer> layers_;  ///< one a node; of pools only what its output needs
  std::vector<Value> values_;
};

/// The class with the largest logit, the first of them.
std::size_t predicted(std::span<const float> logits);

}  // namespace gradsync::quantize
