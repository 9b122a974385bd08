#include "analysis/figures/bandwidth.h"

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

/// How reports print a convention, in the order of the enumeration.
struct Printed {
  std::string_view formula, unit, column_unit;
  double unit_bytes;
};
constexpr std::array<Printed, kConventionNames.size()> kPrinted = {{
    {"2(n-1)/n * S * iterations / communication time", "GB/s", "gb_per_s", kGB},
    {"S / communication time of all iterations", "GB/s", "gb_per_s", kGB},
    {"2(n-1)/n * S / communication time of all iterations", "GiB/s", "gib_per_s", kGiB},
    {"2(n-1) * S * iterations / communication time", "GB/s", "gb_per_s", kGB},
}};

const Printed& printed_as(BandwidthConvention convention) {
  return kPrinted[static_cast<std::size_t>(convention)];
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
  return printed_as(convention).formula;
}

double convention_unit_bytes(BandwidthConvention convention) {
  return printed_as(convention).unit_bytes;
}

std::string_view convention_unit(BandwidthConvention convention) {
  return printed_as(convention).unit;
}

std::string convention_column(BandwidthConvention convention, std::string_view method) {
  std::string name = fmt::format("{}_{}_{}", convention_name(convention), method,
                                 printed_as(convention).column_unit);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
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
