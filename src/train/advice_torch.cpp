// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/parse.h"
#include "base/ranges.h"
#include "options/epoch_plan.h"
#include "options/modes.h"
#include "train/advice.h"
#include "train/before_training.h"

namespace gradsync {

namespace {

/// Exposed part of an iteration from which on cross-iteration overlap is considered.
constexpr double kWorthWaitingInLayers = 0.05;

/// "4MiB", as an option takes it.
std::string size_text(std::int64_t bytes) {
  std::string text = format_bytes(bytes);
  std::erase(text, ' ');
  return text;
}

AllReduceTime slower(const AllReduceTime& time_s, double factor) {
  return [=](std::int64_t bytes) { return factor * time_s(bytes); };
}

/// Time of an exchange in equal messages.
double busy_s(const AllReduceTime& time_s, std::size_t messages, std::int64_t bytes) {
  const auto count = static_cast<std::int64_t>(messages);
  return static_cast<double>(count) * time_s(bytes / count);
}

/// What the exchange of the options exposes.
double exposed_s(const TrainOptions& options, const GradientTimeline& gradients,
                 const AllReduceTime& time_s) {
  const BucketAdvice cut =
      advice_of(gradients, time_s, options.first_bucket_bytes, options.bucket_cap_bytes);
  if (options.overlap == Overlap::kNone)
    return busy_s(time_s, cut.buckets, gradients.total_bytes());
  if (mode_named(options.sync).overlaps) return cut.exposed_s;
  const std::size_t messages = options.granularity == "tensor" ? gradients.bytes.size() : 1;
  return busy_s(time_s, messages, gradients.total_bytes());
}

/// How many times as long all-reduces take beside training as alone: with it the replay exposes
/// what was measured. 1 where hardly anything is exposed, and from a quarter to four times.
double slowdown_in_training(const TrainOptions& options, const GradientTimeline& gradients,
                            const AllReduceTime& time_s, double measured_s) {
  double low = 0.25, high = 4;
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(low * high);
    (exposed_s(options, gradients, slower(time_s, middle)) < measured_s ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// What an iteration exposes whose all-reduces take so many times as long as alone.
using ExposedAt = std::function<double(double slowdown)>;

/// What is predicted of a setting, and from what.
struct Predicted {
  Advice advice;
  ExposedAt exposed_s;
};

/// The iteration of the fastest contender with another exposed time in place of its own.
class Prediction {
 public:
  Prediction(const AdviceBasis& basis, const GradientTimeline& gradients, AllReduceTime own_time_s)
      : fastest_(basis.fastest),
        gradients_(gradients),
        own_time_s_(std::move(own_time_s)),
        iteration_s_(basis.medians.time_s),
        measured_s_(basis.medians.part_s(CostPart::kExposed)),
        slowdown_(measured_s_ > kLeastGain * iteration_s_
                      ? slowdown_in_training(fastest_, gradients, own_time_s_, measured_s_)
                      : 1) {}

  double slowdown() const { return slowdown_; }
  double iteration_s() const { return iteration_s_; }
  /// What the iteration takes besides, which the exchange of the one before can hide in.
  double rest_s() const { return iteration_s_ - measured_s_; }

  Predicted predicted(std::string contender, ExposedAt exposed_s) const {
    const double as_measured = ratio(exposed_s, slowdown_), as_alone = ratio(exposed_s, 1);
    Advice advice{std::move(contender), as_measured, std::min(as_measured, as_alone),
                  std::max(as_measured, as_alone)};
    return {std::move(advice), std::move(exposed_s)};
  }

 private:
  double ratio(const ExposedAt& there_s, double slowdown) const {
    const double here_s = exposed_s(fastest_, gradients_, slower(own_time_s_, slowdown));
    return 1 + (there_s(slowdown) - here_s) / (rest_s() + here_s);
  }

  const TrainOptions& fastest_;
  const GradientTimeline& gradients_;
  AllReduceTime own_time_s_;
  double iteration_s_, measured_s_, slowdown_;
};

/// ddp with the best buckets where all-reduces take `time_s`, and the same across iterations if
/// that may pay.
std::vector<Predicted> with_best_buckets(const Prediction& prediction,
                                         const GradientTimeline& gradients,
                                         const TrainOptions& plain, const std::string& transport,
                                         const std::string& wire, const AllReduceTime& time_s) {
  const std::int64_t bytes = gradients.total_bytes();
  const std::vector<std::int64_t> sizes = bucket_ladder(bytes);
  const BucketAdvice cut =
      best_buckets(gradients, slower(time_s, prediction.slowdown()), sizes, sizes);
  std::string setting = "ddp";
  if (cut.first_bucket_bytes != plain.first_bucket_bytes)
    setting += ":first-bucket=" + size_text(cut.first_bucket_bytes);
  if (cut.bucket_cap_bytes != plain.bucket_cap_bytes)
    setting += ":bucket-cap=" + size_text(cut.bucket_cap_bytes);
  if (wire != plain.wire_dtype) setting += ":wire-dtype=" + wire;
  if (transport != plain.transport) setting += ":transport=" + transport;
  std::vector<Predicted> all = {
      prediction.predicted(setting, [&gradients, time_s, cut](double factor) {
        return advice_of(gradients, slower(time_s, factor), cut.first_bucket_bytes,
                         cut.bucket_cap_bytes)
            .exposed_s;
      })};
  // Waiting in each layer costs a little that the model does not know.
  if (plain.overlap == Overlap::kStep ||
      cut.exposed_s < kWorthWaitingInLayers * prediction.iteration_s())
    return all;
  // The next forward pass hides as much as fits into the iteration.
  all.push_back(prediction.predicted(
      setting + ":overlap=step",
      [time_s, bytes, buckets = cut.buckets, rest_s = prediction.rest_s()](double factor) {
        return std::max(0.0, busy_s(slower(time_s, factor), buckets, bytes) - rest_s);
      }));
  return all;
}

}  // namespace

std::vector<Advice> advise(const AdviceBasis& basis, const DataSource& data,
                           const ComputeSettings& compute,
                           const std::vector<std::string>& transports,
                           const std::function<Exchange&(const std::string& transport)>& over) {
  const TrainOptions &fastest = basis.fastest, &plain = basis.plain;
  Exchange& own = over(fastest.transport);
  const GradientTimeline gradients = gradient_timeline(own, data, compute, fastest);
  const std::int64_t bytes = gradients.total_bytes();
  const std::string own_wire = mode_named(fastest.sync).casts ? fastest.wire_dtype : "fp32";
  const AllReduceTime own_time_s = all_reduce_time(own, bytes, own_wire);
  const Prediction prediction(basis, gradients, own_time_s);
  std::vector<Predicted> all;
  for (const std::string& transport : transports)
    for (const std::string wire : {"fp32", "bf16"}) {
      const bool measured = transport == fastest.transport && wire == own_wire;
      const AllReduceTime time_s =
          measured ? own_time_s : all_reduce_time(over(transport), bytes, wire);
      for (Predicted& one :
           with_best_buckets(prediction, gradients, plain, transport, wire, time_s))
        all.push_back(std::move(one));
    }
  const auto ratio = [](const Predicted& one) { return one.advice.ratio; };
  std::ranges::stable_sort(all, {}, ratio);
  const EpochPlan epoch =
      epoch_plan(plain, data.size(Split::kTrain), own.session().size(), /*epoch=*/0);
  if (!all.empty() && plain.batch_schedule.empty() && epoch.passes >= 2 * plain.accumulate) {
    // Two iterations share one exchange.
    const Predicted fewer = prediction.predicted(
        fmt::format("{}:accumulate={}", all.front().advice.contender, 2 * plain.accumulate),
        [exposed_s = all.front().exposed_s](double factor) { return exposed_s(factor) / 2; });
    all.insert(std::ranges::upper_bound(all.begin() + 1, all.end(), ratio(fewer), {}, ratio),
               fewer);
  }
  return each(all, &Predicted::advice);
}

}  // namespace gradsync
