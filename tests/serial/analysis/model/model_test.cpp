// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/model/doubt.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/what_if.h"
#include "analysis/plots/plots.h"
#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

/// Runs of a world on 1, 2 and 4 ranks with 32, 64 and 128 images per rank.
void write_world(const RunFolder& folder, const LawWorld& world) {
  for (const std::size_t ranks : {1U, 2U, 4U})
    for (const std::int64_t batch : {32, 64, 128})
      write_study(folder / ("n" + std::to_string(ranks) + "b" + std::to_string(batch) + ".h5"),
                  law_run(world, ranks, batch));
}

/// The step that a world takes, worked out independently of the model's replay: buckets of the
/// backward pass one after the other.
double step_s(const LawWorld& world, double ranks, double batch) {
  RankIteration rank = study_rank({"ddp", 1, 1, world.compute_s(batch)});
  exchange_in(world, ranks, rank);
  return rank[Phase::kIteration];
}

}  // namespace

TEST_CASE("model: a world of known costs is found again") {
  const RunFolder folder;
  const LawWorld world;
  write_world(folder, world);
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  REQUIRE(families(study).size() == 1);
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  CHECK(fit.missing.empty());
  CHECK(fit.slowdown == 1);
  const LawEntry& law = fit.laws.at(CollectiveKind::kAllReduce);
  CHECK_FALSE(law.calibrated);
  CHECK(law.fit.first == Approx(world.alpha_s));
  CHECK(law.fit.second == Approx(world.beta_s_per_byte));
  CHECK(compute_law(fit, 1).fit.first == Approx(world.constant_s));
  CHECK(compute_law(fit, 4).fit.second == Approx(world.per_image_s));
  CHECK_FALSE(compute_law(fit, 4).one_batch);
  CHECK(exchange_at(fit, 2, 64).from->ranks == 2);
  CHECK(exchange_at(fit, 3, 64).from->ranks > 1);
  for (const double ranks : {1.0, 2.0, 4.0, 8.0, 64.0})
    for (const double batch : {16.0, 64.0, 512.0})
      CHECK(predict(fit, ranks, batch).total_s() == Approx(step_s(world, ranks, batch)));
  for (const auto& [ranks, batch] : {std::pair{0.5, 16.0}, std::pair{2.0, 0.0}})
    CHECK(std::isnan(predict(fit, ranks, batch).total_s()));
  CHECK(std::isnan(predict(FamilyFit{}, 2, 16).total_s()));
}

TEST_CASE("model: cells that were left out are predicted, and a wrong law is caught") {
  const LawWorld world;
  {
    const RunFolder folder;
    write_world(folder, world);
    const Table table = make_prediction_table(loaded(folder), {});
    for (std::size_t row = 0; row < 9; ++row)
      CHECK(number(table, row, "error_percent") == Approx(0).epsilon(1e-6));
    CHECK(contains(all_notes(table), "median |error| 0.0 %, largest 0.0 %, 9 cells, 0 could not"));
    // 2, 4 and 8 times 4 ranks; the three batches that were measured.
    CHECK(table.rows.size() == 9 + 3 * 3);
    CHECK(number(table, 9, "ranks") == 8);
    CHECK(shown(table, 9, "kind") == "extrapolated");
    CHECK(std::isnan(number(table, 9, "measured_ms")));
    CHECK(number(table, 9, "low_ms") <= number(table, 9, "predicted_ms"));
  }
  // The step on 4 ranks takes 30 % longer than any law of this form says.
  const RunFolder folder;
  write_world(folder, world);
  StudyRun off = law_run(world, 4, 64);
  const auto change = off.change;
  off.change = [change](IterationRow& row) {
    change(row);
    for (RankIteration& rank : row.ranks)
      rank[Phase::kIteration] *= 1.3;
  };
  write_study(folder / "n4b64.h5", off);
  const Table table = make_prediction_table(loaded(folder), {});
  double largest = 0;
  for (std::size_t row = 0; row < 9; ++row)
    largest = std::fmax(largest, std::abs(number(table, row, "error_percent")));
  CHECK(largest == Approx(1e2 * (1 - 1 / 1.3)).epsilon(1e-3));
  CHECK(table.rows.size() == 9);
  CHECK(contains(all_notes(table),
                 "not predicted: lenet, ddp (family 1): a cell left out is predicted with an error "
                 "of 23 %, above 20 %"));
}

