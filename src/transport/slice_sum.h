#pragma once

#include <cstddef>
#include <span>

#include "transport/value_types.h"

namespace gradsync {

/// The arithmetic of an all-reduce over buffers that one process can read: T is float, double,
/// Bfloat16 or Float16; `buffers` are the ranks' values of that type, in order of rank, at any
/// alignment of T. Sums run over the ranks in that order, 16-bit types in float and rounded once
/// to nearest even, double in double: the result depends neither on slices nor on who computes it.

/// buffers[r][i] = factor · Σ_r buffers[r][i] for every r and every i in [first, last).
template <typename T>
void average_slice(std::span<std::byte* const> buffers, std::size_t first, std::size_t last,
                   double factor);

/// The same in two steps, for what is summed further in between. First the sum into one buffer:
/// buffers[owner][i] = Σ_r buffers[r][i] for every i in [first, last) …
template <typename T>
void gather_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                  std::size_t last);
/// … then from it to all: buffers[r][i] = factor · buffers[owner][i].
template <typename T>
void publish_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                   std::size_t last, double factor);

/// result[i] = factor · Σ_r buffers[r][i]. `result` overlaps none of them.
template <typename T>
void average_into(std::span<std::byte* const> buffers, std::span<T> result, double factor);

}  // namespace gradsync
