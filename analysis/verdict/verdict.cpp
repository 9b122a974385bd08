// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/verdict/verdict.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "analysis/figures/rank_figures.h"
#include "analysis/verdict/clauses.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kFilesShown = 3;

/// Sentences, and lines of them on a terminal of 24, that are shown without --wide.
constexpr std::size_t kMostShown = 8, kMostLines = 22;

constexpr std::array kQuestions = {
#define GRADSYNC_QUESTION(id, ...) id##_clauses,
#include "analysis/verdict/questions.def"
#undef GRADSYNC_QUESTION
};

void add_new(const std::vector<std::string>& some, std::vector<std::string>& all) {
  for (const std::string& one : some)
    add_once(all, one);
}

std::vector<std::string> models_of(const std::vector<StudyCell>& cells) {
  std::vector<std::string> models;
  for (const StudyCell& cell : cells)
    add_new({cell.run().model}, models);
  return models;
}

/// A sentence with the same text for several networks is one; each names its networks.
std::vector<VerdictClause> by_network(std::vector<VerdictClause> clauses) {
  std::vector<VerdictClause> result;
  for (VerdictClause& clause : clauses) {
    const auto same = std::ranges::find_if(result, [&](const VerdictClause& one) {
      return !one.networks.empty() && !clause.networks.empty() && one.text == clause.text;
    });
    if (same == result.end()) {
      result.push_back(std::move(clause));
      continue;
    }
    add_new(clause.networks, same->networks);
    add_new(clause.files, same->files);
    if (!clause.condition.empty()) same->condition += "; " + clause.condition;
  }
  for (VerdictClause& clause : result)
    if (!clause.networks.empty())
      clause.text = fmt::format("{}: {}", fmt::join(clause.networks, ", "), clause.text);
  return result;
}

Cells family_cells(const std::vector<StudyCell>& cells, const std::string& family) {
  Cells members;
  for (const StudyCell& cell : cells)
    if (cell.family == family) members.push_back(&cell);
  return members;
}

/// A sentence that is not listed would have no test of its own.
std::string known(std::string_view sentence) {
  const auto& all = verdict_sentences();
  if (!contains(all, sentence))
    throw Error(ExitCode::kInternal, fmt::format("verdict: unlisted sentence {}", sentence));
  return std::string(sentence);
}

/// Whether waiting may be a part of these times.
bool rests_on_communication(const std::string& datasets) {
  for (const char* some : {"/time/exposed", "/time/comm_busy", "/bucket", "/time,"})
    if (datasets.find(some) != std::string::npos) return true;
  return false;
}

bool waits_inside_communication(const StudyCell* cell) {
  return cell->run().ranks > 1 && cell->exchanges() && !cell->waits_apart();
}

bool of_schema_1(const StudyCell* cell) {
  return std::ranges::any_of(cell->group.repeats,
                             [](const Run* run) { return !waits_apart(*run->reader); });
}

/// The place of its first run among the contenders of its job, in the order of --compare; 0 for a
/// run of no job.
std::int64_t place_in_job(const RunGroup& group, const std::vector<Experiment>& experiments) {
  for (const Experiment& one : experiments) {
    const auto at =
        std::ranges::find(one.contenders, group.repeats.front(), &ContenderFigures::run);
    if (at != one.contenders.end()) return at - one.contenders.begin();
  }
  return 0;
}

/// Families are compared by: the overlap that was measured of a mode that casts first, then any
/// exchange, then the number of cells, then the order of contenders.
std::array<std::int64_t, 4> weight_of(const Cells& family,
                                      const std::vector<Experiment>& experiments) {
  const StudyCell& first = *family.front();
  const Mode& mode = mode_named(first.run().mode);
  const bool overlaps = mode.overlaps && option_value(first.run(), "overlap") != "none";
  const bool is_measured = std::ranges::any_of(
      family, [](const StudyCell* cell) { return std::isfinite(cell->exposed_share); });
  return {overlaps && is_measured && mode.casts ? 1 : 0, first.exchanges() ? 1 : 0,
          std::ssize(family), -place_in_job(first.group, experiments)};
}