TEST_CASE("model: a prediction lies in its interval, beside which stands how many cells it held") {
  // A millisecond of each exchange on several ranks is in no collective: measured steps are longer
  // than predicted ones, all of them.
  const RunFolder folder;
  for (const std::size_t ranks : {2U, 4U})
    for (const std::int64_t batch : {32, 64, 128}) {
      StudyRun run = law_run({}, ranks, batch);
      run.change = [before = run.change](IterationRow& row) {
        before(row);
        for (RankIteration& rank : row.ranks) {
          rank[Phase::kExposed] += 0.001;
          rank[Phase::kIteration] += 0.001;
        }
      };
      write_study(folder / fmt::format("n{}b{}.h5", ranks, batch), run);
    }
  const Table table = make_prediction_table(loaded(folder), {});
  REQUIRE(table.rows.size() == 6 + 3 * 3);
  std::size_t held = 0;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    CAPTURE(row);
    CHECK(number(table, row, "low_ms") <= number(table, row, "predicted_ms"));
    CHECK(number(table, row, "predicted_ms") <= number(table, row, "high_ms"));
    if (shown(table, row, "kind") != "left out") continue;
    CHECK(number(table, row, "measured_ms") > number(table, row, "predicted_ms"));
    held += number(table, row, "low_ms") <= number(table, row, "measured_ms") &&
            number(table, row, "measured_ms") <= number(table, row, "high_ms");
  }
  CHECK(shown(table, 0, "held") == fmt::format("{} of 6", held));
  const RunSet set = loaded(folder);
  const RunStudy study(set);
  const IntervalCoverage more = coverage_on_more_ranks(study.cells(), families(study.cells())[0]);
  CHECK(more.cells == 3);  // those on 4 ranks, from those on 2
  CHECK(shown(table, 6, "held") == more.text());
  CHECK(contains(all_notes(table), fmt::format("they held {} of 6 left out, {} on the most ranks",
                                               held, more.text())));
  const auto chart = prediction_chart(table);
  REQUIRE(chart);
  CHECK(contains(chart->caption.back(), fmt::format("they held {} of 6 measured cells", held)));
}

TEST_CASE("model: an interval without a measured coverage is not shown") {
  const auto extrapolated = [](const std::vector<std::size_t>& all_ranks) {
    const RunFolder folder;
    for (const std::size_t ranks : all_ranks)
      for (const std::int64_t batch : {32, 64, 128})
        // 64 images take 5 % longer than the law says.
        write_study(folder / fmt::format("n{}b{}.h5", ranks, batch),
                    law_run({0.002, batch == 64 ? 1.07e-4 : 1e-4}, ranks, batch));
    const Table table = make_prediction_table(loaded(folder), {});
    const std::size_t row = 3 * all_ranks.size();
    REQUIRE(table.rows.size() == row + 9);
    CHECK(std::isfinite(number(table, row, "predicted_ms")));
    return std::pair(shown(table, row, "held"), number(table, row, "low_ms"));
  };
  CHECK(extrapolated({1, 2, 4}).first == "3 of 3");
  CHECK(std::isfinite(extrapolated({1, 2, 4}).second));
  // One rank shows nothing of an exchange: no prediction for two was ever checked.
  CHECK(extrapolated({1, 2}).first == "n/a");
  CHECK(std::isnan(extrapolated({1, 2}).second));
  const RunFolder folder;
  write_world(folder, {});
  const Table what_if = make_what_if_table(loaded(folder), {});
  for (const Column& column : what_if.columns)
    CHECK_FALSE((column.name == "low_ms" || column.name == "high_ms"));
  CHECK(contains(all_notes(what_if), "no interval is shown"));
}

TEST_CASE("model: nothing is predicted outside the range measured, nor from a coefficient at 0") {
  TableOptions options;
  options.predict_ranks = {4};
  options.predict_batches = {16, 48, 200};
  {
    const RunFolder folder;
    write_world(folder, {});
    const Table table = make_prediction_table(loaded(folder), options);
    REQUIRE(table.rows.size() == 9 + 1);
    CHECK(number(table, 9, "batch_per_rank") == 48);
    CHECK(shown(table, 9, "kind") == "not measured");
    CHECK(contains(all_notes(table), "batch 16 is outside what was measured"));
    CHECK(contains(all_notes(table), "batch 200 is outside what was measured"));
  }
  // Compute as long for any batch, as where ranks share cores.
  LawWorld flat;
  flat.constant_s = 0.010;
  flat.per_image_s = -1e-6;
  const RunFolder folder;
  write_world(folder, flat);
  const Table table = make_prediction_table(loaded(folder), options);
  REQUIRE(table.rows.size() == 9 + 1);
  CHECK(shown(table, 9, "predicted_ms") == "n/a");
  CHECK(contains(all_notes(table), "compute does not grow with the batch in the cells measured"));
}

