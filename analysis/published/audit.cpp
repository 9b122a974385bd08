#include "analysis/published/audit.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

Verdict cannot(const std::string& why, std::vector<std::size_t> lines = {}) {
  return {Judgment::kCannot, "cannot be recomputed: " + why, Range::unknown(), std::move(lines)};
}

std::string unit_problem(const Row& row) {
  if (row.what.kind == Kind::kUnknown) return "unknown quantity";
  if (row.unit.dimension == Dimension::kUnknown)
    return fmt::format("unknown unit '{}'", row.unit_text);
  return fmt::format("'{}' is the unit of {}, but {} is {}", row.unit_text,
                     dimension_text(row.unit.dimension), row.quantity,
                     dimension_text(row.what.dimension));
}

// "; needs comm = 3.059 s": the formulas of bandwidth fall with the communication time.
std::string comm_hint(const Study& study, const Row& row, const Fit& fit, double expected) {
  const Found comm = study.same_setting(row, Kind::kCommTime);
  if (row.what.kind != Kind::kBandwidth || fit.choice.derived_comm || !(row.value > 0)) return "";
  const double needed_s = comm.range.value * expected / row.range().value;
  return std::isfinite(needed_s) ? fmt::format("; needs comm = {:.4g} s", needed_s) : "";
}

// "; follows from 0.044 GB": the volume rounded to few digits before it was divided by the time.
std::string rounding_hint(const Study& study, const Row& row, const Fit& fit, double expected) {
  const double comm_s = study.same_setting(row, Kind::kCommTime).range.value;
  const double volume = comm_s * expected / row.unit.factor;
  if (!fit.reproduces || row.what.kind != Kind::kBandwidth || !(volume > 0)) return "";
  const std::string unit = row.unit_text.substr(0, row.unit_text.find('/'));
  for (const int digits : {3, 2, 1}) {
    const double step = std::pow(10.0, std::floor(std::log10(volume)) + 1 - digits);
    const double rounded = std::round(volume / step) * step;
    if (compare(row, Range::exact(rounded / comm_s * row.unit.factor)) == Match::kAgrees)
      return fmt::format("; follows from {:.3g} {} in {:.4g} s, rounded before the division",
                         rounded, unit, comm_s);
  }
  return "";
}

std::string difference_hint(const Study& study, const Row& row, const Fit& fit, double expected) {
  const std::string rounded = rounding_hint(study, row, fit, expected);
  return rounded.empty() ? comm_hint(study, row, fit, expected) : rounded;
}

Verdict judged(const Row& row, const Expectation& expected) {
  const std::string number = shown_like(row, expected.range.value);
  switch (compare(row, expected.range)) {
    case Match::kAgrees:
      return {Judgment::kAgrees, "agrees", expected.range, expected.lines};
    case Match::kCutOff:
      return {Judgment::kAgrees, "agrees (cut off, not rounded)", expected.range, expected.lines};
    case Match::kDiffers:
      break;
  }
  return {Judgment::kDiffers, "differs: expected " + number, expected.range, expected.lines};
}

// No convention gives the column: what is said then depends on whether it may have been measured.
Verdict unexplained(const Study& study, const Row& row, const Fit& fit,
                    const Expectation& expected) {
  const std::string number =
      fmt::format("{} gives {}", fit.convention->formula, shown_like(row, expected.range.value));
  if (may_be_measured(row.what.kind))
    return cannot(
        fmt::format("no convention gives this column, so it may have been measured ({})", number),
        expected.lines);
  if (fit.choice.time.sum && !study.any_time_of(row).range.known())
    return cannot(fmt::format("no epoch time of {} is published (with compute + communication, {})",
                              setting_text(row.devices, row.batch_per_device), number),
                  expected.lines);
  Verdict verdict = judged(row, expected);
  if (verdict.judgment == Judgment::kDiffers)
    verdict.text += fmt::format(" ({}{})", fit.convention->name,
                                fit.median_distance > std::log(kNear)
                                    ? "; no convention comes within a factor of 2"
                                    : ", the nearest");
  return verdict;
}

