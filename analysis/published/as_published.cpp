// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/comparisons.h"
#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/published/layout.h"
#include "analysis/published/numbers.h"
#include "analysis/tables/columns.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "stats/statistics.h"

namespace gradsync::report::published {

namespace {

/// A published setting, or one of the runs.
struct LayoutSetting {
  std::string mode;
  std::int64_t devices = 0, batch = 0;

  std::string synchronization() const { return mode.substr(0, mode.find(":rank")); }
  /// 2 of "ddp:rank2"; nothing where the mode names no rank.
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
  bool unsteady = false;      ///< from iterations of a run that never became steady
  bool several = false;       ///< groups of runs fit, and it is of the first

  /// Another value that was made from this one.
  MeasuredNumber with(double made) const { return {made, extrapolated, unsteady, several}; }
  /// Another value that was made from both.
  MeasuredNumber with(double made, const MeasuredNumber& other) const {
    return {made, extrapolated || other.extrapolated, unsteady || other.unsteady, several};
  }
};

/// single, none, serial, baseline, sequential, or nothing said.
bool is_without_exchange(const std::string& mode) {
  constexpr std::array<std::string_view, 6> kNames = {"",       "single",   "none",
                                                      "serial", "baseline", "sequential"};
  return contains(kNames, mode);
}

/// The last batch counted; NaN where the batch is not known.
double epoch_iterations(std::int64_t images, std::int64_t global_batch) {
  if (global_batch <= 0) return kNotMeasured;
  return std::max(1.0, std::ceil(static_cast<double>(images) / static_cast<double>(global_batch)));
}

// --- what the runs give --------------------------------------------------------------------------

class LayoutFigures {
 public:
  LayoutFigures(const RunSet& set, const Layout& layout)
      : layout_(layout), groups_(group_runs(set)), splits_(groups_) {}

  const std::vector<RunGroup>& groups() const { return groups_; }

  MeasuredNumber of(const LayoutSetting& setting, const LayoutQuantity& quantity, double total) {
    const Kind kind = quantity.kind;
    const std::string mode = is_without_exchange(setting.mode) ? "none" : setting.synchronization();
    // One rank without exchange has no communication, one that calls the library may have some.
    const bool calls =
        setting.devices == 1 && (kind == Kind::kCommTime || kind == Kind::kBandwidth);
    const auto fitting = find([&](const Run& run) {
      return (calls ? run.mode != "none" : run.mode == mode) && run.ranks == setting.devices &&
             (setting.batch == kNotSaid || run.batch_per_rank == setting.batch);
    });
    if (fitting.empty()) return {};
    const RunGroup& group = *fitting.front();
    MeasuredNumber number = value(group, setting, quantity, total);
    if (quantity.per_iteration) number.value *= 1e3 / iterations(group);
    number.several = fitting.size() > 1;
    return number;
  }

  /// Groups that no number was made from so far.
  std::vector<const RunGroup*> unused() const {
    std::vector<const RunGroup*> groups;
    for (const RunGroup& group : groups_)
      if (used_.count(&group) == 0) groups.push_back(&group);
    return groups;
  }

 private:
  template <typename Fits>
  std::vector<const RunGroup*> find(Fits&& fits) {
    std::vector<const RunGroup*> found;
    for (const RunGroup& group : groups_)
      if (fits(group.first())) found.push_back(&group);
    used_.insert(found.begin(), found.end());
    return found;
  }

  /// Iterations of what the layout calls an epoch.
  double iterations(const RunGroup& group) const {
    if (layout_.images == "each")
      return epoch_iterations(training_images(group.first()), group.first().batch_per_rank);
    return positive(static_cast<double>(iterations_of_whole_epoch(group.first())));
  }

  double scale(const RunGroup& group) const {
    return iterations(group) /
           positive(static_cast<double>(iterations_of_whole_epoch(group.first())));
  }

  bool epochs_train() const { return layout_.clock == "training"; }

