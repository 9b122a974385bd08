// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"

namespace gradsync {

/// Calls `body`, checks that it throws an Error with `code`, and returns what it says with its fix.
template <typename Body>
std::string error_text(ExitCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    CHECK(error.exit_code() == static_cast<int>(code));
    return std::string(error.what()) + " | " + error.fix();
  }
  FAIL_CHECK("no error was thrown");
  return {};
}

/// The same for an Error of usage.
template <typename Body>
std::string refusal(Body&& body) {
  return error_text(ExitCode::kUsage, std::forward<Body>(body));
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// How often `part` is found, without overlaps.
inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Values = std::vector<double>;

}  // namespace gradsync
