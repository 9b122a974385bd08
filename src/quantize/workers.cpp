#include "quantize/workers.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace gradsync::quantize {

void in_parallel(std::size_t workers, std::size_t count,
                 const std::function<void(std::size_t, std::size_t)>& work,
                 const std::function<void()>& begin) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto run = [&](std::size_t worker) {
    try {
      if (begin) begin();
      for (std::size_t item = next++; item < count; item = next++)
        work(worker, item);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      if (!error) error = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t worker = 0; worker < workers; ++worker)
      threads.emplace_back(run, worker);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace gradsync::quantize
