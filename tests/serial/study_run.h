#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "sample_run.h"

/// Runs of a scaling study made up for tests: every iteration alike, so that medians are known.
namespace gradsync::testing {

struct StudyRun {
  std::string mode = "ddp";
  std::size_t ranks = 1;
  std::int64_t batch_per_rank = 32;
  double compute_s = 0.010, exposed_s = 0, other_s = 0;
  std::size_t iterations = 12;
  /// May change a row before it is recorded.
  std::function<void(IterationRow&)> change = [](IterationRow&) {};
};

inline RankIteration study_rank(const StudyRun& run) {
  RankIteration rank;
  rank.begin_s = 0;
  rank[Phase::kCompute] = run.compute_s;
  rank[Phase::kExposed] = rank[Phase::kCommBusy] = run.exposed_s;
  rank[Phase::kOther] = run.other_s;
  rank[Phase::kHidden] = rank[Phase::kWait] = rank[Phase::kData] = 0;
  rank[Phase::kForward] = 0.3 * run.compute_s;
  rank[Phase::kBackward] = 0.6 * run.compute_s;
  rank[Phase::kOptimizer] = 0.1 * run.compute_s;
  rank[Phase::kIteration] = run.compute_s + run.exposed_s + run.other_s;
  rank.loss = 1;
  return rank;
}

/// No collectives, no traffic; `change` adds them.
inline IterationRow study_row(const StudyRun& run, std::size_t iteration) {
  IterationRow row;
  row.iteration = row.step = static_cast<std::int64_t>(iteration);
  row.samples = run.batch_per_rank * static_cast<std::int64_t>(run.ranks);
  row.warmup = iteration < 2;
  row.ranks.assign(run.ranks, study_rank(run));
  run.change(row);
  return row;
}

inline RunInfo study_info(const StudyRun& run) {
  return sample_info({run.mode, run.ranks, run.iterations, 1000, run.batch_per_rank, 2});
}

inline void write_study(const std::filesystem::path& output, const StudyRun& run) {
  Recorder recorder(output, study_info(run));
  for (std::size_t i = 0; i < run.iterations; ++i)
    recorder.add(study_row(run, i));
  recorder.finish(RunStatus::kComplete);
}

}  // namespace gradsync::testing
