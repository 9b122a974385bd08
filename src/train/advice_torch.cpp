// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/parse.h"
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

double busy_s(const AlphaBeta& law, std::size_t messages, std::int64_t bytes) {
  return static_cast<double>(messages) * law.alpha_s +
         law.beta_s_per_byte * static_cast<double>(bytes);
}

/// What an exchange is predicted to add to an iteration.
struct Exchanged {
  double exposed_s = 0;
  double busy_s = 0;  ///< in its all-reduces
};

Exchanged as_configured(const TrainOptions& options, const GradientTimeline& gradients,
                        const AlphaBeta& law) {
  const std::int64_t bytes = gradients.total_bytes();
  if (!mode_named(options.sync).overlaps) {
    const std::size_t messages = options.granularity == "tensor" ? gradients.bytes.size() : 1;
    return {busy_s(law, messages, bytes), busy_s(law, messages, bytes)};
  }
  const BucketAdvice cut =
      advice_of(gradients, as_time(law), options.first_bucket_bytes, options.bucket_cap_bytes);
  return {cut.exposed_s, busy_s(law, cut.buckets, bytes)};
}

/// Iterations of settings over that of the fastest contender, whose parts are known.
class Prediction {
 public:
  /// `modeled`: what the model says of the fastest contender's own exchange.
  Prediction(const AdviceBasis& basis, const Exchanged& modeled) : modeled_(modeled) {
    const BlockTime& measured = basis.medians;
    const double exposed_s = measured.part_s(CostPart::kExposed),
                 wait_s = measured.part_s(CostPart::kWait);
    const double without_s = measured.time_s - exposed_s - (std::isnan(wait_s) ? 0 : wait_s);
    alone_s_ = std::fmin(without_s, basis.alone_s);
    if (modeled.busy_s > 0) slowed_per_busy_ = (without_s - alone_s_) / modeled.busy_s;
    // A link is slower beside training than alone, seldom more than twice.
    if (modeled.exposed_s > kLeastGain * measured.time_s)
      missed_ = std::clamp(exposed_s / modeled.exposed_s, 0.5, 2.0);
    constant_s_ = measured.time_s - added_s(modeled, missed_);
  }

  Advice of(const std::string& contender, const Exchanged& exchanged) const {
    const auto ratio = [&](double factor) {
      return (constant_s_ + added_s(exchanged, factor)) / (constant_s_ + added_s(modeled_, factor));
    };
    const auto [low, high] = std::minmax({ratio(1), ratio(missed_)});
    return {contender, ratio(missed_), low, high};
  }

  double alone_s() const { return alone_s_; }

 private:
  double added_s(const Exchanged& exchanged, double factor) const {
    return slowed_per_busy_ * exchanged.busy_s + factor * exchanged.exposed_s;
  }

  Exchanged modeled_;
  double alone_s_ = 0;
  double slowed_per_busy_ = 0;  ///< seconds that computing loses for each second of all-reduces
  double missed_ = 1;           ///< measured exposed time over the modeled
  double constant_s_ = 0;       ///< of an iteration, whatever is exchanged
};

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
  const Prediction prediction(
      basis, as_configured(fastest, gradients, all_reduce_law(own, bytes, own_wire)));
  const std::vector<std::int64_t> sizes = bucket_ladder(bytes);
  std::vector<Advice> all;
  for (const std::string& transport : transports)
    for (const std::string wire : {"fp32", "bf16"}) {
      const AlphaBeta law = all_reduce_law(over(transport), bytes, wire);
      const BucketAdvice cut = best_buckets(gradients, as_time(law), sizes, sizes);
      const Exchanged exchanged = {cut.exposed_s, busy_s(law, cut.buckets, bytes)};
      std::string setting = "ddp";
      if (cut.first_bucket_bytes != plain.first_bucket_bytes)
        setting += ":first-bucket=" + size_text(cut.first_bucket_bytes);
      if (cut.bucket_cap_bytes != plain.bucket_cap_bytes)
        setting += ":bucket-cap=" + size_text(cut.bucket_cap_bytes);
      if (wire != plain.wire_dtype) setting += ":wire-dtype=" + wire;
      if (transport != plain.transport) setting += ":transport=" + transport;
      all.push_back(prediction.of(setting, exchanged));
      // Waiting in each layer costs a little that the model does not know.
      if (plain.overlap == Overlap::kStep ||
          cut.exposed_s < kWorthWaitingInLayers * basis.medians.time_s)
        continue;
      // The next forward pass hides as much as fits into the iteration.
      Advice step =
          prediction.of(setting + ":overlap=step",
                        {std::max(0.0, exchanged.busy_s - prediction.alone_s()), exchanged.busy_s});
      step.high = std::max(step.high, all.back().high);
      all.push_back(step);
    }
  std::stable_sort(all.begin(), all.end(),
                   [](const Advice& a, const Advice& b) { return a.ratio < b.ratio; });
  return all;
}

}  // namespace gradsync