  MeasuredNumber value(const RunGroup& group, const LayoutSetting& setting,
                       const LayoutQuantity& quantity, double total) {
    const Kind kind = quantity.kind;
    if (is_epoch_time(kind))
      return epoch(group, quantity.number,
                   kind == Kind::kEpochTime ? epochs_train() : kind == Kind::kTrainingTime);
    if (kind == Kind::kSpeedup) return speedup_of(group);
    if (kind == Kind::kComputeTime) return compute(group);
    if (kind == Kind::kCommTime) return communication(group);
    if (kind == Kind::kBandwidth) return bandwidth_of(group);
    if (kind == Kind::kComputeShare)
      return {splits_.measured(group).percent(Phase::kCompute) / 1e2, false, unsteady(group)};
    if (kind == Kind::kCommShare) return {share_of_communication(group), false, unsteady(group)};
    return {quantity.number > 0 && !quantity.name.starts_with("loss_iter")
                ? at_epoch(group, quantity)
                : of_ranks(group, setting, quantity, total)};
  }

  static bool unsteady(const RunGroup& group) {
    return std::ranges::any_of(group.repeats, [](const Run* run) {
      return run->steady.verdict == SteadyVerdict::kNotSteady;
    });
  }

  /// The epoch of this number, from 1; 0: any after the first.
  MeasuredNumber epoch(const RunGroup& group, std::int64_t number, bool training) const {
    std::vector<double> seconds;
    for (const Run* run : group.repeats)
      for (const EpochFigures& one : epoch_figures(*run))
        if (one.whole && (number > 0 ? one.epoch + 1 == number : one.epoch > 0))
          seconds.push_back(training ? one.training_s : one.running_s);
    if (const double whole = median(seconds); std::isfinite(whole)) return {whole * scale(group)};
    seconds.clear();
    for (const Run* run : group.repeats)
      seconds.push_back(number == 1 ? unfinished_first_epoch_s(*run, training)
                                    : unfinished_later_epoch_s(*run, training));
    return {median(seconds) * scale(group), true, unsteady(group)};
  }

  /// T(1), of one rank with the same batch per rank, without exchange where there is one.
  MeasuredNumber base_time(const RunGroup& group, bool training) {
    const auto bases = find([&](const Run& run) {
      return run.ranks == 1 && run.batch_per_rank == group.first().batch_per_rank;
    });
    if (bases.empty()) return {};
    const auto plain = std::ranges::find_if(
        bases, [](const RunGroup* base) { return base->first().mode == "none"; });
    return epoch(plain == bases.end() ? *bases.front() : **plain, 0, training);
  }

  MeasuredNumber speedup_of(const RunGroup& group) {
    const bool training = layout_.speedup_clock == "training";
    const MeasuredNumber base = base_time(group, training), own = epoch(group, 0, training);
    const bool weak = layout_.speedup == "weak-speedup";
    return base.with(
        (weak ? static_cast<double>(group.first().ranks) : 1) * speedup(base.value, own.value),
        own);
  }

  /// The epoch of a phase's mean.
  MeasuredNumber phase(const RunGroup& group, Phase phase) {
    return {splits_.measured(group)[phase] * iterations(group),
            epoch(group, 0, epochs_train()).extrapolated, unsteady(group)};
  }

  MeasuredNumber compute(const RunGroup& group) {
    if (layout_.compute == "whole-epoch") return epoch(group, 0, epochs_train());
    if (layout_.compute == "measured") return phase(group, Phase::kCompute);
    const MeasuredNumber base = base_time(group, epochs_train());
    return base.with(derived_compute(base.value, static_cast<double>(group.first().ranks)));
  }

  MeasuredNumber communication(const RunGroup& group) {
    if (layout_.communication == "measured") return phase(group, Phase::kCommBusy);
    const MeasuredNumber base = base_time(group, epochs_train()),
                         own = epoch(group, 0, epochs_train());
    return base.with(
        derived_communication(base.value, own.value, static_cast<double>(group.first().ranks)),
        own);
  }

