// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace gradsync {

inline constexpr std::size_t kMostJsonBytes = std::size_t{32} << 20;
inline constexpr int kDeepestJson = 32;

/// Whether lists and objects of a document lie in each other more often than kDeepestJson.
inline bool is_too_deep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') quoted = !quoted;
    if (c == '\\' && quoted) ++i;
    if (quoted) continue;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kDeepestJson) return true;
  }
  return false;
}

/// A document that others wrote; discarded (`is_discarded()`) where it is none of JSON, too long or
/// too deep. A tree may take 20 times its text, and without a limit of depth 40 times.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, std::size_t most_bytes = kMostJsonBytes) {
  if (text.size() > most_bytes || is_too_deep(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

/// An integer from a document that others wrote. Throws Error kBadData for all that is no integer
/// of this type: nlohmann::json converts 1e300, which is undefined, cuts off 1.5 and wraps 2^63
/// around.
template <typename Integer>
Integer whole_number(const nlohmann::json& value) {
  static_assert(std::is_integral_v<Integer> && !std::is_same_v<Integer, bool>);
  if (value.is_number_unsigned() && std::in_range<Integer>(value.get<std::uint64_t>()))
    return static_cast<Integer>(value.get<std::uint64_t>());
  if (value.is_number_integer() && !value.is_number_unsigned() &&
      std::in_range<Integer>(value.get<std::int64_t>()))
    return static_cast<Integer>(value.get<std::int64_t>());
  throw Error(ExitCode::kBadData,
              fmt::format("{} is no integer of {} bits",
                          value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                          8 * sizeof(Integer)));
}

/// A measured number as documents write it: null if it is not finite.
inline nlohmann::ordered_json number_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

}  // namespace gradsync
