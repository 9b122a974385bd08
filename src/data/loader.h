// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "data/augment.h"
#include "data/cifar10.h"

namespace gradsync {

/// One batch, ready for a network.
struct Batch {
  std::vector<float> images;  ///< size × 3072, in the loader's layout
  std::vector<std::int64_t> labels;
  std::size_t size = 0;  ///< images in it
};

struct LoaderOptions {
  Split split = Split::kTrain;
  std::int64_t steps = 0;  ///< batches of the epoch
  std::int64_t epoch = 0;
  std::uint64_t seed = 0;
  bool augment = false;
  Layout layout = Layout::kNchw;
  std::int64_t threads = 1;   ///< 0: next() itself loads
  std::int64_t prefetch = 4;  ///< batches made ahead, at least 1
  std::int64_t longest = 0;   ///< images of the longest epoch that will begin; 0: not known
  double slowdown = 1;        ///< for tests: a batch takes so many times as long
};

/// Makes the batches of one epoch, in threads, ahead of their use. The batches come in the order of
/// steps and hold the same numbers whatever the number of threads.
///
/// Used by one thread. `data` must outlive the loader; its destructor returns within the time of a
/// few images, whatever was loaded.
class Loader {
 public:
  /// Gives the images of a step. Called once a step, in order of steps, but from another thread.
  using Indices = std::function<std::vector<std::int64_t>(std::int64_t step)>;

  /// Throws Error kUsage if threads or steps are below 0 or prefetch below 1.
  Loader(const Cifar10& data, Indices indices, const LoaderOptions& options);

  /// The batch of the next step; waits until it is ready (the caller times the wait). What went
  /// wrong while it was made is thrown here. Throws Error kInternal after the last step.
  Batch next();

  /// Hands the memory of a batch back, so that a later batch needs no allocation.
  void recycle(Batch batch);

  bool finished() const { return next_step_ >= options_.steps; }

 private:
  struct Slot {
    Batch batch;
    std::exception_ptr error;
    bool ready = false;
  };

  void work(const std::stop_token& stop);
  void make_batch(const std::vector<std::int64_t>& images, Batch& batch,
                  const std::stop_token& stop) const;
  Batch load_here();
  Batch take_buffer();
  Slot& slot_of(std::int64_t step);

  const Cifar10& data_;
  Indices indices_;
  LoaderOptions options_;
  ImageTransform transform_;
  std::int64_t next_step_ = 0;  ///< that next() returns; written under the lock

  std::mutex mutex_;
  std::condition_variable_any batch_ready_, slot_free_;
  std::int64_t claimed_steps_ = 0;
  std::vector<Slot> slots_;  ///< step s uses slot s mod prefetch
  std::vector<Batch> buffers_;
  std::vector<std::jthread> threads_;  ///< last, so that they end before anything they use
};

}  // namespace gradsync