  MeasuredNumber bandwidth_of(const RunGroup& group) {
    const MeasuredNumber comm = communication(group);
    double bytes = kNotMeasured;
    for (const CollectiveFigures& one : collective_figures(group))
      if (!(bytes > 0) && one.kind != CollectiveKind::kBroadcast) bytes = one.payload_bytes();
    // One device has no other that it could exchange with, but a message and the time of the call.
    if (layout_.bandwidth == convention_name(BandwidthConvention::kMessage))
      return comm.with(bytes / positive(comm.value));
    return comm.with(bandwidth(
        *parse_convention(layout_.bandwidth),
        {bytes, static_cast<double>(group.first().ranks), iterations(group), comm.value}));
  }

  double share_of_communication(const RunGroup& group) {
    const SplitFigures split = splits_.measured(group);
    return (split[Phase::kExposed] + split[Phase::kHidden]) / split[Phase::kIteration];
  }

  double at_epoch(const RunGroup& group, const LayoutQuantity& quantity) const {
    const AccuracyAt at = accuracy_at(group, quantity.number);
    const bool test = layout_.accuracy == "test";
    if (!at.whole) return kNotMeasured;
    if (quantity.kind == Kind::kLoss) return mean(test ? at.test_loss : at.train_loss);
    return mean(test ? at.test_percent : at.train_percent) / 1e2;
  }

  static double of_rank(const ModeFigures& rank, const LayoutQuantity& quantity, double total) {
    if (quantity.kind == Kind::kIterationTime) return rank.mean_s;
    if (quantity.kind == Kind::kCorrect) return rank.test_accuracy * total;
    const bool test = quantity.name.starts_with("test");
    if (quantity.kind == Kind::kAccuracy) return test ? rank.test_accuracy : rank.train_accuracy;
    if (test) return rank.test_loss;
    return quantity.number > 0 ? rank.loss_at.front() : rank.mean_loss;
  }

  static double of_ranks(const RunGroup& group, const LayoutSetting& setting,
                         const LayoutQuantity& quantity, double total) {
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
  std::set<const RunGroup*> used_;
};

// --- one table -----------------------------------------------------------------------------------

using LayoutKey = std::vector<std::string>;
constexpr std::array<const char*, 3> kValueNames = {"published", "measured", "ratio"};
constexpr std::int64_t kImages = 50000;  ///< of an epoch of CIFAR-10, which these reports train on

std::string default_unit(const LayoutQuantity& quantity, const Layout& layout) {
  if (is_time(quantity.kind)) return "s";
  if (quantity.kind == Kind::kBandwidth)
    return layout.bandwidth_unit.empty() ? "GB/s" : layout.bandwidth_unit;
  const bool percent = quantity.kind == Kind::kAccuracy || quantity.kind == Kind::kComputeShare ||
                       quantity.kind == Kind::kCommShare;
  return percent ? "%" : "1";
}

class TableAsPublished {
 public:
  TableAsPublished(const Layout& layout, const LayoutTable& table, const AuditedNumbers* numbers,
                   LayoutFigures& figures, const RunSet& set)
      : layout_(layout), table_(table), figures_(figures), set_(set) {
    if (numbers != nullptr) read_published(*numbers);
    if (published_.empty())
      add_measured_settings();
    else
      note_what_is_unlike();
    for (const LayoutSetting& setting : settings_)
      for (const LayoutQuantity& quantity : table_.quantities)
        if (is_asked(setting, quantity)) note_keys(setting, quantity);
    for (const LayoutSetting& setting : settings_)
      for (const LayoutQuantity& quantity : table_.quantities)
        place(setting, quantity);
  }

  /// Appends the measured numbers, and notes at which index.
  void add_measured(std::vector<AuditedNumber>& numbers) {
    for (MeasuredCell& cell : measured_) {
      if (cell.quantity->per_iteration || !std::isfinite(cell.number.value)) continue;
      cell.index = numbers.size();
      AuditedNumber& one = numbers.emplace_back();
      one.report = layout_.report;
      one.table = table_.of.empty() ? table_.name : table_.of.front();
      one.model = figures_.groups().front().first().model;
      one.mode = cell.setting.mode;
      one.devices = cell.setting.devices;
      one.batch_per_device = cell.setting.batch;
      one.quantity = cell.quantity->name;
      one.unit = unit_of(*cell.quantity);
      one.value = cell.number.value / parse_unit(one.unit).value_or(Unit{}).factor;
      one.decimals = 12;
    }
  }

