#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/bound_option.h"
#include "base/cli/options.h"

namespace gradsync {

namespace {

const OptionValue& entry(const OptionValues& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end())
    throw Error(ExitCode::kInternal, fmt::format("the option {} is not in its table", name));
  return found->second;
}

// "--lr", "GRADSYNC_LR (--lr)" or "jobs/demo.cfg:12: lr".
std::string place(const OptionValue& value, const std::string& name) {
  if (value.source == "command line" || value.source == "default") return "--" + name;
  if (value.source == "environment") return fmt::format("{} (--{})", value.where, name);
  return fmt::format("{}: {}", value.where, name);
}

// Reads the value with `parse` and says where it stands if that fails.
template <typename Parse>
auto parsed(const OptionValues& values, const std::string& name, Parse&& parse,
            const std::string& fix) {
  try {
    return parse(entry(values, name).value);
  } catch (const Error& error) {
    throw option_error(values, name, error.what(), fix);
  }
}

template <typename Number>
Number in_range(const OptionValues& values, const std::string& name, Number value, Number low,
                Number high, const std::string& range) {
  // Written so that a NaN bound or value is out of range, too.
  if (value >= low && value <= high) return value;
  throw option_error(values, name, fmt::format("\"{}\" is out of range", entry(values, name).value),
                     range);
}

// "5e-4" for "5e-04".
std::string without_leading_zero(std::string exponent_form) {
  const std::size_t sign = exponent_form.find("e-0");
  return sign == std::string::npos ? exponent_form : exponent_form.erase(sign + 2, 1);
}

struct Scaled {
  std::int64_t count;
  const char* unit;
};

// In the largest unit that leaves a whole number.
Scaled scaled(std::int64_t count, std::int64_t factor, const std::array<const char*, 4>& units) {
  std::size_t unit = 0;
  for (; count % factor == 0 && unit + 1 < units.size(); ++unit)
    count /= factor;
  return {count, units[unit]};
}

}  // namespace

std::string number_text(double value) {
  const double size = std::abs(value);
  const bool plain = value == 0 || (size >= 1e-3 && size < 1e15);
  std::array<char, 64> text{};
  const auto end = std::to_chars(text.begin(), text.end(), value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  return without_leading_zero(std::string(text.begin(), end.ptr));
}

std::string size_text(std::int64_t bytes) {
  if (bytes == 0) return "0";
  const Scaled binary = scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB"});
  const Scaled decimal = scaled(bytes, 1000, {"B", "kB", "MB", "GB"});
  const Scaled& shorter = decimal.count < binary.count ? decimal : binary;
  return std::to_string(shorter.count) + shorter.unit;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  if (static_cast<double>(whole) != seconds) return number_text(seconds) + "s";
  if (whole == 0) return "0";
  if (whole % 3600 == 0) return fmt::format("{}h", whole / 3600);
  return whole % 60 == 0 && whole > 60 ? fmt::format("{}m", whole / 60) : fmt::format("{}s", whole);
}

std::string range_text(const std::string& low, const std::string& high, const std::string& zero) {
  return fmt::format(", {}{} to {}", low, zero.empty() ? "" : " (" + zero + ")", high);
}

std::string with_range(const std::string& help, const std::string& range) {
  const std::size_t end = std::min(help.find(';'), help.size());
  return help.substr(0, end) + range + help.substr(end);
}

Error option_error(const OptionValues& values, const std::string& name, const std::string& why,
                   const std::string& fix) {
  return Error(ExitCode::kUsage, fmt::format("{}: {}", place(entry(values, name), name), why), fix);
}

std::int64_t integer_option(const OptionValues& values, const std::string& name, std::int64_t low,
                            std::int64_t high) {
  const std::string range = fmt::format("give a whole number from {} to {}", low, high);
  return in_range(values, name, parsed(values, name, parse_integer, range), low, high, range);
}

double number_option(const OptionValues& values, const std::string& name, double low, double high) {
  const std::string range =
      fmt::format("give a number from {} to {}", number_text(low), number_text(high));
  return in_range(values, name, parsed(values, name, parse_number, range), low, high, range);
}

double fraction_option(const OptionValues& values, const std::string& name, double low) {
  const std::string range = fmt::format("give a number from {} to below 1", number_text(low));
  const double value = parsed(values, name, parse_number, range);
  return in_range(values, name, value, low, std::nextafter(1.0, 0.0), range);
}

std::int64_t size_option(const OptionValues& values, const std::string& name, std::int64_t low,
                         std::int64_t high) {
  const std::string range = fmt::format("give a size from {} to {}, such as 4MiB or 25MB",
                                        format_bytes(low), format_bytes(high));
  return in_range(values, name, parsed(values, name, parse_size, range), low, high, range);
}

double duration_option(const OptionValues& values, const std::string& name, double low_s,
                       double high_s) {
  const std::string range = fmt::format("give a time from {} to {}, such as 250ms, 90s, 10m or 2h",
                                        format_duration(low_s), format_duration(high_s));
  return in_range(values, name, parsed(values, name, parse_duration, range), low_s, high_s, range);
}

bool switch_option(const OptionValues& values, const std::string& name) {
  return parsed(values, name, parse_switch, "give true or false");
}

std::string text_option(const OptionValues& values, const std::string& name) {
  return entry(values, name).value;
}

std::string choice_option(const OptionValues& values, const std::string& name,
                          const std::vector<std::string>& choices) {
  const std::string& value = entry(values, name).value;
  if (std::find(choices.begin(), choices.end(), value) != choices.end()) return value;
  throw option_error(values, name,
                     fmt::format("\"{}\" is not a choice{}", value, did_you_mean(value, choices)),
                     fmt::format("give one of {}", fmt::join(choices, ", ")));
}

std::vector<std::string> list_option(const OptionValues& values, const std::string& name) {
  const std::string& text = entry(values, name).value;
  return text.empty() ? std::vector<std::string>{} : split_list(text, '\n');
}

}  // namespace gradsync
