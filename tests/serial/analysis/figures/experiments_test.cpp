// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/experiments.h"

#include <cmath>

#include <doctest/doctest.h>

#include "analysis/figures/comparisons.h"
#include "analysis/tables/comparison.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

constexpr std::size_t kRounds = 12, kBlock = 2;

/// A contender whose iterations take `factor` times 10 ms on a machine that becomes slower and
/// slower, of which `exposed_s` is exposed communication on both ranks; rank 1 waits 1 ms for
/// rank 0. In one round it stands still for `pause_s`.
void write_contender(const TestFolder& folder, const std::string& name, double factor,
                     double exposed_s, std::size_t rounds = kRounds, double pause_s = 0,
                     const std::string& job = "1") {
  const std::string mode = name.substr(0, name.find(' '));
  SampleShape shape;
  shape.mode = mode;
  shape.schema = 2;
  RunInfo info = sample_info(shape);
  info.run_id = "run of " + name + job;
  info.experiment = {{"id", job}, {"contender", name}, {"contenders", "none,ddp,none (control)"}};
  Recorder recorder(folder / (job == "1" ? name + ".h5" : job + "-" + name + ".h5"), info);
  for (std::size_t i = 0; i < rounds * kBlock; ++i) {
    IterationRow row;
    row.iteration = static_cast<std::int64_t>(i);
    row.round = static_cast<std::int64_t>(i / kBlock);
    row.warmup = i < kBlock;
    row.samples = 64;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      RankIteration one;
      const double wait_s = rank == 1 && mode != "none" ? 0.001 : 0;
      one.loss = 1;
      one[Phase::kIteration] = factor * 0.010 * static_cast<double>(1 + row.round);
      if (i == 5 * kBlock) one[Phase::kIteration] += pause_s;
      one[Phase::kExposed] = exposed_s;
      one[Phase::kWait] = wait_s;
      one[Phase::kOther] = 0.0001;
      one[Phase::kCompute] = one[Phase::kIteration] - exposed_s - wait_s - 0.0001;
      row.ranks.push_back(one);
    }
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

}  // namespace

TEST_CASE("experiments: contenders are compared within the rounds that all have") {
  const TestFolder folder;
  CHECK_FALSE(has_experiments(RunSet()));
  write_contender(folder, "none", 1, 0);
  write_contender(folder, "ddp", 1.1, 0.0005, kRounds - 1);
  write_contender(folder, "none (control)", 1, 0);
  const RunSet set = load_places({folder.path().string()});
  REQUIRE(has_experiments(set));
  const auto all = experiments(set);
  REQUIRE(all.size() == 1);
  const auto& contenders = all[0].contenders;
  REQUIRE(contenders.size() == 3);
  CHECK(contenders[0].name == "none");
  CHECK(contenders[1].name == "ddp");
  CHECK(contenders[2].control);
  // Without the warm-up, and of one without the round that it lacks.
  CHECK(contenders[0].blocks.size() == kRounds - 1);
  CHECK(contenders[1].blocks.size() == kRounds - 2);
  CHECK(contenders[1].ratio_to(contenders[0]).count == kRounds - 2);
  // The machine became eleven times slower meanwhile: that is in no ratio.
  const Estimate ratio = contenders[1].ratio_to(contenders[0]);
  CHECK(ratio.value == Approx(1.1));
  CHECK(ratio.low == Approx(1.1));
  CHECK(ratio.high == Approx(1.1));
  CHECK(all[0].control().value == Approx(1));
}