  /// `published`, `measured`: what the audit finds in the numbers of each kind.
  /// `numbers` are those of add_measured(), with their lines.
  Table make(const std::vector<AuditFinding>& published, const std::vector<AuditFinding>& measured,
             const std::vector<AuditedNumber>& numbers) {
    for (MeasuredCell& cell : measured_) {
      cell.remarks = remarks_on(cell);
      if (!cell.index || !is_derived(cell.quantity->kind)) continue;
      const std::size_t line = numbers[*cell.index].line;
      measured_lines_.insert(line);
      for (const AuditFinding& finding : measured)
        if (finding.lines.count(line) != 0)
          cell.remarks.push_back(fmt::format("{}: {}", finding.severity, finding.what));
    }
    Table made{fmt::format("{}-{}", layout_.name, table_.name),
               table_.title,
               notes(published, measured),
               columns(),
               {}};
    for (const LayoutKey& row : rows_)
      made.add(row_cells(row), sources());
    return made;
  }

 private:
  struct MeasuredCell {
    LayoutSetting setting;
    const LayoutQuantity* quantity;
    MeasuredNumber number;
    std::optional<std::size_t> index = {};  ///< among the measured numbers that are audited
    std::vector<std::string> remarks = {};
  };

  [[noreturn]] void refuse(const std::string& why, const std::string& fix = {}) const {
    throw Error(ExitCode::kBadData,
                fmt::format("layout {}: table {}: {}", layout_.name, table_.name, why), fix);
  }

  // --- settings

  void read_published(const AuditedNumbers& published) {
    std::vector<std::string> known, reports;
    for (const AuditedNumber& one : published.numbers) {
      add_once(reports, one.report);
      if (one.report == layout_.report) add_once(known, one.table);
    }
    if (known.empty())
      refuse(fmt::format("{} has no report {}{}", published.file, layout_.report,
                         did_you_mean(layout_.report, reports)));
    for (const std::string& name : table_.of)
      if (!contains(known, name))
        refuse(fmt::format("{} has no table {}{}", layout_.report, name, did_you_mean(name, known)),
               fmt::format("its tables: {}", fmt::join(known, ", ")));
    for (const AuditedNumber& one : published.numbers)
      if (one.report == layout_.report) take_published(one);
  }

  void take_published(const AuditedNumber& row) {
    modes_.insert(row.mode.substr(0, row.mode.find(":rank")));
    const bool wanted = std::ranges::any_of(table_.quantities, [&](const LayoutQuantity& quantity) {
      return quantity.name == row.quantity;
    });
    if (!wanted || std::isnan(row.base_value)) return;
    printed_elsewhere_ = true;
    const bool named = contains(table_.of, row.table);
    if (!named || !has_devices(row.devices)) return;
    units_.emplace(row.quantity, row.unit);
    const LayoutSetting setting{row.mode, row.devices, row.batch_per_device};
    add_once(settings_, setting);
    published_.push_back({setting, &row});
  }

  bool has_devices(std::int64_t devices) const {
    return table_.devices.empty() || contains(table_.devices, devices);
  }

  bool has_axis(Axis axis) const {
    return contains(table_.rows, axis) || contains(table_.columns, axis);
  }

  /// Adds the rows of a table of which the report prints nothing.
  void add_measured_settings() {
    const auto add = [&](const std::string& mode, std::int64_t devices, std::int64_t batch) {
      // One rank is shown without exchange; modes of other reports need the axis `mode`.
      if (!has_devices(devices) || (devices == 1 && mode != "none")) return;
      if (!has_axis(Axis::kMode) && !modes_.empty() && mode != "none" && modes_.count(mode) == 0)
        return;
      const bool single = mode == "none" && modes_.count("single") != 0;
      add_once(settings_, LayoutSetting{single ? "single" : mode, devices, batch});
    };
    for (const RunGroup& group : figures_.groups())
      add(group.first().mode, group.first().ranks, group.first().batch_per_rank);
    for (const FailedCell& failed : set_.failed)
      add(failed.mode, failed.ranks, failed.batch_per_rank);
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
    if (quantity.kind == Kind::kBandwidth && !layout_.bandwidth_unit.empty())
      return layout_.bandwidth_unit;
    const auto known = units_.find(quantity.name);
    return known == units_.end() ? default_unit(quantity, layout_) : known->second;
  }

