#include "base/error.h"
#include "quantize/convolution.h"

#if defined(__x86_64__)

// GCC 12 warns of its own AVX-512 headers (GCC bug 105593); clang has no such warning.
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define GRADSYNC_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

namespace gradsync::quantize {

namespace {

GRADSYNC_VNNI inline __m512i four_bytes(const std::uint8_t* bytes) {
  std::int32_t value = 0;
  __builtin_memcpy(&value, bytes, sizeof value);
  return _mm512_set1_epi32(value);
}

GRADSYNC_VNNI inline void put_bytes(const PackedLayer& layer, const Tile& tile, std::size_t pixel,
                                    std::size_t channel, __mmask16 lanes, __m512 value) {
  if (tile.added[pixel] != nullptr) {
    const __m128i bytes = _mm_maskz_loadu_epi8(lanes, tile.added[pixel] + channel);
    const __m512i added =
        _mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), _mm512_set1_epi32(layer.added_zero_byte));
    value = _mm512_add_ps(
        value, _mm512_mul_ps(_mm512_cvtepi32_ps(added), _mm512_set1_ps(layer.added_multiplier)));
  }
  value =
      _mm512_min_ps(_mm512_max_ps(value, _mm512_set1_ps(layer.low)), _mm512_set1_ps(layer.high));
  const __m512i integers =
      _mm512_add_epi32(_mm512_cvtps_epi32(value), _mm512_set1_epi32(layer.zero_byte));
  _mm_mask_storeu_epi8(tile.output[pixel] + channel, lanes, _mm512_cvtepi32_epi8(integers));
}

/// One pixel's accumulators of one block become bytes or logits.
GRADSYNC_VNNI inline void put(const PackedLayer& layer, const Tile& tile, std::size_t pixel,
                              std::size_t block, __m512i sums, std::int32_t seen) {
  const std::size_t channel = block * kLanes;
  const std::size_t left = layer.channels - channel;
  const auto lanes = static_cast<__mmask16>(left >= kLanes ? 0xffffU : (1U << left) - 1);
  if (!layer.weight_zero_points.empty())
    sums = _mm512_sub_epi32(
        sums, _mm512_mullo_epi32(_mm512_loadu_si512(layer.weight_zero_points.data() + channel),
                                 _mm512_set1_epi32(seen)));
  const __m512 value =
      _mm512_mul_ps(_mm512_cvtepi32_ps(sums), _mm512_loadu_ps(layer.multipliers.data() + channel));
  if (tile.output[pixel] == nullptr)
    _mm512_mask_storeu_ps(tile.logits[pixel] + channel, lanes, value);
  else
    put_bytes(layer, tile, pixel, channel, lanes, value);
}

/// `Blocks` blocks of channels of `Pixels` pixels, all accumulators in registers.
template <std::size_t Pixels, std::size_t Blocks>
GRADSYNC_VNNI void convolve(const PackedLayer& layer, const Tile& tile, std::size_t first) {
  __m512i sums[Pixels][Blocks];
  for (std::size_t b = 0; b < Blocks; ++b) {
    const __m512i start = _mm512_loadu_si512(layer.start.data() + (first + b) * kLanes);
    for (std::size_t p = 0; p < Pixels; ++p)
      sums[p][b] = start;
  }
  const std::size_t block_bytes = layer.block_bytes();
  const std::int8_t* weights = layer.weights.data() + first * block_bytes;
  for (std::size_t row = 0; row < layer.rows; ++row)
    for (std::size_t group = 0; group < layer.row_groups; ++group) {
      __m512i factors[Blocks];
      for (std::size_t b = 0; b < Blocks; ++b)
        factors[b] = _mm512_loadu_si512(weights + b * block_bytes);
      weights += kLanes * kGroupBytes;
      const std::size_t at = row * tile.row_stride + group * kGroupBytes;
      for (std::size_t p = 0; p < Pixels; ++p) {
        const __m512i bytes = four_bytes(tile.input[p] + at);
        for (std::size_t b = 0; b < Blocks; ++b)
          sums[p][b] = _mm512_dpbusd_epi32(sums[p][b], bytes, factors[b]);
      }
    }
  for (std::size_t p = 0; p < Pixels && p < tile.count; ++p) {
    const std::int32_t seen = layer.weight_zero_points.empty() ? 0 : sum_of_seen(layer, tile, p);
    for (std::size_t b = 0; b < Blocks; ++b)
      put(layer, tile, p, first + b, sums[p][b], seen);
  }
}

template <std::size_t Pixels>
void convolve_blocks(const PackedLayer& layer, const Tile& tile, std::size_t first,
                     std::size_t last) {
  for (; first + 3 <= last; first += 3)
    convolve<Pixels, 3>(layer, tile, first);
  if (first + 2 == last) convolve<Pixels, 2>(layer, tile, first);
  if (first + 1 == last) convolve<Pixels, 1>(layer, tile, first);
}

}  // namespace

bool has_vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

void convolve_vnni(const PackedLayer& layer, const Tile& tile, std::size_t first,
                   std::size_t last) {
  if (tile.count == 1)
    convolve_blocks<1>(layer, tile, first, last);
  else
    convolve_blocks<kTile>(layer, tile, first, last);
}

}  // namespace gradsync::quantize

#else

namespace gradsync::quantize {

bool has_vnni() {
  return false;
}

void convolve_vnni(const PackedLayer&, const Tile&, std::size_t, std::size_t) {
  throw Error(ExitCode::kInternal, "this processor has no AVX-512 VNNI");
}

}  // namespace gradsync::quantize

#endif
