#include "analysis/published/as_published.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/metrics/bandwidth.h"
#include "analysis/metrics/collective_figures.h"
#include "analysis/metrics/comparisons.h"
#include "analysis/metrics/epoch_figures.h"
#include "analysis/metrics/mode_figures.h"
#include "analysis/metrics/scaling.h"
#include "analysis/metrics/split_figures.h"
#include "analysis/published/audit.h"
#include "analysis/published/conventions.h"
#include "analysis/published/study.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "support/error.h"
#include "support/file.h"
#include "support/parse.h"
#include "timing/statistics.h"

namespace gradsync::report::published {

namespace {

/// A published setting, or one of the runs.
struct LayoutSetting {
  std::string mode;
  std::int64_t devices = 0, batch = 0;

  std::string synchronization() const { return mode.substr(0, mode.find(":rank")); }
  /// Of "ddp:rank2"; nothing where the mode names none.
  std::optional<std::size_t> rank() const {
    const std::size_t at = mode.find(":rank");
    if (at == std::string::npos) return {};
    return static_cast<std::size_t>(parse_integer(mode.substr(at + 5)));
  }
  bool operator==(const LayoutSetting&) const = default;
};

/// In base units; NaN: the runs do not give it.
struct MeasuredNumber {
  double value = kNotMeasured;
  bool extrapolated = false;  ///< from iterations to an epoch

  MeasuredNumber scaled(double factor) const { return {value * factor, extrapolated}; }
};

double median_of(const std::vector<double>& values) {
  return values.empty() ? kNotMeasured : median(values);
}

// --- what the runs give --------------------------------------------------------------------------

class LayoutFigures {
 public:
  LayoutFigures(const RunSet& set, const Layout& layout)
      : layout_(layout), groups_(group_runs(set)), splits_(groups_) {}

  const std::vector<RunGroup>& groups() const { return groups_; }

  const RunGroup* group(const LayoutSetting& setting) const {
    const std::string mode = is_without_exchange(setting.mode) ? "none" : setting.synchronization();
    return find([&](const Run& run) {
      return run.mode == mode && run.ranks == setting.devices &&
             (setting.batch == kNotSaid || run.batch_per_rank == setting.batch);
    });
  }

  MeasuredNumber of(const LayoutSetting& setting, const LayoutQuantity& quantity, double total) {
    const Kind kind = quantity.what.kind;
    const RunGroup* measured = group(setting);
    // One rank without exchange has no communication, one that calls the library may have some.
    if (setting.devices == 1 && (kind == Kind::kCommTime || kind == Kind::kBandwidth))
      measured = find([&](const Run& run) {
        return run.ranks == 1 && run.batch_per_rank == setting.batch && run.mode != "none";
      });
    if (measured == nullptr) return {};
    const MeasuredNumber number = value(*measured, setting, quantity, total);
    return quantity.per_iteration ? number.scaled(1e3 / iterations(*measured)) : number;
  }

 private:
  template <typename Fits>
  const RunGroup* find(Fits&& fits) const {
    const auto found = std::find_if(groups_.begin(), groups_.end(),
                                    [&](const RunGroup& one) { return fits(one.first()); });
    return found == groups_.end() ? nullptr : &*found;
  }

  /// Of what the layout calls an epoch.
  double iterations(const RunGroup& group) const {
    if (layout_.images == "each")
      return epoch_iterations(static_cast<double>(training_images(group.first())),
                              static_cast<double>(group.first().batch_per_rank),
                              LastBatch::kCounted);
    return positive(static_cast<double>(iterations_of_whole_epoch(group.first())));
  }

  double scale(const RunGroup& group) const {
    return iterations(group) / static_cast<double>(iterations_of_whole_epoch(group.first()));
  }

