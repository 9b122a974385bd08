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
#include "analysis/published/layout_figures.h"
#include "analysis/published/numbers.h"
#include "analysis/tables/columns.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "stats/estimate.h"
#include "stats/statistics.h"

namespace gradsync::report::published {

namespace {

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
    threads_ = figures_.threads_of_several(settings_);
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
    const MeasuredNumber number = figures_.of(setting, quantity, unit.total, threads_);
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
    if (known && !cell.number.unlike.empty())
      remarks.push_back("not as the first time here: " + cell.number.unlike);
    const LayoutSetting& at = cell.setting;
    if (known && !cell.number.stands_in.empty()) remarks.push_back(cell.number.stands_in);
    if (known && cell.number.repeats.size() > 1) remarks.push_back(repeats_text(cell));
    if (!known && figures_.most_ranks() > 0 && at.devices > figures_.most_ranks())
      remarks.push_back(needs_text(at, *cell.quantity));
    const std::string mode = is_without_exchange(at.mode) ? "none" : at.synchronization();
    for (const FailedCell& failed : set_.failed)
      if (failed.mode == mode && failed.ranks == at.devices && failed.batch_per_rank == at.batch)
        remarks.push_back(failed.verdict());
    return remarks;
  }

  /// "mean of 3 runs, 63.1 to 64.7": Student's interval, in the cell's unit.
  std::string repeats_text(const MeasuredCell& cell) const {
    const Estimate all = mean_estimate(cell.number.repeats);
    const double unit = parse_unit(unit_of(*cell.quantity)).value_or(Unit{}).factor;
    return fmt::format("mean of {} runs, {} to {}", all.count,
                       significant_cell(all.low / unit).shown(),
                       significant_cell(all.high / unit).shown());
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

  /// Each remark with its places; where it holds for the whole row, or for all that was measured in
  /// it, without.
  std::string remark_text(const LayoutKey& row) const {
    std::set<std::string> in_row, all;
    std::vector<std::pair<std::string, std::vector<std::string>>> remarks;
    for (const MeasuredCell& cell : measured_) {
      if (key(table_.rows, cell.setting, *cell.quantity, kMeasured) != row) continue;
      const std::string place = place_of(cell);
      all.insert(place);
      if (std::isfinite(cell.number.value)) in_row.insert(place);
      for (const std::string& what : cell.remarks) {
        auto known = std::ranges::find(remarks, what, [](const auto& one) { return one.first; });
        if (known == remarks.end()) known = remarks.insert(known, {what, {}});
        add_once(known->second, place);
      }
    }
    std::string text;
    for (const auto& [what, places] : remarks) {
      const std::set<std::string> there(places.begin(), places.end());
      const bool everywhere = there == in_row || there == all;
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

  /// What the audit finds, a note a severity, by what it says of the numbers; `lines` are those of
  /// this table.
  static void add_audit_notes(const std::vector<std::pair<std::string, std::string>>& said,
                              const std::vector<AuditFinding>& findings,
                              const std::set<std::size_t>& lines, std::vector<std::string>& notes) {
    for (const auto& [severity, text] : said) {
      std::vector<std::string> found;
      for (const AuditFinding& finding : findings)
        if (finding.severity == severity && std::ranges::any_of(lines, [&](std::size_t line) {
              return finding.lines.count(line) != 0;
            }))
          found.push_back(finding.what);
      if (!found.empty()) notes.push_back(fmt::format("{}: {}", text, fmt::join(found, "; ")));
    }
  }

  std::vector<std::string> notes(const std::vector<AuditFinding>& published,
                                 const std::vector<AuditFinding>& measured) const {
    std::vector<std::string> all;
    std::set<std::size_t> published_lines;
    for (const auto& one : published_)
      published_lines.insert(one.second->line);
    add_audit_notes({{"impossible", "published numbers are impossible"},
                     {"contradicted", "published numbers are contradicted"}},
                    published, published_lines, all);
    add_audit_notes({{"impossible",
                      "measured numbers that would be called impossible in a report "
                      "(by its convention, or by chance between two starts)"},
                     {"contradicted", "measured numbers are contradicted"}},
                    measured, measured_lines_, all);
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
  std::string threads_;              ///< of a rank of the runs on several ranks
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
  if (!layout.sentences.empty())
    made.push_back(sentences_table(layout, published ? &*published : nullptr, figures));
  if (const auto unused = figures.unused(); !unused.empty())
    made.front().notes.push_back(unused_text(unused));
  return made;
}

}  // namespace gradsync::report::published
