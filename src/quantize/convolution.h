#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "quantize/int8_model.h"

/// Convolutions of int8 by int8 into int32, and the way back to int8.
///
/// In memory an activation q is the byte q + 128, so that the processor's dot product of unsigned
/// by signed bytes takes it: Σ w·(q + 128) = Σ w·q + 128·Σ w, and the constant goes into what an
/// accumulator starts from. Pixels are [row][column][channel], with a border of zero points.
namespace gradsync::quantize {

inline constexpr std::size_t kLanes = 16;      ///< output channels that are computed together
inline constexpr std::size_t kGroupBytes = 4;  ///< input bytes that one dot product takes
inline constexpr std::size_t kTile = 8;        ///< output pixels that are computed together
/// What is added to an activation in memory.
inline constexpr std::int32_t kByteOffset = 128;
/// How far behind its pixels a kernel may read.
inline constexpr std::size_t kSlackBytes = 64;

/// A layer in the layout of its kernel.
struct PackedLayer {
  std::size_t rows = 0;        ///< of the convolution's kernel
  std::size_t row_groups = 0;  ///< of kGroupBytes in a row, filled up with weights of 0
  std::size_t row_bytes = 0;   ///< that count of a row
  std::size_t channels = 0;    ///< of the output
  std::size_t blocks = 0;      ///< of kLanes output channels, filled up

  /// [block][row][group][lane][byte].
  std::vector<std::int8_t> weights;
  /// One a lane: what accumulators start from: bias − (128 + zero point of the input)·Σw …
  std::vector<std::int32_t> start;
  std::vector<float> multipliers;
  /// Zero points of the weights; empty where all are 0. Then the sum of what a pixel sees counts:
  /// a −= zero point·(Σ bytes − sum_offset).
  std::vector<std::int32_t> weight_zero_points;
  std::int32_t sum_offset = 0;

  /// Of the output; `low` and `high` bound value − zero point.
  float low = 0, high = 0;
  std::int32_t zero_byte = 128;  ///< the byte of the output's zero point
  float added_multiplier = 0;
  std::int32_t added_zero_byte = 128;

  /// Weights of one block of channels.
  std::size_t block_bytes() const { return rows * row_groups * kLanes * kGroupBytes; }
};

/// Requires a node with weights.
PackedLayer pack_layer(const Int8Model& model, std::size_t node);

/// Some output pixels: where each one's first byte of input is, and where its channels go.
struct Tile {
  std::size_t count = 0;       ///< 1 to kTile; the input places beyond repeat a valid one
  std::size_t row_stride = 0;  ///< bytes from a row of the input to the next
  std::array<const std::uint8_t*, kTile> input{};
  std::array<const std::uint8_t*, kTile> added{};  ///< null where nothing is added
  std::array<std::uint8_t*, kTile> output{};       ///< null where logits are wanted
  std::array<float*, kTile> logits{};
};

/// Σ bytes − sum_offset of what a pixel of the tile sees; wanted where weights have zero points.
std::int32_t sum_of_seen(const PackedLayer& layer, const Tile& tile, std::size_t pixel);

/// Computes the channels of blocks `first` … `last` for the pixels of a tile.
using ConvolutionKernel = void (*)(const PackedLayer& layer, const Tile& tile, std::size_t first,
                                   std::size_t last);

/// In plain C++, on every processor.
void convolve_portable(const PackedLayer& layer, const Tile& tile, std::size_t first,
                       std::size_t last);

/// With AVX-512 VNNI; call it only where `has_vnni()`.
void convolve_vnni(const PackedLayer& layer, const Tile& tile, std::size_t first, std::size_t last);
bool has_vnni();

/// Blocks that a kernel takes at once with most gain.
inline constexpr std::size_t kBlocksAtOnce = 3;

}  // namespace gradsync::quantize