/// Cells with the largest number of ranks above one, by batch per rank; empty if all have one.
Cells on_most_ranks(const Cells& cells) {
  std::int64_t most = 2;
  for (const StudyCell* cell : cells)
    most = std::max(most, cell->run().ranks);
  Cells result;
  for (const StudyCell* cell : cells)
    if (cell->run().ranks == most) result.push_back(cell);
  std::ranges::stable_sort(result, [](const auto* a, const auto* b) {
    return a->run().batch_per_rank < b->run().batch_per_rank;
  });
  return result;
}

}  // namespace

const std::vector<std::string_view>& verdict_sentences() {
  static const std::vector<std::string_view> all = {
#define GRADSYNC_QUESTION(id, ...) __VA_ARGS__,
#include "analysis/verdict/questions.def"
#undef GRADSYNC_QUESTION
  };
  return all;
}

std::vector<Focus> focus(const VerdictInput& input) {
  std::vector<Focus> result;
  for (const std::string& model : models_of(input.cells)) {
    Cells best;
    for (const StudyCell& cell : input.cells) {
      if (cell.run().model != model || cell.short_of_cores) continue;
      Cells family = family_cells(input.cells, cell.family);
      if (best.empty() || weight_of(family, input.experiments) > weight_of(best, input.experiments))
        best = std::move(family);
    }
    if (!best.empty()) result.push_back({best, on_most_ranks(best)});
  }
  return result;
}

VerdictClause clause_of(std::string_view sentence, std::string text, const Cells& cells,
                        std::string datasets, std::string condition) {
  VerdictClause clause{
      known(sentence), std::move(text), {}, std::move(datasets), std::move(condition)};
  if (rests_on_communication(clause.datasets) &&
      std::ranges::any_of(cells, waits_inside_communication))
    clause.text += fmt::format("; communication contains waiting for late ranks{}",
                               std::ranges::any_of(cells, of_schema_1)
                                   ? " (schema 1)"
                                   : ", since it is not known when the last rank came");
  for (const StudyCell* cell : cells) {
    add_new({cell->run().model}, clause.networks);
    for (const Run* run : cell->group.repeats)
      clause.files.push_back(run->path.string());
  }
  if (clause.networks.size() > 1) clause.networks.clear();
  return clause;
}

VerdictClause missing_clause(std::string_view sentence, std::string text,
                             const std::string& network) {
  VerdictClause clause{known(sentence), std::move(text), {}, {}, {}};
  clause.missing = true;
  if (!network.empty()) clause.networks = {network};
  return clause;
}

std::string setting_text(const StudyCell& cell) {
  return fmt::format("{} at {} with {}", cell.run().mode, count_text(cell.run().ranks, "rank"),
                     images_text(cell.run()));
}

std::string percent_text(double share) {
  const double percent = 1e2 * share;
  const int decimals = std::abs(percent) >= 10 || percent == 0 ? 0 : std::abs(percent) >= 1 ? 1 : 2;
  return fmt::format("{:.{}f} %", percent, decimals);
}

std::string interval_text(const Estimate& share) {
  if (!share.has_interval()) return " (no interval without repeats)";
  return fmt::format(" ({} to {})", percent_text(share.low), percent_text(share.high));
}

std::vector<VerdictClause> make_verdict(const RunStudy& runs) {
  std::vector<RunGroup> groups = each(runs.cells(), &StudyCell::group);
  const VerdictInput input{runs.set(), runs.cells(), run_spreads(groups), runs.experiments()};
  std::vector<VerdictClause> clauses;
  for (const auto question : kQuestions)
    for (VerdictClause& clause : question(input))
      clauses.push_back(std::move(clause));
  // What is missing stands last, but for the cost, which is asked first.
  std::stable_partition(clauses.begin(), clauses.end(), [](const VerdictClause& clause) {
    return !clause.missing || clause.topic() == "cost";
  });
  return models_of(input.cells).size() > 1 ? by_network(std::move(clauses)) : clauses;
}

