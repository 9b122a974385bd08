#include "transport/slice_sum.h"

#include <algorithm>
#include <array>

namespace gradsync {

namespace {

/// Values summed at a time: their sums stay in the first-level cache.
constexpr std::size_t kBlock = 2048;

template <typename T>
T* values(std::byte* buffer) {
  return reinterpret_cast<T*>(buffer);
}

/// The usual case, two ranks, needs no sums beside the data.
template <typename T>
void average_pair(T* __restrict a, T* __restrict b, std::size_t count, SumOf<T> factor) {
  for (std::size_t i = 0; i < count; ++i) {
    T mean;
    narrow((widen(a[i]) + widen(b[i])) * factor, mean);
    a[i] = mean;
    b[i] = mean;
  }
}

/// At most kBlock values.
template <typename T>
void average_block(std::span<std::byte* const> buffers, std::size_t first, std::span<T> mean,
                   SumOf<T> factor) {
  std::array<SumOf<T>, kBlock> sum;
  const T* head = values<T>(buffers[0]) + first;
  for (std::size_t i = 0; i < mean.size(); ++i)
    sum[i] = widen(head[i]);
  for (std::byte* buffer : buffers.subspan(1)) {
    const T* from = values<T>(buffer) + first;
    for (std::size_t i = 0; i < mean.size(); ++i)
      sum[i] += widen(from[i]);
  }
  for (std::size_t i = 0; i < mean.size(); ++i)
    narrow(sum[i] * factor, mean[i]);
}

}  // namespace

template <typename T>
void average_slice(std::span<std::byte* const> buffers, std::size_t first, std::size_t last,
                   double factor) {
  const auto scale = static_cast<SumOf<T>>(factor);
  if (first >= last) return;
  if (buffers.size() == 2)
    return average_pair(values<T>(buffers[0]) + first, values<T>(buffers[1]) + first, last - first,
                        scale);
  std::array<T, kBlock> mean;
  for (std::size_t at = first; at < last; at += kBlock) {
    const auto block = std::span(mean).first(std::min(kBlock, last - at));
    average_block<T>(buffers, at, block, scale);
    for (std::byte* buffer : buffers)
      std::copy(block.begin(), block.end(), values<T>(buffer) + at);
  }
}

template <typename T>
void gather_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                  std::size_t last) {
  std::array<T, kBlock> sum;
  for (std::size_t at = first; at < last; at += kBlock) {
    const auto block = std::span(sum).first(std::min(kBlock, last - at));
    average_block<T>(buffers, at, block, 1);
    std::copy(block.begin(), block.end(), values<T>(buffers[owner]) + at);
  }
}

template <typename T>
void publish_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                   std::size_t last, double factor) {
  T* mine = values<T>(buffers[owner]);
  for (std::size_t i = first; i < last; ++i)
    narrow(widen(mine[i]) * static_cast<SumOf<T>>(factor), mine[i]);
  for (std::size_t r = 0; r < buffers.size(); ++r)
    if (r != owner) std::copy(mine + first, mine + last, values<T>(buffers[r]) + first);
}

template <typename T>
void average_into(std::span<std::byte* const> buffers, std::span<T> result, double factor) {
  for (std::size_t at = 0; at < result.size(); at += kBlock)
    average_block<T>(buffers, at, result.subspan(at, std::min(kBlock, result.size() - at)),
                     static_cast<SumOf<T>>(factor));
}

#define GRADSYNC_SLICE_SUM(T)                                                                    \
  template void average_slice<T>(std::span<std::byte* const>, std::size_t, std::size_t, double); \
  template void gather_slice<T>(std::span<std::byte* const>, std::size_t, std::size_t,           \
                                std::size_t);                                                    \
  template void publish_slice<T>(std::span<std::byte* const>, std::size_t, std::size_t,          \
                                 std::size_t, double);                                           \
  template void average_into<T>(std::span<std::byte* const>, std::span<T>, double);
GRADSYNC_SLICE_SUM(float)
GRADSYNC_SLICE_SUM(double)
GRADSYNC_SLICE_SUM(Bfloat16)
GRADSYNC_SLICE_SUM(Float16)
#undef GRADSYNC_SLICE_SUM

}  // namespace gradsync
