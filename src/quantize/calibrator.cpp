#include "quantize/calibrator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync::quantize {

namespace {

Range clipped(const Range& range, const Range& total) {
  return {std::max(range.low, total.low), std::min(range.high, total.high)};
}

/// The value below which `part` of the counts lie, at an edge of a bin.
double edge_below(const Histogram& histogram, double part) {
  const double wanted = part * static_cast<double>(histogram.total());
  double below = 0;
  std::size_t bin = 0;
  while (bin < histogram.counts.size() &&
         below + static_cast<double>(histogram.counts[bin]) <= wanted)
    below += static_cast<double>(histogram.counts[bin++]);
  return histogram.low + static_cast<double>(bin) * histogram.width();
}

double edge_above(const Histogram& histogram, double part) {
  Histogram mirrored(-histogram.high, -histogram.low, histogram.counts.size());
  std::reverse_copy(histogram.counts.begin(), histogram.counts.end(), mirrored.counts.begin());
  return -edge_below(mirrored, part);
}

/// Counts of |x| from 0 on: the two halves of a symmetric histogram laid on each other. Zeros are
/// exact at every scale, and half of what a ReLU gives: the first bin counts as its neighbor does,
/// or they alone would decide.
std::vector<double> folded(const Histogram& fine) {
  const std::size_t half = fine.counts.size() / 2;
  std::vector<double> counts(half);
  for (std::size_t bin = 0; bin < half; ++bin)
    counts[bin] = static_cast<double>(fine.counts[half + bin] + fine.counts[half - 1 - bin]);
  counts[0] = counts[1];
  return counts;
}

/// The bins of one step become its mean, where they were not empty.
void flatten(std::vector<double>& bins, std::size_t first, std::size_t last) {
  double sum = 0, filled = 0;
  for (std::size_t bin = first; bin < last; ++bin) {
    sum += bins[bin];
    filled += bins[bin] > 0 ? 1 : 0;
  }
  for (std::size_t bin = first; bin < last; ++bin)
    if (bins[bin] > 0) bins[bin] = sum / filled;
}

double divergence(const std::vector<double>& from, const std::vector<double>& to) {
  const double from_sum = std::accumulate(from.begin(), from.end(), 0.0);
  const double to_sum = std::accumulate(to.begin(), to.end(), 0.0);
  // What the coarse histogram gives no room at all counts as nearly impossible, not as infinite.
  constexpr double kLeast = 1e-9;
  double sum = 0;
  for (std::size_t bin = 0; bin < from.size(); ++bin) {
    if (from[bin] == 0) continue;
    const double p = from[bin] / from_sum;
    sum += p * std::log(p / std::max(kLeast, to[bin] / to_sum));
  }
  return sum;
}

double divergence_at(const std::vector<double>& counts, std::size_t bins, std::size_t steps) {
  std::vector<double> coarse(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(bins));
  std::vector<double> clipped = coarse;
  clipped.back() +=
      std::accumulate(counts.begin() + static_cast<std::ptrdiff_t>(bins), counts.end(), 0.0);
  for (std::size_t step = 0; step < steps; ++step)
    flatten(coarse, step * bins / steps, (step + 1) * bins / steps);
  return divergence(clipped, coarse);
}

Range within(double threshold, const Range& total) {
  return clipped({-threshold, threshold}, total);
}

Range percentile_range(const Distribution& values, double percentile) {
  const double cut = (1 - percentile / 100) / 2;
  return clipped({edge_below(values.fine, cut), edge_above(values.fine, cut)}, values.total);
}

}  // namespace

const std::vector<std::string>& calibrator_names() {
  static const std::vector<std::string> names = {"min-max", "sigma", "percentile", "entropy"};
  return names;
}

Calibrator parse_calibrator(const std::string& name) {
  const auto& names = calibrator_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw Error(ExitCode::kInternal, fmt::format("no calibrator '{}'", name));
  return static_cast<Calibrator>(found - names.begin());
}

const std::string& calibrator_name(Calibrator calibrator) {
  return calibrator_names().at(static_cast<std::size_t>(calibrator));
}

double entropy_threshold(const Histogram& fine, int bits) {
  const std::vector<double> counts = folded(fine);
  const std::size_t steps = std::size_t{1} << (bits - 1);
  std::size_t best = counts.size();
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t bins = steps; bins <= counts.size(); ++bins) {
    const double lost = divergence_at(counts, bins, steps);
    if (lost > least) continue;
    least = lost;
    best = bins;
  }
  return static_cast<double>(best) * fine.width();
}

Range calibrated_range(const Distribution& values, const CalibratorSettings& settings) {
  if (!(values.total.high > values.total.low))
    throw Error(ExitCode::kBadData,
                fmt::format("all {} values are {}", values.count, values.total.low));
  switch (settings.how) {
    case Calibrator::kMinMax:
      return values.total;
    case Calibrator::kSigma:
      return clipped(values.sigma(settings.sigmas), values.total);
    case Calibrator::kPercentile:
      return percentile_range(values, settings.percentile);
    case Calibrator::kEntropy:
      return within(entropy_threshold(values.fine, settings.bits), values.total);
  }
  throw Error(ExitCode::kInternal, "unknown calibrator");
}

}  // namespace gradsync::quantize