TEST_CASE("model: contenders hold copies of the calibration of their job") {
  const auto points = [](const std::vector<std::string>& jobs) {
    const RunFolder folder;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      StudyRun run{i == 0 ? "ddp" : "allreduce", 2};
      run.change_info = [&](RunInfo& info) {
        if (!jobs[i].empty())
          info.experiment = {
              {"id", jobs[i]}, {"contender", run.mode}, {"contenders", "ddp,allreduce"}};
      };
      run.add_more = [](MadeRun& recorder) {
        for (const CalibrationRow& row : sample_calibration())
          recorder.add(row);
      };
      write_study(folder / (std::to_string(i) + ".h5"), run);
    }
    const RunSet set = loaded(folder);
    return calibration_of(study_cells(set)).size();
  };
  const std::size_t once = points({""});
  REQUIRE(once > 0);
  CHECK(points({"a", "a"}) == once);
  CHECK(points({"a", "b"}) == 2 * once);
  CHECK(points({"", ""}) == 2 * once);
}

TEST_CASE("model: calibration comes first, and training's slowdown is found against it") {
  const LawWorld world;
  const RunFolder folder;
  for (const std::size_t ranks : {2U, 4U})
    write_study(folder / ("n" + std::to_string(ranks) + ".h5"), law_run(world, ranks, 64));
  const RunSet set = loaded(folder);
  std::vector<StudyCell> study = RunStudy(set).cells();
  // Calibrated twice as fast as training; MPI's own faster still, which ddp does not use.
  for (const double ranks : {2.0, 4.0})
    for (const double bytes : {1e3, 1e5, 1e7}) {
      const double time_s = 0.5 * world.collective_s(bytes, ranks);
      study[1].calibration.push_back(
          {CollectiveKind::kAllReduce, "mpi-ring", "isolated", ranks, bytes, time_s});
      study[1].calibration.push_back(
          {CollectiveKind::kAllReduce, "mpi", "isolated", ranks, bytes, 0.1 * time_s});
    }
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  const LawEntry& law = fit.laws.at(CollectiveKind::kAllReduce);
  CHECK(law.calibrated);
  CHECK(law.source == "calibration (mpi-ring, isolated)");
  CHECK(law.fit.first == Approx(world.alpha_s / 2));
  CHECK(fit.slowdown == Approx(2));
  CHECK(predict(fit, 8, 64).total_s() == Approx(step_s(world, 8, 64)));
  CHECK(calibration_of(study, {&study[1]}).empty());
  CHECK(calibration_of(study, {&study[0]}).size() == 12);
  // What one rank would use does not count.
  std::vector<StudyCell> small = study;
  std::erase_if(small, [](const StudyCell& cell) { return cell.ranks == 4; });
  small.insert(small.begin(), small.front());
  small.front().ranks = 1;
  small.front().transport = "mpi";
  const FamilyFit of_two = fit_family(families(small)[0], calibration_of(study));
  CHECK(of_two.laws.at(CollectiveKind::kAllReduce).source == "calibration (mpi-ring, isolated)");
}

TEST_CASE("model: one batch says how compute is split, and one message size what is missing") {
  LawWorld world;
  world.bucket_bytes = {1 << 20};
  const RunFolder folder;
  write_study(folder / "a.h5", law_run(world, 2, 64));
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  CHECK(contains(fit.missing, "run gradsync-train --calibrate"));
  CHECK(std::isnan(predict(fit, 4, 64).total_s()));
  // 8.4 ms of compute, of which the optimizer's 10 % stay: 0.84 + 2 · 7.56.
  CHECK(compute_law(fit, 2).one_batch);
  REQUIRE(compute_law(fit, 2).fit.residuals.size() == 1);
  CHECK(compute_law(fit, 2).fit.residuals[0] == Approx(0));
  CHECK(predict(fit, 4, 128).compute_s == Approx(0.01596));
  const Table table = make_prediction_table(set, {});
  CHECK(contains(all_notes(table), "missing: lenet, ddp: the cost of allreduce cannot be fitted"));
  CHECK(contains(all_notes(table), "score: no cell could be predicted from the others"));
  CHECK(table.rows.empty());
  CHECK(contains(all_notes(table), "not predicted: lenet, ddp (family 1): the cost of allreduce"));
}

