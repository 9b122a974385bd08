#include "analysis/published/study.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/parse.h"

namespace gradsync::report::published {

namespace {

TimeSource source_of(const Row& row) {
  return {row.table, row.quantity, false};
}

// Speedup tables hold the times that speedups are made of; then by how directly the name says it.
int rank_of(const Row& row) {
  int rank = row.table == "speedup" ? 0 : 10;
  if (row.what.kind == Kind::kTrainingTime) rank += 1;
  if (row.what.kind == Kind::kRunningTime) rank += 2;
  if (row.quantity.find_first_of("0123456789") != std::string::npos) rank += 3;
  if (row.quantity.find("_1_") != std::string::npos) rank += 1;  // the first epoch warms up
  return rank;
}

bool is_from(const Row& row, const TimeSource& source) {
  return row.usable() && row.table == source.table && row.quantity == source.quantity;
}

Found study_found(const Row& row) {
  return {row.range(), {row.line}, static_cast<double>(row.devices), {}};
}

Found nothing(std::string why) {
  Found none;
  none.missing = std::move(why);
  return none;
}

// batch · devices / base devices; kNotSaid where that is no batch.
std::int64_t scaled(std::int64_t batch, std::int64_t devices, std::int64_t base_devices) {
  constexpr double kMost = 9e15;  // a double counts exactly up to there
  const double product = static_cast<double>(batch) * static_cast<double>(devices);
  if (product > kMost) return kNotSaid;
  const auto global = static_cast<std::int64_t>(product);
  return global % base_devices == 0 ? global / base_devices : kNotSaid;
}

Range sum(const Range& a, const Range& b) {
  return {a.value + b.value, a.low + b.low, a.high + b.high};
}

}  // namespace

std::string TimeSource::text() const {
  if (sum) return "compute_time + comm_time";
  return table.empty() ? quantity : fmt::format("{} of table {}", quantity, table);
}

std::string setting_text(std::int64_t devices, std::int64_t batch) {
  std::string text =
      devices == kNotSaid ? "an unknown number of devices" : count_text(devices, "device");
  if (batch != kNotSaid) text += fmt::format(" at batch {}", batch);
  return text;
}

bool is_without_exchange(const std::string& mode) {
  constexpr std::array<std::string_view, 6> kNames = {"",       "single",   "none",
                                                      "serial", "baseline", "sequential"};
  return std::find(kNames.begin(), kNames.end(), mode) != kNames.end();
}

Study::Study(PublishedFile file) : file_(std::move(file)) {
  for (std::size_t i = 0; i < file_.rows.size(); ++i) {
    const Row& row = file_.rows[i];
    if (by_report_.count(row.report) == 0) reports_.push_back(row.report);
    by_report_[row.report].push_back(i);
    const Place place = place_of(row);
    cells_[{place, row.devices, row.batch_per_device}].push_back(i);
    const bool is_time = is_epoch_time(row.what.kind) || row.what.kind == Kind::kIterationTime;
    if (!row.usable() || !is_time || row.devices == kNotSaid) continue;
    const auto [fewest, added] = fewest_devices_.emplace(place, row.devices);
    if (!added) fewest->second = std::min(fewest->second, row.devices);
  }
  for (const std::string& report : reports_)
    sources_[report] = list_sources(report);
}

std::vector<const Row*> Study::rows_of(const std::string& report) const {
  std::vector<const Row*> rows;
  const auto known = by_report_.find(report);
  if (known == by_report_.end()) return rows;
  for (const std::size_t index : known->second)
    rows.push_back(&file_.rows[index]);
  return rows;
}

const std::vector<TimeSource>& Study::time_sources(const std::string& report) const {
  return sources_.at(report);
}

std::vector<TimeSource> Study::list_sources(const std::string& report) const {
  std::vector<const Row*> firsts;
  for (const Row* row : rows_of(report)) {
    if (!row->usable() || !is_epoch_time(row->what.kind)) continue;
    const auto same = [&](const Row* other) { return is_from(*other, source_of(*row)); };
    if (std::none_of(firsts.begin(), firsts.end(), same)) firsts.push_back(row);
    if (firsts.size() == 4 * kMostSources) break;
  }
  std::stable_sort(firsts.begin(), firsts.end(),
                   [](const Row* a, const Row* b) { return rank_of(*a) < rank_of(*b); });
  firsts.resize(std::min(firsts.size(), kMostSources - 1));
  std::vector<TimeSource> sources;
  for (const Row* row : firsts)
    sources.push_back(source_of(*row));
  sources.push_back({"", "", true});
  return sources;
}

Study::Place Study::place_of(const Row& row) {
  return {row.report, row.model, row.extra};
}

const std::vector<std::size_t>& Study::cell(const Place& place, std::int64_t devices,
                                            std::int64_t batch) const {
  static const std::vector<std::size_t> kNone;
  const auto known = cells_.find({place, devices, batch});
  return known == cells_.end() ? kNone : known->second;
}

Found Study::time_of(const Row& row, const TimeSource& source) const {
  if (row.devices == kNotSaid) return nothing("the number of devices is not given");
  if (source.sum) return sum_of_parts(row);
  for (const std::size_t index : cell(place_of(row), row.devices, row.batch_per_device))
    if (is_from(file_.rows[index], source) && file_.rows[index].mode == row.mode)
      return study_found(file_.rows[index]);
  return nothing(fmt::format("no epoch time of {} is published",
                             setting_text(row.devices, row.batch_per_device)));
}

Found Study::sum_of_parts(const Row& row) const {
  const Found compute = same_setting(row, Kind::kComputeTime);
  const Found comm = same_setting(row, Kind::kCommTime);
  if (!compute.range.known() || !comm.range.known())
    return nothing(fmt::format("no epoch time of {} is published",
                               setting_text(row.devices, row.batch_per_device)));
  return {sum(compute.range, comm.range),
          {compute.lines.front(), comm.lines.front()},
          static_cast<double>(row.devices),
          {}};
}

Found Study::pick(const std::vector<std::size_t>& rows, const Row& row, const TimeSource& source,
                  bool same_mode) const {
  const Row* other = nullptr;
  for (const std::size_t index : rows) {
    const Row& candidate = file_.rows[index];
    if (!is_from(candidate, source)) continue;
    if (same_mode ? candidate.mode == row.mode : is_without_exchange(candidate.mode))
      return study_found(candidate);
    other = &candidate;
  }
  return other && !same_mode ? study_found(*other) : nothing("");
}

Found Study::base_time_of(const Row& row, const TimeSource& source, BaseRule rule) const {
  const Place place = place_of(row);
  const auto fewest = fewest_devices_.find(place);
  if (source.sum || fewest == fewest_devices_.end())
    return nothing("no epoch time of one device is published");
  const std::int64_t devices = fewest->second;
  if (devices > 1 && row.devices == devices)
    return nothing(fmt::format("no epoch time of fewer than {} devices is published", devices));
  std::int64_t batch = row.batch_per_device;
  if (rule.same_global_batch && (batch == kNotSaid || row.devices == kNotSaid))
    return nothing("the global batch is not given");
  if (rule.same_global_batch) batch = scaled(batch, row.devices, devices);
  Found base = pick(cell(place, devices, batch), row, source, rule.same_mode);
  if (!base.range.known())
    base.missing = fmt::format("no epoch time of {} is published", setting_text(devices, batch));
  return base;
}

Found Study::same_setting(const Row& row, Kind kind) const {
  const Row* best = nullptr;
  for (const Row* other : setting_of(row)) {
    if (other == &row || other->what.kind != kind || !other->usable()) continue;
    if (!best || (best->table != row.table && other->table == row.table)) best = other;
  }
  if (best) return study_found(*best);
  return nothing(
      fmt::format("it is not published for {}", setting_text(row.devices, row.batch_per_device)));
}

std::int64_t Study::base_devices(const Row& row) const {
  const auto fewest = fewest_devices_.find(place_of(row));
  return fewest == fewest_devices_.end() ? kNotSaid : fewest->second;
}

std::vector<const Row*> Study::setting_of(const Row& row) const {
  std::vector<const Row*> rows;
  for (const std::size_t index : cell(place_of(row), row.devices, row.batch_per_device))
    if (file_.rows[index].mode == row.mode) rows.push_back(&file_.rows[index]);
  return rows;
}

Found Study::any_time_of(const Row& row) const {
  Found last;
  for (const TimeSource& source : time_sources(row.report)) {
    if (source.sum) continue;
    last = time_of(row, source);
    if (last.range.known()) return last;
  }
  if (last.missing.empty()) last.missing = "the report prints no epoch time";
  return last;
}

Found Study::any_base_time_of(const Row& row) const {
  Found last;
  for (const TimeSource& source : time_sources(row.report)) {
    last = base_time_of(row, source, {});
    if (last.range.known()) return last;
  }
  return last;
}

}  // namespace gradsync::report::published
