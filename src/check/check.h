#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/cli/program_help.h"
#include "base/launcher.h"
#include "base/table.h"
#include "check/job.h"
#include "comm/watched_phases.h"

namespace gradsync::check {

/// The settings of gradsync-check, all checked.
struct CheckOptions {
  std::string data = "data/cifar-10";  ///< folder of the data set
  std::string results = "results";     ///< folder that runs will be written to
  int ranks = 0;                       ///< the job must have so many; 0: any
  int ranks_per_node = 0;              ///< each host must have so many; 0: any
  int threads = 0;                     ///< compute threads a rank will use; 0: the trainer chooses
  std::string device = "auto";         ///< auto, cpu or cuda
  bool allow_shared_gpu = false;
  std::vector<std::string> skip;  ///< ids of checks that are left out
  double timeout_s = 60;
  double least_link = 0;       ///< share of its nominal rate that a link must have; 0: a warning
  std::string sysfs = "/sys";  ///< where the kernel states rates
  std::string json, junit;     ///< files, or empty
};

OptionTable check_option_table();
ProgramHelp check_help();
/// Throws Error kUsage with the option, its value, its source and what would be right.
CheckOptions check_options(const OptionValues& values);
/// --timeout limits the start as well.
WatchLimits watch_limits(const CheckOptions& options);

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

/// One check: gathers facts of every rank and judges them on rank 0. Collective; it throws on no
/// rank alone, since the others would wait for it.
///
/// The judgment of each check is a function of its own from facts to findings, so that it can be
/// given any facts.
struct Check {
  std::string id;
  CheckResult (*run)(Job& job, const CheckOptions& options);
};

/// All checks, in the order of the report.
const std::vector<Check>& checks();

/// What one rank states.
template <typename Facts>
struct OnRank {
  int rank = 0;
  std::string host;
  Facts facts;

  /// "rank 2 (node07)".
  std::string name() const { return fmt::format("rank {} ({})", rank, host); }
};

template <typename Facts>
using Ranks = std::vector<OnRank<Facts>>;

/// The facts of all ranks on rank 0, in order of rank; empty elsewhere. `Facts` reads from and
/// writes to nlohmann's JSON. Collective.
template <typename Facts>
Ranks<Facts> gather_facts(Job& job, const Facts& mine) {
  const nlohmann::json stated = {{"host", job.place().host}, {"facts", mine}};
  Ranks<Facts> all;
  for (const std::string& text :
       job.gather(stated.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace))) {
    const auto json = nlohmann::json::parse(text);
    all.push_back({static_cast<int>(all.size()), json.at("host").template get<std::string>(),
                   json.at("facts").template get<Facts>()});
  }
  return all;
}

/// Runs `judge(facts of all ranks)` where they are, on rank 0.
template <typename Facts, typename Judge>
CheckResult judged(Job& job, const Facts& mine, Judge&& judge) {
  const auto facts = gather_facts(job, mine);
  return facts.empty() ? CheckResult{} : judge(facts);
}

#define GRADSYNC_CHECK(id, name) CheckResult check_##id(Job& job, const CheckOptions& options);
#include "check/checks.def"
#undef GRADSYNC_CHECK

/// The row of a finding: result, name, what was seen. Ends with a newline.
std::string row_text(const Finding& finding);

/// The fixes of what warned or failed, a line each, and the summary.
std::string closing_text(const std::vector<Finding>& findings);

/// {"format": "gradsync-check/1", "command_line", "created", "result": "pass"|"fail",
///  "summary": {"pass", "warn", "fail", "skip"}, "checks": [{"id", "result", "seen", "fix"}],
///  "tables": {NAME: [{COLUMN: value}]}}
std::string json_text(const CheckResult& result, const std::string& command_line);

/// One test per finding; a warning is a pass with the warning as output.
std::string junit_text(const std::vector<Finding>& findings);

/// Whether no MPI could find the other ranks: srun started several and gave neither PMIx nor PMI.
/// Open MPI 4 then ends the process in MPI_Init with its own text and code 1, Open MPI 5 makes each
/// process rank 0 of 1.
bool cannot_start(const Launcher& launcher);

/// Ends this process with kEnvironment if so; the first one reports it.
void end_if_it_cannot_start(const Launcher& launcher);

}  // namespace gradsync::check
