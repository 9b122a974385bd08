#include "analysis/published/units.h"

#include <array>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync::report::published {

namespace {

struct Named {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;

constexpr std::array<Named, 19> kUnitsTimes = {{{"ns", 1e-9},
                                                {"us", 1e-6},
                                                {"µs", 1e-6},
                                                {"μs", 1e-6},
                                                {"ms", 1e-3},
                                                {"s", 1},
                                                {"sec", 1},
                                                {"secs", 1},
                                                {"second", 1},
                                                {"seconds", 1},
                                                {"min", 60},
                                                {"mins", 60},
                                                {"minute", 60},
                                                {"minutes", 60},
                                                {"h", 3600},
                                                {"hr", 3600},
                                                {"hour", 3600},
                                                {"hours", 3600},
                                                {"d", 86400}}};

constexpr std::array<Named, 21> kSizes = {
    {{"B", 1},       {"byte", 1},   {"bytes", 1},    {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
     {"GB", 1e9},    {"TB", 1e12},  {"KiB", kKi},    {"MiB", kMi},    {"GiB", kGi},    {"TiB", kTi},
     {"bit", 0.125}, {"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"Tbit", 125e9}, {"kb", 125},
     {"Mb", 125e3},  {"Gb", 125e6}, {"Tb", 125e9}}};

constexpr std::array<Named, 4> kPerSecond = {
    {{"kbps", 125}, {"Mbps", 125e3}, {"Gbps", 125e6}, {"Tbps", 125e9}}};

constexpr std::array<Named, 6> kRates = {
    {{"images/s", 1}, {"image/s", 1}, {"img/s", 1}, {"imgs/s", 1}, {"samples/s", 1}, {"1/s", 1}}};

constexpr std::array<Named, 4> kRatios = {{{"", 1}, {"1", 1}, {"x", 1}, {"×", 1}}};

template <std::size_t N>
bool units_found(const std::array<Named, N>& names, std::string_view name, Dimension dimension,
                 Unit& unit) {
  for (const Named& one : names) {
    if (one.name != name) continue;
    unit = {dimension, one.factor};
    return true;
  }
  return false;
}

bool of_a_total(std::string_view text, Unit& unit) {
  if (!text.starts_with("of ")) return false;
  try {
    unit = {Dimension::kRatio, 1, parse_number(trimmed(text.substr(3)))};
    return unit.total > 0;
  } catch (const Error&) {
    return false;
  }
}

bool size_per_second(std::string_view text, Unit& unit) {
  for (const std::string_view ending : {"/s", "/sec", "/second", "ps"})
    if (text.ends_with(ending) && units_found(kSizes, text.substr(0, text.size() - ending.size()),
                                              Dimension::kBandwidth, unit))
      return true;
  return false;
}

}  // namespace

Unit parse_unit(std::string_view text) {
  Unit unit;
  if (text == "%" || text == "percent") return {Dimension::kRatio, 0.01, 0, true};
  if (units_found(kRatios, text, Dimension::kRatio, unit) ||
      units_found(kUnitsTimes, text, Dimension::kTime, unit))
    return unit;
  if (units_found(kPerSecond, text, Dimension::kBandwidth, unit) || size_per_second(text, unit))
    return unit;
  if (units_found(kSizes, text, Dimension::kBytes, unit) ||
      units_found(kRates, text, Dimension::kRate, unit))
    return unit;
  return of_a_total(text, unit) ? unit : Unit{};
}

std::string_view dimension_text(Dimension dimension) {
  switch (dimension) {
    case Dimension::kTime:
      return "a time";
    case Dimension::kBandwidth:
      return "a bandwidth";
    case Dimension::kBytes:
      return "a size";
    case Dimension::kRatio:
      return "a ratio or a count";
    case Dimension::kRate:
      return "a rate";
    case Dimension::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace gradsync::report::published
