#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kBatchCheck = "batch";

struct Repeats {
  std::vector<const Row*> rows;
  double least = HUGE_VAL, most = 0;
};

bool is_whole_set(const Row& row, double images) {
  return row.batch_per_device != kNotSaid && row.devices != kNotSaid &&
         static_cast<double>(row.batch_per_device) * static_cast<double>(row.devices) > images;
}

void batch_check_report(const Study& study, const std::string& report, Audit& audit) {
  std::map<std::tuple<std::string, std::string, std::string, std::int64_t>, Repeats> groups;
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable() || !is_epoch_time(row->what.kind)) continue;
    if (!is_whole_set(*row, audit.options.images)) continue;
    Repeats& group = groups[{row->table, row->quantity, row->mode, row->devices}];
    group.rows.push_back(row);
    group.least = std::min(group.least, row->range().value);
    group.most = std::max(group.most, row->range().value);
  }
  for (const auto& [setting, group] : groups) {
    Tally cells;
    for (const Row* row : group.rows)
      cells.add(fmt::format("{}: {} {}", setting_text(row->devices, row->batch_per_device),
                            row->text, row->unit_text),
                {row->line});
    std::string why = fmt::format(
        "All images are in one batch and an epoch is one iteration: each of these {} settings is "
        "the same run.",
        group.rows.size());
    if (group.rows.size() > 1)
      why += fmt::format(
          " Their times from {:.4g} s to {:.4g} s show the spread of repeats (or "
          "memory set aside), not the effect of the batch size.",
          group.least, group.most);
    report_tally(audit, report, Severity::kDoubtful, kBatchCheck,
                 fmt::format("batches larger than the data set of {} images",
                             with_commas(audit.options.images)),
                 cells, {why, "the data set is larger (--images)"});
  }
}

}  // namespace

void check_batch(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    batch_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
