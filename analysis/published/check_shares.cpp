#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kSharesCheck = "shares";
constexpr double kSharesUnaccounted = 0.01;

bool shares_is_share(Kind kind) {
  return kind == Kind::kComputeShare || kind == Kind::kCommShare || kind == Kind::kOtherShare;
}

struct Sum {
  double low = 0, value = 0, high = 0;
  std::string parts, setting;
  std::vector<std::size_t> lines;

  void add(const Row& row) {
    const Range range = row.range();
    low += range.low;
    value += range.value;
    high += range.high;
    parts +=
        fmt::format("{}{} {:.4g} %", parts.empty() ? "" : " + ", row.quantity, 100 * range.value);
    lines.push_back(row.line);
    setting = fmt::format("{}, {}", row.mode.empty() ? row.table : row.mode,
                          setting_text(row.devices, row.batch_per_device));
  }
  std::string text() const { return fmt::format("{}: {}", setting, parts); }
};

using SharesSetting =
    std::tuple<std::string, std::string, std::string, std::int64_t, std::int64_t, std::string>;

std::map<SharesSetting, Sum> sums_of(const Study& study, const std::string& report) {
  std::map<SharesSetting, Sum> sums;
  for (const Row* row : study.rows_of(report))
    if (row->usable() && shares_is_share(row->what.kind))
      sums[{row->table, row->model, row->mode, row->devices, row->batch_per_device, row->extra}]
          .add(*row);
  return sums;
}

void shares_check_report(const Study& study, const std::string& report, Audit& audit) {
  Tally above, unaccounted;
  for (const auto& [setting, sum] : sums_of(study, report)) {
    if (sum.low > 1)
      above.add(fmt::format("{} = {:.4g} %", sum.text(), 100 * sum.value), sum.lines);
    if (sum.high < 1 - kSharesUnaccounted)
      unaccounted.add(fmt::format("{} leave {:.4g} %", sum.text(), 100 * (1 - sum.value)),
                      sum.lines);
  }
  report_tally(
      audit, report, Severity::kImpossible, kSharesCheck, "shares of one whole above 100 %", above,
      {"Parts of a whole that follow each other cannot.", "what overlaps was counted twice"});
  report_tally(audit, report, Severity::kDoubtful, kSharesCheck, "shares that do not sum to 100 %",
               unaccounted,
               {"What the rest is (waiting, data, optimizer) is not printed, so the ratio of "
                "communication to compute stays open.",
                "the rest was neither compute nor communication"});
}

}  // namespace

void check_shares(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    shares_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