std::vector<VerdictClause> main_clauses(const std::vector<VerdictClause>& clauses) {
  const bool compared = std::ranges::any_of(
      clauses, [](const VerdictClause& one) { return one.topic() == "networks"; });
  const bool costs = contains(clauses, "networks.cost", &VerdictClause::sentence);
  std::set<std::string> main = {"networks", "cores", "spread", "control", "reduce", "faster"};
  if (!costs) main.insert("cost");
  std::vector<VerdictClause> result;
  for (const VerdictClause& clause : clauses)
    if (result.size() < kMostShown && (!compared || main.contains(clause.topic())))
      result.push_back(clause);
  return result;
}

std::string source_text(const VerdictClause& clause) {
  if (clause.files.empty()) return {};
  std::string text;
  for (std::size_t i = 0; i < std::min(kFilesShown, clause.files.size()); ++i)
    text += (i == 0 ? "" : ", ") + clause.files[i];
  if (clause.files.size() > kFilesShown)
    text += fmt::format(" and {} more", clause.files.size() - kFilesShown);
  return clause.datasets.empty() ? text : text + ": " + clause.datasets;
}

namespace {

std::string brief_text(const std::vector<VerdictClause>& clauses, std::size_t width) {
  std::string text = "Verdict\n";
  std::size_t shown = 0, lines = 0;
  for (const VerdictClause& clause : main_clauses(clauses)) {
    const auto wrapped_text = wrapped(clause.text + ".", width - 2);
    lines += wrapped_text.size();
    if (shown > 0 && lines > kMostLines) break;
    text += fmt::format("- {}\n", fmt::join(wrapped_text, "\n  "));
    ++shown;
  }
  if (const std::size_t others = clauses.size() - shown; others > 0)
    text += fmt::format("  (--wide shows {})\n", count_text(others, "more sentence"));
  return text;
}

}  // namespace

std::string verdict_text(const std::vector<VerdictClause>& clauses, std::size_t width) {
  if (clauses.empty()) return "Verdict\n  the runs hold no data for a verdict\n";
  if (width > 0) return brief_text(clauses, width);
  std::string text = "Verdict\n";
  for (const VerdictClause& clause : clauses) {
    text += fmt::format("- {}.\n", clause.text);
    if (!clause.condition.empty()) text += fmt::format("    holds for: {}\n", clause.condition);
    const std::string source = source_text(clause);
    if (!source.empty()) text += fmt::format("    from: {}\n", source);
  }
  return text;
}

std::string verdict_markdown(const std::vector<VerdictClause>& clauses) {
  std::string text = "## Verdict\n\n";
  for (const VerdictClause& clause : clauses) {
    text += fmt::format("- {}.", clause.text);
    if (!clause.condition.empty()) text += fmt::format(" Holds for: {}.", clause.condition);
    const std::string source = source_text(clause);
    text += source.empty() ? "\n" : fmt::format(" From: `{}`\n", source);
  }
  if (clauses.empty()) text += "The runs hold no data for a verdict.\n";
  return text;
}

std::string verdict_json(const std::vector<VerdictClause>& clauses) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const VerdictClause& clause : clauses)
    all.push_back({{"topic", clause.topic()},
                   {"sentence", clause.sentence},
                   {"text", clause.text},
                   {"files", clause.files},
                   {"datasets", clause.datasets},
                   {"condition", clause.condition},
                   {"missing", clause.missing}});
  // Paths are bytes, JSON is UTF-8: what is none is replaced, not thrown at the reader.
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Table verdict_table(const std::vector<VerdictClause>& clauses) {
  Table table{"verdict", "Verdict", {}, {}, {}};
  for (const char* name : {"topic", "sentence", "text", "condition", "missing"})
    table.columns.push_back({name, name, true});
  for (const VerdictClause& clause : clauses)
    table.add({clause.topic(), clause.sentence, clause.text, clause.condition,
               clause.missing ? "yes" : "no"});
  return table;
}

}  // namespace gradsync::report