  MeasuredNumber value(const RunGroup& group, const LayoutSetting& setting,
                       const LayoutQuantity& quantity, double total) {
    switch (quantity.what.kind) {
      case Kind::kEpochTime:
        return quantity.number > 0 ? epoch(group, quantity.number)
                                   : time(group, layout_.clock == "training");
      case Kind::kTrainingTime:
        return time(group, true);
      case Kind::kRunningTime:
        return time(group, false);
      case Kind::kSpeedup:
        return speedup_of(group);
      case Kind::kComputeTime:
        return compute(group);
      case Kind::kCommTime:
        return communication(group);
      case Kind::kBandwidth:
        return bandwidth_of(group);
      case Kind::kComputeShare:
        return {splits_.measured(group).percent(Phase::kCompute) / 1e2};
      case Kind::kCommShare:
        return {share_of_communication(group)};
      default:
        return {quantity.number > 0 && !quantity.name.starts_with("loss_iter")
                    ? at_epoch(group, quantity)
                    : of_ranks(group, setting, quantity, total)};
    }
  }

  MeasuredNumber time(const RunGroup& group, bool training) const {
    const GroupTimes times = group_times(group);
    const auto& values = times[training ? TimeBasis::kTraining : TimeBasis::kRunning];
    const MeasuredNumber whole{median_of(values)};
    return (values.empty() ? extrapolated(group) : whole).scaled(scale(group));
  }

  static MeasuredNumber extrapolated(const RunGroup& group) {
    std::vector<double> values;
    for (const Run* run : group.repeats)
      for (const EpochFigures& one : epoch_figures(*run))
        if (!one.whole && std::isfinite(one.extrapolated_s)) values.push_back(one.extrapolated_s);
    return {median_of(values), !values.empty()};
  }

  MeasuredNumber epoch(const RunGroup& group, std::int64_t number) const {
    std::vector<double> values;
    for (const Run* run : group.repeats)
      for (const EpochFigures& one : epoch_figures(*run))
        if (one.epoch + 1 == number && one.whole)
          values.push_back(layout_.clock == "training" ? one.training_s : one.running_s);
    const MeasuredNumber whole{median_of(values)};
    return (values.empty() ? extrapolated(group) : whole).scaled(scale(group));
  }

  /// One rank with the same batch per rank, without exchange where there is one.
  const RunGroup* base_of(const RunGroup& group) const {
    const std::int64_t batch = group.first().batch_per_rank;
    const RunGroup* plain = this->group({"none", 1, batch});
    return plain ? plain : find([&](const Run& run) {
      return run.ranks == 1 && run.batch_per_rank == batch;
    });
  }

  MeasuredNumber base_time(const RunGroup& group) const {
    const RunGroup* base = base_of(group);
    return base ? time(*base, layout_.clock == "training") : MeasuredNumber{};
  }

  MeasuredNumber speedup_of(const RunGroup& group) const {
    const auto n = static_cast<double>(group.first().ranks);
    const MeasuredNumber base = base_time(group), own = time(group, layout_.clock == "training");
    return {layout_.speedup == "weak-speedup" ? weak_speedup(base.value, own.value, n)
                                              : speedup(base.value, own.value),
            base.extrapolated || own.extrapolated};
  }

  /// The epoch of a phase's mean; extrapolated where the run is no whole epoch.
  MeasuredNumber phase(const RunGroup& group, Phase phase) {
    return {splits_.measured(group)[phase] * iterations(group), extrapolated(group).extrapolated};
  }

  MeasuredNumber compute(const RunGroup& group) {
    if (layout_.compute == "whole-epoch") return time(group, layout_.clock == "training");
    if (layout_.compute == "measured") return phase(group, Phase::kCompute);
    const MeasuredNumber base = base_time(group);
    return {derived_compute(base.value, static_cast<double>(group.first().ranks)),
            base.extrapolated};
  }

  MeasuredNumber communication(const RunGroup& group) {
    if (layout_.communication == "measured") return phase(group, Phase::kCommBusy);
    const MeasuredNumber base = base_time(group), own = time(group, layout_.clock == "training");
    return {derived_communication(base.value, own.value, static_cast<double>(group.first().ranks)),
            base.extrapolated || own.extrapolated};
  }

  MeasuredNumber bandwidth_of(const RunGroup& group) {
    const MeasuredNumber comm = communication(group);
    double bytes = kNotMeasured;
    for (const CollectiveFigures& one : collective_figures(group))
      if (!(bytes > 0) && one.kind != CollectiveKind::kBroadcast) bytes = one.payload_bytes();
    return {
        bandwidth(*parse_convention(layout_.bandwidth),
                  {bytes, static_cast<double>(group.first().ranks), iterations(group), comm.value}),
        comm.extrapolated};
  }

