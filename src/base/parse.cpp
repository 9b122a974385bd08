// SPDX-License-Identifier: BSD-3-Clause
#include "base/parse.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace gradsync {

namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw Error(ExitCode::kUsage, fmt::format("\"{}\" {}", excerpt(text), why));
}

bool ended(std::string_view text, std::from_chars_result result) {
  return result.ptr == text.data() + text.size();
}

// from_chars also reads "inf", "nan" and hexadecimal digits of neither; only decimals are wanted.
bool starts_like_a_number(std::string_view text) {
  const std::size_t sign = !text.empty() && text.front() == '-' ? 1 : 0;
  if (text.size() <= sign) return false;
  const char first = text[sign];
  return (first >= '0' && first <= '9') || first == '.';
}

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKibi = 1024, kKilo = 1000;
constexpr std::array<Unit, 10> kSizeUnits = {{{"", 1},
                                              {"B", 1},
                                              {"kB", kKilo},
                                              {"MB", kKilo* kKilo},
                                              {"GB", kKilo* kKilo* kKilo},
                                              {"TB", kKilo* kKilo* kKilo* kKilo},
                                              {"KiB", kKibi},
                                              {"MiB", kKibi* kKibi},
                                              {"GiB", kKibi* kKibi* kKibi},
                                              {"TiB", kKibi* kKibi* kKibi* kKibi}}};
constexpr std::array<Unit, 6> kTimeUnits = {
    {{"", 1}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};

template <std::size_t N>
std::optional<double> factor_of(const std::array<Unit, N>& units, std::string_view name) {
  for (const auto& unit : units)
    if (unit.name == name) return unit.factor;
  return std::nullopt;
}

struct Quantity {
  std::string_view number, unit;
};

// The unit is the letters at the end; a lone exponent ("1e") is thereby an unknown unit.
Quantity split_quantity(std::string_view text) {
  const std::size_t last = text.find_last_of("0123456789.");
  const std::size_t at = last == std::string_view::npos ? 0 : last + 1;
  return {trimmed(text.substr(0, at)), trimmed(text.substr(at))};
}

[[noreturn]] void refuse_size_unit(std::string_view text, Quantity quantity) {
  if (quantity.unit.size() <= 2 && !quantity.unit.empty()) {
    const char letter = static_cast<char>(std::toupper(quantity.unit.front()));
    const bool spelt =
        quantity.unit.size() == 1 || quantity.unit[1] == 'b' || quantity.unit[1] == 'B';
    if (spelt && (letter == 'K' || letter == 'M' || letter == 'G' || letter == 'T'))
      refuse(text, fmt::format("could mean {0}{1}B (powers of 1000) or {0}{2}iB (powers of 1024)",
                               quantity.number, letter == 'K' ? 'k' : letter, letter));
  }
  refuse(text, "is not a size; the units are B, kB, MB, GB, TB, KiB, MiB, GiB and TiB");
}

std::string normal_form(std::string_view text) {
  std::string form(text);
  for (char& c : form)
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return form;
}

// Levenshtein's distance, by the row-by-row recurrence of Wagner and Fischer (1974), in which two
// neighbors that changed places are one edit.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] =
          std::min({last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1), last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::size_t distance_for_people(const std::string& text, const std::string& candidate) {
  if (text.size() >= 2 && candidate.starts_with(text)) return candidate == text ? 0 : 1;
  return edit_distance(text, candidate);
}

std::string shortened(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

std::int64_t parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!starts_like_a_number(text) || result.ec == std::errc::invalid_argument ||
      !ended(text, result))
    refuse(text, "is not a whole number");
  if (result.ec == std::errc::result_out_of_range) refuse(text, "does not fit 64 bits");
  return value;
}

double parse_number(std::string_view text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!starts_like_a_number(text) || result.ec == std::errc::invalid_argument ||
      !ended(text, result))
    refuse(text, "is not a finite number");
  if (result.ec == std::errc::result_out_of_range) refuse(text, "is beyond what a double holds");
  return value;
}

std::int64_t parse_size(std::string_view text) {
  const Quantity quantity = split_quantity(text);
  const auto factor = factor_of(kSizeUnits, quantity.unit);
  if (!starts_like_a_number(quantity.number) || quantity.number.front() == '-')
    refuse(text, "is not a size such as 4MiB or 25MB");
  if (!factor) refuse_size_unit(text, quantity);
  // A double holds every size below 2^53 bytes (8 PiB) exactly; larger ones are no sizes here. The
  // product of a decimal fraction, 4.1 MB, is rounded.
  const double product = parse_number(quantity.number) * *factor, bytes = std::round(product);
  if (bytes > 9007199254740992.0) refuse(text, "is larger than 8 PiB");
  if (std::abs(product - bytes) > 2 * std::numeric_limits<double>::epsilon() * bytes)
    refuse(text, "is not a whole number of bytes");
  return static_cast<std::int64_t>(bytes);
}

namespace {

constexpr std::size_t kMostSizes = 10000;

void require_range(std::int64_t first, std::int64_t last, double factor, std::int64_t step) {
  if (first < 1)
    throw Error(ExitCode::kUsage, fmt::format("sizes from {} B on: there is none below 1 B", first),
                "give increasing sizes, as 1KiB:64MiB");
  if (last > kLargestMessageBytes || last < first)
    throw Error(ExitCode::kUsage,
                fmt::format("sizes from {} to {} B: the first is above the last, or the last above "
                            "{} B",
                            first, last, kLargestMessageBytes),
                "give increasing sizes, as -b 1KiB -e 64MiB");
  if (step < 0 || (step == 0 && !(factor > 1)))
    throw Error(ExitCode::kUsage,
                fmt::format("a factor of {} between the sizes never reaches the last", factor),
                "give a factor above 1, as -f 2, or a step in bytes, as -i 1MiB");
}

}  // namespace