TEST_CASE("model: what-if replays the recorded run") {
  const LawWorld world;
  const RunFolder folder;
  write_world(folder, world);
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  const StudyCell* cell = nullptr;
  for (const StudyCell& one : study)
    if (one.ranks == 4 && one.batch == 32) cell = &one;
  REQUIRE(cell);
  const WhatIfResult recorded = what_if(fit, *cell, {});
  CHECK(recorded.messages == 4);
  CHECK(recorded.bytes == 7 * 1024 * 1024);
  CHECK(recorded.parts.total_s() == Approx(step_s(world, 4, 32)));
  // Twice the ranks, another link, another batch: each as the world itself would do.
  CHECK(what_if(fit, *cell, parse_what_if("ranks=8")).parts.total_s() ==
        Approx(step_s(world, 8, 32)));
  LawWorld faster = world;
  faster.beta_s_per_byte = 1e-10;
  faster.alpha_s = 20e-6;
  CHECK(what_if(fit, *cell, parse_what_if("bandwidth=10GB/s,latency=20us")).parts.total_s() ==
        Approx(step_s(faster, 4, 32)));
  CHECK(what_if(fit, *cell, parse_what_if("batch=128")).parts.total_s() ==
        Approx(step_s(world, 4, 128)));
  LawWorld narrow = world;
  for (std::int64_t& bytes : narrow.bucket_bytes)
    bytes /= 2;
  CHECK(what_if(fit, *cell, parse_what_if("wire=bf16")).parts.total_s() ==
        Approx(step_s(narrow, 4, 32)));
  // One bucket of everything is ready at the end: nothing is hidden.
  const WhatIfResult one =
      what_if(fit, *cell, parse_what_if("bucket-cap=64MiB,first-bucket=64MiB"));
  CHECK(one.messages == 1);
  CHECK(one.parts.exposed_s == Approx(world.collective_s(7 * 1024 * 1024, 4)));
}

TEST_CASE("model: what-if of a run in 16 bits") {
  const RunFolder folder;
  write_world(folder, LawWorld{});
  for (const char* wire : {"bf16", "fp16"}) {
    const RunSet set = loaded(folder);
    std::vector<StudyCell> study = RunStudy(set).cells();
    for (StudyCell& cell : study)
      cell.wire = wire;
    const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
    const StudyCell& cell = study.back();
    const double bytes = what_if(fit, cell, {}).bytes;
    CHECK(what_if(fit, cell, parse_what_if("wire=bf16")).bytes == bytes);
    CHECK(what_if(fit, cell, parse_what_if("wire=fp32")).bytes == 2 * bytes);
    CHECK(gradient_bytes(fit, cell) == 2 * bytes);  // what caps count
  }
}

namespace {

StudyCell cell_of(const std::vector<ConfigEntry>& options, const std::string& mode = "ddp") {
  StudyRun run = law_run({}, 2, 32);
  run.mode = mode;
  run.change_info = [options, before = run.change_info](RunInfo& info) {
    before(info);
    info.config.insert(info.config.end(), options.begin(), options.end());
  };
  const RunFolder folder;
  write_study(folder / "a.h5", run);
  const RunSet set = loaded(folder);
  StudyCell cell = RunStudy(set).cells().at(0);
  cell.group = {};  // its file is gone
  return cell;
}

}  // namespace

TEST_CASE("model: exchanges that hold up the passes, or differ from step to step, have no replay") {
  const std::string by = "command line";
  CHECK_FALSE(cell_of({}).profile.messages.empty());
  CHECK_FALSE(cell_of({{"local-steps", "1", by}}, "local-sgd").profile.messages.empty());
  CHECK(cell_of({{"local-steps", "8", by}}, "local-sgd").profile.messages.empty());
  CHECK(cell_of({}, "zero1").profile.messages.empty());
  CHECK(cell_of({}, "fsdp").profile.messages.empty());
  CHECK(cell_of({{"batch-norm", "sync", by}}).profile.messages.empty());
  CHECK(cell_of({{"overlap", "step", by}}).profile.messages.empty());
}

