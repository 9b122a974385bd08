// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/model/study.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/read/columns.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "record/row_figures.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// What makes cells one scaling law, beside ranks and batch. `between` counts on several ranks
/// only.
struct FamilyKey {
  std::string setting, between;
  std::string text() const { return setting + between; }
};

FamilyKey family_key(const Run& run) {
  using enum OptionRole;
  static const auto of_setting = options_of({kMode, kStep, kMachine});
  static const auto of_between = options_of({kBetweenRanks});
  return {fmt::format("{}, {}|{}|{}{}", run.model, run.mode,
                      fmt::join(option_values(run, of_setting), "|"), devices_of(run),
                      is_known_work(run) ? "" : "|" + run.path.string()),
          fmt::format("|{}", fmt::join(option_values(run, of_between), "|"))};
}

/// A cell of one rank belongs to the family of several ranks with its own settings, else to the
/// first with the same ones but for what is between ranks, else to its own.
std::string family_of(const Run& run, const std::vector<RunGroup>& groups) {
  const FamilyKey own = family_key(run);
  if (run.ranks > 1) return own.text();
  std::string found;
  for (const RunGroup& group : groups) {
    if (group.first().ranks < 2) continue;
    const FamilyKey other = family_key(group.first());
    if (other.text() == own.text()) return own.text();
    if (other.setting == own.setting && found.empty()) found = other.text();
  }
  return found.empty() ? own.text() : found;
}

constexpr std::size_t kProfileRows = 64;
constexpr std::size_t kImbalanceValues = 65536;

/// At most `most` of 0 … count − 1, evenly spread.
std::vector<std::size_t> spread(std::size_t count, std::size_t most) {
  std::vector<std::size_t> picked;
  const std::size_t wanted = std::min(count, most);
  for (std::size_t i = 0; i < wanted; ++i)
    picked.push_back(i * count / wanted);
  return picked;
}

std::vector<std::size_t> steady_rows_of(const Run& run) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < run.reader->iterations(); ++row)
    if (run.steady.keeps(row)) rows.push_back(row);
  return rows;
}

bool same_messages(const IterationRow& a, const IterationRow& b) {
  return std::equal(a.buckets.begin(), a.buckets.end(), b.buckets.begin(), b.buckets.end(),
                    [](const BucketShape& x, const BucketShape& y) {
                      return x.bytes == y.bytes && x.kind == y.kind;
                    });
}

/// Rows of one run that exchange the same messages as most do: others are of the first iterations,
/// before buckets were rebuilt, or the last of an epoch, of fewer images.
std::vector<IterationRow> sampled_rows(const Run& run) {
  std::vector<IterationRow> rows;
  const std::vector<std::size_t> steady = steady_rows_of(run);
  for (const std::size_t i : spread(steady.size(), kProfileRows))
    rows.push_back(std::move(run.reader->rows(steady[i], 1).front()));
  if (rows.empty()) return rows;
  const auto alike = [&](const IterationRow& one) {
    return std::ranges::count_if(rows,
                                 [&](const IterationRow& row) { return same_messages(row, one); });
  };
  IterationRow shape;
  shape.buckets = std::ranges::max_element(rows, {}, alike)->buckets;
  std::erase_if(rows, [&](const IterationRow& row) { return !same_messages(row, shape); });
  return rows;
}

double backward_end(const RankIteration& rank) {
  return rank[Phase::kData] + rank[Phase::kForward] + rank[Phase::kBackward];
}

/// The median over the iterations of the mean over the ranks.
template <typename Value>
double typical(const std::vector<IterationRow>& rows, Value value) {
  std::vector<double> means;
  for (const IterationRow& row : rows) {
    std::vector<double> ranks = each(row.ranks, value);
    means.push_back(mean(ranks));
  }
  return median(means);
}

