#include <cmath>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kRangesCheck = "ranges";

std::string ranges_cell_of(const Row& row) {
  return fmt::format("line {}: {} {} {}", row.line, row.quantity, row.text, row.unit_text);
}

bool must_be_positive(const Row& row) {
  return row.unit.dimension != Dimension::kRatio || row.what.kind == Kind::kSpeedup ||
         row.what.kind == Kind::kWeakSpeedup;
}

bool ranges_is_share(Kind kind) {
  return kind == Kind::kComputeShare || kind == Kind::kCommShare || kind == Kind::kOtherShare;
}

bool is_at_most_one(const Row& row) {
  return row.what.kind == Kind::kAccuracy || ranges_is_share(row.what.kind);
}

bool exceeds_total(const Row& row) {
  return row.what.kind == Kind::kCorrect && row.unit.total > 0 && row.value > row.unit.total;
}

bool is_broken_count(const Row& row) {
  return row.what.kind == Kind::kCorrect && row.value != std::floor(row.value);
}

void ranges_check_report(const Study& study, const std::string& report, Audit& audit) {
  Tally negative, zero, above, percent, too_many, broken;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable()) continue;
    const auto note = [&](Tally& tally) { tally.add(ranges_cell_of(*row), {row->line}); };
    if (row->value < 0) note(negative);
    if (row->value == 0 && must_be_positive(*row)) note(zero);
    if (is_at_most_one(*row) && row->range().low > 1)
      note(!row->unit.percent && row->value <= 100 ? percent : above);
    if (exceeds_total(*row)) note(too_many);
    if (is_broken_count(*row)) note(broken);
  }
  const auto impossible = [&](const std::string& what, const Tally& tally, const std::string& why,
                              const std::string& right_if) {
    report_tally(audit, report, Severity::kImpossible, kRangesCheck, what, tally, {why, right_if});
  };
  impossible("below zero", negative, "None of these quantities can be negative.",
             "the sign is a misprint");
  impossible("above 100 %", above, "A share of a whole cannot be more than the whole.",
             "it is a share of another, larger whole");
  impossible("above 1 as a fraction", percent,
             "They would be possible as percentages: the unit "
             "is wrong by a factor of 100.",
             "the unit is %");
  impossible("more right than there are", too_many, "A count cannot exceed its total.",
             "the total is larger");
  impossible("not whole", broken, "Right answers are counted.", "it is a mean over several runs");
  report_tally(audit, report, Severity::kDoubtful, kRangesCheck, "zero", zero,
               {"Nothing takes no time: what was not measured should be left out.",
                "it is below half a unit of the last digit"});
}

}  // namespace

void check_ranges(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    ranges_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
