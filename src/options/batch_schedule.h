#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

/// A global batch that grows (or shrinks) at given epochs: "0:128,3:512" trains three epochs at 128
/// and the rest at 512. A growing batch takes the place of a falling rate (Smith et al., 2018).
class BatchSchedule {
 public:
  BatchSchedule() = default;

  /// Throws Error kUsage for anything but EPOCH:BATCH pairs with commas, of which the first names
  /// epoch 0, epochs rise, and batches are 1 or more.
  explicit BatchSchedule(std::string_view text);

  /// Throws Error kUsage if an epoch lies beyond the run, or a batch does not divide by `shares`
  /// (ranks × accumulate).
  void require_fits(std::int64_t epochs, std::int64_t shares) const;

  /// Whether there is none: the batch stays.
  bool empty() const { return phases_.empty(); }

  /// The global batch of `epoch`; requires a schedule.
  std::int64_t at(std::int64_t epoch) const;

 private:
  struct Phase {
    std::int64_t epoch, batch;
  };
  std::string text_;
  std::vector<Phase> phases_;
};

}  // namespace gradsync
