// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/bound_option.h"

#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
Scaled scaled(std::int64_t count, std::int64_t factor, const std::array<const char*, 5>& units) {
  std::size_t unit = 0;
  for (; count % factor == 0 && unit + 1 < units.size(); ++unit)
    count /= factor;
  return {count, units[unit]};
}

std::string size_text(std::int64_t bytes) {
  if (bytes == 0) return "0";
  const Scaled binary = scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB"});
  const Scaled decimal = scaled(bytes, 1000, {"B", "kB", "MB", "GB", "TB"});
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

// What --help says of a range: ", 0 (no limit) to 1000". `zero` is the meaning of the lower end.
std::string range_text(const std::string& low, const std::string& high,
                       const std::string& zero = {}) {
  return fmt::format(", {}{} to {}", low, zero.empty() ? "" : " (" + zero + ")", high);
}

// A value from `low` to `high`; `fix` names both.
template <typename T>
ValueForm<T> ranged(const std::string& shown, const std::string& range,
                    T (*parse)(std::string_view), T low, T high, const std::string& fix,
                    std::string (*text)(T)) {
  const auto read = [=](const std::string& given) {
    T value{};
    try {
      value = parse(given);
    } catch (const Error& error) {
      throw Error(ExitCode::kUsage, error.what(), fix);
    }
    // Written so that a NaN bound or value is out of range, too.
    if (value >= low && value <= high) return value;
    throw Error(ExitCode::kUsage, fmt::format("\"{}\" is out of range", excerpt(given)), fix);
  };
  return {shown, range, read, text};
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

std::string with_range(const std::string& help, const std::string& range) {
  const std::size_t end = std::min(help.find(';'), help.size());
  return help.substr(0, end) + range + help.substr(end);
}

Error option_error(const OptionValues& values, const std::string& name, const std::string& why,
                   const std::string& fix) {
  return Error(ExitCode::kUsage, fmt::format("{}: {}", place(entry(values, name), name), why),
               fix.empty() ? fmt::format("--help-all describes --{}", name) : fix);
}

std::string text_option(const OptionValues& values, const std::string& name) {
  return entry(values, name).value;
}

std::vector<std::string> list_option(const OptionValues& values, const std::string& name) {
  const std::string& text = entry(values, name).value;
  return text.empty() ? std::vector<std::string>{} : split_list(text, '\n');
}

ValueForm<bool> switch_form() {
  const auto read = [](const std::string& text) {
    try {
      return parse_switch(text);
    } catch (const Error& error) {
      throw Error(ExitCode::kUsage, error.what(), "give true or false");
    }
  };
  return {"", "", read, [](bool value) { return std::string(value ? "true" : "false"); }};
}

ValueForm<std::int64_t> integer_form(std::int64_t low, std::int64_t high, const std::string& zero) {
  return ranged<std::int64_t>("N", range_text(std::to_string(low), std::to_string(high), zero),
                              parse_integer, low, high,
                              fmt::format("give a whole number from {} to {}", low, high),
                              [](std::int64_t value) { return std::to_string(value); });
}

ValueForm<double> number_form(double low, double high, const std::string& zero) {
  const std::string from = number_text(low), to = number_text(high);
  return ranged("X", range_text(from, to, zero), parse_number, low, high,
                fmt::format("give a number from {} to {}", from, to), number_text);
}

ValueForm<double> fraction_form() {
  return ranged("X", range_text("0", "below 1"), parse_number, 0.0, std::nextafter(1.0, 0.0),
                "give a number from 0 to below 1", number_text);
}

ValueForm<std::int64_t> size_form(std::int64_t low, std::int64_t high) {
  return ranged("SIZE", range_text(size_text(low), size_text(high)), parse_size, low, high,
                fmt::format("give a size from {} to {}, such as 4MiB or 25MB", format_bytes(low),
                            format_bytes(high)),
                size_text);
}

ValueForm<double> duration_form(double low_s, double high_s, const std::string& zero) {
  const std::string low = zero.empty() ? duration_text(low_s) : "0";
  return ranged("TIME", range_text(low, duration_text(high_s), zero), parse_duration, low_s, high_s,
                fmt::format("give a time from {} to {}, such as 250ms, 90s, 10m or 2h",
                            format_duration(low_s), format_duration(high_s)),
                duration_text);
}

ValueForm<std::string> text_form(const std::string& shown) {
  const auto same = [](const std::string& text) { return text; };
  return {shown, "", same, same};
}

ValueForm<std::size_t> index_form(const std::vector<std::string>& names) {
  const auto read = [names](const std::string& text) {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found != names.end()) return static_cast<std::size_t>(found - names.begin());
    throw Error(ExitCode::kUsage,
                fmt::format("\"{}\" is not a choice{}", excerpt(text), did_you_mean(text, names)),
                fmt::format("give one of {}", fmt::join(names, ", ")));
  };
  return {fmt::format("{}", fmt::join(names, "|")), "", read,
          [names](std::size_t index) { return names.at(index); }, names};
}

ValueForm<std::string> choice_form(const std::vector<std::string>& choices) {
  const ValueForm<std::size_t> index = index_form(choices);
  return {index.shown, "", [=](const std::string& text) { return choices[index.parse(text)]; },
          text_form("").text, choices};
}

}  // namespace gradsync