  const AuditedNumber* published_row(const LayoutSetting& setting,
                                     const LayoutQuantity& quantity) const {
    for (const auto& [where, row] : published_)
      if (where == setting && row->quantity == quantity.name) return row;
    return nullptr;
  }

  /// What the report prints, and a quantity that it prints nowhere in this table.
  bool is_asked(const LayoutSetting& setting, const LayoutQuantity& quantity) const {
    return published_row(setting, quantity) != nullptr ||
           std::ranges::none_of(
               published_, [&](const auto& one) { return one.second->quantity == quantity.name; });
  }

  static double published_iterations(const LayoutSetting& setting, const Layout& layout) {
    if (setting.devices == kNotSaid || setting.batch == kNotSaid) return kNotMeasured;
    return epoch_iterations(kImages,
                            (layout.images == "each" ? 1 : setting.devices) * setting.batch);
  }

  Cell published_cell(const LayoutSetting& setting, const LayoutQuantity& quantity) const {
    const AuditedNumber* row = published_row(setting, quantity);
    if (row == nullptr) return Cell::of(kNotMeasured, 0);
    if (quantity.per_iteration)
      return significant_cell(1e3 * row->base_value / published_iterations(setting, layout_));
    return Cell::of(row->value, std::max(row->decimals, 0));
  }

  void note_keys(const LayoutSetting& setting, const LayoutQuantity& quantity) {
    for (std::size_t value = 0; value < kValueNames.size(); ++value) {
      add_once(rows_, key(table_.rows, setting, quantity, value));
      add_once(columns_, key(table_.columns, setting, quantity, value));
    }
  }

  void place(const LayoutSetting& setting, const LayoutQuantity& quantity) {
    if (!contains(rows_, key(table_.rows, setting, quantity, 0)) ||
        !contains(columns_, key(table_.columns, setting, quantity, 0)))
      return;
    const Unit unit = parse_unit(unit_of(quantity)).value_or(Unit{});
    const MeasuredNumber number = figures_.of(setting, quantity, unit.total);
    const Cell published = published_cell(setting, quantity);
    const Cell measured = quantity.kind == Kind::kCorrect
                              ? Cell::of(number.value / unit.factor, 0)
                              : significant_cell(number.value / unit.factor);
    const std::array<Cell, 3> cells = {published, measured,
                                       Cell::of(measured.number / published.number, 2)};
    for (std::size_t value = 0; value < cells.size(); ++value)
      put(key(table_.rows, setting, quantity, value), key(table_.columns, setting, quantity, value),
          cells[value], value == 0);
    measured_.push_back({setting, &quantity, number});
    crowded_ |= number.several;
  }

  void put(const LayoutKey& row, const LayoutKey& column, const Cell& cell, bool published) {
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
    const auto count = [](std::int64_t number) {
      return number == kNotSaid ? "-" : std::to_string(number);
    };
    if (axis == Axis::kMode) return setting.mode;
    if (axis == Axis::kDevices) return count(setting.devices);
    if (axis == Axis::kBatch) return count(setting.batch);
    if (axis == Axis::kValue) return kValueNames[value];
    const std::string unit = unit_of(quantity);
    return unit == "1" ? quantity.name : quantity.name + " " + unit;
  }

  // --- remarks

