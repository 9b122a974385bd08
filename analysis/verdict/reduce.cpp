// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/model/what_if.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"
#include "options/modes.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

/// With a larger error of the replay as recorded nothing is concluded from replays.
constexpr double kLargestReplayError = 0.2;

/// Options that would shorten an iteration, and by which part of it.
struct Remedy {
  std::string options;
  double saved = 0;
};

double total_s(const FamilyFit& fit, const StudyCell& cell, const WhatIf& change) {
  return what_if(fit, cell, change).parts.total_s();
}

/// Whether the run is the trainer's, and not a trace of another program or of another version.
bool has_options(const std::string& mode) {
  return mode_position(mode) < std::size(kModes);
}

/// Bucket cap as the run's own program names it; in a trace that is DistributedDataParallel.
std::string cap_text(const StudyCell& cell, double bytes) {
  if (!has_options(cell.mode)) return fmt::format("bucket_cap_mb={:g}", bytes / kMiB);
  std::string size = format_bytes(std::llround(bytes));
  std::erase(size, ' ');
  return "--bucket-cap " + size;
}

/// By replay of the recorded buckets. None of a mode that does not overlap: it has no buckets, and
/// sends fp32.
std::vector<Remedy> replayed(const FamilyFit& fit, const StudyCell& cell) {
  std::vector<Remedy> remedies;
  if (!cell.overlapped()) return remedies;
  const double recorded_s = total_s(fit, cell, {});
  const auto add = [&](const std::string& options, const WhatIf& change) {
    remedies.push_back({options, 1 - total_s(fit, cell, change) / recorded_s});
  };
  const auto with_best_cap = [&](const std::string& options, WhatIf change) {
    change.bucket_cap_bytes = best_cap(fit, cell, change);
    if (change.bucket_cap_bytes) add(cap_text(cell, *change.bucket_cap_bytes) + options, change);
  };
  with_best_cap("", {});
  if (!mode_named(cell.mode).casts || cell.wire != "fp32") return remedies;
  WhatIf narrow;
  narrow.wire_bytes = 2;
  add("--wire-dtype bf16", narrow);
  with_best_cap(" --wire-dtype bf16", narrow);
  return remedies;
}

/// One exchange for the images of twice as many passes: per image half of what is exposed. None for
/// what is not a run of the trainer, whose options it does not have.
std::vector<Remedy> accumulated(const StudyCell& cell) {
  if (!has_options(cell.run().mode)) return {};
  const std::int64_t passes = settings_of(cell.run(), {"accumulate"}).accumulate;
  return {{fmt::format("--accumulate {} (per image; it doubles the global batch)", 2 * passes),
           cell.exposed_share / 2}};
}

/// |replayed / measured − 1| of the cell as it was recorded.
double replay_error(const FamilyFit& fit, const StudyCell& cell) {
  return std::abs(total_s(fit, cell, {}) / cell.medians.iteration_s - 1);
}

/// Remedies that save more than `least`, the best first.
std::vector<Remedy> ranked(std::vector<Remedy> remedies, double least) {
  std::erase_if(remedies, [&](const Remedy& remedy) { return !(remedy.saved > least); });
  std::stable_sort(remedies.begin(), remedies.end(),
                   [](const Remedy& a, const Remedy& b) { return a.saved > b.saved; });
  return remedies;
}

std::string list_text(const std::vector<Remedy>& remedies) {
  std::vector<std::string> texts;
  for (const Remedy& remedy : remedies)
    texts.push_back(fmt::format("{} with {}", percent_text(remedy.saved), remedy.options));
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

/// What would make the exchange cost less: options, ranked by what the replay predicts.
Clauses reduce_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Cells& family : focus(input)) {
    const Cells top = on_most_ranks(family);
    if (top.empty()) continue;
    const StudyCell& cell = *top.front();
    if (!cell.exchanges()) continue;
    const FamilyFit fit = fit_of(input, cell.family);
    std::string doubt = cell.overlapped() ? law_doubt(fit) : "the mode has no buckets";
    const double error = doubt.empty() ? replay_error(fit, cell) : 0;
    if (!(error <= kLargestReplayError))
      doubt = fmt::format("the replay of the recorded buckets is {} off the measured iteration",
                          std::isfinite(error) ? percent_text(error) : "an unknown part");
    const bool replays = doubt.empty();
    std::vector<Remedy> remedies = replays ? replayed(fit, cell) : std::vector<Remedy>{};
    std::erase_if(remedies, [&](const Remedy& remedy) { return !(remedy.saved > error); });
    for (const Remedy& remedy : accumulated(cell))
      remedies.push_back(remedy);
    remedies = ranked(std::move(remedies), kWorthSaying);
    const std::string where = setting_text(cell);
    const std::string basis =
        replays ? fmt::format(
                      "; replay of the recorded buckets, which is {} off the measured "
                      "iteration; options that save less are left out",
                      percent_text(error))
                : "; from the measured exposed communication; nothing was replayed: " + doubt;
    if (!remedies.empty())
      clauses.push_back(clause_of(
          "reduce.options",
          fmt::format("an iteration of {} would be shorter by {}", where, list_text(remedies)),
          family, "/bucket, /time, /calibration", cell.name + basis));
    else if (replays && error <= kWorthSaying)
      clauses.push_back(clause_of(
          "reduce.none",
          fmt::format("no other bucket cap, bf16 or accumulation would shorten an iteration of {} "
                      "by more than {}",
                      where, percent_text(kWorthSaying)),
          family, "/bucket, /time, /calibration", cell.name + basis));
    else if (replays)
      clauses.push_back(clause_of(
          "reduce.unknown",
          fmt::format("the runs scatter too much to tell whether another bucket cap or bf16 would "
                      "shorten an iteration of {}: the replay of what was recorded is {} off",
                      where, percent_text(error)),
          family, "/bucket, /time, /calibration", cell.name + basis));
  }
  return clauses;
}

}  // namespace gradsync::report
