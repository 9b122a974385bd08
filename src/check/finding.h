#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/table.h"

namespace gradsync::check {

enum class Outcome { kPass, kWarn, kFail, kSkip };
inline constexpr std::array<std::string_view, 4> kOutcomeNames = {"pass", "warn", "fail", "skip"};

/// One row of the preflight.
struct Finding {
  std::string id;  ///< "binding.threads": the check, and which of its questions
  Outcome outcome = Outcome::kPass;
  std::string seen;  ///< values with their units, ranks, hosts; the reason of a skip
  std::string fix;   ///< one line: a command where there is one; empty for pass and skip
};

Finding passed(std::string id, std::string seen);
Finding warned(std::string id, std::string seen, std::string fix);
Finding failed(std::string id, std::string seen, std::string fix);
Finding skipped(std::string id, std::string reason);

/// What a check found, on rank 0; empty elsewhere.
struct CheckResult {
  std::vector<Finding> findings;
  std::vector<Table> tables = {};  ///< what was found where, for people
};

std::size_t count_of(const std::vector<Finding>& findings, Outcome outcome);

/// "3 pass, 1 warn, 0 fail, 2 skip".
std::string summary_text(const std::vector<Finding>& findings);

/// The first four with "; " between, "and 12 more" behind them.
std::string first_few(const std::vector<std::string>& parts);

}  // namespace gradsync::check
