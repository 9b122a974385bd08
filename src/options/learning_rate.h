#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

enum class LrScaling { kNone, kLinear, kSqrt };
enum class LrWarmup { kGradual, kConstant };
enum class LrSchedule { kConstant, kStep, kMultistep, kCosine, kCyclic, kPolynomial };

/// How the learning rate goes over a run. Epochs are counted from the start of training, warm-up
/// included; fractions of an epoch count.
struct LearningRateSettings {
  double base = 0.1;                     ///< --lr: the rate at `base_batch`
  LrScaling scaling = LrScaling::kNone;  ///< in (global batch / base_batch)
  std::int64_t base_batch = 128;
  std::int64_t global_batch = 128;  ///< at the start of training
  std::int64_t epochs = 1;          ///< of the whole run
  double warmup_epochs = 0;
  LrWarmup warmup = LrWarmup::kGradual;
  double warmup_from = -1;  ///< rate at the start of the warm-up; below 0: see rates()
  LrSchedule schedule = LrSchedule::kConstant;
  double minimum = 0;                    ///< cosine, polynomial, cyclic: the lowest rate
  double decay = 0.1;                    ///< step, multistep: the factor of each fall
  std::int64_t step_epochs = 0;          ///< step: epochs between two falls
  std::vector<std::int64_t> milestones;  ///< multistep: the epochs of the falls, rising
  double power = 1;                      ///< polynomial
  double cycle_epochs = 0;               ///< cyclic: one rise and one fall
};

/// Throws Error kUsage if the settings do not fit the epochs: a warm-up, milestone, step or cycle
/// outside them, milestones that do not rise.
void require_covered(const LearningRateSettings& settings);

/// The learning rate of every iteration.
///
/// Full rate: base × k, k = global batch / base_batch, with `linear` scaling (Goyal et al., 2017,
/// section 2.1), base × √k with `sqrt` (Krizhevsky, 2014), base with `none`. The batch is that of
/// the start, so a growing batch takes the place of a falling rate (Smith et al., 2018).
///
/// Warm-up (Goyal et al., section 2.2) from `warmup_from`, by default the rate before scaling, or a
/// tenth of the full rate where nothing is scaled: `gradual` rises linearly to the full rate,
/// `constant` stays and then jumps.
///
/// After the warm-up, with t in epochs, E of them, and u = (t − warm-up) / (E − warm-up):
///   constant    full
///   step        full · decay^⌊t / step_epochs⌋
///   multistep   full · decay^(milestones ≤ t)
///   cosine      minimum + (full − minimum) · (1 + cos πu) / 2       (Loshchilov and Hutter, 2017)
///   polynomial  minimum + (full − minimum) · (1 − u)^power
///   cyclic      minimum … full … minimum in straight lines, a cycle after the other (Smith, 2017)
class LearningRate {
 public:
  /// Throws Error kUsage as require_covered() does, and for a lowest rate above the full one.
  explicit LearningRate(LearningRateSettings settings);

  /// The rate at `epoch` (fractional, 0 … epochs).
  double at(double epoch) const;

  /// The rate after scaling, which the warm-up ends at.
  double full() const { return full_; }

 private:
  double warming(double epoch) const;
  double falls(double epoch) const;
  double cyclic(double epoch) const;

  LearningRateSettings settings_;
  double full_ = 0, from_ = 0;
};

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
