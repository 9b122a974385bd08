#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kSpeedupCheck = "speedup";

bool is_speedup(Kind kind) {
  return kind == Kind::kSpeedup || kind == Kind::kWeakSpeedup;
}

bool is_efficiency(Kind kind) {
  return kind == Kind::kEfficiency || kind == Kind::kWeakEfficiency;
}

std::string speedup_where(const Row& row) {
  return setting_text(row.devices, row.batch_per_device);
}

// --- more than the devices can give --------------------------------------------------------------

// "; needs T(1) = 18.35 s instead of 9.19 s": by T(1)/T(n).
std::string base_hint(const Study& study, const Row& row) {
  const Range time = study.any_time_of(row).range, base = study.any_base_time_of(row).range;
  if (!time.known() || !base.known()) return "";
  return fmt::format("; needs T(1) = {:.4g} s instead of {:.4g} s", row.value * time.value,
                     base.value);
}

void super_linear(const Study& study, const std::string& report, Audit& audit) {
  Tally speedups, efficiencies;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable() || row->devices == kNotSaid) continue;
    if (is_speedup(row->what.kind) && row->range().low > static_cast<double>(row->devices))
      speedups.add(fmt::format("{}: {}{}", speedup_where(*row), row->text, base_hint(study, *row)),
                   {row->line});
    if (is_efficiency(row->what.kind) && row->range().low > 1)
      efficiencies.add(fmt::format("{}: {} {}", speedup_where(*row), row->text, row->unit_text),
                       {row->line});
  }
  const char* why =
      "n devices do the same work at most n times as fast, apart from effects of caches; first "
      "suspects are a base that was measured otherwise (another run, mode, batch or clock) and a "
      "formula that counts the work n times.";
  report_tally(audit, report, Severity::kImpossible, kSpeedupCheck, "super-linear speedup",
               speedups, {why, "the base takes as long as the cell names"});
  report_tally(audit, report, Severity::kImpossible, kSpeedupCheck, "efficiency above 1",
               efficiencies, {why, "the base takes longer by the excess above 1"});
}

// T(1)/T(n) > n, said by the epoch times themselves: T(n) − T(1)/n is then negative.
void super_linear_times(const Study& study, const std::string& report, Audit& audit) {
  Tally cells;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable() || !is_epoch_time(row->what.kind) || is_base_row(study, *row)) continue;
    if (row->devices == kNotSaid) continue;
    const TimeSource source = {row->table, row->quantity, false};
    const Found base = study.base_time_of(*row, source, {});
    if (!base.range.known() || base.devices < 1) continue;
    const double n = static_cast<double>(row->devices) / base.devices;
    if (!(base.range.low > n * row->range().high)) continue;
    cells.add(fmt::format("{}: {:.4g} s against {:.4g} s, derived communication {:.4g} s",
                          speedup_where(*row), row->range().value, base.range.value,
                          derived_communication(base.range.value, row->range().value, n)),
              {row->line, base.lines.front()});
  }
  report_tally(audit, report, Severity::kContradicted, kSpeedupCheck,
               "epoch times fall faster than devices are added", cells,
               {"The derived communication time is negative: the base is slower than the same work "
                "on several devices, or the two were not measured alike.",
                "the work of one device does not fit its caches, and that of several does"});
}

// --- values that do not follow from the times ----------------------------------------------------

void different_base(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (column.fit.convention == nullptr || !column.fit.reproduces) return;
  if (column.fit.convention->formula != "T(1)/T(n)") return;
  Tally cells;
  for (const Row* row : column.column.rows) {
    const Verdict& verdict = audit.verdicts[static_cast<std::size_t>(row - study.rows().data())];
    const Range time = study.time_of(*row, column.fit.choice.time).range;
    if (verdict.judgment != Judgment::kDiffers || !time.known()) continue;
    cells.add(fmt::format("{}: {} needs T(1) = {:.4g} s", speedup_where(*row), row->text,
                          row->range().value * time.value),
              {row->line});
  }
  report_tally(audit, column.column.report, Severity::kContradicted, kSpeedupCheck,
               "speedup that the printed times do not give", cells,
               {"The other values of the column follow from them; these come from other times.",
                "the base takes as long as the cell names"});
}

std::string range_text(double low, double high) {
  return fmt::format("{:.2f} to {:.2f}", low, high);
}

std::pair<double, double> plain_speedups(const Study& study, const ColumnAudit& column) {
  double low = HUGE_VAL, high = 0;
  for (const Row* row : column.column.rows) {
    const Range time = study.time_of(*row, column.fit.choice.time).range;
    const Range base =
        study.base_time_of(*row, column.fit.choice.base, column.fit.choice.rule).range;
    const double plain = speedup(base.value, time.value);
    if (!(plain > 0) || is_base_row(study, *row)) continue;
    low = std::min(low, plain);
    high = std::max(high, plain);
  }
  return {low, high};
}

bool splits_the_work(const Audit& audit, const std::string& report) {
  return std::any_of(audit.columns.begin(), audit.columns.end(), [&](const ColumnAudit& column) {
    return column.column.report == report && column.column.kind == Kind::kComputeTime &&
           column.fit.reproduces && column.fit.convention->formula == "T(1)/n";
  });
}