TEST_CASE("model: what has no replay has no rows in table what-if, and a note") {
  StudyRun run = law_run({}, 2, 32);
  run.mode = "zero1";
  const RunFolder folder;
  write_study(folder / "a.h5", run);
  const Table table = make_what_if_table(loaded(folder), {});
  CHECK(table.rows.empty());
  CHECK(contains(all_notes(table), "no replay for lenet, zero1: the model does not have"));
}

TEST_CASE("model: no 16 bits for a mode that sends what it has") {
  for (const char* mode : {"top-k", "c10d"}) {
    const RunFolder folder;
    for (const std::size_t ranks : {2U, 4U}) {
      StudyRun run = law_run({}, ranks, 32);
      run.mode = mode;
      write_study(folder / fmt::format("n{}.h5", ranks), run);
    }
    TableOptions options;
    options.what_if = parse_what_if("wire=bf16,latency=2us,bandwidth=1GB/s");
    const Table table = make_what_if_table(loaded(folder), options);
    REQUIRE(table.rows.size() == 2);
    CHECK(shown(table, 1, "step_ms") == "n/a");
    CHECK(contains(all_notes(table), fmt::format("no replay for lenet, {}: --wire-dtype", mode)));
    options.what_if = parse_what_if("wire=fp32,latency=2us,bandwidth=1GB/s");
    CHECK(number(make_what_if_table(loaded(folder), options), 1, "step_ms") > 0);
  }
}

TEST_CASE("model: gradients are exchanged in the last of the passes of an iteration") {
  const BucketProfile one = cell_of({}).profile,
                      four = cell_of({{"accumulate", "4", "command line"}}).profile;
  CHECK(four.backward_end_s == Approx(one.backward_end_s));
  CHECK(four.backward_end_s - four.backward_begin_s ==
        Approx((one.backward_end_s - one.backward_begin_s) / 4));
}

TEST_CASE("model: a law rests on what runs on such devices measured") {
  const RunFolder folder;
  write_world(folder, {});
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  const Cells family = families(study)[0];
  const auto calibrated = [&](const std::string& machine) {
    std::vector<CalibrationPoint> points;
    for (const double bytes : {1e5, 1e6, 1e7})
      points.push_back({CollectiveKind::kAllReduce, "mpi", "isolated", 2, bytes,
                        1e-3 + 1e-9 * bytes, "", machine});
    return fit_family(family, points).laws.at(CollectiveKind::kAllReduce).calibrated;
  };
  CHECK(calibrated(machine_of(family.front()->run())));
  CHECK_FALSE(calibrated("NVIDIA H100, Open MPI 4.1.4"));
}

TEST_CASE("model: contention is compute beside that of the contender that exchanges nothing") {
  const auto contention_s = [](const std::string& other) {
    const RunFolder folder;
    const auto contender = [&](StudyRun run) {
      run.change_info = [name = run.mode](RunInfo& info) {
        info.experiment = {{"id", "1"}, {"contender", name}, {"contenders", "ddp,none"}};
      };
      run.change = [](IterationRow& row) { row.round = row.iteration; };
      return run;
    };
    write_study(folder / "ddp.h5", contender({"ddp", 2, 32, 0.012, 0.001}));
    write_study(folder / "other.h5", contender({other, 2, 32, 0.010}));
    const RunSet set = loaded(folder);
    for (const StudyCell& cell : RunStudy(set).cells())
      if (cell.mode == "ddp") return cell.contention_s;
    return 0.0;
  };
  CHECK(contention_s("none") == Approx(0.002));
  CHECK(std::isnan(contention_s("allreduce")));
}

TEST_CASE("model: contention that was found is taken out and put in again") {
  // A byte beside compute takes 0.5 ns; the first three of four buckets travel beside it.
  LawWorld world;
  const RunFolder folder;
  write_world(folder, world);
  const RunSet set = loaded(folder);
  std::vector<StudyCell> study = RunStudy(set).cells();
  const FamilyFit plain = fit_family(families(study)[0], calibration_of(study));
  CHECK(plain.contention_s_per_byte == 0);
  for (StudyCell& cell : study)
    if (cell.ranks == 4 && cell.batch == 128) {
      const BucketReplay recorded = replay(cell.profile, true, plain.effective, 4, 0);
      cell.contention_s = 0.5e-9 * recorded.bytes_beside_compute(cell.profile.messages);
      CHECK(cell.contention_s > 1e-3);
    }
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  CHECK(fit.contention_s_per_byte == Approx(0.5e-9));
  for (const StudyCell& cell : study) {
    if (cell.ranks == 1) continue;
    // As recorded, it is what was recorded.
    CHECK(what_if(fit, cell, {}).parts.total_s() ==
          Approx(what_if(plain, cell, {}).parts.total_s()));
    // Everything in one message at the end: nothing beside compute, which is shorter for it.
    const WhatIfResult one =
        what_if(fit, cell, parse_what_if("bucket-cap=64MiB,first-bucket=64MiB"));
    CHECK(one.parts.compute_s < cell.medians.compute_s);
    if (std::isfinite(cell.contention_s))
      CHECK(one.parts.compute_s + cell.contention_s == Approx(cell.medians.compute_s));
  }
}