// A bucket is ready so long before the end of the backward pass: the difference is taken within one
// iteration of one rank, since iterations differ from each other by more than it.
void fill_messages(const std::vector<IterationRow>& rows, BucketProfile& profile) {
  for (std::size_t b = 0; b < rows.front().buckets.size(); ++b) {
    const BucketShape& shape = rows.front().buckets[b];
    if (shape.bytes <= 0) continue;
    const double before_s = typical(rows, [b](const RankIteration& rank) {
      return backward_end(rank) - rank.buckets[b].ready_s;
    });
    std::vector<double> transfer =
        each(rows, [&](const IterationRow& row) { return shortest_moving_s(row, b); });
    profile.messages.push_back(
        {profile.backward_end_s - before_s, static_cast<double>(shape.bytes), shape.kind});
    profile.transfer_s.push_back(median(transfer));
  }
}

/// Whether the replay has the exchange of a run: the same in each iteration, beside or behind its
/// backward pass. It has none that overlaps the next step, and none that holds up the passes
/// themselves.
bool is_replayed(const Run& run) {
  const std::string overlap = option_value(run, "overlap");
  return overlap != "step" && overlap != "none" && exchange_period(*run.reader) == 1 &&
         !mode_named(run.mode).sharded && option_value(run, "batch-norm") != "sync";
}

/// The last repeat speaks for all: repeats of one cell exchange the same messages.
BucketProfile profile_of(const RunGroup& group) {
  BucketProfile profile;
  const Run& run = *group.repeats.back();
  const std::vector<IterationRow> rows = sampled_rows(run);
  if (rows.empty()) return profile;
  // Gradients are exchanged in the last of the passes that an iteration accumulates over.
  const double passes = static_cast<double>(std::max<std::int64_t>(
      1, parsed_or<std::int64_t>(parse_integer, option_value(run, "accumulate"), 1)));
  profile.backward_begin_s = typical(rows, [passes](const RankIteration& rank) {
    return backward_end(rank) - rank[Phase::kBackward] / passes;
  });
  profile.backward_end_s = typical(rows, backward_end);
  fill_messages(rows, profile);
  return profile;
}

std::vector<double> imbalance_of(const RunGroup& group) {
  std::vector<double> values;
  for (const Run* run : group.repeats) {
    const std::vector<std::size_t> rows = steady_rows_of(*run);
    const std::size_t share = kImbalanceValues / group.repeats.size();
    // All ranks of a row: a stride over [row, rank] may meet the same ranks in each.
    const std::vector<std::size_t> picked =
        spread(rows.size(), std::max<std::size_t>(1, share / run->reader->ranks()));
    auto next = picked.begin();
    for_each_row(*run->reader, phase_blocks(Phase::kCompute),
                 [&](std::size_t row, std::span<const double> ranks) {
                   if (next == picked.end() || row != rows[*next]) return;
                   values.insert(values.end(), ranks.begin(), ranks.end());
                   ++next;
                 });
  }
  values = sorted_finite(values);
  const double middle = median(values);
  for (double& value : values)
    value /= middle;
  return values;
}

/// Compute beside the exchange − compute alone, in the windows of runs of earlier versions; only
/// modes that overlap have a serial one.
double contention_in_windows(const Run& run) {
  const std::vector<WindowRow>& windows = run.reader->windows();
  const auto figure = [&](std::size_t kind, double RankWindow::*value) {
    return window_figure(windows, kWindowKinds[kind], value);
  };
  constexpr std::size_t kComputeOnly = 0, kSerial = 2, kOverlapped = 3;
  return std::isnan(figure(kSerial, &RankWindow::iteration_s))
             ? kNotMeasured
             : figure(kOverlapped, &RankWindow::compute_s) -
                   figure(kComputeOnly, &RankWindow::compute_s);
}

double contention_of(const RunGroup& group, const std::vector<Experiment>& all) {
  std::vector<double> repeats;
  for (const Run* run : group.repeats) {
    repeats.push_back(contention_in_windows(*run));
    for (const Experiment& experiment : all)
      for (const ContenderFigures& one : experiment.contenders)
        if (const ContenderFigures* without = experiment.without_exchange();
            without && one.run == run)
          repeats.push_back(one.worth * one.more_than(*without).part_s(CostPart::kCompute));
  }
  std::erase_if(repeats, [](double value) { return !std::isfinite(value); });
  return median(repeats);
}

