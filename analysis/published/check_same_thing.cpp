#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kSameThingCheck = "same-thing";
constexpr double kRepeats = 1.05;  // epochs of one setting vary by a few per cent
constexpr double kNotTheSame = 1.5;

using SameThingSetting =
    std::tuple<std::string, std::string, std::int64_t, std::int64_t, std::string>;
using Times = std::vector<const Row*>;

// The first epoch warms up, and running time holds more than training: neither is the same thing.
bool is_steady_epoch(const Row& row) {
  return row.usable() && row.value > 0 && row.quantity.find("_1_") == std::string::npos &&
         (row.what.kind == Kind::kEpochTime || row.what.kind == Kind::kTrainingTime);
}

std::map<SameThingSetting, Times> times_of(const Study& study, const std::string& report) {
  std::map<SameThingSetting, Times> settings;
  for (const Row* row : study.rows_of(report))
    if (is_steady_epoch(*row) && row->devices != kNotSaid)
      settings[{row->model, row->mode, row->devices, row->batch_per_device, row->extra}].push_back(
          row);
  return settings;
}

std::string text_of(const Times& times) {
  std::string values;
  for (const Row* row : times)
    values += fmt::format("{}{} {} ({}, {})", values.empty() ? "" : ", ", row->text, row->unit_text,
                          row->quantity, row->table);
  const Row& first = *times.front();
  return setting_text(first.devices, first.batch_per_device) + ": " + values;
}

double spread(const Times& times) {
  const auto below = [](const Row* a, const Row* b) { return a->range().value < b->range().value; };
  const auto [least, most] = std::minmax_element(times.begin(), times.end(), below);
  return (*most)->range().low / (*least)->range().high;
}

std::string factor_hint(double factor) {
  constexpr double kClose = 1.2;
  for (const double unit : {60.0, 1000.0})
    if (factor > unit / kClose && factor < unit * kClose)
      return fmt::format(" (about {:.0f} times: a unit is wrong)", unit);
  return "";
}

std::vector<std::size_t> same_thing_lines_of(const Times& times) {
  std::vector<std::size_t> lines;
  for (const Row* row : times)
    lines.push_back(row->line);
  return lines;
}

void same_thing_check_report(const Study& study, const std::string& report, Audit& audit) {
  Tally apart, differ;
  for (const auto& [setting, times] : times_of(study, report)) {
    const double factor = spread(times);
    if (factor > kNotTheSame)
      apart.add(text_of(times) + factor_hint(factor), same_thing_lines_of(times));
    else if (factor > kRepeats)
      differ.add(text_of(times), same_thing_lines_of(times));
  }
  report_tally(audit, report, Severity::kContradicted, kSameThingCheck,
               "one setting, epoch times far apart", apart,
               {"These cannot be one program on one machine: speedups depend on which is the base.",
                "the tables come from different programs, machines or units, and say which"});
  report_tally(audit, report, Severity::kDoubtful, kSameThingCheck,
               "one setting, epoch times that differ by more than 5 %", differ,
               {"Speedups carry this difference, and no spread of repeats is printed to judge it "
                "by.",
                "repeats spread as much"});
}

}  // namespace

void check_same_thing(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports())
    same_thing_check_report(study, report, audit);
}

}  // namespace gradsync::report::published