TEST_CASE("experiments: a cost is the sum of its parts, of the rank that is waited for") {
  const TestFolder folder;
  write_contender(folder, "none", 1, 0);
  write_contender(folder, "ddp", 1.1, 0.0005);
  const RunSet set = load_places({folder.path().string()});
  const auto all = experiments(set);
  REQUIRE(all[0].contenders.size() == 2);
  const ContenderFigures& none = all[0].contenders[0];
  CHECK(all[0].without_exchange() == &none);
  CHECK_FALSE(all[0].control().has_interval());
  double none_s = 0;
  const BlockTime more = all[0].contenders[1].more_than(none, &none_s);
  // The middle half of rounds 1 to 11 is 3 to 9.
  CHECK(none_s == Approx(0.010 * 7));
  CHECK(more.time_s == Approx(0.1 * none_s));
  double sum_s = 0;
  for (const double part_s : more.parts_s)
    sum_s += part_s;
  CHECK(sum_s == Approx(more.time_s));
  CHECK(more.parts_s[static_cast<std::size_t>(CostPart::kExposed)] == Approx(0.0005));
  CHECK(more.parts_s[static_cast<std::size_t>(CostPart::kWait)] == 0);
  CHECK(more.parts_s[static_cast<std::size_t>(CostPart::kCompute)] == Approx(more.time_s - 0.0005));
}

TEST_CASE("experiments: a rank that begins late makes no block shorter") {
  std::vector<BlockTime> ranks(2);
  ranks[0].add(0.010, 0.004, 0.001, 0.005);
  ranks[1].add(0.006, 0.0055, 0.0005, 0);
  const BlockTime block = last_to_come(ranks, 2);
  CHECK(block.time_s == Approx(0.005));
  const auto& [compute_s, exposed_s, wait_s, rest_s] = block.parts_s;
  CHECK(compute_s == Approx(0.00275));
  CHECK(wait_s == 0);
  CHECK(rest_s == Approx(0.002));
  CHECK(compute_s + exposed_s + wait_s + rest_s == Approx(block.time_s));
}

TEST_CASE("experiments: a pause of the machine in one round changes no cost") {
  const TestFolder folder;
  write_contender(folder, "none", 1, 0);
  write_contender(folder, "ddp", 1, 0, kRounds, /*pause_s=*/10);
  const RunSet set = load_places({folder.path().string()});
  const auto all = experiments(set);
  const auto& contenders = all[0].contenders;
  CHECK(contenders[1].more_than(contenders[0]).time_s == Approx(0));
  CHECK(contenders[1].ratio_to(contenders[0]).value == Approx(1));
}

TEST_CASE(
    "experiments: contenders without a common round have no cost, and a job of such none in the "
    "mean") {
  const TestFolder folder;
  for (const char* job : {"1", "2"}) {
    // The second job was killed in its first round that counts, before none had its block.
    write_contender(folder, "none", 1, 0, job[0] == '1' ? kRounds : 1, 0, job);
    write_contender(folder, "ddp", 1.1, 0.0005, job[0] == '1' ? kRounds : 2, 0, job);
  }
  const RunSet set = load_places({folder.path().string()});
  std::vector<Experiment> jobs = experiments(set);
  if (jobs[0].id == "1") std::swap(jobs[0], jobs[1]);
  const Experiment& killed = jobs[0];
  const BlockTime more = killed.find("ddp")->more_than(*killed.find("none"));
  CHECK(std::isnan(more.time_s));
  CHECK(std::isnan(more.part_s(CostPart::kExposed)));
  const auto groups = group_runs(set);
  CHECK(time_ratio(groups[1], groups[0]).basis == "11 rounds");  // of one job
  const Table table = printed("cost", set);
  for (const char* file : {"none.h5", "ddp.h5"})
    CHECK(contains(table.sources[1], file));
  CHECK(shown(table, 1, "ratio") == "1.100");
  CHECK(shown(table, 1, "cost_percent") == "10.0");
  CHECK(shown(table, 1, "cost_ms") == "7.00");
  CHECK(shown(table, 1, "exposed_ms") == "0.50");
}