double size_of(const Run& run, std::string_view option) {
  const std::int64_t size = parsed_or<std::int64_t>(parse_size, run.reader->option(option), -1);
  return size < 0 ? kNotMeasured : static_cast<double>(size);
}

/// The first of the runs' files, unless a run holds calibration itself.
std::string calibration_file_of(const RunGroup& group) {
  std::string file;
  for (const Run* run : group.repeats) {
    if (!run->calibration_file && !run->calibration().empty()) return {};
    if (run->calibration_file && file.empty()) file = run->calibration_file->name();
  }
  return file;
}

std::vector<double> stalled(const RunGroup& group, const std::vector<double>& exposed_s) {
  if (!waits_apart(*group.first().reader)) return exposed_s;
  std::vector<double> sums_s = steady_rank_means(group, Phase::kWait);
  std::transform(sums_s.begin(), sums_s.end(), exposed_s.begin(), sums_s.begin(), std::plus<>());
  return sums_s;
}

void fill_in_times(StudyCell& cell) {
  const RunGroup& group = cell.group;
  const std::vector<double> iteration_s = steady_values(group, Phase::kIteration);
  const std::vector<double> compute_s = steady_rank_means(group, Phase::kCompute);
  const std::vector<double> exposed_s = steady_rank_means(group, Phase::kExposed);
  cell.medians = {median(iteration_s), median(compute_s), median(exposed_s),
                  median(stalled(group, exposed_s))};
  const SplitFigures split = mean_over_repeats(group);
  cell.exposed_share = split[Phase::kExposed] / split[Phase::kIteration];
  cell.compute_share = split[Phase::kCompute] / split[Phase::kIteration];
  cell.wait_share = split.wait_s() / split[Phase::kIteration];
  cell.optimizer_s = median(steady_rank_means(group, Phase::kOptimizer));
  cell.imbalance = imbalance_of(group);
}

StudyCell study_cell(const RunGroup& group, const std::vector<RunGroup>& groups,
                     const std::vector<Experiment>& all) {
  StudyCell cell;
  const Run& run = group.first();
  cell.group = group;
  cell.family = family_of(run, groups);
  cell.model = run.model;
  cell.mode = run.mode;
  cell.wire = option_value(run, "wire-dtype");
  cell.transport = option_value(run, "transport");
  cell.bucket_cap_bytes = size_of(run, "bucket-cap");
  cell.first_bucket_bytes = size_of(run, "first-bucket");
  cell.ranks = static_cast<double>(run.ranks);
  cell.scheduled = !batch_schedule(run).empty();
  cell.batch = cell.scheduled ? kNotMeasured : static_cast<double>(run.batch_per_rank);
  cell.short_of_cores = !core_shortage(group).empty();
  if (cell.short_of_cores) cell.family += "|short of cores";
  // No scaling law holds for it beside any other cell.
  if (cell.scheduled) cell.family += "|" + run.path.string();
  fill_in_times(cell);
  cell.contention_s = contention_of(group, all);
  if (is_replayed(run) && !cell.scheduled) cell.profile = profile_of(group);
  cell.calibration_file = calibration_file_of(group);
  return cell;
}

/// Sets for each family in what it differs from the others of its model and mode.
void fill_in_settings(std::vector<StudyCell>& study) {
  std::map<std::string, const StudyCell*> first;
  for (const StudyCell& cell : study)
    if (const auto [known, added] = first.emplace(cell.family, &cell);
        !added && known->second->run().ranks == 1)
      known->second = &cell;
  std::map<std::string, std::string> settings;
  for (const auto& [family, cell] : first) {
    std::vector<const RunGroup*> rivals;
    for (const auto& other : first)
      if (other.second->model == cell->model && other.second->mode == cell->mode)
        rivals.push_back(&other.second->group);
    std::string& text = settings[family];
    text = settings_text(cell->run(), differing_options(rivals));
    const std::string devices = devices_of(cell->run());
    const auto same = [&](const RunGroup* one) { return devices_of(one->first()) == devices; };
    if (!std::ranges::all_of(rivals, same))
      text += (text.empty() ? "" : ", ") + or_unknown(devices);
  }
  for (StudyCell& cell : study)
    cell.family_settings = settings.at(cell.family);
}

