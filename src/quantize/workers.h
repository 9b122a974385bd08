#pragma once

#include <cstddef>
#include <functional>

namespace gradsync::quantize {

/// Calls `work(worker, item)` for items 0 … count − 1, each once, in `workers` threads that take
/// the next item when they are free. `begin` is called in each thread first. What one of them
/// throws is thrown here, when all have ended.
void in_parallel(std::size_t workers, std::size_t count,
                 const std::function<void(std::size_t worker, std::size_t item)>& work,
                 const std::function<void()>& begin = {});

}  // namespace gradsync::quantize