TEST_CASE("model: contention of a cell that sends nothing beside compute counts for nothing") {
  const RunFolder folder;
  write_world(folder, {});
  const RunSet set = loaded(folder);
  std::vector<StudyCell> study = RunStudy(set).cells();
  for (StudyCell& cell : study)
    if (cell.ranks == 1) cell.contention_s = 1e-3;
  CHECK(fit_family(families(study)[0], calibration_of(study)).contention_s_per_byte == 0);
}

TEST_CASE("model: the imbalance is that of all ranks, whatever their number") {
  // 512 steady iterations of 256 ranks: twice as many values as are taken.
  StudyRun run{"ddp", 256, 32, 0.010};
  run.iterations = 514;
  run.change = [](IterationRow& row) {
    for (std::size_t rank = 1; rank < row.ranks.size(); rank += 2)
      row.ranks[rank][Phase::kCompute] = 0.012;
  };
  const RunFolder folder;
  write_study(folder / "a.h5", run);
  const RunSet set = loaded(folder);
  REQUIRE(set.runs[0].steady.kept() == 512);
  const std::vector<double> imbalance = RunStudy(set).cells()[0].imbalance;
  CHECK(imbalance.size() == 65536);
  CHECK(imbalance.back() / imbalance.front() == Approx(1.2));
}

TEST_CASE("model: table what-if marks the best cap and shows the recorded run first") {
  const LawWorld world;
  const RunFolder folder;
  write_world(folder, world);
  TableOptions options;
  options.what_if = parse_what_if("latency=2ms");
  const Table table = make_what_if_table(loaded(folder), options);
  // 4 ranks, three batches: as recorded, the change, caps of 64 KiB to 8 MiB.
  REQUIRE(table.rows.size() == 3 * (2 + 8));
  CHECK(table.rows[0][4].text == "as recorded");
  CHECK(number(table, 0, "step_ms") == Approx(number(table, 0, "measured_ms")));
  CHECK(table.rows[1][4].text == "latency=2ms");
  std::size_t best = 0, marks = 0;
  for (std::size_t row = 2; row < 10; ++row) {
    marks += shown(table, row, "remark") == "best cap" ? 1 : 0;
    if (shown(table, row, "remark") == "best cap") best = row;
  }
  CHECK(marks == 1);
  // The largest of those that are as good.
  for (std::size_t row = 2; row < 10; ++row) {
    CHECK(number(table, best, "step_ms") <= 1.005 * number(table, row, "step_ms"));
    if (row > best) CHECK(number(table, row, "step_ms") > number(table, best, "step_ms"));
  }
  // 12 ms of latency a message, on the other hand: small buckets must lose.
  CHECK(number(table, 2, "step_ms") > 5 * number(table, best, "step_ms"));
}

TEST_CASE(
    "model: table what-if marks no cap as best by a law without latency, or where ranks share "
    "cores") {
  const auto marks = [](const StudyRun& two, const StudyRun& four) {
    const RunFolder folder;
    write_study(folder / "n2.h5", two);
    write_study(folder / "n4.h5", four);
    const Table table = make_what_if_table(loaded(folder), {});
    std::size_t count = 0;
    for (std::size_t row = 0; row < table.rows.size(); ++row)
      count += shown(table, row, "remark") == "best cap" ? 1 : 0;
    return std::pair(count, all_notes(table));
  };
  LawWorld world;
  CHECK(marks(law_run(world, 2, 32), law_run(world, 4, 32)).first == 1);
  const auto crowded = marks(law_run(world, 2, 32), on_cores(law_run(world, 4, 32), "0-1"));
  CHECK(crowded.first == 1);  // of two ranks
  CHECK(contains(crowded.second, "no best cap for lenet, ddp: the ranks had fewer cores"));
  world.alpha_s = -1e-5;
  const auto [count, notes] = marks(law_run(world, 2, 32), law_run(world, 4, 32));
  CHECK(count == 0);
  CHECK(contains(notes,
                 "no replay for lenet, ddp: the collectives in training show no latency of "
                 "allreduce"));
}

