#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/published/rows.h"

namespace gradsync::report::published {

/// Which number of a report is taken as the time of an epoch.
struct TimeSource {
  std::string table, quantity;
  bool sum = false;  ///< compute_time + comm_time of the same setting instead
  std::string text() const;
};

/// How the base of a speedup is chosen.
struct BaseRule {
  bool same_global_batch = false;  ///< else: the same batch per device
  bool same_mode = false;          ///< else: a mode without exchange (single, none, ...) if any
  bool operator==(const BaseRule&) const = default;
};

/// A number looked up, and if there is none, why.
struct Found {
  Range range = Range::unknown();
  std::vector<std::size_t> lines;  ///< where it stands
  double devices = 0;              ///< of the base; 0 where nothing was found
  std::string missing;             ///< "no epoch time of 2 devices at batch 32 is published"
};

/// The rows of a file, and the look-ups that formulas need. Keeps the rows' order.
class Study {
 public:
  explicit Study(PublishedFile file);

  const PublishedFile& file() const { return file_; }
  const std::vector<Row>& rows() const { return file_.rows; }
  /// In the order of the file.
  const std::vector<std::string>& reports() const { return reports_; }
  std::vector<const Row*> rows_of(const std::string& report) const;

  /// The epoch times that a report prints, speedup tables first, then plain before Nth epochs; the
  /// sum of the parts last. At most kMostSources.
  const std::vector<TimeSource>& time_sources(const std::string& report) const;
  static constexpr std::size_t kMostSources = 12;

  /// The epoch time of the row's own setting (report, model, mode, devices, batch).
  Found time_of(const Row& row, const TimeSource& source) const;
  /// The epoch time that a speedup of the row is measured against.
  Found base_time_of(const Row& row, const TimeSource& source, BaseRule rule) const;
  /// Another number of the row's own setting, the row's table first; the row itself never.
  Found same_setting(const Row& row, Kind kind) const;
  /// The best epoch time of the row's setting: the first source that has one.
  Found any_time_of(const Row& row) const;
  Found any_base_time_of(const Row& row) const;

  /// The fewest devices with a time of an epoch or an iteration, in the row's report and model;
  /// kNotSaid if none.
  std::int64_t base_devices(const Row& row) const;

  /// Rows that differ from `row` in table and quantity only.
  std::vector<const Row*> setting_of(const Row& row) const;

 private:
  using Place = std::tuple<std::string, std::string, std::string>;  // report, model, extra
  using Cell = std::tuple<Place, std::int64_t, std::int64_t>;       // ..., devices, batch
  static Place place_of(const Row& row);
  const std::vector<std::size_t>& cell(const Place& place, std::int64_t devices,
                                       std::int64_t batch) const;
  Found pick(const std::vector<std::size_t>& rows, const Row& row, const TimeSource& source,
             bool same_mode) const;
  Found sum_of_parts(const Row& row) const;
  std::vector<TimeSource> list_sources(const std::string& report) const;

  PublishedFile file_;
  std::vector<std::string> reports_;
  std::map<std::string, std::vector<std::size_t>> by_report_;
  std::map<Cell, std::vector<std::size_t>> cells_;
  std::map<std::string, std::vector<TimeSource>> sources_;
  std::map<Place, std::int64_t> fewest_devices_;  ///< with a time
};

/// "2 devices at batch 32".
std::string setting_text(std::int64_t devices, std::int64_t batch);

/// single, none, serial, baseline, sequential, or nothing said.
bool is_without_exchange(const std::string& mode);

}  // namespace gradsync::report::published