Verdict derived_verdict(const Study& study, const Row& row, const Fit& fit,
                        const AuditOptions& options) {
  if (!fit.convention) return cannot("no convention is known for it");
  const Expectation expected = expect(study, row, *fit.convention, fit.choice, options);
  if (!expected.range.known()) return cannot(expected.missing);
  Verdict verdict = fit.reproduces ? judged(row, expected) : unexplained(study, row, fit, expected);
  if (verdict.judgment == Judgment::kDiffers)
    verdict.text += difference_hint(study, row, fit, expected.range.value);
  return verdict;
}

void judge_column(const Study& study, ColumnAudit& column, Audit& audit) {
  const Row* first = study.rows().data();
  for (const Row* row : column.column.rows) {
    Verdict& verdict = audit.verdicts[static_cast<std::size_t>(row - first)];
    verdict = row->usable() ? derived_verdict(study, *row, column.fit, audit.options)
                            : cannot(unit_problem(*row));
    column.agree += verdict.judgment == Judgment::kAgrees;
    column.differ += verdict.judgment == Judgment::kDiffers;
    column.cannot += verdict.judgment == Judgment::kCannot;
  }
}

void judge_primary(const Study& study, Audit& audit) {
  for (std::size_t i = 0; i < study.rows().size(); ++i) {
    const Row& row = study.rows()[i];
    audit.verdicts[i] = row.usable() ? Verdict{Judgment::kPrimary, "primary", row.range(), {}}
                                     : cannot(unit_problem(row));
  }
}

void sort_findings(const Study& study, Audit& audit) {
  std::map<std::string, std::size_t> order;
  for (const std::string& report : study.reports())
    order.emplace(report, order.size());
  const auto place = [&](const Finding& finding) {
    const auto known = order.find(finding.report);
    return std::pair(known == order.end() ? order.size() : known->second, finding.severity);
  };
  std::stable_sort(audit.findings.begin(), audit.findings.end(),
                   [&](const Finding& a, const Finding& b) { return place(a) < place(b); });
}

}  // namespace

std::string_view severity_text(Severity severity) {
  switch (severity) {
    case Severity::kImpossible:
      return "impossible";
    case Severity::kContradicted:
      return "contradicted";
    case Severity::kDoubtful:
      break;
  }
  return "doubtful";
}

std::string Finding::text() const {
  std::string text = what;
  for (std::size_t i = 0; i < cells.size(); ++i)
    text += (i == 0 ? ": " : "; ") + cells[i];
  return text + (why.empty() ? "." : ". " + why) + right_text();
}

std::string Finding::right_text() const {
  return right_if.empty() ? "" : " Right if " + right_if + ".";
}

std::string shown_like(const Row& row, double base_value) {
  const double value = base_value / row.unit.factor;
  const double size = std::abs(value);
  const int leading =
      size > 0 && std::isfinite(size) ? static_cast<int>(std::floor(std::log10(size))) : 0;
  const int decimals = std::clamp(std::max(row.decimals, 2 - leading), 0, 12);
  return size >= 1e15 ? fmt::format("{:.3g}", value) : fmt::format("{:.{}f}", value, decimals);
}

Audit audit(const Study& study, const AuditOptions& options) {
  Audit result;
  result.options = options;
  result.verdicts.resize(study.rows().size());
  judge_primary(study, result);
  for (DerivedColumn& column : derived_columns(study)) {
    const Fit fit = search(study, column, options);
    result.columns.push_back({std::move(column), fit});
    judge_column(study, result.columns.back(), result);
  }
  for (const Check& check : checks())
    check.run(study, result);
  sort_findings(study, result);
  return result;
}

}  // namespace gradsync::report::published
