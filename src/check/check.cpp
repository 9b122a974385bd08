// SPDX-License-Identifier: BSD-3-Clause
#include "check/check.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/cli/bound_option.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/table.h"
#include "options/transport_choice.h"

namespace gradsync::check {

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
#define GRADSYNC_CHECK(id, name) {name, check_##id},
#include "check/checks.def"
#undef GRADSYNC_CHECK
  };
  return all;
}

namespace {

using Groups = std::vector<BoundGroup<CheckOptions>>;

std::vector<std::string> check_names() {
  std::vector<std::string> names;
  for (const Check& check : checks())
    names.push_back(check.id);
  return names;
}

std::vector<std::string> parse_skips(const std::string& text) {
  if (text.empty()) return {};
  const auto known = check_names();
  const auto chosen = split_list(text, ',');
  for (const std::string& name : chosen)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw no_such("check", name, known);
  return chosen;
}

Groups own_options() {
  using Value = BoundValue<CheckOptions>;
  using O = CheckOptions;
  constexpr int kMostRanks = 1'000'000;
  return {
      {"Requirements of the job",
       {
           {"ranks", Value::integer<int>(&O::ranks, 0, kMostRanks, "any"),
            "the job must have N ranks"},
           {"ranks-per-node", Value::integer<int>(&O::ranks_per_node, 0, kMostRanks, "any"),
            "each host must have N ranks"},
           {"results", Value::text_value(&O::results, "FOLDER"),
            "where runs will be written; it need not exist"},
           {"skip", Value::parsed("NAMES", "", &O::skip, parse_skips),
            fmt::format("checks to leave out, separated by commas: {}",
                        fmt::join(check_names(), ", "))},
           {"verbose", Value::on_off(&O::verbose),
            "print what passed and what was skipped too, each row when it is known, and the tables "
            "of hosts, libraries and links"},
           {"least-link", Value::fraction(&O::least_link),
            "a link between hosts must reach this share of its nominal rate, and the NVLinks of a "
            "GPU must have it, as 0.7; 0: warnings, between hosts below half of it"},
           {"sysfs", Value::text_value(&O::sysfs, "FOLDER"),
            "for tests: where the kernel states the rates of ports"},
           {"timeout", Value::duration(&O::timeout_s, 1, 3600),
            "end the job when a rank does not answer within TIME"},
       }},
      {"Output",
       {
           {"json", Value::text_value(&O::json, "FILE"),
            "write the findings as JSON; an older file is replaced; -: print them, and nothing "
            "else"},
           {"junit", Value::text_value(&O::junit, "FILE"),
            "write the findings as JUnit XML, a test per row; an older file is replaced; -: print "
            "them, and nothing else"},
       }},
  };
}

/// These mean here what they mean to the trainer.
Groups shared_options() {
  using Value = BoundValue<CheckOptions>;
  return {{"Of the training to come",
           {
               {"device", Value::choice(&CheckOptions::device, {"auto", "cpu", "cuda"}),
                "cuda: a rank without a GPU fails; auto: GPUs are checked where there are any"},
               {"allow-shared-gpu", Value::on_off(&CheckOptions::allow_shared_gpu),
                "several ranks on one GPU give a warning only"},
               {"data", Value::text_value(&CheckOptions::data, "FOLDER"),
                "folder with CIFAR-10's binary files"},
               {"threads", Value::integer<int>(&CheckOptions::threads, 0, 1024),
                "threads per rank; 0: the trainer chooses"},
               {"transport", Value::choice(&CheckOptions::transport, transport_names()),
                "NCCL is tried for auto and nccl only"},
           }}};
}

ProgramOptions<CheckOptions> all_options() {
  return {"check", own_options(), shared_options()};
}

}  // namespace

OptionTable check_option_table() {
  return all_options().table();
}

ProgramHelp check_help() {
  return {"gradsync-check",
          "mpirun -n RANKS gradsync-check [OPTION...]",
          "Checks ranks, hosts, libraries, files and links before a run; prints fixes.",
          "mpirun -n 4 gradsync-check --data data/cifar-10\n"
          "srun --mpi=pmix -n 8 gradsync-check --ranks 8 --ranks-per-node 4 --device cuda\n"
          "mpirun -n 2 gradsync-check --skip data --results results/demo\n"
          "mpirun -n 2 gradsync-check --threads 1 --json check.json --junit check.xml\n"
          "gradsync-check --print-config",
          {ExitCode::kHang, ExitCode::kRanksDisagree},
          {},
          "The exit code is 69 if a check fails, else 0; warnings do not change it."};
}

CheckOptions check_options(const OptionValues& values) {
  return all_options().read(values);
}

WatchLimits watch_limits(const CheckOptions& options) {
  WatchLimits limits;
  limits.timeout_s = limits.start_s = options.timeout_s;
  limits.timeout_option = limits.start_option = "--timeout";
  return limits;
}

namespace {
constexpr std::ptrdiff_t kShown = 4;
}

Finding passed(std::string id, std::string seen) {
  return {std::move(id), Outcome::kPass, std::move(seen), ""};
}

Finding warned(std::string id, std::string seen, std::string fix) {
  return {std::move(id), Outcome::kWarn, std::move(seen), std::move(fix)};
}

Finding failed(std::string id, std::string seen, std::string fix) {
  return {std::move(id), Outcome::kFail, std::move(seen), std::move(fix)};
}

Finding skipped(std::string id, std::string reason) {
  return {std::move(id), Outcome::kSkip, std::move(reason), ""};
}

std::size_t count_of(const std::vector<Finding>& findings, Outcome outcome) {
  return static_cast<std::size_t>(
      std::count_if(findings.begin(), findings.end(),
                    [&](const Finding& finding) { return finding.outcome == outcome; }));
}

std::string summary_text(const std::vector<Finding>& findings) {
  return fmt::format("{} pass, {} warn, {} fail, {} skip", count_of(findings, Outcome::kPass),
                     count_of(findings, Outcome::kWarn), count_of(findings, Outcome::kFail),
                     count_of(findings, Outcome::kSkip));
}

std::string first_few(const std::vector<std::string>& parts) {
  const auto count = static_cast<std::ptrdiff_t>(parts.size());
  const auto shown = std::min(count, kShown);
  std::string text = fmt::format("{}", fmt::join(parts.begin(), parts.begin() + shown, "; "));
  if (count > shown) text += fmt::format("; and {} more", count - shown);
  return text;
}

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

std::string closing_text(const std::vector<Finding>& findings, bool verbose) {
  std::string text = fmt::format("\n{}{}\n", summary_text(findings),
                                 verbose ? "" : " (--verbose prints every row and the tables)");
  for (const Outcome outcome : {Outcome::kWarn, Outcome::kFail})
    for (const Finding& finding : findings)
      if (finding.outcome == outcome)
        text += fmt::format("{}{}\n", row_text(finding), "  fix: " + finding.fix);
  return text;
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

}  // namespace gradsync::check
