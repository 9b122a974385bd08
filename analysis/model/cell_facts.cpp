#include "analysis/model/cell_facts.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/figures/collective_figures.h"
#include "analysis/read/columns.h"
#include "base/error.h"
#include "base/parse.h"
#include "record/row_figures.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

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

std::vector<std::size_t> kept_rows(const Run& run) {
  std::vector<std::size_t> rows;
  for (std::size_t row = 0; row < run.reader->iterations(); ++row)
    if (is_steady(run, row)) rows.push_back(row);
  return rows;
}

bool same_messages(const IterationRow& a, const IterationRow& b) {
  return std::equal(a.buckets.begin(), a.buckets.end(), b.buckets.begin(), b.buckets.end(),
                    [](const BucketShape& x, const BucketShape& y) {
                      return x.bytes == y.bytes && x.kind == y.kind;
                    });
}

/// Rows of one run that exchange the same messages as its last one: an earlier layout is one of the
/// first iterations, before buckets were rebuilt.
std::vector<IterationRow> sampled_rows(const Run& run) {
  std::vector<IterationRow> rows;
  const std::vector<std::size_t> steady = kept_rows(run);
  for (const std::size_t i : spread(steady.size(), kProfileRows))
    rows.push_back(std::move(run.reader->rows(steady[i], 1).front()));
  if (rows.empty()) return rows;
  const std::vector<BucketShape> last = rows.back().buckets;
  IterationRow shape;
  shape.buckets = last;
  std::erase_if(rows, [&](const IterationRow& row) { return !same_messages(row, shape); });
  return rows;
}

double backward_begin(const RankIteration& rank) {
  return rank[Phase::kData] + rank[Phase::kForward];
}

double backward_end(const RankIteration& rank) {
  return backward_begin(rank) + rank[Phase::kBackward];
}

/// The median over the iterations of the mean over the ranks.
template <typename Value>
double typical(const std::vector<IterationRow>& rows, Value value) {
  std::vector<double> means;
  for (const IterationRow& row : rows) {
    std::vector<double> ranks;
    for (const RankIteration& rank : row.ranks)
      ranks.push_back(value(rank));
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
    std::vector<double> transfer;
    for (const IterationRow& row : rows)
      transfer.push_back(shortest_moving_s(row, b));
    profile.messages.push_back(
        {profile.backward_end_s - before_s, static_cast<double>(shape.bytes), shape.kind});
    profile.transfer_s.push_back(median(transfer));
  }
}

/// The last repeat speaks for all: repeats of one cell exchange the same messages.
BucketProfile profile_of(const RunGroup& group) {
  BucketProfile profile;
  const std::vector<IterationRow> rows = sampled_rows(*group.repeats.back());
  profile.iterations = rows.size();
  if (rows.empty()) return profile;
  profile.backward_begin_s = typical(rows, backward_begin);
  profile.backward_end_s = typical(rows, backward_end);
  fill_messages(rows, profile);
  return profile;
}

std::vector<double> imbalance_of(const RunGroup& group) {
  std::vector<double> values;
  for (const Run* run : group.repeats) {
    const Matrix compute = run->reader->time(Phase::kCompute);
    const std::vector<std::size_t> rows = kept_rows(*run);
    const std::size_t share = kImbalanceValues / group.repeats.size();
    // All ranks of a row: a stride over [row, rank] may meet the same ranks in each.
    for (const std::size_t i :
         spread(rows.size(), std::max<std::size_t>(1, share / compute.columns)))
      for (std::size_t rank = 0; rank < compute.columns; ++rank)
        values.push_back(compute.at(rows[i], rank));
  }
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::sort(values.begin(), values.end());
  const double middle = median(values);
  for (double& value : values)
    value /= middle;
  return values;
}

double contention_of(const RunGroup& group) {
  std::vector<double> repeats;
  for (const Run* run : group.repeats)
    repeats.push_back(counterfactual(run->reader->windows()).contention_s());
  std::erase_if(repeats, [](double value) { return !std::isfinite(value); });
  return median(repeats);
}