void add_points(const Run& run, const std::string& file, StudyCell& cell) {
  for (const CalibrationRow& row : run.calibration())
    if (row.type == kFloatType && usable(row))
      cell.calibration.push_back({row.kind, row.transport, row.cadence,
                                  static_cast<double>(run.ranks), static_cast<double>(row.bytes),
                                  row.median_s, file, file.empty() ? machine_of(run) : "",
                                  file.empty() ? experiment_id(run) : ""});
}

/// Adds what the runs of a cell hold themselves, else the points of its calibration file, which are
/// added once however many cells are held against it.
void add_calibration(StudyCell& cell, const std::vector<StudyCell>& study) {
  for (const Run* run : cell.group.repeats) {
    if (!run->calibration_file) add_points(*run, "", cell);
    if (!run->calibration_file || run->calibration_file->name() != cell.calibration_file) continue;
    const auto is_known = [&](const CalibrationPoint& point) {
      return point.file == cell.calibration_file && point.ranks == static_cast<double>(run->ranks);
    };
    if (std::ranges::none_of(study, [&](const StudyCell& other) {
          return std::ranges::any_of(other.calibration, is_known);
        }))
      add_points(*run, cell.calibration_file, cell);
  }
}

}  // namespace

std::string machine_of(const Run& run) {
  const auto& topology = run.reader->info().topology;
  const std::string mpi = provenance_of(*run.reader, "mpi");
  return fmt::format("{}, {}", topology.empty() ? "?" : topology.front().device,
                     mpi.substr(0, mpi.find('\n')));
}

std::vector<StudyCell> study_cells(const RunStudy& runs) {
  const auto groups = group_runs(runs);
  std::vector<StudyCell> study;
  std::vector<std::string> names;
  for (const RunGroup& group : groups) {
    study.push_back(study_cell(group, groups, runs.experiments()));
    names.push_back(fmt::format("{}, {}, {}, {}", group.first().model, group.first().mode,
                                count_text(group.first().ranks, "rank"),
                                images_text(group.first())));
  }
  names = told_apart(std::move(names), pointers_to(groups), ", ", " ({})");
  for (std::size_t i = 0; i < study.size(); ++i) {
    study[i].name = std::move(names[i]);
    add_calibration(study[i], study);
  }
  fill_in_settings(study);
  return study;
}

std::vector<Cells> families(const std::vector<StudyCell>& study) {
  std::vector<Cells> result;
  for (const StudyCell& cell : study) {
    if (cell.scheduled) continue;
    const auto known = std::ranges::find_if(
        result, [&](const Cells& family) { return family.front()->family == cell.family; });
    if (known == result.end())
      result.push_back({&cell});
    else
      known->push_back(&cell);
  }
  return result;
}

std::vector<CalibrationPoint> calibration_of(const std::vector<StudyCell>& study,
                                             const Cells& without) {
  // Each contender's file has a copy of the calibration of its job.
  std::set<std::string> jobs;
  const auto ids = [](const StudyCell& cell) {
    return each(cell.group.repeats, [](const Run* run) { return experiment_id(*run); });
  };
  for (const StudyCell* cell : without)
    for (const std::string& id : ids(*cell))
      if (!id.empty()) jobs.insert(id);
  std::vector<CalibrationPoint> kept;
  std::set<CalibrationPoint> of_jobs;
  for (const StudyCell& cell : study) {
    const bool left_out =
        contains(without, &cell) ||
        std::ranges::any_of(ids(cell), [&](const std::string& id) { return jobs.contains(id); });
    for (const CalibrationPoint& point : cell.calibration)
      if ((!left_out || !point.file.empty()) && (point.job.empty() || of_jobs.insert(point).second))
        kept.push_back(point);
  }
  return kept;
}

const std::vector<StudyCell>& RunStudy::cells() const {
  if (!cells_) cells_ = study_cells(*this);
  return *cells_;
}

const std::vector<Experiment>& RunStudy::experiments() const {
  if (!experiments_) experiments_ = report::experiments(set_);
  return *experiments_;
}

}  // namespace gradsync::report
