// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/parse.h"
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
  const double iteration_s = basis.medians.time_s,
               measured_s = basis.medians.part_s(CostPart::kExposed);
  const double slowdown = measured_s > kLeastGain * iteration_s
                              ? slowdown_in_training(fastest, gradients, own_time_s, measured_s)
                              : 1;
  // Ratio of an iteration that exposes something else than the fastest contender's.
  const auto ratio = [&](double exposed_there_s, double factor) {
    const double here_s = exposed_s(fastest, gradients, slower(own_time_s, factor));
    return 1 + (exposed_there_s - here_s) / (iteration_s - measured_s + here_s);
  };
  const std::vector<std::int64_t> sizes = bucket_ladder(bytes);
  std::vector<Advice> all;
  std::map<std::string, Advice> with_fewer_updates;
  for (const std::string& transport : transports)
    for (const std::string wire : {"fp32", "bf16"}) {
      const bool measured = transport == fastest.transport && wire == own_wire;
      const AllReduceTime time_s =
          measured ? own_time_s : all_reduce_time(over(transport), bytes, wire);
      const BucketAdvice cut = best_buckets(gradients, slower(time_s, slowdown), sizes, sizes);
      const auto add = [&](const std::string& setting, auto exposed_at) {
        const double as_measured = ratio(exposed_at(slowdown), slowdown),
                     as_alone = ratio(exposed_at(1), 1);
        all.push_back({setting, as_measured, std::min(as_measured, as_alone),
                       std::max(as_measured, as_alone)});
        // Two iterations share one exchange.
        const double half_measured = ratio(exposed_at(slowdown) / 2, slowdown),
                     half_alone = ratio(exposed_at(1) / 2, 1);
        with_fewer_updates[setting] = {
            fmt::format("{}:accumulate={}", setting, 2 * plain.accumulate), half_measured,
            std::min(half_measured, half_alone), std::max(half_measured, half_alone)};
      };
      std::string setting = "ddp";
      if (cut.first_bucket_bytes != plain.first_bucket_bytes)
        setting += ":first-bucket=" + size_text(cut.first_bucket_bytes);
      if (cut.bucket_cap_bytes != plain.bucket_cap_bytes)
        setting += ":bucket-cap=" + size_text(cut.bucket_cap_bytes);
      if (wire != plain.wire_dtype) setting += ":wire-dtype=" + wire;
      if (transport != plain.transport) setting += ":transport=" + transport;
      add(setting, [&](double factor) {
        return advice_of(gradients, slower(time_s, factor), cut.first_bucket_bytes,
                         cut.bucket_cap_bytes)
            .exposed_s;
      });
      // Waiting in each layer costs a little that the model does not know.
      if (plain.overlap == Overlap::kStep || cut.exposed_s < kWorthWaitingInLayers * iteration_s)
        continue;
      // The next forward pass hides as much as fits into the iteration.
      add(setting + ":overlap=step", [&](double factor) {
        return std::max(
            0.0, busy_s(slower(time_s, factor), cut.buckets, bytes) - (iteration_s - measured_s));
      });
    }
  const auto shorter = [](const Advice& a, const Advice& b) { return a.ratio < b.ratio; };
  std::stable_sort(all.begin(), all.end(), shorter);
  const EpochPlan epoch =
      epoch_plan(plain, data.size(Split::kTrain), own.session().size(), /*epoch=*/0);
  if (all.empty() || !plain.batch_schedule.empty() || epoch.passes < 2 * plain.accumulate)
    return all;
  const Advice fewer = with_fewer_updates.at(all.front().contender);
  all.insert(std::upper_bound(all.begin() + 1, all.end(), fewer, shorter), fewer);
  return all;
}

}  // namespace gradsync
