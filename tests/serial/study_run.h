// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "record/recorder.h"
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
  /// May change what is known before the first iteration.
  std::function<void(RunInfo&)> change_info = [](RunInfo&) {};
  /// May record more than iterations.
  std::function<void(MadeRun&)> add_more = [](MadeRun&) {};
  int schema = kRunSchema;
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
  RunInfo info = sample_info({run.mode, run.ranks, run.iterations, 1000, run.batch_per_rank, 2});
  info.schema = run.schema;
  run.change_info(info);
  return info;
}

inline void record_study(MadeRun& recorder, const StudyRun& run) {
  for (std::size_t i = 0; i < run.iterations; ++i)
    recorder.add(study_row(run, i));
  run.add_more(recorder);
  recorder.finish(RunStatus::kComplete);
}

inline void write_study(const RunFolder::File& output, const StudyRun& run) {
  record_study(recorder_of(output, study_info(run)), run);
}

/// Each path is a run of its own.
inline void write_study(const std::filesystem::path& output, const StudyRun& run) {
  RunInfo info = study_info(run);
  info.run_id += " in " + output.string();
  MadeRun made(std::move(info));
  record_study(made, run);
  publish_run(made, output);
}

/// All ranks on one host, where they may use these cores.
inline StudyRun on_cores(StudyRun run, const std::string& cores) {
  run.change_info = [cores](RunInfo& info) {
    for (RankPlace& place : info.topology) {
      place.host = "node0";
      place.affinity = cores;
    }
  };
  return run;
}

/// Each rank used this part of an iteration's time of a core.
inline StudyRun with_cpu_time(StudyRun run, double part) {
  run.change = [part, before = run.change](IterationRow& row) {
    before(row);
    for (RankIteration& rank : row.ranks)
      rank[Usage::kCpuTime] = part * rank[Phase::kIteration];
  };
  run.change_info = [before = run.change_info](RunInfo& info) {
    before(info);
    for (RankPlace& place : info.topology)
      place.device_uuid.clear();
  };
  return run;
}

inline StudyRun of_network(StudyRun run, const std::string& model) {
  run.change_info = [model, before = run.change_info](RunInfo& info) {
    before(info);
    for (ConfigEntry& entry : info.config)
      if (entry.name == "model") entry.value = model;
  };
  return run;
}

/// A world that the scaling model describes exactly: compute constant + per_image·b, of which the
/// optimizer is 10 %, forward 30 % and backward 60 %; four buckets of a mode that overlaps, ready
/// at a quarter, a half, three quarters and the end of the backward pass; a ring all-reduce costs
/// alpha·2(n − 1) + beta·2(n − 1)/n·S.
struct LawWorld {
  double constant_s = 0.002, per_image_s = 1e-4;
  double alpha_s = 1e-4, beta_s_per_byte = 1e-9;
  std::vector<std::int64_t> bucket_bytes = {1 << 20, 2 << 20, 3 << 20, 1 << 20};

  double compute_s(double batch) const { return constant_s + per_image_s * batch; }
  double collective_s(double bytes, double ranks) const {
    return alpha_s * 2 * (ranks - 1) + beta_s_per_byte * 2 * (ranks - 1) / ranks * bytes;
  }
};

/// The buckets of a rank and what they expose.
inline void exchange_in(const LawWorld& world, double ranks, RankIteration& rank) {
  const double begin_s = rank[Phase::kForward], backward_s = rank[Phase::kBackward];
  double free_s = 0;
  for (std::size_t b = 0; b < world.bucket_bytes.size(); ++b) {
    const double ready_s = begin_s + backward_s * 0.25 * static_cast<double>(b + 1);
    const double start_s = ready_s > free_s ? ready_s : free_s;
    free_s = start_s + world.collective_s(static_cast<double>(world.bucket_bytes[b]), ranks);
    rank.buckets.push_back({ready_s, start_s, free_s});
  }
  const double exposed_s = ranks > 1 ? free_s - begin_s - backward_s : 0;
  rank[Phase::kExposed] = exposed_s;
  rank[Phase::kIteration] = rank[Phase::kCompute] + exposed_s;
}

inline StudyRun law_run(const LawWorld& world, std::size_t ranks, std::int64_t batch) {
  StudyRun run{"ddp", ranks, batch, world.compute_s(static_cast<double>(batch))};
  run.change = [world, ranks](IterationRow& row) {
    for (const std::int64_t bytes : world.bucket_bytes)
      row.buckets.push_back({bytes, CollectiveKind::kAllReduce});
    for (RankIteration& rank : row.ranks)
      exchange_in(world, static_cast<double>(ranks), rank);
  };
  return run;
}

}  // namespace gradsync::testing
