#include "analysis/published/checks.h"

#include <algorithm>

#include <fmt/format.h>

namespace gradsync::report::published {

const std::vector<Check>& checks() {
  static const std::vector<Check> all = {
      {"ranges", "negative times, accuracies above 100 %, more right than there are", check_ranges},
      {"epoch-parts", "compute and communication against the epoch", check_epoch_parts},
      {"speedup", "super-linear speedups, efficiencies above 1, mixed assumptions", check_speedup},
      {"bandwidth", "bandwidths that no link has, bytes that nobody sent", check_bandwidth},
      {"units", "units off by a factor of 1,000 or 1,024", check_units},
      {"shares", "percentages that do not sum", check_shares},
      {"replicas", "ranks of one synchronous run that disagree", check_replicas},
      {"same-thing", "two values for one measurement", check_same_thing},
      {"batch", "batches larger than the data set", check_batch},
      {"learning", "losses and accuracies that do not go together", check_learning},
      {"waiting", "training time against running time", check_waiting},
  };
  return all;
}

void Tally::add(const std::string& cell, const std::vector<std::size_t>& lines) {
  cells_.push_back(cell);
  lines_.insert(lines_.end(), lines.begin(), lines.end());
}

void report_tally(Audit& audit, const std::string& report, Severity severity,
                  std::string_view check, const std::string& what, const Tally& tally,
                  const std::string& why) {
  if (tally.empty()) return;
  Finding finding{report, severity, std::string(check), what, tally.cells(), why, tally.lines()};
  std::sort(finding.lines.begin(), finding.lines.end());
  finding.lines.erase(std::unique(finding.lines.begin(), finding.lines.end()), finding.lines.end());
  audit.findings.push_back(std::move(finding));
}

}  // namespace gradsync::report::published
