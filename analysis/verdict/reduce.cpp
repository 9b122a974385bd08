// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/model/what_if.h"
#include "analysis/verdict/clauses.h"
#include "base/parse.h"
#include "base/ranges.h"
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
  WhatIf change = {};
};

double total_s(const FamilyFit& fit, const StudyCell& cell, const WhatIf& change) {
  return what_if(fit, cell, change).parts.total_s();
}

/// Whether the run is the trainer's, and not a trace of another program or of another version.
bool has_options(const std::string& mode) {
  return mode_position(mode) < std::size(kModes);
}

/// Whether gradients could travel in 16 bits, and do not.
bool can_narrow(const StudyCell& cell) {
  return mode_named(cell.mode).casts && cell.wire == "fp32";
}

/// "bucket cap, bf16 or accumulation": what was tried of it.
std::string tried_text(const StudyCell& cell, bool accumulation) {
  std::string text = "bucket cap";
  if (can_narrow(cell)) text += accumulation ? ", bf16" : " or bf16";
  return accumulation ? text + " or accumulation" : text;
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
    remedies.push_back({options, 1 - total_s(fit, cell, change) / recorded_s, change});
  };
  const auto with_best_cap = [&](const std::string& options, WhatIf change) {
    change.bucket_cap_bytes = best_cap(fit, cell, change);
    if (change.bucket_cap_bytes) add(cap_text(cell, *change.bucket_cap_bytes) + options, change);
  };
  with_best_cap("", {});
  if (!can_narrow(cell)) return remedies;
  WhatIf narrow;
  narrow.wire_bytes = 2;
  add("--wire-dtype bf16", narrow);
  with_best_cap(" --wire-dtype bf16", narrow);
  return remedies;
}

/// One exchange for the images of twice as many passes: per image half of what is exposed. None for
/// a mode that exchanges in each pass, and for what is not a run of the trainer.
std::vector<Remedy> accumulated(const StudyCell& cell) {
  if (!has_options(cell.run().mode) || mode_named(cell.run().mode).each_pass) return {};
  const std::int64_t passes = settings_of(cell.run(), {"accumulate"}).accumulate;
  return {{fmt::format("--accumulate {} (per image; it doubles the global batch)", 2 * passes),
           cell.exposed_share / 2}};
}

/// Remedies that save more than `least`, the best first.
std::vector<Remedy> ranked(std::vector<Remedy> remedies, double least) {
  std::erase_if(remedies, [&](const Remedy& remedy) { return !(remedy.saved > least); });
  std::ranges::stable_sort(remedies, std::ranges::greater(), &Remedy::saved);
  return remedies;
}

std::string list_text(const std::vector<Remedy>& remedies) {
  std::vector<std::string> texts = each(remedies, [](const Remedy& remedy) {
    return fmt::format("{} with {}", percent_text(remedy.saved), remedy.options);
  });
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// The cell of a family that advice is for, and whether its recorded buckets can be replayed.
struct Advised {
  const StudyCell& cell;
  FamilyFit fit;
  std::string doubt;  ///< why not; empty if they can
  double error = 0;   ///< of the replay as recorded
  Cells family;

  std::string basis() const {
    return fmt::format("{}; replay of the recorded buckets, which is {} off the measured iteration",
                       cell.name, percent_text(error));
  }
};

std::vector<Advised> advised_cells(const VerdictInput& input) {
  std::vector<Advised> all;
  for (const auto& [family, top] : focus(input)) {
    if (top.empty() || !top.front()->exchanges()) continue;
    Advised one{*top.front(), fit_family(family, calibration_of(input.cells)), {}, 0, family};
    one.doubt = one.cell.overlapped() ? law_doubt(one.fit) : "the mode has no buckets";
    if (one.doubt.empty())
      one.error = std::abs(total_s(one.fit, one.cell, {}) / one.cell.medians.iteration_s - 1);
    if (!(one.error <= kLargestReplayError))
      one.doubt =
          fmt::format("the replay of the recorded buckets is {} off the measured iteration",
                      std::isfinite(one.error) ? percent_text(one.error) : "an unknown part");
    all.push_back(std::move(one));
  }
  return all;
}

/// Remedies that save more than the replay is off.
std::vector<Remedy> trusted(const Advised& one) {
  if (!one.doubt.empty()) return {};
  std::vector<Remedy> remedies = replayed(one.fit, one.cell);
  std::erase_if(remedies, [&](const Remedy& remedy) { return !(remedy.saved > one.error); });
  return remedies;
}

}  // namespace