std::int64_t whole_value_bytes(std::int64_t bytes, std::int64_t value_bytes) {
  return (bytes + value_bytes - 1) / value_bytes * value_bytes;
}

std::vector<std::int64_t> size_range(std::int64_t first, std::int64_t last, double factor,
                                     std::int64_t step) {
  require_range(first, last, factor, step);
  std::vector<std::int64_t> sizes;
  for (double bytes = static_cast<double>(first); bytes <= static_cast<double>(last);) {
    const std::int64_t whole = whole_value_bytes(static_cast<std::int64_t>(bytes));
    if (sizes.empty() || whole != sizes.back()) sizes.push_back(whole);
    if (sizes.size() > kMostSizes)
      throw Error(ExitCode::kUsage, fmt::format("more than {} sizes", kMostSizes),
                  "give a larger step or factor");
    // A factor just above 1 leads to the next byte at least.
    bytes = step > 0 ? bytes + static_cast<double>(step)
                     : std::max(bytes * factor, std::floor(bytes) + 1);
  }
  return sizes;
}

std::vector<std::int64_t> parse_size_sweep(const std::string& text) {
  const auto ends = split_list(text, ':');
  if (ends.size() != 2)
    throw Error(ExitCode::kUsage, fmt::format("\"{}\" is not FIRST:LAST", text),
                "give two sizes, as 1KiB:16MiB");
  return size_range(parse_size(ends[0]), parse_size(ends[1]), 2, 0);
}

double parse_duration(std::string_view text) {
  const Quantity quantity = split_quantity(text);
  const auto factor = factor_of(kTimeUnits, quantity.unit);
  if (!factor || !starts_like_a_number(quantity.number) || quantity.number.front() == '-')
    refuse(text, "is not a time such as 250ms, 90s, 10m or 2h");
  const double seconds = parse_number(quantity.number) * *factor;
  if (!std::isfinite(seconds)) refuse(text, "is beyond what a double holds");
  return seconds;
}

bool parse_switch(std::string_view text) {
  const std::string word = normal_form(text);
  if (word == "true" || word == "yes" || word == "on" || word == "1") return true;
  if (word == "false" || word == "no" || word == "off" || word == "0") return false;
  refuse(text, "is neither true nor false");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string> split_list(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string count_text(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 7> kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; std::abs(value) >= kKibi && unit + 1 < kNames.size(); ++unit)
    value /= kKibi;
  return fmt::format("{} {}", shortened(value, 1), kNames[unit]);
}

std::string format_duration(double seconds) {
  if (std::isnan(seconds)) return "n/a";
  if (seconds < 0) return "-" + format_duration(-seconds);
  if (seconds >= 1e9) return fmt::format("{:.3g} s", seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 0.9995e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string nearest(std::string_view text, const std::vector<std::string>& candidates) {
  constexpr std::size_t kLongestName = 100;
  const std::string wanted = normal_form(text.substr(0, kLongestName));
  std::size_t best_distance = (wanted.size() + 2) / 3 + 1;
  std::string best;
  for (const auto& candidate : candidates) {
    const std::size_t distance = distance_for_people(wanted, normal_form(candidate));
    if (distance >= best_distance || distance >= candidate.size()) continue;
    best_distance = distance;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& candidates) {
  const std::string name = nearest(text, candidates);
  return name.empty() ? "" : fmt::format("; did you mean {}?", name);
}

Error no_such(std::string_view what, std::string_view name, const std::vector<std::string>& names) {
  return Error(ExitCode::kUsage,
               fmt::format("'{}' is no {}{}", excerpt(name), what, did_you_mean(name, names)),
               fmt::format("give one of {}", fmt::join(names, ", ")));
}

namespace {

bool continues(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if (!continues(text, at + i)) return 0;
  const auto second = static_cast<unsigned char>(text[at + 1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool outside = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || outside ? 0 : length;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string with_escaped_bytes(std::string_view text) {
  std::string escaped;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0)
      escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
    else
      escaped += text.substr(at, length), at += length;
  }
  return escaped;
}

std::string printable(std::string_view text) {
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7F; };
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string shown;
  for (const char c : with_escaped_bytes(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x20 && byte != 0x7F) || c == '\n' || c == '\t')
      shown += c;
    else
      shown += fmt::format("\\x{:02x}", byte);
  }
  // U+0080 to U+009F, which are control characters of terminals as well.
  for (std::size_t at = 0; (at = shown.find('\xC2', at)) != std::string::npos; ++at)
    if (const auto second = static_cast<unsigned char>(shown[at + 1]); second < 0xA0)
      shown.replace(at, 2, fmt::format("\\x{:02x}", second));
  return shown;
}

std::string excerpt(std::string_view text) {
  constexpr std::size_t kMost = 80;
  std::size_t end = 0;
  for (std::size_t count = 0; end < text.size() && count < kMost; ++count)
    end += std::max<std::size_t>(utf8_length(text, end), 1);
  return printable(text.substr(0, end)) +
         (end < text.size() ? fmt::format("… ({} bytes)", text.size()) : "");
}

std::string shell_quoted(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace gradsync