TEST_CASE("experiments: rounds of which one holds the exchange of local-sgd count together") {
  using Blocks = std::map<std::int64_t, BlockTime>;
  CHECK(rounds_per_exchange(1, 1, 0) == 1);
  CHECK(rounds_per_exchange(8, 1, 0) == 8);
  CHECK(rounds_per_exchange(8, 2, 0) == 4);
  CHECK(rounds_per_exchange(8, 16, 0) == 1);
  CHECK(rounds_per_exchange(8, 9, 1) == 1);
  CHECK(rounds_per_exchange(6, 4, 0) == 3);
  // 10 ms, and every fourth 50 ms; against a machine that becomes slower. Round 9 is lost.
  Blocks local, none;
  for (std::int64_t round = 1; round < 16; ++round) {
    if (round == 9) continue;
    const double slower = static_cast<double>(round);
    local[round].time_s = slower * (round % 4 == 0 ? 0.050 : 0.010);
    none[round].time_s = slower * 0.010;
  }
  const auto pairs = paired_blocks(local, none, 4);
  REQUIRE(pairs.size() == 3);  // 1 to 4, 5 to 8, 10 to 13
  CHECK(pairs[0].first.time_s == Approx(0.010 * (1 + 2 + 3 + 5 * 4) / 4));
  CHECK(pairs[0].second.time_s == Approx(0.010 * 10 / 4));
  CHECK(pairs[2].first.time_s == Approx(0.010 * (10 + 11 + 5 * 12 + 13) / 4));
  CHECK(paired_blocks(local, none).size() == 14);
}

TEST_CASE("experiments: without the file of the reference nothing is held against it") {
  const TestFolder folder;
  write_contender(folder, "ddp", 1.5, 0);
  write_contender(folder, "none (control)", 1, 0);
  const RunSet set = load_places({folder.path().string()});
  const Experiment experiment = experiments(set)[0];
  CHECK(experiment.reference() == nullptr);
  CHECK_FALSE(experiment.control().has_interval());
  CHECK(shown(printed("cost", set), 0, "ratio") == "n/a");
  CHECK(shown(printed("cost", set), 1, "ratio") == "n/a");
}

TEST_CASE("experiments: times are not measured where the size of an iteration is damaged") {
  const TestFolder folder;
  RunInfo info = sample_info({"ddp"});
  info.experiment = {
      {"id", "1"}, {"contender", "ddp"}, {"contenders", "ddp"}, {"worth", "damaged"}};
  {
    Recorder recorder(folder / "ddp.h5", info);
    for (std::size_t i = 0; i < 4; ++i) {
      IterationRow row = sample_row({"ddp"}, i);
      row.round = static_cast<std::int64_t>(i);
      recorder.add(row);
    }
    recorder.finish(RunStatus::kComplete);
  }
  CHECK(shown(printed("cost", load_places({folder.path().string()})), 0, "iteration_ms") == "n/a");
}

TEST_CASE("experiments: jobs of the same settings are one row each in table cost") {
  const TestFolder folder;
  for (const auto& [job, factor] : {std::pair{"1", 1.1}, {"2", 1.2}, {"3", 1.3}}) {
    write_contender(folder, "none", 1, 0, kRounds, 0, job);
    write_contender(folder, "ddp", factor, 0.0005, kRounds, 0, job);
  }
  const Table table = printed("cost", load_places({folder.path().string()}));
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 1, "contender") == "ddp");
  CHECK(shown(table, 1, "jobs") == "3");
  CHECK(shown(table, 1, "rounds") == std::to_string(3 * (kRounds - 1)));
  // The geometric mean, and Student's interval of 1.1 to 1.3 with two degrees of freedom.
  CHECK(shown(table, 1, "ratio") == "1.197");
  CHECK(shown(table, 1, "ratio_low") == "0.973");
  CHECK(shown(table, 1, "ratio_high") == "1.473");
  CHECK(shown(table, 1, "cost_percent") == "20.0");
  CHECK(contains(all_notes(table), "3 jobs of the same settings"));
}

