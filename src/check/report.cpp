#include "check/report.h"

#include <cstdlib>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parse.h"
#include "base/table.h"
#include "check/facts.h"

namespace gradsync::check {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kIdColumns = 24;

std::string_view name_of(Outcome outcome) {
  return kOutcomeNames[static_cast<std::size_t>(outcome)];
}

Json rows_of(const Table& table) {
  Json rows = Json::array();
  for (const auto& cells : table.rows) {
    Json row;
    for (std::size_t i = 0; i < cells.size(); ++i)
      row[table.columns[i].name] =
          cells[i].is_number() ? Json(cells[i].number) : Json(cells[i].text);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json summary_of(const std::vector<Finding>& findings) {
  Json summary;
  for (std::size_t i = 0; i < kOutcomeNames.size(); ++i)
    summary[std::string(kOutcomeNames[i])] = count_of(findings, static_cast<Outcome>(i));
  return summary;
}

}  // namespace

std::string row_text(const Finding& finding) {
  return fmt::format("{}  {}  {}\n", name_of(finding.outcome), padded(finding.id, kIdColumns, true),
                     finding.seen);
}

std::string closing_text(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings)
    if (!finding.fix.empty()) text += fmt::format("  {}: {}\n", finding.id, finding.fix);
  if (!text.empty()) text = "\nWhat to do\n" + text;
  return text + "\n" + summary_text(findings) + "\n";
}

std::string json_text(const CheckResult& result, const std::string& command_line) {
  Json json = {{"format", "gradsync-check/1"},
               {"command_line", command_line},
               {"created", utc_now()},
               {"result", count_of(result.findings, Outcome::kFail) > 0 ? "fail" : "pass"},
               {"summary", summary_of(result.findings)},
               {"checks", Json::array()},
               {"tables", Json::object()}};
  for (const Finding& finding : result.findings)
    json["checks"].push_back({{"id", finding.id},
                              {"result", name_of(finding.outcome)},
                              {"seen", finding.seen},
                              {"fix", finding.fix}});
  for (const Table& table : result.tables)
    json["tables"][table.name] = rows_of(table);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string junit_text(const std::vector<Finding>& findings) {
  std::vector<JunitCase> cases;
  for (const Finding& finding : findings) {
    JunitCase one{finding.id, JunitCase::Result::kPassed, finding.seen, "preflight"};
    if (finding.outcome == Outcome::kSkip) one.result = JunitCase::Result::kSkipped;
    if (finding.outcome == Outcome::kFail) one.result = JunitCase::Result::kFailed;
    if (finding.outcome == Outcome::kWarn) one.message = "warning: " + one.message;
    if (!finding.fix.empty()) one.message += "; " + finding.fix;
    cases.push_back(std::move(one));
  }
  return junit_suite("gradsync-check", "gradsync.check", cases);
}

bool cannot_start(const Launcher& launcher) {
  return launcher.name == "srun" && launcher.ranks > 1 && !launcher.pmix && !launcher.pmi;
}

void end_if_it_cannot_start(const Launcher& launcher) {
  if (!cannot_start(launcher)) return;
  // The exit code of srun is the largest of its tasks. At the first that fails, srun may end the
  // others: task 0 could be ended before it has printed the message.
  if (launcher.rank != 0) std::exit(static_cast<int>(ExitCode::kOk));
  print_error("gradsync-check",
              Error(ExitCode::kEnvironment,
                    fmt::format("srun started {} tasks ({}) without PMIx, so none can find the "
                                "others",
                                launcher.ranks, launcher.ranks_from),
                    kSrunFix));
  std::exit(static_cast<int>(ExitCode::kEnvironment));
}

}  // namespace gradsync::check