  double share_of_communication(const RunGroup& group) {
    const SplitFigures split = splits_.measured(group);
    return (split[Phase::kExposed] + split[Phase::kHidden]) / split[Phase::kIteration];
  }

  double at_epoch(const RunGroup& group, const LayoutQuantity& quantity) const {
    const AccuracyAt at = accuracy_at(group, quantity.number);
    const bool test = layout_.accuracy == "test";
    if (!at.whole) return kNotMeasured;
    if (quantity.what.kind == Kind::kLoss) return mean(test ? at.test_loss : at.train_loss);
    return mean(test ? at.test_percent : at.train_percent) / 1e2;
  }

  static double of_rank(const ModeFigures& rank, const LayoutQuantity& quantity, double total) {
    if (quantity.what.kind == Kind::kIterationTime) return rank.mean_s;
    if (quantity.what.kind == Kind::kCorrect) return rank.test_accuracy * total;
    if (quantity.what.kind == Kind::kAccuracy)
      return quantity.name.starts_with("test") ? rank.test_accuracy : rank.train_accuracy;
    return quantity.number > 0 ? rank.loss_at.front() : rank.mean_loss;
  }

  static double of_ranks(const RunGroup& group, const LayoutSetting& setting,
                         const LayoutQuantity& quantity, double total) {
    if (quantity.name == "test_loss")
      return mean(accuracy_at(group, last_common_epoch(group)).test_loss);
    const Run& run = group.first();
    const auto ranks =
        mode_figures(*run.reader, run.steady, {std::max<std::int64_t>(1, quantity.number)});
    std::vector<double> values;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (!setting.rank() || *setting.rank() == rank)
        values.push_back(of_rank(ranks[rank], quantity, total));
    return values.empty() ? kNotMeasured : mean(values);
  }

  const Layout& layout_;
  std::vector<RunGroup> groups_;
  GroupSplits splits_;
};

// --- one table -----------------------------------------------------------------------------------

using LayoutKey = std::vector<std::string>;
constexpr std::array<const char*, 3> kValueNames = {"published", "measured", "ratio"};
constexpr std::int64_t kImages = 50000;  ///< of an epoch of CIFAR-10, which these reports train on

std::string default_unit(const LayoutQuantity& quantity, const Layout& layout) {
  if (quantity.what.dimension == Dimension::kTime) return "s";
  if (quantity.what.dimension == Dimension::kBandwidth)
    return layout.bandwidth_unit.empty() ? "GB/s" : layout.bandwidth_unit;
  const bool percent = quantity.what.kind == Kind::kAccuracy ||
                       quantity.what.kind == Kind::kComputeShare ||
                       quantity.what.kind == Kind::kCommShare;
  return percent ? "%" : "1";
}

class TableAsPublished {
 public:
  TableAsPublished(const Layout& layout, const LayoutTable& table, const Study* study,
                   const std::vector<Finding>& findings, LayoutFigures& figures, const RunSet& set)
      : layout_(layout), table_(table), findings_(findings), figures_(figures), set_(set) {
    if (study != nullptr) read_published(*study);
    if (!published_.empty()) note_what_is_unlike();
    add_measured_settings();
  }

  Table make() {
    for (const LayoutSetting& setting : settings_)
      for (const LayoutQuantity& quantity : table_.quantities)
        place(setting, quantity);
    Table made{
        fmt::format("{}-{}", layout_.name, table_.name), table_.title, notes(), columns(), {}};
    for (const LayoutKey& row : rows_)
      made.add(row_cells(row), sources());
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& why, const std::string& fix = {}) const {
    throw Error(ExitCode::kBadData,
                fmt::format("layout {}: table {}: {}", layout_.name, table_.name, why), fix);
  }

  // --- settings