void counted_n_times(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (column.column.kind != Kind::kSpeedup || !column.fit.reproduces) return;
  if (column.fit.convention->name != "weak-speedup") return;
  const auto [low, high] = plain_speedups(study, column);
  const bool splits = splits_the_work(audit, column.column.report);
  report_column(
      audit, column.column, Severity::kContradicted, kSpeedupCheck,
      fmt::format("the speedup is n*T(1)/T(n). By T(1)/T(n) it is {}", range_text(low, high)),
      {splits ? "The same report's compute time T(1)/n assumes that the work is split, so "
                "one of the two is wrong."
              : "",
       "the epoch of n devices holds n times the images"});
}

// A base of the same batch per device has a smaller global batch: its epoch has more iterations.
void base_of_smaller_batch(const Study& study, const ColumnAudit& column, Audit& audit) {
  constexpr double kSame = 0.05;
  if (!column.fit.reproduces || column.fit.choice.rule.same_global_batch) return;
  Tally cells;
  for (const Row* row : column.column.rows) {
    if (is_base_row(study, *row)) continue;
    const Range time = study.time_of(*row, column.fit.choice.time).range;
    const Found used = study.base_time_of(*row, column.fit.choice.base, {});
    const Found fair = study.base_time_of(*row, column.fit.choice.base, {true, false});
    if (!time.known() || !(std::abs(fair.range.value / used.range.value - 1) > kSame)) continue;
    cells.add(fmt::format("{}: T(1)/T(n) is {:.2f}, against the same global batch {:.2f}",
                          speedup_where(*row), speedup(used.range.value, time.value),
                          speedup(fair.range.value, time.value)),
              {row->line, used.lines.front(), fair.lines.front()});
  }
  report_tally(audit, column.column.report, Severity::kDoubtful, kSpeedupCheck,
               "the base has the batch of one device, so another global batch", cells,
               {"That compares two trainings: the effect of the batch size is part of the speedup.",
                "both are weak scaling and named so"});
}

// --- not above 1 ---------------------------------------------------------------------------------

void speedup_of_one(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (column.fit.reproduces) return;
  const bool weak = column.column.kind == Kind::kWeakSpeedup;
  Tally cells;
  for (const Row* row : column.column.rows) {
    if (!row->usable() || row->range().low > 1 || row->value <= 0 || is_base_row(study, *row))
      continue;
    const Found base = study.any_base_time_of(*row);
    const Found sum = study.time_of(*row, {"", "", true});
    if (!base.range.known() || !sum.range.known()) continue;
    const double n = static_cast<double>(row->devices);
    const double same_work_s = base.range.value / row->value;
    cells.add(
        fmt::format("{}: {} needs T(n) = {:.4g} s{}, where compute + communication is {:.4g} s",
                    speedup_where(*row), row->text, weak ? n * same_work_s : same_work_s,
                    weak ? fmt::format(", or {:.4g} s as T(1)/T(n)", same_work_s) : "",
                    sum.range.value),
        {row->line, sum.lines[0], sum.lines[1]});
  }
  report_tally(audit, column.column.report, Severity::kContradicted, kSpeedupCheck,
               fmt::format("called {}speedup, {}T(1)/T(n), and not above 1", weak ? "weak " : "",
                           weak ? "n*" : ""),
               cells,
               {"The values are in the range of the weak-scaling efficiency T(1)/T(n), which the "
                "published parts of the epoch do not give either.",
                "it is called weak-scaling efficiency, and the epoch takes as long as the cell "
                "names"});
}

// --- work that grows with the devices ------------------------------------------------------------

const Row* with_fewer_devices(const std::vector<const Row*>& rows, const Row& row) {
  const Row* best = nullptr;
  for (const Row* other : rows)
    if (other->what.kind == Kind::kComputeTime && other->usable() && other->model == row.model &&
        other->table == row.table && other->mode == row.mode && other->extra == row.extra &&
        other->batch_per_device == row.batch_per_device && other->devices < row.devices &&
        other->devices != kNotSaid && (!best || other->devices > best->devices))
      best = other;
  return best;
}

void constant_compute(const Study& study, const std::string& report, Audit& audit) {
  constexpr double kSame = 0.1;
  constexpr std::size_t kMostRows = 2000;  // the pairs are searched row by row
  const auto rows = study.rows_of(report);
  if (rows.size() > kMostRows) return;
  Tally cells;
  for (const Row* row : rows) {
    if (row->what.kind != Kind::kComputeTime || !row->usable()) continue;
    const Row* fewer = with_fewer_devices(rows, *row);
    if (!fewer || !(fewer->value > 0)) continue;
    if (std::abs(row->range().value / fewer->range().value - 1) > kSame) continue;
    cells.add(fmt::format("batch {}: {:.4g} s on {}, {:.4g} s on {} devices", row->batch_per_device,
                          fewer->range().value, fewer->devices, row->range().value, row->devices),
              {fewer->line, row->line});
  }
  report_tally(audit, report, Severity::kDoubtful, kSpeedupCheck,
               "compute does not shrink as devices are added", cells,
               {"Each device did as much work as before, so an epoch holds more images on more "
                "devices (weak scaling), or every device went through all of them.",
                "the epoch of n devices holds n times the images, and the report states it"});
}

}  // namespace

void check_speedup(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports()) {
    super_linear(study, report, audit);
    super_linear_times(study, report, audit);
    constant_compute(study, report, audit);
  }
  for (std::size_t i = 0; i < audit.columns.size(); ++i) {
    if (!is_speedup(audit.columns[i].column.kind)) continue;
    different_base(study, audit.columns[i], audit);
    counted_n_times(study, audit.columns[i], audit);
    speedup_of_one(study, audit.columns[i], audit);
    base_of_smaller_batch(study, audit.columns[i], audit);
  }
}

}  // namespace gradsync::report::published
