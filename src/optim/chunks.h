#pragma once

#include <cstdint>

#include <ATen/Parallel.h>

namespace gradsync {

/// Values a thread takes at a time: smaller than this is not worth a second thread.
inline constexpr std::int64_t kGrain = 32768;

/// Calls update(begin, end) for ranges that cover [0, count), on this rank's threads.
template <typename Update>
void in_chunks(std::int64_t count, const Update& update) {
  at::parallel_for(0, count, kGrain, update);
}

/// Euclidean norm, summed in double over ranges of kGrain values and then over the ranges in order:
/// the same on every rank, whatever its number of threads.
double norm(const float* values, std::int64_t count);

/// Its square.
double sum_of_squares(const float* values, std::int64_t count);

}  // namespace gradsync
