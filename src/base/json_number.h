#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace gradsync {

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