namespace {

/// What some contenders have besides.
struct Beside {
  std::string worth = {}, stamps = "on";
  std::int64_t first_round = 0;
  bool short_iterations = false;  ///< every fourth has half of the images, and of the time
};

/// A contender whose iterations take `time_s` and send `bytes` of gradients, at 1 GB/s; they wait
/// for that part of it.
void write_sending(const TestFolder& folder, const std::string& mode, double time_s,
                   std::int64_t bytes, double exposed = 1, const Beside& beside = {}) {
  SampleShape shape;
  shape.mode = mode;
  shape.schema = 2;
  RunInfo info = sample_info(shape);
  info.run_id = "run of " + mode;
  info.experiment = {
      {"id", "1"}, {"contender", mode}, {"contenders", "none,ddp,allreduce,powersgd"}};
  if (!beside.worth.empty()) info.experiment.push_back({"worth", beside.worth});
  info.config.push_back({"stamps", beside.stamps, "command line"});
  Recorder recorder(folder / (mode + ".h5"), info);
  for (std::int64_t i = beside.first_round; i < 16; ++i) {
    IterationRow row;
    row.iteration = row.round = i;
    row.warmup = i < 2;
    row.samples = 64;
    RankIteration one;
    one[Phase::kIteration] = time_s * (i % 2 == 0 ? 1.01 : 0.99);
    one[Phase::kCommBusy] = 1e-9 * static_cast<double>(bytes);
    one[Phase::kExposed] = exposed * one[Phase::kCommBusy];
    one[Phase::kHidden] = (1 - exposed) * one[Phase::kCommBusy];
    one[Phase::kCompute] = one[Phase::kIteration] - one[Phase::kExposed];
    one[Phase::kWait] = one[Phase::kOther] = 0;
    one.traffic_bytes[static_cast<std::size_t>(Traffic::kGradients)] = bytes;
    if (beside.short_iterations && i % 4 == 1) {
      row.samples /= 2;
      for (double& part_s : one.time_s)
        part_s /= 2;
    }
    row.ranks = {one, one};
    recorder.add(row);
  }
  recorder.finish(RunStatus::kComplete);
}

/// Below which rate of a link powersgd pays against ddp, which sends `bytes` in `time_s`.
std::string pays_below(double time_s, std::int64_t bytes, const Beside& beside = {}) {
  const TestFolder folder;
  write_sending(folder, "ddp", time_s, bytes, 1, beside);
  write_sending(folder, "powersgd", 0.0155, 1'000'000);
  return shown(printed("cost", load_places({folder.path().string()})), 1, "pays_below_gbit_per_s");
}

}  // namespace

TEST_CASE("experiments: an iteration of twice the passes is two of the reference in all of it") {
  CHECK(pays_below(0.020, 8'000'000) == "22.40");
  CHECK(pays_below(0.040, 16'000'000, {.worth = "2"}) == "22.40");
  const TestFolder folder;
  write_sending(folder, "none", 0.010, 0);
  write_sending(folder, "ddp", 0.040, 0, 1, {.worth = "2", .short_iterations = true});
  // The last one of an epoch may have fewer passes.
  const Table table = printed("cost", load_places({folder.path().string()}));
  CHECK(shown(table, 1, "ratio") == "2.000");
  CHECK(shown(table, 1, "ratio_low") == "2.000");
  CHECK(shown(table, 1, "ratio_high") == "2.000");
}

TEST_CASE("experiments: where sending less pays is not known from a contender without stamps") {
  const TestFolder folder;
  write_sending(folder, "ddp", 0.020, 8'000'000);
  write_sending(folder, "powersgd", 0.0155, 1'000'000);
  write_sending(folder, "allreduce", 0.001, 8'000'000, kNotMeasured, {.stamps = "off"});
  const RunSet set = load_places({folder.path().string()});
  CHECK(shown(printed("cost", set), 2, "pays_below_gbit_per_s") == "22.40");
  CHECK(experiments(set)[0].fastest_exact()->name == "ddp");
}

TEST_CASE("experiments: an end that one contender's interval lacks is not taken from another") {
  for (const std::string late : {"allreduce", "ddp"}) {
    CAPTURE(late);
    const TestFolder folder;
    const auto first = [&](const char* mode) { return mode == late ? 12 : 0; };
    write_sending(folder, "ddp", 0.020, 8'000'000, 1, {.first_round = first("ddp")});
    write_sending(folder, "powersgd", 0.0155, 1'000'000);
    write_sending(folder, "allreduce", 0.021, 16'000'000, 1, {.first_round = first("allreduce")});
    const Table table = printed("cost", load_places({folder.path().string()}));
    CHECK(shown(table, 2, "pays_below_gbit_per_s") == "12.63");
    CHECK(shown(table, 2, "pays_below_low_gbit_per_s") == "n/a");
    CHECK(shown(table, 2, "pays_below_high_gbit_per_s") == "n/a");
  }
}

