#include <cmath>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kEpochPartsCheck = "epoch-parts";
constexpr double kEpochPartsUnaccounted = 0.05;  // of the epoch; less is not worth a line

struct Parts {
  Range compute, comm, epoch;
  std::string where;
  std::vector<std::size_t> lines;
};

struct EpochPartsFaults {
  Tally comm_above, compute_above, compute_whole, sum_above, unaccounted;
};

bool overlap(const Range& a, const Range& b) {
  return a.low <= b.high && b.low <= a.high;
}

void take(Range& range, const Found& found, std::vector<std::size_t>& lines) {
  range = found.range;
  lines.insert(lines.end(), found.lines.begin(), found.lines.end());
}

// The parts at the setting of `row`, which holds one of them.
Parts parts_at(const Study& study, const Row& row) {
  Parts parts;
  parts.where = setting_text(row.devices, row.batch_per_device);
  const bool is_compute = row.what.kind == Kind::kComputeTime;
  (is_compute ? parts.compute : parts.comm) = row.range();
  parts.lines.push_back(row.line);
  take(is_compute ? parts.comm : parts.compute,
       study.same_setting(row, is_compute ? Kind::kCommTime : Kind::kComputeTime), parts.lines);
  take(parts.epoch, study.any_time_of(row), parts.lines);
  return parts;
}

std::string of_epoch(const Parts& parts, double seconds) {
  return fmt::format("{}: {:.4g} s of {:.4g} s", parts.where, seconds, parts.epoch.value);
}

std::string sum_text(const Parts& parts, double rest) {
  return fmt::format("{}: {:.4g} s + {:.4g} s, {:.4g} s {} than {:.4g} s", parts.where,
                     parts.compute.value, parts.comm.value, std::abs(rest),
                     rest > 0 ? "less" : "more", parts.epoch.value);
}

void judge_sum(const Parts& parts, EpochPartsFaults& faults) {
  const Range sum = {parts.compute.value + parts.comm.value, parts.compute.low + parts.comm.low,
                     parts.compute.high + parts.comm.high};
  const double rest = parts.epoch.value - sum.value;
  if (sum.low > parts.epoch.high) faults.sum_above.add(sum_text(parts, rest), parts.lines);
  if (sum.high < parts.epoch.low && rest > kEpochPartsUnaccounted * parts.epoch.value)
    faults.unaccounted.add(sum_text(parts, rest), parts.lines);
}

void judge(const Parts& parts, EpochPartsFaults& faults) {
  if (!parts.epoch.known()) return;
  if (parts.comm.low > parts.epoch.high)
    faults.comm_above.add(of_epoch(parts, parts.comm.value), parts.lines);
  if (parts.compute.low > parts.epoch.high)
    faults.compute_above.add(of_epoch(parts, parts.compute.value), parts.lines);
  if (!parts.compute.known() || !parts.comm.known()) return;
  if (overlap(parts.compute, parts.epoch) && parts.comm.low > 0)
    faults.compute_whole.add(
        fmt::format("{}, with {:.4g} s of communication; needs compute = {:.4g} s",
                    of_epoch(parts, parts.compute.value), parts.comm.value,
                    parts.epoch.value - parts.comm.value),
        parts.lines);
  else
    judge_sum(parts, faults);
}

EpochPartsFaults faults_of(const Study& study, const std::string& report) {
  EpochPartsFaults faults;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable()) continue;
    const bool comm = row->what.kind == Kind::kCommTime;
    if (!comm && row->what.kind != Kind::kComputeTime) continue;
    // A setting with both parts is judged once, at its compute time.
    if (comm && study.same_setting(*row, Kind::kComputeTime).range.known()) continue;
    judge(parts_at(study, *row), faults);
  }
  return faults;
}

void epoch_parts_check_report(const Study& study, const std::string& report, Audit& audit) {
  const EpochPartsFaults faults = faults_of(study, report);
  const auto found = [&](Severity severity, const std::string& what, const Tally& tally,
                         const std::string& why, const std::string& right_if) {
    report_tally(audit, report, severity, kEpochPartsCheck, what, tally, {why, right_if});
  };
  found(Severity::kImpossible, "communication takes longer than the epoch", faults.comm_above,
        "A part cannot be longer than the whole on the same device.",
        "the epoch is at least as long, or the part is of several epochs or devices");
  found(Severity::kImpossible, "compute takes longer than the epoch", faults.compute_above,
        "A part cannot be longer than the whole on the same device.",
        "the epoch is at least as long, or the part is of several epochs or devices");
  found(Severity::kContradicted, "compute equals the whole epoch", faults.compute_whole,
        "That leaves no time for communication. More likely the epoch time was printed as compute "
        "time.",
        "all communication was hidden behind compute; then it costs nothing");
  found(Severity::kContradicted, "compute + communication is more than the epoch", faults.sum_above,
        "On one device the parts follow each other unless they overlap.",
        "the rest was hidden behind compute, or the two come from another run");
  found(Severity::kDoubtful, "compute + communication leaves much of the epoch unaccounted for",
        faults.unaccounted, "Waiting for data or other work is in neither.",
        "the rest was waiting, loading or the optimizer");
}

}  // namespace

void check_epoch_parts(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    epoch_parts_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
