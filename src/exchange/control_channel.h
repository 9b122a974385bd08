#pragma once

#include <cstddef>
#include <span>

#include "exchange/collective_log.h"

namespace gradsync {

/// What ranks exchange outside any timed section, from host memory: metrics, rows, states.
/// All ranks make the same calls.
class ControlChannel {
 public:
  /// `log` must outlive it.
  explicit ControlChannel(CollectiveLog& log) : log_(log) {}

  /// Sums over the ranks, of each value, counted as metrics.
  void sum(std::span<double> values);
  /// The largest value over the ranks, of each.
  void maximum(std::span<double> values);
  /// Blocks of equal size in order of rank, on rank 0: `all` is used there only.
  void gather(std::span<const std::byte> one, std::span<std::byte> all);
  /// From rank 0.
  void broadcast(std::span<std::byte> bytes);
  /// From one rank to another; `bytes` is used on these two only.
  void move(std::span<std::byte> bytes, int from, int to);

  /// While it lives, what counts as control is counted in another category.
  class CountedAs {
   public:
    CountedAs(ControlChannel& channel, Traffic category)
        : channel_(channel), before_(channel.category_) {
      channel.category_ = category;
    }
    ~CountedAs() { channel_.category_ = before_; }
    CountedAs(const CountedAs&) = delete;
    CountedAs& operator=(const CountedAs&) = delete;

   private:
    ControlChannel& channel_;
    Traffic before_;
  };

 private:
  void run(const CollectiveCall& call, Traffic category, FunctionRef<void()> body);

  CollectiveLog& log_;
  Traffic category_ = Traffic::kControl;
};

}  // namespace gradsync
