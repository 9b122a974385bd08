#include <algorithm>

#include <fmt/format.h>

#include "analysis/figures/run_spread.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr const char* kDataset = "/time/iteration";

/// Modes are set against each other only where all is equal that changes the time of an iteration,
/// but what is the mode's own.
bool same_but_mode(const Run& a, const Run& b) {
  using enum OptionRole;
  static const auto rest = options_of({kBetweenRanks, kStep});
  return is_known_work(a) && a.model == b.model && a.ranks == b.ranks &&
         a.batch_global == b.batch_global && a.batch_per_rank == b.batch_per_rank &&
         option_values(a, rest) == option_values(b, rest);
}

/// The first such group that exchanges gradients: the set is in the order of the modes.
const RunGroup* reference_of(const RunGroup& group, const std::vector<RunGroup>& groups) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const RunGroup& other) {
    return mode_named(other.first().mode).exchanges && same_but_mode(group.first(), other.first());
  });
  return found == groups.end() ? nullptr : &*found;
}

/// "allreduce", with its settings where they are not the group's.
std::string reference_text(const RunGroup& reference, const RunGroup& group) {
  const std::string settings =
      settings_text(reference.first(), differing_options({&reference, &group}));
  return settings.empty() ? reference.first().mode
                          : fmt::format("{} ({})", reference.first().mode, settings);
}

std::vector<Column> modes_paired_columns(const GroupLabels& labels) {
  std::vector<Column> result = labels.columns();
  const std::vector<Column> rest = {
      repeats_column(),
      {"iterations", "n", false, "steady iterations of all repeats", "/iteration/number"},
      {"iteration_median_ms", "median ms", false, "median over n of the slowest rank", kDataset},
      {"iteration_median_low_ms", "low", false, "lower end of the median's 95 % interval",
       kDataset},
      {"iteration_median_high_ms", "high", false, "upper end of the median's 95 % interval",
       kDataset},
      {"against", "against", true},
      {"ratio", "ratio", false, "median / median of the mode it is compared with", kDataset},
      {"ratio_low", "low", false, "lower end of the ratio's 95 % bootstrap interval", kDataset},
      {"ratio_high", "high", false, "upper end of the ratio's 95 % bootstrap interval", kDataset},
      {"verdict", "verdict", true, "", "", 0},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"iteration_median_ms", "ratio"});
  return result;
}

std::vector<Cell> ratio_cells(const Estimate& ratio, std::string_view word) {
  return {Cell::of(ratio.value, 3), Cell::of(ratio.low, 3), Cell::of(ratio.high, 3),
          std::string(word)};
}

/// No ratio, and why.
std::vector<Cell> no_ratio_cells(std::string_view why) {
  return ratio_cells({}, why);
}

/// A group against its reference. Times that include waiting for a core call no mode slower.
std::vector<Cell> comparison_cells(const RunGroup& group, const RunGroup* reference,
                                   const std::vector<double>& times, std::uint64_t seed,
                                   const RunSpread& spread) {
  if (reference == nullptr) return no_ratio_cells("alone");
  if (reference == &group) return no_ratio_cells("reference");
  const Estimate ratio = ratio_estimate(times, steady_values(*reference, Phase::kIteration), seed);
  for (const RunGroup* one : {&group, reference})
    if (const std::string_view shortage = core_shortage(*one); !shortage.empty())
      return ratio_cells(ratio, shortage);
  return ratio_cells(ratio, spread_word(ratio, spread));
}

std::vector<std::string> modes_paired_notes(const RunSet& set, const RunSpreads& spreads,
                                            const TableOptions& options) {
  std::vector<std::string> result = {
      "each mode against the first one of the same model, ranks and batch that exchanges gradients "
      "(the order is none, gather-scatter, allreduce, ddp, data-parallel, c10d)",
      "an iteration counts as its slowest rank; the repeats of a cell are merged",
      fmt::format("95 % intervals: of the median from order statistics, of the ratio from {} "
                  "bootstrap resamples, seed {}; iterations are treated as independent",
                  kResamples, options.seed),
      "faster, slower: only where the ratio's interval, widened by the spread between runs of the "
      "same work, excludes 1; one rank exchanges nothing, so its modes are a control",
      fmt::format("left out: {}", warmup_text(set))};
  for (const auto& [model, spread] : spreads)
    result.push_back(
        spread.known()
            ? spread_text(spread, model) + "; smaller differences are noise here"
            : fmt::format("{}: no two runs of the same work, so their spread is unknown", model));
  return result;
}

}  // namespace

Table make_modes_paired_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  const RunSpreads spreads = run_spreads(groups);
  Table table{"modes-paired",
              "Synchronization modes against each other",
              modes_paired_notes(set, spreads, options),
              modes_paired_columns(labels),
              {}};
  for (const RunGroup& group : groups) {
    const auto times = steady_values(group, Phase::kIteration);
    const Estimate middle = median_estimate(times);
    std::vector<Cell> cells = labels.cells(group);
    const int decimals = ms_decimals(1e3 * middle.value);
    for (const Cell& cell :
         {repeats_cell(group), Cell::count(static_cast<double>(middle.count)),
          Cell::of(1e3 * middle.value, decimals), Cell::of(1e3 * middle.low, decimals),
          Cell::of(1e3 * middle.high, decimals)})
      cells.push_back(cell);
    const RunGroup* reference = reference_of(group, groups);
    cells.emplace_back(reference == nullptr ? "-" : reference_text(*reference, group));
    const auto ratio =
        comparison_cells(group, reference, times, options.seed, spreads.at(group.first().model));
    cells.insert(cells.end(), ratio.begin(), ratio.end());
    cells.push_back(group_name_cell(group));
    const bool paired = reference != nullptr && reference != &group;
    table.add(cells, sources_of(group) + (paired ? ", " + sources_of(*reference) : ""));
  }
  return table;
}

}  // namespace gradsync::report
