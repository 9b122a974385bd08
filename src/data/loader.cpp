// SPDX-License-Identifier: BSD-3-Clause
#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "stats/clock.h"

namespace gradsync {
namespace {

void check(const LoaderOptions& options) {
  if (options.threads >= 0 && options.prefetch >= 1 && options.steps >= 0) return;
  throw Error(ExitCode::kUsage,
              fmt::format("loader: threads {}, prefetch {}, steps {}", options.threads,
                          options.prefetch, options.steps),
              "--loader-threads 0 or more, --prefetch 1 or more");
}

}  // namespace

Loader::Loader(const Cifar10& data, Indices indices, const LoaderOptions& options)
    : data_(data), indices_(std::move(indices)), options_(options), transform_(options.layout) {
  check(options);
  slots_.resize(static_cast<std::size_t>(options.prefetch));
  for (std::int64_t i = 0; i < std::min(options.threads, options.steps); ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

Batch Loader::next() {
  if (finished()) {
    throw Error(ExitCode::kInternal, fmt::format("loader: a batch after step {}", options_.steps));
  }
  if (threads_.empty()) return load_here();
  std::unique_lock lock(mutex_);
  Slot& slot = slot_of(next_step_);
  batch_ready_.wait(lock, [&] { return slot.ready; });
  slot.ready = false;
  ++next_step_;
  slot_free_.notify_one();
  if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
  return std::move(slot.batch);
}

void Loader::recycle(Batch batch) {
  const std::lock_guard lock(mutex_);
  buffers_.push_back(std::move(batch));
}

void Loader::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto may_claim = [this] {
      return claimed_steps_ < std::min(options_.steps, next_step_ + options_.prefetch);
    };
    // A claim past the last step never comes: such a thread sleeps until it is stopped.
    if (!slot_free_.wait(lock, stop, may_claim)) return;
    const std::int64_t step = claimed_steps_++;
    Slot& slot = slot_of(step);
    try {
      slot.batch = take_buffer();
      const std::vector<std::int64_t> images = indices_(step);
      lock.unlock();
      make_batch(images, slot.batch, stop);
    } catch (...) {
      slot.error = std::current_exception();
    }
    if (!lock.owns_lock()) lock.lock();
    slot.ready = true;
    batch_ready_.notify_one();
  }
}

void Loader::make_batch(const std::vector<std::int64_t>& images, Batch& batch,
                        const std::stop_token& stop) const {
  const Stopwatch watch;
  batch.size = images.size();
  batch.labels.resize(images.size());
  // New memory is touched image by image, so that a large batch can be abandoned at once.
  const std::size_t whole = images.size() * kImageBytes;
  batch.images.resize(std::min(batch.images.size(), whole));
  batch.images.reserve(whole);
  for (std::size_t i = 0; i < images.size() && !stop.stop_requested(); ++i) {
    const std::int64_t image = images[i];
    const Placement placement =
        options_.augment ? random_placement(options_.seed, options_.epoch, image) : Placement{};
    const std::size_t begin = i * kImageBytes;
    batch.images.resize(std::max(batch.images.size(), begin + kImageBytes));
    transform_.apply(data_.pixels(options_.split, image),
                     std::span(batch.images).subspan(begin, kImageBytes), placement);
    batch.labels[i] = data_.label(options_.split, image);
  }
  const double added_s = (options_.slowdown - 1) * watch.elapsed_s();
  if (added_s > 0) std::this_thread::sleep_for(std::chrono::duration<double>(added_s));
}

Batch Loader::load_here() {
  Batch batch = take_buffer();
  make_batch(indices_(next_step_++), batch, {});
  return batch;
}

Batch Loader::take_buffer() {
  if (buffers_.empty()) return {};
  Batch batch = std::move(buffers_.back());
  buffers_.pop_back();
  return batch;
}

Loader::Slot& Loader::slot_of(std::int64_t step) {
  return slots_[static_cast<std::size_t>(step % options_.prefetch)];
}

}  // namespace gradsync
