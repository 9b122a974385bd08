#include "analysis/metrics/bandwidth.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace gradsync::report {

namespace {

/// n, where something crosses a link.
double several(double ranks) {
  return ranks > 1 ? ranks : kNotMeasured;
}

double ring_factor(double ranks) {
  return 2 * (ranks - 1) / ranks;
}

double volume_bytes(BandwidthConvention convention, const EpochCommunication& epoch) {
  const double n = several(epoch.ranks);
  switch (convention) {
    case BandwidthConvention::kBusbw:
      return ring_factor(n) * epoch.message_bytes * epoch.iterations;
    case BandwidthConvention::kMessage:
      return n / n * epoch.message_bytes;  // NaN for one rank
    case BandwidthConvention::kRingEpoch:
      return ring_factor(n) * epoch.message_bytes;
    case BandwidthConvention::kTotalVolume:
      return 2 * (n - 1) * epoch.message_bytes * epoch.iterations;
  }
  return kNotMeasured;
}

}  // namespace

double bandwidth(BandwidthConvention convention, const EpochCommunication& epoch) {
  return volume_bytes(convention, epoch) / positive(epoch.communication_s);
}

std::string_view convention_name(BandwidthConvention convention) {
  return kConventionNames[static_cast<std::size_t>(convention)];
}

std::string_view convention_formula(BandwidthConvention convention) {
  switch (convention) {
    case BandwidthConvention::kBusbw:
      return "2(n-1)/n * S * iterations / communication time";
    case BandwidthConvention::kMessage:
      return "S / communication time of all iterations";
    case BandwidthConvention::kRingEpoch:
      return "2(n-1)/n * S / communication time of all iterations";
    case BandwidthConvention::kTotalVolume:
      return "2(n-1) * S * iterations / communication time";
  }
  return "";
}

double convention_unit_bytes(BandwidthConvention convention) {
  return convention == BandwidthConvention::kRingEpoch ? kGiB : kGB;
}

std::string_view convention_unit(BandwidthConvention convention) {
  return convention == BandwidthConvention::kRingEpoch ? "GiB/s" : "GB/s";
}

std::string convention_column(BandwidthConvention convention, std::string_view method) {
  std::string name = fmt::format("{}_{}_", convention_name(convention), method);
  std::replace(name.begin(), name.end(), '-', '_');
  return name + (convention == BandwidthConvention::kRingEpoch ? "gib_per_s" : "gb_per_s");
}

std::optional<BandwidthConvention> parse_convention(std::string_view name) {
  const auto found = std::find(kConventionNames.begin(), kConventionNames.end(), name);
  if (found == kConventionNames.end()) return std::nullopt;
  return static_cast<BandwidthConvention>(found - kConventionNames.begin());
}

double allreduce_tree_s(double bytes, double bandwidth_bytes_per_s, double ranks) {
  return bytes / positive(bandwidth_bytes_per_s) * std::log2(ranks >= 1 ? ranks : kNotMeasured);
}

double allreduce_ring_s(double bytes, double bandwidth_bytes_per_s, double ranks) {
  return bytes / positive(bandwidth_bytes_per_s) * ring_factor(ranks >= 1 ? ranks : kNotMeasured);
}

}  // namespace gradsync::report