double size_of(const Run& run, std::string_view option) {
  try {
    return static_cast<double>(parse_size(run.reader->option(option)));
  } catch (const Error&) {
    return kNotMeasured;
  }
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

CellFacts facts_of(const MeasuredCell& cell) {
  CellFacts facts;
  const Run& run = cell.run();
  facts.family = cell.family;
  facts.model = run.model;
  facts.mode = run.mode;
  facts.wire = option_value(run, "wire-dtype");
  facts.transport = option_value(run, "transport");
  facts.bucket_cap_bytes = size_of(run, "bucket-cap");
  facts.first_bucket_bytes = size_of(run, "first-bucket");
  facts.ranks = static_cast<double>(run.ranks);
  facts.scheduled = !batch_schedule(run).empty();
  facts.batch = facts.scheduled ? kNotMeasured : static_cast<double>(run.batch_per_rank);
  facts.medians = {cell.median_iteration_s, cell.median_compute_s, median(cell.stalled_s)};
  facts.optimizer_s = median(steady_rank_means(cell.group, Phase::kOptimizer));
  facts.imbalance = imbalance_of(cell.group);
  // The replay has no exchange that overlaps the next step: such cells are not predicted.
  if (option_value(run, "overlap") != "step" && !facts.scheduled)
    facts.profile = profile_of(cell.group);
  facts.contention_s = contention_of(cell.group);
  facts.calibration_file = calibration_file_of(cell.group);
  return facts;
}

void add_points(const Run& run, std::size_t cell, const std::string& file, StudyFacts& study) {
  for (const CalibrationRow& row : run.calibration())
    if (row.type == kFloatType && usable(row))
      study.calibration.push_back({row.kind, row.transport, row.cadence,
                                   static_cast<double>(run.ranks), static_cast<double>(row.bytes),
                                   row.median_s, cell, file});
}

/// By family, in what it differs from the others of its model and mode.
std::map<std::string, std::string> settings_of_families(const std::vector<MeasuredCell>& cells) {
  std::map<std::string, const MeasuredCell*> first;
  for (const MeasuredCell& cell : cells)
    if (const auto [known, added] = first.emplace(cell.family, &cell);
        !added && known->second->ranks() == 1)
      known->second = &cell;
  std::map<std::string, std::string> settings;
  for (const auto& [family, cell] : first) {
    std::vector<const RunGroup*> rivals;
    for (const auto& other : first)
      if (other.second->run().model == cell->run().model &&
          other.second->run().mode == cell->run().mode)
        rivals.push_back(&other.second->group);
    settings[family] = settings_text(cell->run(), differing_options(rivals));
  }
  return settings;
}

/// What the runs of a cell hold themselves, else the points of its calibration file, which are
/// added once however many cells are held against it.
void add_calibration(const MeasuredCell& cell, std::size_t index, StudyFacts& study) {
  const std::string& file = study.cells[index].calibration_file;
  for (const Run* run : cell.group.repeats) {
    if (!run->calibration_file) add_points(*run, index, "", study);
    if (!run->calibration_file || run->calibration_file->name() != file) continue;
    if (std::none_of(study.calibration.begin(), study.calibration.end(),
                     [&](const CalibrationPoint& point) {
                       return point.file == file && point.ranks == static_cast<double>(run->ranks);
                     }))
      add_points(*run, kNoCell, file, study);
  }
}

}  // namespace

StudyFacts study_facts(const std::vector<MeasuredCell>& cells) {
  const auto settings = settings_of_families(cells);
  StudyFacts study;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    study.cells.push_back(facts_of(cells[i]));
    study.cells.back().family_settings = settings.at(cells[i].family);
    study.sources.push_back(sources_of(cells[i].group));
    add_calibration(cells[i], i, study);
  }
  return study;
}

const std::vector<MeasuredCell>& RunStudy::cells() const {
  if (!cells_) cells_ = measured_cells(set_);
  return *cells_;
}

const StudyFacts& RunStudy::facts() const {
  if (!facts_) facts_ = study_facts(cells());
  return *facts_;
}

}  // namespace gradsync::report
