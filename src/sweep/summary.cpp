#include <cmath>
#include <ostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "sweep/runner.h"

namespace gradsync::sweep {

namespace {

void print_messages(std::ostream& out, const std::vector<GridOutcome::Failed>& cells) {
  for (const auto& cell : cells)
    out << fmt::format("  {}: {}\n", cell.cell,
                       fmt::join(split_list(cell.message, '\n'), "\n    "));
}

}  // namespace

void print_summary(std::ostream& out, const GridOutcome& outcome, std::size_t all) {
  out << fmt::format("{}: {} complete, {} failed", count_text(all, "cell"),
                     outcome.already + outcome.done, outcome.failed.size());
  if (!outcome.too_large.empty())
    out << fmt::format(", {} too large for the memory", outcome.too_large.size());
  out << '\n';
  print_messages(out, outcome.failed);
  print_messages(out, outcome.too_large);
  if (!outcome.stopped_cell.empty())
    out << fmt::format("  {}: stopped, not complete\n", outcome.stopped_cell);
}

void require_complete(const GridOutcome& outcome, std::size_t all, const std::string& command) {
  if (outcome.stopped)
    throw Error(
        ExitCode::kStoppedEarly,
        fmt::format("stopped with {} of {} cells complete", outcome.already + outcome.done, all),
        "continue with: " + command);
  if (!outcome.failed.empty())
    throw Error(ExitCode::kCheckFailed,
                fmt::format("{} of {} cells failed", outcome.failed.size(), all),
                "try them again with: " + command);
}

std::string time_left_text(double seconds) {
  if (seconds < 90) return fmt::format("about {} s left", std::llround(seconds));
  if (seconds < 90 * 60) return fmt::format("about {} min left", std::llround(seconds / 60));
  return fmt::format("about {} h left", std::llround(seconds / 3600));
}

}  // namespace gradsync::sweep