TEST_CASE("model: table what-if replays nothing by a law in doubt but what was recorded") {
  LawWorld world;
  world.alpha_s = -1e-5;
  const RunFolder folder;
  write_study(folder / "n2.h5", law_run(world, 2, 32));
  write_study(folder / "n4.h5", law_run(world, 4, 32));
  const RunSet set = loaded(folder);
  const Table recorded = make_what_if_table(set, {});
  REQUIRE(recorded.rows.size() == 1);
  CHECK(shown(recorded, 0, "case") == "as recorded");
  TableOptions options;
  options.what_if = parse_what_if("ranks=16");
  const Table asked = make_what_if_table(set, options);
  REQUIRE(asked.rows.size() == 2);
  CHECK(shown(asked, 1, "step_ms") == "n/a");
  CHECK(shown(asked, 1, "remark") == "not replayed");
  // Latency and bandwidth given are a law of their own.
  options.what_if = parse_what_if("latency=2us,bandwidth=1GB/s");
  const Table given = make_what_if_table(set, options);
  CHECK(given.rows.size() > 2);
  CHECK(number(given, 1, "step_ms") > 0);
  CHECK(contains(all_notes(asked), "no replay for"));
  CHECK_FALSE(contains(all_notes(given), "no replay for"));
}

TEST_CASE("model: a cell that was measured has no row that is not measured") {
  const RunFolder folder;
  write_world(folder, {});
  TableOptions options;
  options.predict_ranks = {2, 8};
  const Table table = make_prediction_table(loaded(folder), options);
  CHECK(table.rows.size() == 9 + 3);
}

TEST_CASE("model: ranks that were asked for are rows, without numbers where the fit is in doubt") {
  LawWorld world;
  world.alpha_s = -1e-5;
  const RunFolder folder;
  write_study(folder / "n2.h5", law_run(world, 2, 32));
  write_study(folder / "n4.h5", law_run(world, 4, 32));
  TableOptions options;
  options.predict_ranks = {8, 64};
  const Table table = make_prediction_table(loaded(folder), options);
  for (const char* ranks : {"8", "64"}) {
    const std::size_t row = row_with(table, {{"ranks", ranks}});
    CHECK(shown(table, row, "predicted_ms") == "n/a");
    CHECK(shown(table, row, "compute_ms") == "n/a");
    CHECK(contains(shown(table, row, "remark"), "not predicted: the collectives in training show"));
  }
  CHECK(contains(table.notes.front(), "not predicted: lenet, ddp (family 1): the collectives"));
}

TEST_CASE("model: one rank, no exchange, NaN and single iterations give n/a, not numbers") {
  const RunFolder folder;
  write_unmeasured(folder / "a.h5", 30);
  write_study(folder / "b.h5", {"none", 2, 32});
  write_study(folder / "c.h5", {"ddp", 1, 32, 0.01, 0, 0, 1});
  write_study(folder / "d.h5", {"allreduce", 4, 32, 0.01, 0.01, 0, 0});
  const RunSet set = loaded(folder);
  const Table prediction = make_prediction_table(set, {});
  for (std::size_t row = 0; row < prediction.rows.size(); ++row)
    CHECK(std::isnan(number(prediction, row, "predicted_ms")));
  CHECK(contains(all_notes(prediction), "one cell alone leaves none to check the model with"));
  CHECK_FALSE(make_model_fit_table(set, {}).rows.empty());
  const Table what = make_what_if_table(set, {});
  for (std::size_t row = 0; row < what.rows.size(); ++row)
    CHECK(std::isnan(number(what, row, "step_ms")));
}

TEST_CASE("model: messages of one byte count") {
  LawWorld world;
  world.bucket_bytes = {1};
  const RunFolder folder;
  write_world(folder, world);
  const RunSet set = loaded(folder);
  std::vector<StudyCell> study = RunStudy(set).cells();
  for (StudyCell& cell : study) {
    CHECK(cell.profile.messages.size() == 1);
    if (cell.ranks == 4) cell.contention_s = 1e-4;
  }
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  CHECK(fit.contention_s_per_byte == Approx(1e-4));
}

