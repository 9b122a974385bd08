#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kWaitingCheck = "waiting";
constexpr double kMuch = 1.2;

std::string speedups_text(const Study& study, const Row& training, const Row& running) {
  const Range base_training =
      study.base_time_of(training, {training.table, training.quantity, false}, {}).range;
  const Range base_running =
      study.base_time_of(running, {running.table, running.quantity, false}, {}).range;
  if (is_base_row(study, training) || !base_training.known() || !base_running.known()) return "";
  return fmt::format(", so T(1)/T(n) is {:.2f} or {:.2f}",
                     speedup(base_training.value, training.range().value),
                     speedup(base_running.value, running.range().value));
}

const Row* running_beside(const Study& study, const Row& training) {
  for (const Row* row : study.setting_of(training))
    if (row->what.kind == Kind::kRunningTime && row->usable() && row->table == training.table)
      return row;
  return nullptr;
}

void waiting_check_report(const Study& study, const std::string& report, Audit& audit) {
  Tally above, waiting;
  for (const Row* row : study.rows_of(report)) {
    if (row->what.kind != Kind::kTrainingTime || !row->usable()) continue;
    const Row* running = running_beside(study, *row);
    if (!running) continue;
    const double training_s = row->range().value, running_s = running->range().value;
    const std::string text =
        fmt::format("{}: {:.4g} s of {:.4g} s", setting_text(row->devices, row->batch_per_device),
                    training_s, running_s);
    if (row->range().low > running->range().high) above.add(text, {row->line, running->line});
    if (running_s > kMuch * training_s && training_s > 0)
      waiting.add(text + speedups_text(study, *row, *running), {row->line, running->line});
  }
  report_tally(audit, report, Severity::kImpossible, kWaitingCheck,
               "training time above running time", above,
               {"Training time is the part of running time without waiting for data.",
                "the two columns are swapped"});
  report_tally(audit, report, Severity::kDoubtful, kWaitingCheck,
               "training time is much less than running time", waiting,
               {"Most of the difference is waiting for data, which does not shrink with devices: "
                "a speedup of training time is not one that a user sees.",
                "the speedup is called one of training time, or is by running time"});
}

}  // namespace

void check_waiting(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    waiting_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