  std::vector<std::string> remarks_on(const MeasuredCell& cell) const {
    std::vector<std::string> remarks;
    const bool known = std::isfinite(cell.number.value);
    if (known && cell.number.extrapolated) remarks.emplace_back("extrapolated");
    if (known && cell.number.unsteady) remarks.emplace_back("never became steady");
    const LayoutSetting& at = cell.setting;
    const std::string mode = is_without_exchange(at.mode) ? "none" : at.synchronization();
    for (const FailedCell& failed : set_.failed)
      if (failed.mode == mode && failed.ranks == at.devices && failed.batch_per_rank == at.batch)
        remarks.push_back(failed.verdict());
    return remarks;
  }

  /// Where a cell stands in its row: its column without published, measured and ratio.
  std::string place_of(const MeasuredCell& cell) const {
    std::string place;
    for (const Axis axis : table_.columns)
      if (axis != Axis::kValue)
        place +=
            (place.empty() ? "" : " ") + text_of(axis, cell.setting, *cell.quantity, kMeasured);
    return place;
  }

  /// Each remark with its places; where it holds for all that was measured in the row, without.
  std::string remark_text(const LayoutKey& row) const {
    std::set<std::string> in_row;
    std::vector<std::pair<std::string, std::vector<std::string>>> remarks;
    for (const MeasuredCell& cell : measured_) {
      if (key(table_.rows, cell.setting, *cell.quantity, kMeasured) != row) continue;
      const std::string place = place_of(cell);
      if (std::isfinite(cell.number.value)) in_row.insert(place);
      for (const std::string& what : cell.remarks) {
        auto known = std::ranges::find(remarks, what, [](const auto& one) { return one.first; });
        if (known == remarks.end()) known = remarks.insert(known, {what, {}});
        add_once(known->second, place);
      }
    }
    std::string text;
    for (const auto& [what, places] : remarks) {
      const bool everywhere = std::set(places.begin(), places.end()) == in_row;
      text += fmt::format("{}{}{}", text.empty() ? "" : "; ",
                          everywhere ? "" : fmt::format("{}: ", fmt::join(places, ", ")), what);
    }
    return text;
  }

