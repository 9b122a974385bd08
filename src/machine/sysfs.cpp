#include "machine/sysfs.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace gradsync {

namespace fs = std::filesystem;

std::string line_of(const fs::path& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

double number_in(const fs::path& file) {
  return std::strtod(line_of(file).c_str(), nullptr);
}

double counter_in(const fs::path& file) {
  const std::string line = line_of(file);
  char* end = nullptr;
  const double value = std::strtod(line.c_str(), &end);
  return end == line.c_str() ? std::nan("") : value;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    entries.push_back(entry->path());
  std::ranges::sort(entries);
  return entries;
}

namespace fs = std::filesystem;

namespace {

constexpr double kBitsPerByte = 8;

std::vector<NominalRate> infiniband_rates(const fs::path& sysfs) {
  std::vector<NominalRate> rates;
  for (const fs::path& adapter : entries_of(sysfs / "class/infiniband"))
    for (const fs::path& port : entries_of(adapter / "ports"))
      if (line_of(port / "state").find("ACTIVE") != std::string::npos)
        rates.push_back(
            {fmt::format("{} port {}", adapter.filename().string(), port.filename().string()),
             number_in(port / "rate") * 1e9 / kBitsPerByte});
  return rates;
}

/// Virtual interfaces state a rate that nothing backs.
std::vector<NominalRate> interface_rates(const fs::path& sysfs) {
  std::vector<NominalRate> rates;
  for (const fs::path& interface : entries_of(sysfs / "class/net"))
    if (fs::exists(interface / "device") && line_of(interface / "operstate") == "up")
      rates.push_back(
          {interface.filename().string(), number_in(interface / "speed") * 1e6 / kBitsPerByte});
  return rates;
}

NominalRate fastest(const std::vector<NominalRate>& rates) {
  NominalRate best;
  for (const NominalRate& one : rates)
    if (one.rate_Bps > best.rate_Bps) best = one;
  return best;
}

}  // namespace

std::vector<NominalRate> nominal_rates(const fs::path& sysfs) {
  std::vector<NominalRate> rates = infiniband_rates(sysfs);
  for (NominalRate& one : interface_rates(sysfs))
    rates.push_back(std::move(one));
  std::erase_if(rates, [](const NominalRate& one) { return !(one.rate_Bps > 0); });
  return rates;
}

NominalRate nominal_rate(const fs::path& sysfs) {
  const NominalRate best = fastest(infiniband_rates(sysfs));
  return best.rate_Bps > 0 ? best : fastest(interface_rates(sysfs));
}

namespace {

bool holds_anything(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator devices(folder, error);
  return !error && devices != std::filesystem::directory_iterator();
}

}  // namespace

bool has_infiniband() {
  return holds_anything("/sys/class/infiniband");
}

bool has_fast_network() {
  return has_infiniband() || holds_anything("/sys/class/cxi");
}

}  // namespace gradsync
