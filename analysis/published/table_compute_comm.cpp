#include <cmath>
#include <limits>

#include "analysis/figures/comparisons.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"
#include "analysis/tables/columns.h"

namespace gradsync::report::published {

namespace {

constexpr double kComputeCommNone = std::numeric_limits<double>::quiet_NaN();

/// One setting of several devices, times of an epoch.
struct Split {
  const Row* row;
  EpochTimes times;
  Found compute, comm;
  double iterations = kComputeCommNone;

  double n() const { return static_cast<double>(row->devices) / times.base.devices; }
  double derived_compute_s() const {
    return times.base.devices > 0 ? derived_compute(times.base.range.value, n()) : kComputeCommNone;
  }
  double derived_comm_s() const {
    return times.base.devices > 0
               ? derived_communication(times.base.range.value, times.time.range.value, n())
               : kComputeCommNone;
  }
};

// A number of the setting, wherever it stands: same_setting leaves out the row itself.
Found compute_comm_number_of(const Study& study, const Row& row, Kind kind) {
  for (const Row* other : study.setting_of(row))
    if (other->what.kind == kind && other->usable())
      return {other->range(), {other->line}, static_cast<double>(other->devices), {}};
  return {};
}

std::vector<Column> compute_comm_columns() {
  std::vector<Column> result = setting_columns();
  const std::string one = " of an epoch / its iterations";
  const std::vector<Column> rest = {
      {"iterations", "iterations/epoch", false, "images / global batch, rounded up", "--images"},
      {"iteration_ms", "iteration ms", false, "T(n)" + one, "epoch_time"},
      {"published_compute_ms", "published: compute ms", false, "as printed" + one, "compute_time"},
      {"published_communication_ms", "communication ms", false, "as printed" + one, "comm_time"},
      {"published_sum_percent", "sum %", false, "(compute + communication) / T(n)",
       "compute_time, comm_time, epoch_time"},
      {"derived_base", "derived: base", true},
      {"derived_base_ms", "T(1) ms", false, "T(1)" + one, "epoch_time"},
      {"derived_compute_ms", "compute ms", false, "T(1)/n" + one, "epoch_time"},
      {"derived_communication_ms", "communication ms", false, "(T(n) - T(1)/n)" + one,
       "epoch_time"},
      {"remark", "remark", true}};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

std::string compute_comm_remark(const Split& split) {
  if (split.derived_comm_s() < 0)
    return "NEGATIVE derived communication: faster than 1/n of one rank";
  const double sum_s = split.compute.range.value + split.comm.range.value;
  return sum_s > 1.01 * split.times.time.range.value ? "published parts above the epoch" : "";
}

std::vector<Cell> compute_comm_row_of(const Split& split) {
  const auto ms = [&](double epoch_s) { return Cell::of(1e3 * epoch_s / split.iterations, 3); };
  const double sum_s = split.compute.range.value + split.comm.range.value;
  const Found& base = split.times.base;
  std::vector<Cell> cells = setting_cells(*split.row);
  const std::vector<Cell> rest = {Cell::count(split.iterations),
                                  ms(split.times.time.range.value),
                                  ms(split.compute.range.value),
                                  ms(split.comm.range.value),
                                  Cell::of(1e2 * sum_s / split.times.time.range.value, 1),
                                  base.range.known() ? split.times.source.text() : "n/a",
                                  ms(base.range.value),
                                  ms(split.derived_compute_s()),
                                  ms(split.derived_comm_s()),
                                  compute_comm_remark(split)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
}

std::vector<std::size_t> compute_comm_lines_of(const Split& split) {
  std::vector<std::size_t> lines;
  for (const Found* found : {&split.times.time, &split.times.base, &split.compute, &split.comm})
    lines.insert(lines.end(), found->lines.begin(), found->lines.end());
  return lines;
}

}  // namespace

Table make_published_compute_comm_table(const Study& study, const Audit& audit) {
  Table table{"published-compute-comm",
              "Compute and communication, published numbers of " + study.file().name,
              {"per iteration: times of an epoch over its iterations; derived: compute = T(1)/n, "
               "communication = T(n) - T(1)/n, from the base named",
               "derived communication is whatever does not scale: waiting, slower kernels, the "
               "exchange; a negative one is shown as it is"},
              compute_comm_columns(),
              {}};
  for (const Row* row : settings_of(study)) {
    if (row->devices == kNotSaid || row->devices < 2) continue;
    const Split split = {
        row, epoch_times(study, *row), compute_comm_number_of(study, *row, Kind::kComputeTime),
        compute_comm_number_of(study, *row, Kind::kCommTime), iterations_of(*row, audit.options)};
    if (compute_comm_lines_of(split).empty()) continue;
    table.add(compute_comm_row_of(split), source_text(study, compute_comm_lines_of(split)));
  }
  return table;
}

}  // namespace gradsync::report::published