TEST_CASE("model: ranks that exchange nothing expose nothing") {
  const LawWorld world;
  const RunFolder folder;
  for (const std::size_t ranks : {1U, 2U})
    for (const std::int64_t batch : {32, 64})
      write_study(folder / ("n" + std::to_string(ranks) + "b" + std::to_string(batch) + ".h5"),
                  {"none", ranks, batch, world.compute_s(static_cast<double>(batch))});
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  const FamilyFit fit = fit_family(families(study)[0], calibration_of(study));
  CHECK(predict(fit, 2, 48).exposed_s == 0);
  CHECK(predict(fit, 2, 48).total_s() == Approx(world.compute_s(48)));
}

TEST_CASE("model: imbalance is in order, whatever the order of the iterations") {
  const RunFolder folder;
  StudyRun run{"ddp", 2, 32};
  run.change = [](IterationRow& row) {
    row.ranks[0][Phase::kCompute] = row.iteration % 2 == 0 ? 0.012 : 0.008;
  };
  write_study(folder / "run.h5", run);
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  const std::vector<double>& imbalance = study.at(0).imbalance;
  REQUIRE_FALSE(imbalance.empty());
  CHECK(imbalance.front() == Approx(0.8));
  CHECK(imbalance.back() == Approx(1.2));
  CHECK(std::is_sorted(imbalance.begin(), imbalance.end()));
}

TEST_CASE("model: the doubt about a law names its residual in percent") {
  FamilyFit fit;
  fit.laws[CollectiveKind::kAllReduce].fit.residuals = {1, 1};
  CHECK(contains(law_doubt(fit), "fits with a residual of 50 %"));
}

TEST_CASE("model: a collective of one size takes the law of the nearest kind") {
  constexpr std::int64_t kBuffers = 132 << 10;
  const LawWorld world;
  const RunFolder folder;
  for (const std::size_t ranks : {1U, 2U, 4U})
    for (const std::int64_t batch : {32, 64, 128}) {
      StudyRun run = law_run(world, ranks, batch);
      // Buffers of batch normalization, once all gradients are there: 0.2 ms a step.
      run.change = [ranks, before = run.change](IterationRow& row) {
        before(row);
        row.buckets.push_back({kBuffers, CollectiveKind::kBroadcast});
        for (RankIteration& rank : row.ranks) {
          const double ready_s = rank.buckets.back().ready_s, start_s = rank.buckets.back().end_s;
          const double time_s = 2e-4 * std::log2(static_cast<double>(ranks));
          rank.buckets.push_back({ready_s, start_s, start_s + time_s});
          rank[Phase::kExposed] += time_s;
          rank[Phase::kIteration] += time_s;
        }
      };
      write_study(folder / fmt::format("n{}b{}.h5", ranks, batch), run);
    }
  const RunSet set = loaded(folder);
  const std::vector<StudyCell> study = RunStudy(set).cells();
  const Cells family = families(study)[0];
  const FamilyFit fit = fit_family(family, calibration_of(study));
  CHECK(fit.missing.empty());
  CHECK(law_doubt(fit).empty());
  CHECK_MESSAGE(contains(fit.borrowed,
                         "broadcast has too few sizes for a law of its own: that of "
                         "allreduce, measured in training, times "),
                fit.borrowed);
  CHECK(fit.laws.at(CollectiveKind::kBroadcast).borrowed);
  CHECK_FALSE(fit.laws.at(CollectiveKind::kAllReduce).borrowed);
  CHECK(collective_s(fit.effective, CollectiveKind::kBroadcast, kBuffers, 4) == Approx(4e-4));
  CHECK(collective_s(fit.effective, CollectiveKind::kAllReduce, 1 << 20, 4) ==
        Approx(world.collective_s(1 << 20, 4)));
  // Its 0.4 ms on 4 ranks may be none or twice as much.
  const double step = step_s(world, 4, 64) + 4e-4;
  const Estimate predicted = predict_interval(fit, leave_out_each(study, family), 4, 64);
  CHECK(predicted.value == Approx(step));
  CHECK(predicted.low == Approx(step - 4e-4));
  CHECK(predicted.high == Approx(step + 4e-4));
  const Table table = make_what_if_table(loaded(folder), {});
  CHECK(contains(all_notes(table), "intervals are wider by all that it takes"));
  CHECK_FALSE(contains(all_notes(table), "cannot be fitted"));
  for (std::size_t row = 0; row < table.rows.size(); ++row)
    CHECK(std::isfinite(number(table, row, "step_ms")));
}
