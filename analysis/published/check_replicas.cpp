#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kReplicasCheck = "replicas";

/// Values of one quantity of one run, a rank each.
struct Ranks {
  std::vector<const Row*> rows;

  double smallest() const {
    return (*std::min_element(rows.begin(), rows.end(), below))->range().value;
  }
  double largest() const {
    return (*std::max_element(rows.begin(), rows.end(), below))->range().value;
  }
  std::string text() const {
    std::string values;
    for (const Row* row : rows)
      values += (values.empty() ? "" : ", ") + row->text;
    return fmt::format("{}, {}: {} {}", rows.front()->synchronization(),
                       setting_text(rows.front()->devices, rows.front()->batch_per_device), values,
                       rows.front()->unit_text);
  }
  std::vector<std::size_t> lines() const {
    std::vector<std::size_t> all;
    for (const Row* row : rows)
      all.push_back(row->line);
    return all;
  }

 private:
  static bool below(const Row* a, const Row* b) { return a->range().value < b->range().value; }
};

using Run = std::tuple<std::string, std::string, std::string, std::int64_t, std::int64_t,
                       std::string, std::string>;

std::map<Run, Ranks> ranks_of(const Study& study, const std::string& report) {
  std::map<Run, Ranks> runs;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable() || !row->one_rank_of_several()) continue;
    if (is_without_exchange(row->synchronization())) continue;
    runs[{row->table, row->model, row->synchronization(), row->devices, row->batch_per_device,
          row->quantity, row->extra}]
        .rows.push_back(row);
  }
  return runs;
}

bool is_of_the_test_set(const Row& row) {
  return row.what.kind == Kind::kCorrect || row.quantity.starts_with("test_");
}

void replicas_check_report(const Study& study, const std::string& report, Audit& audit) {
  constexpr double kSameStep = 0.05;
  Tally results, times;
  for (const auto& [run, ranks] : ranks_of(study, report)) {
    if (ranks.rows.size() < 2) continue;
    const Row& first = *ranks.rows.front();
    if (is_of_the_test_set(first) && ranks.smallest() != ranks.largest())
      results.add(ranks.text(), ranks.lines());
    if (first.what.kind == Kind::kIterationTime &&
        ranks.largest() > (1 + kSameStep) * ranks.smallest())
      times.add(ranks.text(), ranks.lines());
  }
  report_tally(audit, report, Severity::kContradicted, kReplicasCheck,
               "ranks of one synchronous run with different test results", results,
               {"Replicas that exchange gradients hold the same parameters and score the same on "
                "the same test set: parameters differ, or what is not exchanged does (running "
                "statistics of batch norm).",
                "each rank tested on images of its own"});
  report_tally(
      audit, report, Severity::kContradicted, kReplicasCheck,
      "ranks of one synchronous run with different iteration times", times,
      {"The ranks of a synchronous step end together, so their means cannot differ by this "
       "much: they leave out different iterations or are divided by different counts. The "
       "slowest rank is the time of the step.",
       "each rank counts iterations of its own, and the counts are printed"});
}

}  // namespace

void check_replicas(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    replicas_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
