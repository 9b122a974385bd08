#include "analysis/published/conventions.h"

#include <algorithm>
#include <cmath>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/comparisons.h"

namespace gradsync::report::published {

namespace {

using I = Input;

EpochCommunication communication(const InputValues& in, double iterations) {
  return {at(in, I::kMessage), at(in, I::kDevices), iterations, at(in, I::kComm)};
}

double bandwidth_of(BandwidthConvention convention, const InputValues& in) {
  return bandwidth(convention, communication(in, at(in, I::kIterations)));
}

// One message in the whole epoch: the number of iterations plays no part.
double bandwidth_of_one(BandwidthConvention convention, const InputValues& in) {
  return bandwidth(convention, communication(in, 1));
}

double ratio_speedup(const InputValues& in) {
  return speedup(at(in, I::kBaseTime), at(in, I::kTime));
}

double scaled_speedup(const InputValues& in) {
  return weak_speedup(at(in, I::kBaseTime), at(in, I::kTime),
                      at(in, I::kDevices) / at(in, I::kBaseDevices));
}

double per_device_speedup(const InputValues& in) {
  return strong_efficiency(at(in, I::kBaseTime), at(in, I::kBaseDevices), at(in, I::kTime),
                           at(in, I::kDevices));
}

double share_of_base(const InputValues& in) {
  return derived_compute(at(in, I::kBaseTime), at(in, I::kDevices) / at(in, I::kBaseDevices));
}

double over_share_of_base(const InputValues& in) {
  return derived_communication(at(in, I::kBaseTime), at(in, I::kTime),
                               at(in, I::kDevices) / at(in, I::kBaseDevices));
}

const std::vector<Input> kConventionsTimes = {I::kTime, I::kBaseTime};
const std::vector<Input> kTimesAndDevices = {I::kTime, I::kBaseTime, I::kDevices, I::kBaseDevices};
const std::vector<Input> kOneMessage = {I::kMessage, I::kComm, I::kDevices};
const std::vector<Input> kAllMessages = {I::kMessage, I::kComm, I::kDevices, I::kIterations};

std::vector<Convention> speedup_conventions() {
  return {
      {Kind::kSpeedup, "speedup", "T(1)/T(n)", kConventionsTimes, ratio_speedup, 0},
      {Kind::kSpeedup, "weak-speedup", "n*T(1)/T(n)", kTimesAndDevices, scaled_speedup, 1},
      {Kind::kSpeedup, "efficiency", "T(1)/(n*T(n))", kTimesAndDevices, per_device_speedup, 2},
      {Kind::kSpeedup, "inverse", "T(n)/T(1)", kConventionsTimes,
       [](const InputValues& in) { return speedup(at(in, I::kTime), at(in, I::kBaseTime)); }, 2},
      {Kind::kWeakSpeedup, "weak-speedup", "n*T(1)/T(n)", kTimesAndDevices, scaled_speedup, 0},
      {Kind::kWeakSpeedup, "weak-efficiency", "T(1)/T(n)", kConventionsTimes, ratio_speedup, 1},
      {Kind::kWeakSpeedup, "inverse", "T(n)/T(1)", kConventionsTimes,
       [](const InputValues& in) { return speedup(at(in, I::kTime), at(in, I::kBaseTime)); }, 2},
  };
}

std::vector<Convention> efficiency_conventions() {
  return {
      {Kind::kEfficiency, "strong-efficiency", "T(1)/(n*T(n))", kTimesAndDevices,
       per_device_speedup, 0},
      {Kind::kEfficiency, "weak-efficiency", "T(1)/T(n)", kConventionsTimes, ratio_speedup, 1},
      {Kind::kEfficiency,
       "speedup-over-n",
       "published speedup / n",
       {I::kSpeedup, I::kDevices},
       [](const InputValues& in) { return at(in, I::kSpeedup) / at(in, I::kDevices); },
       1},
      {Kind::kWeakEfficiency, "weak-efficiency", "T(1)/T(n)", kConventionsTimes, ratio_speedup, 0},
      {Kind::kWeakEfficiency, "strong-efficiency", "T(1)/(n*T(n))", kTimesAndDevices,
       per_device_speedup, 1},
  };
}

std::vector<Convention> compute_conventions() {
  return {
      {Kind::kComputeTime,
       "derived",
       "T(1)/n",
       {I::kBaseTime, I::kDevices, I::kBaseDevices},
       share_of_base,
       0},
      {Kind::kComputeTime,
       "rest-of-epoch",
       "T(n) - published communication",
       {I::kTime, I::kComm},
       [](const InputValues& in) { return at(in, I::kTime) - at(in, I::kComm); },
       1},
      {Kind::kComputeTime,
       "one-device",
       "T(1)",
       {I::kBaseTime},
       [](const InputValues& in) { return at(in, I::kBaseTime); },
       1},
      {Kind::kComputeTime,
       "whole-epoch",
       "T(n)",
       {I::kTime},
       [](const InputValues& in) { return at(in, I::kTime); },
       1},
  };
}

std::vector<Convention> comm_conventions() {
  return {
      {Kind::kCommTime, "derived", "T(n) - T(1)/n", kTimesAndDevices, over_share_of_base, 0},
      {Kind::kCommTime,
       "rest-of-epoch",
       "T(n) - published compute",
       {I::kTime, I::kCompute},
       [](const InputValues& in) { return at(in, I::kTime) - at(in, I::kCompute); },
       1},
      {Kind::kCommTime, "above-one-device", "T(n) - T(1)", kConventionsTimes,
       [](const InputValues& in) { return at(in, I::kTime) - at(in, I::kBaseTime); }, 1},
      {Kind::kCommTime,
       "whole-epoch",
       "T(n)",
       {I::kTime},
       [](const InputValues& in) { return at(in, I::kTime); },
       2},
  };
}

std::vector<Convention> bandwidth_conventions() {
  return {
      {Kind::kBandwidth, "busbw", "2(n-1)/n*S*iterations / communication", kAllMessages,
       [](const InputValues& in) { return bandwidth_of(BandwidthConvention::kBusbw, in); }, 0},
      {Kind::kBandwidth, "algbw", "S*iterations / communication", kAllMessages,
       [](const InputValues& in) {
         return at(in, I::kIterations) * bandwidth_of_one(BandwidthConvention::kMessage, in);
       },
       0},
      {Kind::kBandwidth, "message", "S / communication of the epoch", kOneMessage,
       [](const InputValues& in) { return at(in, I::kMessage) / at(in, I::kComm); },  // n = 1 too
       0},
      {Kind::kBandwidth, "ring-epoch", "2(n-1)/n*S / communication of the epoch", kOneMessage,
       [](const InputValues& in) { return bandwidth_of_one(BandwidthConvention::kRingEpoch, in); },
       0},
      {Kind::kBandwidth, "total-volume", "2(n-1)*S*iterations / communication", kAllMessages,
       [](const InputValues& in) { return bandwidth_of(BandwidthConvention::kTotalVolume, in); },
       0},
      {Kind::kBandwidth, "total-volume-of-one", "2(n-1)*S / communication of the epoch",
       kOneMessage,
       [](const InputValues& in) {
         return bandwidth_of_one(BandwidthConvention::kTotalVolume, in);
       },
       1},
  };
}

// Bandwidths over one second are bytes.
template <BandwidthConvention kConvention, bool kEpoch>
double volume_of(const InputValues& in) {
  return bandwidth(kConvention, {at(in, I::kMessage), at(in, I::kDevices),
                                 kEpoch ? at(in, I::kIterations) : 1, 1});
}

std::vector<Convention> volume_conventions() {
  using B = BandwidthConvention;
  const std::vector<Input> one = {I::kMessage, I::kDevices};
  const std::vector<Input> all = {I::kMessage, I::kDevices, I::kIterations};
  return {
      {Kind::kVolume, "ring", "2(n-1)/n*S", one, volume_of<B::kBusbw, false>, 0},
      {Kind::kVolume, "message", "S", one, volume_of<B::kMessage, false>, 0},
      {Kind::kVolume, "ring-all", "2(n-1)/n*S*iterations", all, volume_of<B::kBusbw, true>, 1},
      {Kind::kVolume, "total", "2(n-1)*S", one, volume_of<B::kTotalVolume, false>, 1},
      {Kind::kVolume, "total-all", "2(n-1)*S*iterations", all, volume_of<B::kTotalVolume, true>, 1},
  };
}

std::vector<Convention> throughput_conventions() {
  return {
      {Kind::kThroughput,
       "images-per-epoch-time",
       "images / T(n)",
       {I::kImages, I::kTime},
       [](const InputValues& in) { return at(in, I::kImages) / at(in, I::kTime); },
       0},
      {Kind::kThroughput,
       "n-times",
       "n*images / T(n)",
       {I::kImages, I::kTime, I::kDevices},
       [](const InputValues& in) {
         return at(in, I::kDevices) * at(in, I::kImages) / at(in, I::kTime);
       },
       1},
  };
}

std::vector<Convention> make_conventions() {
  std::vector<Convention> all;
  for (const auto make :
       {speedup_conventions, efficiency_conventions, compute_conventions, comm_conventions,
        bandwidth_conventions, volume_conventions, throughput_conventions})
    for (Convention& convention : make())
      all.push_back(std::move(convention));
  return all;
}

const std::vector<Convention>& all() {
  static const std::vector<Convention> conventions = make_conventions();
  return conventions;
}

void add_bandwidth_slips(std::string_view unit, std::vector<Slip>& slips) {
  const bool binary = unit.find('i') != std::string_view::npos && !unit.starts_with("bit");
  static constexpr std::array<std::string_view, 3> kPrefixes = {"k", "M", "G"};
  for (std::size_t power = 1; power <= kPrefixes.size(); ++power) {
    const char prefix = static_cast<char>(std::toupper(unit.empty() ? ' ' : unit.front()));
    if (prefix != std::toupper(kPrefixes[power - 1].front())) continue;
    const double factor = std::pow(1.024, static_cast<double>(power));
    if (binary)
      slips.push_back({"computed with powers of 1,000", factor, 1});
    else
      slips.push_back({"computed with powers of 1,024", 1 / factor, 1});
  }
  slips.push_back({"bits for bytes", 8, 2});
  slips.push_back({"bytes for bits", 0.125, 2});
}

}  // namespace

bool Convention::needs_input(Input input) const {
  return std::find(needs.begin(), needs.end(), input) != needs.end();
}

std::vector<const Convention*> conventions_of(Kind kind) {
  std::vector<const Convention*> chosen;
  for (const Convention& convention : all())
    if (convention.kind == kind) chosen.push_back(&convention);
  return chosen;
}

std::vector<Slip> slips_of(Dimension dimension, std::string_view unit) {
  std::vector<Slip> slips = {{"", 1, 0}};
  if (dimension == Dimension::kBandwidth) add_bandwidth_slips(unit, slips);
  if (dimension == Dimension::kTime) {
    slips.push_back({"60 times too large", 60, 2});
    slips.push_back({"60 times too small", 1.0 / 60, 2});
  }
  if (dimension == Dimension::kRatio) {
    slips.push_back({"100 times too large", 100, 2});
    slips.push_back({"100 times too small", 0.01, 2});
    return slips;
  }
  slips.push_back({"1,000 times too large", 1e3, 2});
  slips.push_back({"1,000 times too small", 1e-3, 2});
  slips.push_back({"1,024 times too large", 1024, 2});
  slips.push_back({"1,024 times too small", 1.0 / 1024, 2});
  slips.push_back({"1,000,000 times too large", 1e6, 3});
  slips.push_back({"1,000,000 times too small", 1e-6, 3});
  return slips;
}

double epoch_iterations(double images, double global_batch, LastBatch last) {
  const double exact = images / global_batch;
  if (last == LastBatch::kFraction || std::isnan(exact)) return exact;
  return std::max(1.0, last == LastBatch::kCounted ? std::ceil(exact) : std::floor(exact));
}

std::string_view last_batch_text(LastBatch last) {
  switch (last) {
    case LastBatch::kCounted:
      return "last batch counted";
    case LastBatch::kLeftOut:
      return "last batch left out";
    case LastBatch::kFraction:
      break;
  }
  return "as a fraction";
}

}  // namespace gradsync::report::published
