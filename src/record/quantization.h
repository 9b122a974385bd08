#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

/// What gradsync-quantize records of a network, beside the description of its run.
namespace gradsync {

inline constexpr std::size_t kHistogramBins = 60;     ///< of the real numbers of a tensor
inline constexpr std::size_t kHistogramLevels = 256;  ///< integers −128 … 127

/// A tensor of the network and what it became.
struct QuantizedTensorRow {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string layer;  ///< "conv1"; "input" for the images
  std::string role;   ///< "weight", "bias", "activation" (what the layer gives),
                      ///< "pooled" (that after its maximum) or "pixels"
  std::int64_t count = 0;
  double minimum = kNone, maximum = kNone, mean = kNone, deviation = kNone;
  double sigma_low = kNone, sigma_high = kNone;  ///< mean ± 3·deviation, not clipped
  std::int64_t scales = 0;                       ///< 1, or one per output channel
  double scale_least = kNone, scale_largest = kNone;
  double zero_point = kNone;            ///< NaN where channels have several
  double sqnr_db = kNone;               ///< of what the integers stand for against the real numbers
  double largest_error = kNone;         ///< NaN where it was not looked at
  double clipped = kNone;               ///< part of the numbers beyond the clamped range
  std::vector<std::int64_t> histogram;  ///< kHistogramBins from minimum to maximum
  std::vector<std::int64_t> integers;   ///< kHistogramLevels; of biases zeros: they have 32 bits
};

/// The network after one step, or in one variant, on the test images.
struct QuantizedStepRow {
  std::string kind;                        ///< "step" or "ablation"
  std::string name;                        ///< "fp32", "weights", "weights and activations", …
  std::string weights, activations, bias;  ///< how each is quantized, in words; "fp32": not
  std::int64_t images = 0, correct = 0;
  /// Images whose logits were those of the int8 kernels that earlier builds had; −1: not compared.
  std::int64_t agreeing = -1;
  std::int64_t model_bytes = -1;  ///< of the parameters; −1: as the step before
};

/// How fast one path was at one batch, timed in turn with the others. Earlier builds recorded this
/// of their int8 kernels; none is written any more.
struct QuantizedSpeedRow {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string path;  ///< "int8: AVX-512 VNNI", "fp32: eager NHWC", …
  std::int64_t batch = 0, threads = 0, rounds = 0;
  double images_per_s = kNone;  ///< median over the rounds
  double ratio = kNone;  ///< to the best fp32 path, round by round: median, and its 95 % interval
  double ratio_low = kNone, ratio_high = kNone;
};

/// Empty for every run but those of gradsync-quantize.
struct Quantization {
  std::vector<QuantizedTensorRow> tensors;
  std::vector<QuantizedStepRow> steps;
  std::vector<QuantizedSpeedRow> speeds;  ///< of earlier builds

  bool empty() const { return tensors.empty() && steps.empty() && speeds.empty(); }
};

/// Histograms have their lengths. Throws Error kInternal.
void require_recordable(const Quantization& quantization, std::size_t ranks = 0);

}  // namespace gradsync
