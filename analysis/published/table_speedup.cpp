#include <limits>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"
#include "analysis/tables/columns.h"

namespace gradsync::report::published {

namespace {

constexpr double kSpeedupNone = std::numeric_limits<double>::quiet_NaN();

/// One published time against its base.
struct Compared {
  const Row* row;
  Found base;
  Scaling scaling;
  bool itself = false;

  double n() const { return static_cast<double>(row->devices); }
  double time_s() const { return row->range().value; }
  double base_s() const { return base.range.value; }
  bool of_iterations() const { return row->what.kind == Kind::kIterationTime; }
  double speedup() const { return report::speedup(base_s(), time_s()); }
  // An iteration of weak scaling has n/base times the images; everything else has the base's.
  double efficiency() const {
    return scaling == Scaling::kWeak && of_iterations()
               ? weak_efficiency(base_s(), time_s())
               : strong_efficiency(base_s(), base.devices, time_s(), n());
  }
  double weak() const {
    const bool scaled = scaling == Scaling::kWeak && of_iterations() && base.devices == 1;
    return scaled ? weak_speedup(base_s(), time_s(), n()) : kSpeedupNone;
  }
};

bool is_time(const Row& row) {
  return row.usable() && (is_epoch_time(row.what.kind) || row.what.kind == Kind::kIterationTime);
}

std::vector<Compared> compared(const Study& study) {
  std::vector<Compared> all;
  for (const Row& row : study.rows()) {
    if (!is_time(row) || row.devices == kNotSaid) continue;
    const TimeSource source = {row.table, row.quantity, false};
    if (is_base_row(study, row)) {
      all.push_back({&row,
                     {row.range(), {row.line}, static_cast<double>(row.devices), {}},
                     Scaling::kStrong,
                     true});
      continue;
    }
    for (const Scaling scaling : {Scaling::kStrong, Scaling::kWeak}) {
      const Found base = study.base_time_of(row, source, {scaling == Scaling::kStrong, false});
      if (base.range.known()) all.push_back({&row, base, scaling});
    }
  }
  return all;
}

std::vector<Column> speedup_columns() {
  std::vector<Column> result = setting_columns();
  const std::vector<Column> rest = {
      {"scaling", "scaling", true},
      {"base_ranks", "base ranks"},
      {"basis", "time of", true},
      {"time_s", "T(n) s", false, "as printed", "epoch_time"},
      {"base_time_s", "T(base) s", false, "as printed", "epoch_time"},
      {"speedup", "T(base)/T(n)", false, "T(base)/T(n)", "epoch_time"},
      {"efficiency_percent", "efficiency %", false,
       "T(base)/T(n) x base/n; of an iteration of weak scaling T(base)/T(n)", "epoch_time"},
      {"weak_speedup", "N*T(1)/T(N)", false, "N*T(1)/T(N) of iteration times",
       "mean_iteration_time"},
      {"published_speedup", "published", false, "as printed", "speedup"},
      {"remark", "remark", true}};
  result.insert(result.end(), rest.begin(), rest.end());
  return result;
}

Found published_speedup(const Study& study, const Row& row) {
  const Found plain = study.same_setting(row, Kind::kSpeedup);
  return plain.range.known() ? plain : study.same_setting(row, Kind::kWeakSpeedup);
}

std::string speedup_remark(const Compared& one) {
  if (one.itself) return "the base itself";
  return one.efficiency() > 1 + 1e-9 ? "SUPER-LINEAR" : "";
}

std::vector<Cell> speedup_row_of(const Study& study, const Compared& one) {
  std::vector<Cell> cells = setting_cells(*one.row);
  const std::vector<Cell> rest = {std::string(scaling_name(one.scaling)),
                                  Cell::count(one.base.devices),
                                  fmt::format("{} ({})", one.row->quantity, one.row->table),
                                  significant_cell(one.time_s()),
                                  significant_cell(one.base_s()),
                                  Cell::of(one.speedup(), 3),
                                  Cell::of(1e2 * one.efficiency(), 1),
                                  Cell::of(one.weak(), 3),
                                  Cell::of(published_speedup(study, *one.row).range.value, 2),
                                  speedup_remark(one)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
}

}  // namespace

Table make_published_speedup_table(const Study& study, const Audit&) {
  Table table{
      "published-speedup",
      "Time and speedup, published numbers of " + study.file().name,
      {"strong: the base has the same global batch; weak: the same batch per rank (device). "
       "An epoch holds the same images in both, so efficiency is T(base)/T(n) x base/n",
       "single values: no interval can be given; the base is the fewest ranks with a "
       "published time, without exchange where the report has it"},
      speedup_columns(),
      {}};
  for (const Compared& one : compared(study)) {
    std::vector<std::size_t> lines = one.base.lines;
    lines.push_back(one.row->line);
    table.add(speedup_row_of(study, one), source_text(study, lines));
  }
  return table;
}

}  // namespace gradsync::report::published