  void read_published(const Study& study) {
    std::vector<std::string> known;
    const auto rows = study.rows_of(layout_.report);
    if (rows.empty())
      refuse(fmt::format("{} has no report {}{}", study.file().name, layout_.report,
                         did_you_mean(layout_.report, study.reports())));
    for (const Row* row : rows)
      if (std::find(known.begin(), known.end(), row->table) == known.end())
        known.push_back(row->table);
    for (const std::string& name : table_.of)
      if (std::find(known.begin(), known.end(), name) == known.end())
        refuse(fmt::format("{} has no table {}{}", layout_.report, name, did_you_mean(name, known)),
               fmt::format("its tables: {}", fmt::join(known, ", ")));
    for (const Row* row : rows)
      take_published(*row);
  }

  void take_published(const Row& row) {
    modes_.insert(row.synchronization());
    const bool named = std::find(table_.of.begin(), table_.of.end(), row.table) != table_.of.end();
    const bool wanted =
        std::any_of(table_.quantities.begin(), table_.quantities.end(),
                    [&](const LayoutQuantity& quantity) { return quantity.name == row.quantity; });
    if (!named || !wanted || !row.usable() || !has_devices(row.devices)) return;
    units_.emplace(row.quantity, row.unit_text);
    const LayoutSetting setting{row.mode, row.devices, row.batch_per_device};
    add_setting(setting);
    published_.push_back({setting, &row});
  }

  void add_setting(const LayoutSetting& setting) {
    if (std::find(settings_.begin(), settings_.end(), setting) == settings_.end())
      settings_.push_back(setting);
  }

  bool has_devices(std::int64_t devices) const {
    return table_.devices.empty() ||
           std::find(table_.devices.begin(), table_.devices.end(), devices) != table_.devices.end();
  }

