// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
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

/// How far the model may be off: what a setting exposes, and the rest of its iteration. Measured
/// ratios have to lie in between (bench/suite/truth.py).
constexpr double kErrorOfExposed = 0.25, kErrorOfRest = 0.06;

/// No cap below is advised: what each message costs a rank that computes is in no time of
/// all-reduces alone.
constexpr std::int64_t kSmallestCap = 512 << 10;

/// "4MiB", as an option takes it.
std::string size_text(std::int64_t bytes) {
  std::string text = format_bytes(bytes);
  std::erase(text, ' ');
  return text;
}

AllReduceTime slower(const AllReduceTime& time_s, double factor) {
  return [=](std::int64_t bytes) { return factor * time_s(bytes); };
}

/// How many times as long all-reduces take beside training as alone: with it the replay of the
/// buckets exposes what was measured. 1 where hardly anything is exposed, and from a quarter to
/// four times.
double slowdown_in_training(const TrainOptions& options, const GradientTimeline& gradients,
                            const AllReduceTime& time_s, const BlockTime& measured) {
  const double exposed_s = measured.part_s(CostPart::kExposed);
  if (exposed_s <= kLeastGain * measured.time_s) return 1;
  double low = 0.25, high = 4;
  for (int i = 0; i < 40; ++i) {
    const double middle = std::sqrt(low * high);
    const BucketAdvice cut = advice_of(gradients, slower(time_s, middle),
                                       options.first_bucket_bytes, options.bucket_cap_bytes);
    (cut.exposed_s < exposed_s ? low : high) = middle;
  }
  return std::sqrt(low * high);
}

/// Whether the replay is of what these options do.
bool is_replayed(const TrainOptions& options) {
  const Mode& mode = mode_named(options.sync);
  return mode.overlaps && !mode.sharded && options.overlap == Overlap::kBackward;
}

/// The setting of ddp with these buckets.
std::string setting_of(const TrainOptions& plain, const BucketAdvice& cut,
                       const std::string& transport, const std::string& wire) {
  std::string setting = "ddp";
  if (cut.first_bucket_bytes != plain.first_bucket_bytes)
    setting += ":first-bucket=" + size_text(cut.first_bucket_bytes);
  if (cut.bucket_cap_bytes != plain.bucket_cap_bytes)
    setting += ":bucket-cap=" + size_text(cut.bucket_cap_bytes);
  if (wire != plain.wire_dtype) setting += ":wire-dtype=" + wire;
  if (transport != plain.transport) setting += ":transport=" + transport;
  return setting;
}

/// Parts of an iteration that is predicted.
struct Predicted {
  std::string contender;
  double exposed_s = 0, rest_s = 0;

  Advice over(double fastest_s) const {
    return {contender, (rest_s + exposed_s) / fastest_s,
            ((1 - kErrorOfRest) * rest_s + (1 - kErrorOfExposed) * exposed_s) / fastest_s,
            ((1 + kErrorOfRest) * rest_s + (1 + kErrorOfExposed) * exposed_s) / fastest_s};
  }
};

}  // namespace

std::vector<Advice> advise(const AdviceBasis& basis, const DataSource& data,
                           const ComputeSettings& compute, const MakeExchange& over,
                           const TryBriefly& tried) {
  const TrainOptions &fastest = basis.fastest, &plain = basis.plain;
  Exchange& own = over(fastest.transport);
  const GradientTimeline gradients = gradient_timeline(own, data, compute, fastest);
  const std::int64_t bytes = gradients.total_bytes();
  const std::vector<std::int64_t> sizes = bucket_ladder(bytes);
  std::vector<std::int64_t> caps = sizes;
  std::erase_if(caps, [&](std::int64_t cap) { return cap < kSmallestCap && cap < sizes.back(); });
  std::vector<Predicted> all;
  for (const std::string& transport : std::set{fastest.transport, plain.transport}) {
    TrainOptions known = fastest;
    BlockTime measured = basis.medians;
    if (transport != fastest.transport || !is_replayed(fastest) ||
        fastest.accumulate != plain.accumulate) {
      known = plain;
      known.transport = transport;
      measured = tried(over(transport), known);
    }
    const std::string known_wire = mode_named(known.sync).casts ? known.wire_dtype : "fp32";
    std::map<std::string, AllReduceTime> times_s;
    for (const std::string& wire : std::set<std::string>{"fp32", "bf16", known_wire})
      times_s[wire] = all_reduce_time(over(transport), bytes, wire);
    const double slowdown =
        slowdown_in_training(known, gradients, times_s.at(known_wire), measured);
    for (const std::string wire : {"fp32", "bf16"}) {
      const BucketAdvice cut =
          best_buckets(gradients, slower(times_s.at(wire), slowdown), sizes, caps);
      all.push_back({setting_of(plain, cut, transport, wire), cut.exposed_s,
                     measured.time_s - measured.part_s(CostPart::kExposed)});
    }
  }
  const auto time_s = [](const Predicted& one) { return one.rest_s + one.exposed_s; };
  std::ranges::stable_sort(all, {}, time_s);
  const EpochPlan epoch =
      epoch_plan(plain, data.size(Split::kTrain), own.session().size(), /*epoch=*/0);
  if (plain.batch_schedule.empty() && epoch.passes >= 2 * plain.accumulate) {
    // Two iterations share one exchange.
    Predicted fewer = all.front();
    fewer.contender += fmt::format(":accumulate={}", 2 * plain.accumulate);
    fewer.exposed_s /= 2;
    all.insert(std::ranges::upper_bound(all.begin() + 1, all.end(), time_s(fewer), {}, time_s),
               fewer);
  }
  return each(all, [&](const Predicted& one) { return one.over(basis.medians.time_s); });
}

}  // namespace gradsync
