#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "analysis/published/audit.h"

/// What cannot be, or misleads, in published numbers. A new check is one file check_<name>.cpp and
/// one line in checks.cpp.
namespace gradsync::report::published {

struct Check {
  std::string_view name;
  std::string_view description;
  /// Appends to `audit.findings`; verdicts and columns are complete.
  void (*run)(const Study& study, Audit& audit);
};

const std::vector<Check>& checks();

/// Gathers cells with one and the same fault into one finding a report.
class Tally {
 public:
  /// `cell` is a clause such as "2 devices at batch 32: 33.27 s of 41.32 s".
  void add(const std::string& cell, const std::vector<std::size_t>& lines);
  bool empty() const { return cells_.empty(); }
  std::size_t count() const { return cells_.size(); }
  const std::vector<std::string>& cells() const { return cells_; }
  const std::vector<std::size_t>& lines() const { return lines_; }

 private:
  std::vector<std::string> cells_;
  std::vector<std::size_t> lines_;
};

/// Adds the finding that `what` is so in the cells of the tally, unless there are none; `why` is a
/// sentence.
void report_tally(Audit& audit, const std::string& report, Severity severity,
                  std::string_view check, const std::string& what, const Tally& tally,
                  const std::string& why);

void check_ranges(const Study& study, Audit& audit);
void check_epoch_parts(const Study& study, Audit& audit);
void check_speedup(const Study& study, Audit& audit);
void check_bandwidth(const Study& study, Audit& audit);
void check_units(const Study& study, Audit& audit);
void check_shares(const Study& study, Audit& audit);
void check_replicas(const Study& study, Audit& audit);
void check_same_thing(const Study& study, Audit& audit);
void check_batch(const Study& study, Audit& audit);
void check_learning(const Study& study, Audit& audit);
void check_waiting(const Study& study, Audit& audit);

}  // namespace gradsync::report::published