/// What would make the exchange cost less: options, ranked by what the replay predicts.
Clauses reduce_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Advised& one : advised_cells(input)) {
    const bool replays = one.doubt.empty(), accumulates = has_options(one.cell.mode);
    std::vector<Remedy> remedies = trusted(one);
    for (const Remedy& remedy : accumulated(one.cell))
      remedies.push_back(remedy);
    remedies = ranked(std::move(remedies), kWorthSaying);
    const std::string where = setting_text(one.cell);
    const auto add = [&](const char* sentence, std::string text) {
      clauses.push_back(clause_of(
          sentence, std::move(text), one.family, "/bucket, /time, /calibration",
          replays ? one.basis() + "; options that save less are left out"
                  : one.cell.name +
                        "; from the measured exposed communication; nothing was replayed: " +
                        one.doubt));
    };
    if (!remedies.empty())
      add("reduce.options", fmt::format("predicted: an iteration of {} would be shorter by {}",
                                        where, list_text(remedies)));
    else if (replays && one.error > kWorthSaying)
      add("reduce.unknown",
          fmt::format("the runs scatter too much to tell whether another {} would shorten an "
                      "iteration of {}: the replay of what was recorded is {} off",
                      tried_text(one.cell, false), where, percent_text(one.error)));
    else if (replays && (accumulates || one.cell.exposed_share / 2 <= kWorthSaying))
      add("reduce.none",
          fmt::format("predicted: no other {} would shorten an iteration of {} by more than {}",
                      tried_text(one.cell, accumulates), where, percent_text(kWorthSaying)));
  }
  return clauses;
}

namespace {

constexpr double kNoLimit = HUGE_VAL;  ///< a link that takes no time

/// What a faster link would save from this part of an iteration on is not called little.
constexpr double kMuch = 0.05;

/// The family on a link so many times as fast.
FamilyFit on_link(FamilyFit fit, double speedup) {
  for (auto& [kind, law] : fit.effective) {
    law.second /= speedup;
    if (speedup == kNoLimit) law.first = 0;
  }
  return fit;
}

/// The next faster link that is sold, each way.
struct SoldLink {
  std::string text = "a link twice as fast";  ///< where none is sold, or no law is known
  double speedup = 2;
};

/// Slowest link among those that are sold that is half as fast again as what the law gives.
SoldLink next_link(const FamilyFit& fit) {
  constexpr double kSold_gbit_per_s[] = {1, 2.5, 10, 25, 100, 200, 400};
  const auto law = fit.effective.find(CollectiveKind::kAllReduce);
  if (law == fit.effective.end()) return {};
  const double present_gbit_per_s = 8e-9 / law->second.second;
  for (const double sold : kSold_gbit_per_s)
    if (sold >= 1.5 * present_gbit_per_s)
      return {fmt::format("a link of {:g} Gbit/s (now {:.3g})", sold, present_gbit_per_s),
              sold / present_gbit_per_s};
  return {};
}

/// "2 options (--bucket-cap 4MiB --wire-dtype bf16)".
std::string options_text(const Remedy& remedy) {
  const std::int64_t options =
      (remedy.change.bucket_cap_bytes ? 1 : 0) + (remedy.change.wire_bytes ? 1 : 0);
  return fmt::format("{} ({})", count_text(options, "option"), remedy.options);
}

}  // namespace

/// The best options on the link of the run against faster links with its options. Ranks of one host
/// have no link that could be replaced.
Clauses faster_link_clauses(const VerdictInput& input) {
  Clauses clauses;
  for (const Advised& one : advised_cells(input)) {
    if (!one.doubt.empty() || on_one_host(one.cell.run().reader->info().topology)) continue;
    const SoldLink next = next_link(one.fit);
    const FamilyFit faster = on_link(one.fit, next.speedup), best = on_link(one.fit, kNoLimit);
    const double recorded_s = total_s(one.fit, one.cell, {});
    const double by_next = 1 - total_s(faster, one.cell, {}) / recorded_s,
                 by_any = 1 - total_s(best, one.cell, {}) / recorded_s;
    const auto remedies = ranked(trusted(one), kWorthSaying);
    const std::string where = setting_text(one.cell);
    const auto add = [&](const char* sentence, std::string text) {
      clauses.push_back(clause_of(sentence, "predicted: " + std::move(text), one.family,
                                  "/bucket, /time, /calibration", one.basis()));
    };
    if (!remedies.empty() && remedies[0].saved >= by_next) {
      const double after = 1 - total_s(best, one.cell, remedies[0].change) /
                                   total_s(one.fit, one.cell, remedies[0].change);
      add("faster.options",
          fmt::format("change {} first: an iteration of {} is {} shorter, against {} by {}; after "
                      "that {} {}",
                      options_text(remedies[0]), where, percent_text(remedies[0].saved),
                      percent_text(by_next), next.text,
                      after < kMuch ? "no faster link saves more than" : "faster links save up to",
                      percent_text(after)));
    } else if (by_next > std::max(one.error, kWorthSaying)) {
      add("faster.link",
          fmt::format("{} makes an iteration of {} {} shorter, any faster one at most {}; {}",
                      next.text, where, percent_text(by_next), percent_text(by_any),
                      remedies.empty() ? one.error <= kWorthSaying
                                             ? fmt::format("no other {} helps on this one",
                                                           tried_text(one.cell, false))
                                             : "what options save on this one is within the error "
                                               "of the replay"
                                       : fmt::format("{} on this one {}", options_text(remedies[0]),
                                                     percent_text(remedies[0].saved))));
    } else if (by_any <= kWorthSaying && one.error <= kWorthSaying) {
      add("faster.none", fmt::format("no faster link shortens an iteration of {} by more than {}",
                                     where, percent_text(kWorthSaying)));
    }
  }
  return clauses;
}

}  // namespace gradsync::report