  bool is_there(const std::string& mode, std::int64_t devices, std::int64_t batch) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const LayoutSetting& one) {
      const bool same =
          one.synchronization() == mode || (mode == "none" && is_without_exchange(one.mode));
      return same && one.devices == devices && (one.batch == kNotSaid || one.batch == batch);
    });
  }

  void add_measured(const std::string& mode, std::int64_t devices, std::int64_t batch) {
    const bool shown_by_mode = has_axis(Axis::kMode);
    // One rank is shown without exchange; modes of other reports need the axis `mode`.
    if (devices == 1 && mode != "none") return;
    if (!shown_by_mode && !modes_.empty() && mode != "none" && modes_.count(mode) == 0) return;
    if (!has_devices(devices) || is_there(mode, devices, batch)) return;
    const bool single = mode == "none" && modes_.count("single") != 0;
    const LayoutSetting setting{single ? "single" : mode, devices, batch};
    // What no axis tells apart from a published setting would stand beside its numbers.
    if (std::none_of(published_.begin(), published_.end(),
                     [&](const auto& one) { return has_one_place(one.first, setting); }))
      add_setting(setting);
  }

  bool has_one_place(const LayoutSetting& one, const LayoutSetting& other) const {
    return (!has_axis(Axis::kMode) || one.mode == other.mode) &&
           (!has_axis(Axis::kDevices) || one.devices == other.devices) &&
           (!has_axis(Axis::kBatch) || one.batch == other.batch);
  }

  void add_measured_settings() {
    for (const RunGroup& group : figures_.groups())
      add_measured(group.first().mode, group.first().ranks, group.first().batch_per_rank);
    for (const FailedCell& failed : set_.failed)
      add_measured(failed.mode, failed.ranks, failed.batch_per_rank);
  }

  bool has_axis(Axis axis) const {
    const auto in = [axis](const std::vector<Axis>& axes) {
      return std::find(axes.begin(), axes.end(), axis) != axes.end();
    };
    return in(table_.rows) || in(table_.columns);
  }

  // Another model or data set than the report's: ratios then compare two trainings.
  void note_what_is_unlike() {
    const std::string& model = published_.front().second->model;
    std::set<std::string> models;
    std::set<std::int64_t> images;
    for (const RunGroup& group : figures_.groups()) {
      if (!model.empty() && group.first().model != model) models.insert(group.first().model);
      const std::int64_t of_epoch = training_images(group.first());
      if (of_epoch != 0 && of_epoch != kImages) images.insert(of_epoch);
    }
    if (!models.empty())
      unlike_.push_back(
          fmt::format("the report trains {}, runs here {}", model, fmt::join(models, ", ")));
    if (!images.empty())
      unlike_.push_back(fmt::format("an epoch of the report has {} images, of runs here {}",
                                    kImages, fmt::join(images, ", ")));
  }

  // --- numbers

  std::string unit_of(const LayoutQuantity& quantity) const {
    if (quantity.per_iteration) return "ms/iteration";
    if (quantity.what.kind == Kind::kBandwidth && !layout_.bandwidth_unit.empty())
      return layout_.bandwidth_unit;
    const auto known = units_.find(quantity.name);
    return known == units_.end() ? default_unit(quantity, layout_) : known->second;
  }

  const Row* published_row(const LayoutSetting& setting, const LayoutQuantity& quantity) const {
    for (const auto& [where, row] : published_)
      if (where == setting && row->quantity == quantity.name) return row;
    return nullptr;
  }

  static double published_iterations(const LayoutSetting& setting, const Layout& layout) {
    const auto n = static_cast<double>(layout.images == "each" ? 1 : setting.devices);
    return epoch_iterations(static_cast<double>(kImages), n * static_cast<double>(setting.batch),
                            LastBatch::kCounted);
  }

  Cell published_cell(const LayoutSetting& setting, const LayoutQuantity& quantity) const {
    const Row* row = published_row(setting, quantity);
    if (row == nullptr) return Cell::of(kNotMeasured, 0);
    if (quantity.per_iteration)
      return significant_cell(1e3 * row->range().value / published_iterations(setting, layout_));
    return Cell::of(row->value, std::clamp(row->decimals, 0, 6));
  }

  void place(const LayoutSetting& setting, const LayoutQuantity& quantity) {
    const Unit unit = quantity.per_iteration ? Unit{} : parse_unit(unit_of(quantity));
    const MeasuredNumber number = figures_.of(setting, quantity, unit.total);
    const Cell published = published_cell(setting, quantity);
    const Cell measured = quantity.what.kind == Kind::kCorrect
                              ? Cell::of(number.value / unit.factor, 0)
                              : significant_cell(number.value / unit.factor);
    const std::array<Cell, 3> cells = {published, measured,
                                       Cell::of(measured.number / published.number, 2)};
    for (std::size_t value = 0; value < cells.size(); ++value)
      put(key(table_.rows, setting, quantity, value), key(table_.columns, setting, quantity, value),
          cells[value], value == 0);
    remark(setting, quantity, number);
  }

  void put(const LayoutKey& row, const LayoutKey& column, const Cell& cell, bool published) {
    const auto note = [](std::vector<LayoutKey>& keys, const LayoutKey& one) {
      if (std::find(keys.begin(), keys.end(), one) == keys.end()) keys.push_back(one);
    };
    note(rows_, row);
    note(columns_, column);
    Cell& there = cells_[{row, column}];
    const bool twice = std::isfinite(there.number) && std::isfinite(cell.number);
    if (twice && !published) crowded_ = true;
    if (twice && published)
      refuse(fmt::format("two numbers for row {}, column {}", fmt::join(row, " "),
                         fmt::join(column, " ")),
             "name mode, devices and batch_per_device in rows or columns where they differ");
    if (!std::isfinite(there.number)) there = cell;
  }

  LayoutKey key(const std::vector<Axis>& axes, const LayoutSetting& setting,
                const LayoutQuantity& quantity, std::size_t value) const {
    LayoutKey result;
    for (const Axis axis : axes)
      result.push_back(text_of(axis, setting, quantity, value));
    return result;
  }

  std::string text_of(Axis axis, const LayoutSetting& setting, const LayoutQuantity& quantity,
                      std::size_t value) const {
    switch (axis) {
      case Axis::kMode:
        return setting.mode;
      case Axis::kDevices:
        return std::to_string(setting.devices);
      case Axis::kBatch:
        return setting.batch == kNotSaid ? "-" : std::to_string(setting.batch);
      case Axis::kQuantity: {
        const std::string unit = unit_of(quantity);
        return unit == "1" ? quantity.name : quantity.name + " " + unit;
      }
      case Axis::kValue:
        break;
    }
    return kValueNames[value];
  }

  void remark(const LayoutSetting& setting, const LayoutQuantity& quantity,
              const MeasuredNumber& number) {
    const LayoutKey row = key(table_.rows, setting, quantity, 1);
    std::string place;
    for (const Axis axis : table_.columns)
      if (axis != Axis::kValue)
        place += (place.empty() ? "" : " ") + text_of(axis, setting, quantity, 1);
    if (number.extrapolated && std::isfinite(number.value)) {
      extrapolated_ = true;
      add_remark(row, place, "extrapolated");
    }
    const std::string mode = is_without_exchange(setting.mode) ? "none" : setting.synchronization();
    for (const FailedCell& failed : set_.failed)
      if (failed.mode == mode && failed.ranks == setting.devices &&
          failed.batch_per_rank == setting.batch)
        add_remark(row, place, failed.verdict());
  }

  void add_remark(const LayoutKey& row, const std::string& place, const std::string& what) {
    std::vector<std::string>& places = remarks_[row][what];
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  }

  // --- the table

  std::vector<Column> columns() const {
    std::vector<Column> all;
    constexpr std::array<const char*, 5> kNames = {"mode", "devices", "batch_per_device",
                                                   "quantity", "value"};
    for (const Axis axis : table_.rows) {
      const char* name = kNames[static_cast<std::size_t>(axis)];
      all.push_back({name, axis == Axis::kBatch ? "batch" : name, true, "", "", 0});
    }
    for (const LayoutKey& one : columns_)
      all.push_back({machine_name(one), head_of(one), false, "", "", 0});
    all.push_back({"remark", "remark", true, "", "", 2});
    return all;
  }

  /// "2 publ.": published and measured are long beside a number of devices.
  static std::string head_of(const LayoutKey& parts) {
    LayoutKey shown = parts;
    if (parts.size() > 1)
      for (std::string& part : shown)
        if (part == kValueNames[0] || part == kValueNames[1])
          part = part == kValueNames[0] ? "publ." : "meas.";
    return fmt::format("{}", fmt::join(shown, " "));
  }

  static std::string machine_name(const LayoutKey& parts) {
    std::string name = fmt::format("{}", fmt::join(parts, "_"));
    for (char& c : name)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return std::isdigit(static_cast<unsigned char>(name.front())) != 0 ? "devices_" + name : name;
  }

  std::vector<Cell> row_cells(const LayoutKey& row) const {
    std::vector<Cell> cells(row.begin(), row.end());
    for (const LayoutKey& column : columns_) {
      const auto known = cells_.find({row, column});
      cells.push_back(known == cells_.end() ? Cell::of(kNotMeasured, 0) : known->second);
    }
    cells.emplace_back(remark_text(row));
    return cells;
  }

  std::string remark_text(const LayoutKey& row) const {
    std::string text;
    const auto known = remarks_.find(row);
    if (known == remarks_.end()) return text;
    for (const auto& [what, places] : known->second)
      text += fmt::format("{}{}{}{}", text.empty() ? "" : "; ", fmt::join(places, ", "),
                          places.front().empty() ? "" : ": ", what);
    return text;
  }

  std::string sources() const {
    std::string text;
    for (const RunGroup& group : figures_.groups())
      text += (text.empty() ? "" : ", ") + sources_of(group);
    return text;
  }

  bool has_kind(std::initializer_list<Kind> kinds) const {
    return std::any_of(table_.quantities.begin(), table_.quantities.end(), [&](const auto& one) {
      return std::find(kinds.begin(), kinds.end(), one.what.kind) != kinds.end();
    });
  }

  /// Whether it rests on a published number of this table.
  bool concerns(const Finding& finding) const {
    return std::any_of(published_.begin(), published_.end(), [&](const auto& one) {
      return std::find(finding.lines.begin(), finding.lines.end(), one.second->line) !=
             finding.lines.end();
    });
  }

  /// What the audit finds in the published numbers of this table, a note a severity.
  std::vector<std::string> audit_notes() const {
    std::vector<std::string> all;
    for (const Severity severity : {Severity::kImpossible, Severity::kContradicted}) {
      std::vector<std::string> found;
      for (const Finding& finding : findings_)
        if (finding.severity == severity && concerns(finding)) found.push_back(finding.what);
      if (!found.empty())
        all.push_back(fmt::format("published numbers are {}: {}", severity_text(severity),
                                  fmt::join(found, "; ")));
    }
    return all;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> all = audit_notes();
    if (extrapolated_)
      all.push_back(
          "remark extrapolated: no whole epoch was run; mean steady iteration x iterations of one");
    all.push_back(published_.empty()
                      ? "published: the report prints none of these numbers"
                      : fmt::format("published: {} of {}, as printed; ratio: measured / published",
                                    layout_.report, layout_.published.filename().string()));
    const bool training = layout_.clock == "training";
    if (has_kind({Kind::kEpochTime, Kind::kSpeedup, Kind::kComputeTime, Kind::kCommTime}))
      all.push_back(fmt::format(
          "epoch: {} of the slowest rank, median of the whole epochs after the first; {}",
          training ? "training time (without loading)" : "running time (without evaluation)",
          layout_.images == "each" ? "every device takes all images"
                                   : "the devices share the images"));
    if (has_kind({Kind::kSpeedup}))
      all.push_back(fmt::format("speedup: {}, base: one device with the same batch",
                                layout_.speedup == "speedup" ? "T(1)/T(n)" : "n*T(1)/T(n)"));
    if (has_kind({Kind::kComputeTime, Kind::kCommTime, Kind::kBandwidth}))
      all.push_back(fmt::format("compute: {}; communication: {}", compute_text(), comm_text()));
    if (has_kind({Kind::kBandwidth})) {
      const auto convention = *parse_convention(layout_.bandwidth);
      all.push_back(
          fmt::format("bandwidth: {}, {}", layout_.bandwidth, convention_formula(convention)));
    }
    if (has_kind({Kind::kCorrect, Kind::kLoss, Kind::kAccuracy}))
      all.push_back(fmt::format("loss and accuracy of an epoch: of {}, mean over ranks",
                                layout_.accuracy == "test" ? "test" : "training"));
    if (crowded_)
      all.push_back(
          "several runs belong in one cell, which shows the first: rows and columns do "
          "not name what they differ in");
    for (const std::string& other : unlike_)
      all.push_back(other);
    const auto remarks = remark_notes(set_);
    all.insert(all.end(), remarks.begin(), remarks.end());
    return all;
  }

  std::string compute_text() const {
    if (layout_.compute == "derived") return "T(1)/n";
    return layout_.compute == "whole-epoch" ? "T(n)" : "measured, mean over ranks";
  }
  std::string comm_text() const {
    return layout_.communication == "derived" ? "T(n) - T(1)/n"
                                              : "measured, hidden included, mean over ranks";
  }

  const Layout& layout_;
  const LayoutTable& table_;
  const std::vector<Finding>& findings_;
  LayoutFigures& figures_;
  const RunSet& set_;
  std::set<std::string> modes_;  ///< of the published report
  std::vector<LayoutSetting> settings_;
  std::vector<std::pair<LayoutSetting, const Row*>> published_;
  std::map<std::string, std::string> units_;  ///< of quantities, as published
  std::vector<LayoutKey> rows_, columns_;
  std::map<std::pair<LayoutKey, LayoutKey>, Cell> cells_;
  std::map<LayoutKey, std::map<std::string, std::vector<std::string>>> remarks_;
  bool extrapolated_ = false, crowded_ = false;
  std::vector<std::string> unlike_;  ///< notes
};

std::optional<Study> published_study(const Layout& layout) {
  if (layout.published.empty()) return {};
  return Study(
      parse_published(read_text_file(layout.published), layout.published.filename().string()));
}

}  // namespace

std::vector<Table> tables_as_published(const Layout& layout, const RunSet& set) {
  const std::optional<Study> study = published_study(layout);
  const std::vector<Finding> findings = study ? audit(*study, {}).findings : std::vector<Finding>{};
  LayoutFigures figures(set, layout);
  std::vector<Table> made;
  for (const LayoutTable& table : layout.tables)
    made.push_back(
        TableAsPublished(layout, table, study ? &*study : nullptr, findings, figures, set).make());
  return made;
}

}  // namespace gradsync::report::published