  bool has_remark(const std::string& what) const {
    return std::ranges::any_of(
        measured_, [&](const MeasuredCell& cell) { return contains(cell.remarks, what); });
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
    all.push_back({"remark", "remark", true, "", "", 0});
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

  /// "batch_32_epoch_time_s".
  std::string machine_name(const LayoutKey& parts) const {
    std::string name;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Axis axis = table_.columns[i];
      name += i > 0 ? "_" : "";
      name += axis == Axis::kDevices ? "devices_" : axis == Axis::kBatch ? "batch_" : "";
      name += parts[i];
    }
    for (char& c : name)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return name;
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

  std::string sources() const {
    return fmt::format("{}", fmt::join(each(figures_.groups(), sources_of), ", "));
  }

  // --- notes

  template <typename Holds>
  bool has_quantity(Holds&& holds) const {
    return std::ranges::any_of(table_.quantities, holds);
  }

  bool has_kind(std::initializer_list<Kind> kinds) const {
    return has_quantity([&](const LayoutQuantity& one) { return contains(kinds, one.kind); });
  }

  /// What the audit finds, a note a severity; `lines` are those of this table.
  static void add_audit_notes(const std::string& numbers, const std::vector<AuditFinding>& findings,
                              const std::set<std::size_t>& lines, std::vector<std::string>& notes) {
    for (const char* severity : {"impossible", "contradicted"}) {
      std::vector<std::string> found;
      for (const AuditFinding& finding : findings)
        if (finding.severity == severity && std::ranges::any_of(lines, [&](std::size_t line) {
              return finding.lines.count(line) != 0;
            }))
          found.push_back(finding.what);
      if (!found.empty())
        notes.push_back(
            fmt::format("{} numbers are {}: {}", numbers, severity, fmt::join(found, "; ")));
    }
  }

  std::vector<std::string> notes(const std::vector<AuditFinding>& published,
                                 const std::vector<AuditFinding>& measured) const {
    std::vector<std::string> all;
    std::set<std::size_t> published_lines;
    for (const auto& one : published_)
      published_lines.insert(one.second->line);
    add_audit_notes("published", published, published_lines, all);
    add_audit_notes("measured", measured, measured_lines_, all);
    if (has_remark("extrapolated"))
      all.push_back(fmt::format(
          "remark extrapolated: no such epoch was run whole; mean steady iteration x iterations of "
          "one{}",
          has_quantity([](const auto& one) { return is_epoch_time(one.kind) && one.number == 1; })
              ? ", the first: what was run of it, and the rest steady"
              : ""));
    if (has_remark("never became steady"))
      all.push_back(
          "remark never became steady: iteration times still changed in the second half of a run "
          "(steady-state test MSER-5), so their mean is not that of longer runs");
    all.push_back(published_text());
    add_convention_notes(all);
    if (crowded_)
      all.push_back(
          "several runs belong in one cell, which shows the first: rows and columns do "
          "not name what they differ in");
    all.insert(all.end(), unlike_.begin(), unlike_.end());
    return all;
  }

  std::string published_text() const {
    const std::string file = layout_.published.filename().string();
    if (!published_.empty())
      return fmt::format("published: {} of {}, as printed; ratio: measured / published",
                         layout_.report, file);
    if (file.empty()) return "published: the layout names no file";
    return fmt::format("published: {} has none of these numbers of {}{}", file, layout_.report,
                       printed_elsewhere_ ? " in the tables that the layout names" : "");
  }

  void add_convention_notes(std::vector<std::string>& all) const {
    const bool parts = has_kind({Kind::kComputeTime, Kind::kCommTime, Kind::kBandwidth});
    if (parts || has_quantity([](const auto& one) { return is_epoch_time(one.kind); }) ||
        has_kind({Kind::kSpeedup}))
      all.push_back(fmt::format(
          "epoch: {} of the slowest rank, median of the whole epochs after the first or of the one "
          "named; {}",
          clock_text(layout_.clock),
          layout_.images == "each" ? "every device takes all images"
                                   : "the devices share the images"));
    if (has_kind({Kind::kSpeedup}))
      all.push_back(fmt::format("speedup: {}, of {}, base: one device with the same batch",
                                layout_.speedup == "speedup" ? "T(1)/T(n)" : "n*T(1)/T(n)",
                                clock_text(layout_.speedup_clock)));
    if (parts)
      all.push_back(fmt::format("compute: {}; communication: {}", compute_text(), comm_text()));
    if ((parts && layout_.communication == "measured") || has_kind({Kind::kCommShare})) {
      const auto waits =
          wait_notes(wait_kinds(set_), "communication without waiting for a late rank",
                     "communication with waiting for a late rank");
      all.insert(all.end(), waits.begin(), waits.end());
    }
    if (has_kind({Kind::kBandwidth}))
      all.push_back(fmt::format("bandwidth: {}, {}{}", layout_.bandwidth,
                                convention_formula(*parse_convention(layout_.bandwidth)),
                                unit_remark()));
    add_learning_notes(all);
  }

  void add_learning_notes(std::vector<std::string>& all) const {
    const auto of_epoch = [](const LayoutQuantity& one) {
      return one.number > 0 && !one.name.starts_with("loss_iter");
    };
    const auto learns = [](const LayoutQuantity& one) {
      return one.kind == Kind::kLoss || one.kind == Kind::kAccuracy;
    };
    if (has_quantity([&](const auto& one) { return learns(one) && of_epoch(one); }))
      all.push_back(fmt::format("loss and accuracy of an epoch: of {}, mean over ranks",
                                layout_.accuracy == "test" ? "test" : "training"));
    const bool of_run =
        has_kind({Kind::kIterationTime, Kind::kCorrect}) ||
        has_quantity([&](const auto& one) { return learns(one) && !of_epoch(one); });
    if (of_run)
      all.push_back(fmt::format(
          "{}: loss_iter_N of iteration N, train_loss of all iterations, accuracy and test of the "
          "last epoch, iteration time without the first iteration",
          std::ranges::any_of(settings_,
                              [](const LayoutSetting& one) { return one.rank().has_value(); })
              ? "measured numbers are of the rank that the row names, else of all ranks"
              : "measured numbers are means over ranks"));
    if (has_kind({Kind::kComputeShare, Kind::kCommShare}))
      all.push_back(
          "shares: of the mean steady iteration, over all ranks; communication with what "
          "is hidden");
  }

  static std::string clock_text(const std::string& clock) {
    return clock == "training" ? "training time (without loading)"
                               : "running time (without evaluation)";
  }

  /// "; the report calls it GB/s".
  std::string unit_remark() const {
    const auto printed = units_.find("bandwidth");
    if (printed == units_.end() || layout_.bandwidth_unit.empty() ||
        printed->second == layout_.bandwidth_unit)
      return "";
    return "; the report calls its unit " + printed->second;
  }

  std::string compute_text() const {
    if (layout_.compute == "derived") return "T(1)/n";
    return layout_.compute == "whole-epoch" ? "T(n)" : "measured, mean over ranks";
  }
  std::string comm_text() const {
    return layout_.communication == "derived" ? "T(n) - T(1)/n, so with all waiting"
                                              : "measured, hidden included, mean over ranks";
  }

  static constexpr std::size_t kMeasured = 1;  ///< of kValueNames

  const Layout& layout_;
  const LayoutTable& table_;
  LayoutFigures& figures_;
  const RunSet& set_;
  std::set<std::string> modes_;  ///< of the published report
  std::vector<LayoutSetting> settings_;
  std::vector<std::pair<LayoutSetting, const AuditedNumber*>> published_;
  bool printed_elsewhere_ = false;            ///< a quantity of this table, somewhere in the report
  std::map<std::string, std::string> units_;  ///< of quantities, as published
  std::vector<LayoutKey> rows_, columns_;
  std::map<std::pair<LayoutKey, LayoutKey>, Cell> cells_;
  std::vector<MeasuredCell> measured_;
  std::set<std::size_t> measured_lines_;  ///< of derived numbers, in the audit of measured ones
  bool crowded_ = false;
  std::vector<std::string> unlike_;  ///< notes
};

/// What the audit, which judges the published numbers, finds impossible in the measured ones, and
/// what a message's time contradicts. How a number is derived, which it also judges, is the
/// layout's choice, and the notes on the published numbers tell.
std::vector<AuditFinding> findings_of_measured(std::vector<AuditedNumber>& numbers,
                                               const LayoutFigures& figures) {
  std::int64_t images = kImages;
  for (const RunGroup& group : figures.groups())
    images = std::max(images, training_images(group.first()));
  std::vector<AuditFinding> findings = audit(numbers, images);
  std::erase_if(findings, [](const AuditFinding& finding) {
    const bool of_message = finding.check == "message-time" && finding.severity == "contradicted";
    return finding.severity != "impossible" && !of_message;
  });
  return findings;
}

std::string unused_text(const std::vector<const RunGroup*>& groups) {
  std::vector<std::string> all = each(groups, [](const RunGroup* group) {
    return fmt::format("{} on {} at batch {}", group->first().mode,
                       count_text(group->first().ranks, "rank"), group->first().batch_per_rank);
  });
  return fmt::format("not in the report, so not here: {}", fmt::join(all, ", "));
}

}  // namespace

std::vector<Table> tables_as_published(const Layout& layout, const RunSet& set) {
  std::optional<AuditedNumbers> published;
  if (!layout.published.empty()) published = audited(layout.published, kImages);
  LayoutFigures figures(set, layout);
  std::vector<TableAsPublished> tables;
  for (const LayoutTable& table : layout.tables)
    tables.emplace_back(layout, table, published ? &*published : nullptr, figures, set);
  std::vector<AuditedNumber> numbers;
  for (TableAsPublished& table : tables)
    table.add_measured(numbers);
  const std::vector<AuditFinding> measured = findings_of_measured(numbers, figures);
  std::vector<Table> made;
  for (TableAsPublished& table : tables)
    made.push_back(table.make(published ? published->findings : std::vector<AuditFinding>{},
                              measured, numbers));
  if (const auto unused = figures.unused(); !unused.empty())
    made.front().notes.push_back(unused_text(unused));
  return made;
}

}  // namespace gradsync::report::published