TEST_CASE("experiments: the link on which sending less pays follows from the time that it saves") {
  // 7 MB less take 7 ms less on this link, and what they cost is the rest of that.
  for (const auto& one :
       {std::pair{0.0155, "22.40"}, {0.0195, "8.62"}, {0.022, "6.22"}, {0.012, "any"}}) {
    CAPTURE(one.first);
    const TestFolder folder;
    write_sending(folder, "none", 0.010, 0);
    write_sending(folder, "ddp", 0.020, 8'000'000);
    write_sending(folder, "powersgd", one.first, 1'000'000);
    const Table table = printed("cost", load_places({folder.path().string()}));
    REQUIRE(table.rows.size() == 3);
    CHECK(shown(table, 0, "pays_below_gbit_per_s") == "n/a");
    CHECK(shown(table, 1, "pays_below_gbit_per_s") == "n/a");
    CHECK(shown(table, 2, "pays_below_gbit_per_s") == one.second);
  }
}

TEST_CASE("experiments: a faster link saves a mode what it waits for its exchange, and no more") {
  // A quarter of the 8 ms is not hidden: it ends at 18 ms, however fast the link is.
  for (const auto& one : {std::pair{0.0195, "8.62"}, {0.0185, "10.18"}, {0.018, "any"}}) {
    CAPTURE(one.first);
    const TestFolder folder;
    write_sending(folder, "ddp", 0.020, 8'000'000, 0.25);
    write_sending(folder, "powersgd", one.first, 1'000'000);
    const Table table = printed("cost", load_places({folder.path().string()}));
    CHECK(shown(table, 1, "pays_below_gbit_per_s") == one.second);
  }
}

TEST_CASE("experiments: what sends less pays below the rate at which another mode overtakes it") {
  const TestFolder folder;
  write_sending(folder, "ddp", 0.020, 8'000'000);
  write_sending(folder, "allreduce", 0.021, 16'000'000);  // gains twice as much by a faster link
  write_sending(folder, "powersgd", 0.0155, 1'000'000);
  const Table table = printed("cost", load_places({folder.path().string()}));
  // By ddp it would be 22.40 Gbit/s; 1 - 5.5 / 15 ns a byte is less.
  CHECK(shown(table, 2, "pays_below_gbit_per_s") == "12.63");
}

TEST_CASE("experiments: two contenders of one job are compared within its rounds") {
  const TestFolder folder;
  write_contender(folder, "none", 1, 0);
  write_contender(folder, "ddp", 1.1, 0.0005);
  write_contender(folder, "none (control)", 1.05, 0);  // not what is compared with
  const RunSet set = load_places({folder.path().string()});
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].repeats.size() == 1);  // the control is no repeat of the reference
  const RunSet control = load_places({(folder / "none (control).h5").string()});
  CHECK(group_runs(control).size() == 1);  // that stands alone
  const TimeRatio ratio = time_ratio(groups[1], groups[0]);
  CHECK(ratio.basis == "11 rounds");
  CHECK(ratio.value == Approx(1.1));
  CHECK(ratio.low == Approx(1.1));
  CHECK(ratio.high == Approx(1.1));
  // The contenders of a job are one start: they say nothing of how far starts differ.
  CHECK_FALSE(run_spreads(groups).at("lenet").known());
  const RunSet none = load_places({(folder / "none.h5").string()}),
               ddp = load_places({(folder / "ddp.h5").string()});
  const auto a = group_runs(none), b = group_runs(ddp);
  const auto cells = compare_groups(a, b);
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].name == "lenet.ddp.n2.b32.against.lenet.none.n2.b32");
  CHECK(cells[0].verdict() == "slower");
  CHECK(cells[0].ratio.basis == "11 rounds");
}
