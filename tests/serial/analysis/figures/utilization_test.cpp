// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/utilization.h"

#include <cmath>

#include <doctest/doctest.h>

#include "analysis/plots/plots.h"
#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::testing;

namespace {

/// Ten steady iterations of 20 ms after two of warm-up, each 30 ms after the one before it: 32
/// images a rank, 10 ms compute, 5 ms communication.
StudyRun used_run() {
  StudyRun run{"ddp", 2, 32, 0.010, 0.005, 0.005};
  run.change = [](IterationRow& row) {
    for (std::size_t rank = 0; rank < row.ranks.size(); ++rank) {
      RankIteration& one = row.ranks[rank];
      one.begin_s = 0.032 * static_cast<double>(row.iteration);
      one[Usage::kCpuTime] = row.warmup ? 1 : 0.015;
      one[Usage::kVoluntarySwitches] = rank == 0 ? 2 : 4;
      one[Usage::kInvoluntarySwitches] = 0;
    }
  };
  run.change_info = [](RunInfo& info) {
    info.config.push_back({"precision", "fp32", "default"});
    info.config.push_back({"device", "cuda", "default"});
    info.config.push_back({"tf32", "off", "default"});
    for (RankPlace& place : info.topology) {
      place.device = "NVIDIA H100 80GB HBM3";
      place.host_processors = 64;
      place.host_network = "mlx5_0 port 1 200 Gbit/s";
    }
  };
  // A counter of 100 W on each GPU and of 50 W on the only host, sampled five times a second.
  run.add_more = [](MadeRun& recorder) {
    recorder.add(LayerRow{"conv1", "convolution", 450, 1e6, 2e6});
    recorder.add(LayerRow{"bn1", "", 12});
    recorder.add(ProbeRow{"matmul", "bf16", 5, {{1}, {1}}});
    recorder.add(ProbeRow{"matmul", "fp32", 5, {{4.8e9 * 2}, {4.8e9 * 4}}});
    for (int i = 0; i <= 5; ++i) {
      const double at_s = 0.2 * i;
      for (const std::int64_t rank : {0, 1}) {
        DeviceSample sample;
        sample.rank = rank;
        sample.at_s = at_s;
        sample.energy_j = 1000 + 100 * at_s;
        sample.busy = i == 0 ? 0 : 0.5;  // the first is before the steady iterations
        recorder.add(sample);
      }
      recorder.add(HostSample{{at_s, 50 * at_s, kNotMeasured, kNotMeasured, 1e9 * at_s, 0}, 0});
    }
  };
  return run;
}

}  // namespace

TEST_CASE("utilization: of each rank, by hand") {
  const RunFolder folder;
  write_study(folder / "a.h5", used_run());
  const RunSet set = loaded(folder);
  const auto ranks = utilization(set.runs[0], kNotMeasured);
  REQUIRE(ranks.size() == 2);
  CHECK(ranks[0].compute == doctest::Approx(0.5));
  CHECK(ranks[0].link_busy == doctest::Approx(0.25));
  CHECK(ranks[0].cores == doctest::Approx(0.75));
  CHECK(ranks[0].voluntary_switches == 2);
  CHECK(ranks[1].voluntary_switches == 4);
  CHECK(ranks[0].involuntary_switches == 0);
  CHECK(ranks[0].flop_per_s == doctest::Approx(32 * 3e6 / 0.020));  // 4.8 GFLOP/s
  CHECK(ranks[0].of_probe == doctest::Approx(0.5));
  CHECK(ranks[1].of_probe == doctest::Approx(0.25));
  CHECK(ranks[0].of_data_sheet == doctest::Approx(4.8e9 / 67e12));
  CHECK(utilization(set.runs[0], 9.6e9)[0].of_data_sheet == doctest::Approx(0.5));
  CHECK(ranks[0].gpu_busy == doctest::Approx(0.5));
  CHECK(std::isnan(ranks[0].sm_clock_hz));
  CHECK(mean_of(ranks).voluntary_switches == 3);
}

TEST_CASE("utilization: a run of an earlier build has its times, and nothing else") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 2, 32, 0.010, 0.005, 0.005});
  const RunSet set = loaded(folder);
  const auto ranks = utilization(set.runs[0], kNotMeasured);
  CHECK(ranks[0].compute == doctest::Approx(0.5));
  CHECK(std::isnan(ranks[0].cores));
  CHECK(std::isnan(ranks[0].flop_per_s));
  CHECK(std::isnan(ranks[0].of_probe));
  CHECK(std::isnan(ranks[0].gpu_busy));
  CHECK(host_use(set.runs[0], steady_windows(set.runs[0])).empty());
}

TEST_CASE("utilization: one rank has no link") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"none", 1, 32, 0.010});
  CHECK(std::isnan(utilization(loaded(folder).runs[0], kNotMeasured)[0].link_busy));
}

TEST_CASE("utilization: peaks of data sheets by device and precision") {
  CHECK(data_sheet_flop_per_s("NVIDIA H100 80GB HBM3", "bf16") == doctest::Approx(989e12));
  CHECK(data_sheet_flop_per_s("NVIDIA H100 PCIe", "tf32") == doctest::Approx(378e12));
  CHECK(data_sheet_flop_per_s("NVIDIA A100-SXM4-80GB", "fp32") == doctest::Approx(19.5e12));
  CHECK(std::isnan(data_sheet_flop_per_s("Tesla V100-SXM2-16GB", "bf16")));
  CHECK(std::isnan(data_sheet_flop_per_s("cpu: AMD EPYC", "fp32")));
  CHECK(std::isnan(data_sheet_flop_per_s("NVIDIA H100", "int8")));
}

TEST_CASE("utilization: a run in TF32 is held against TF32's peak and probe") {
  const auto in_tf32 = [](const std::string& tf32) {
    StudyRun run = used_run();
    run.change_info = [before = run.change_info, tf32](RunInfo& info) {
      before(info);
      for (ConfigEntry& entry : info.config)
        if (entry.name == "tf32") entry.value = tf32;
    };
    run.add_more = [before = run.add_more](MadeRun& recorder) {
      before(recorder);
      recorder.add(ProbeRow{"matmul", "tf32", 5, {{4.8e9 * 8}, {4.8e9 * 8}}});
    };
    const RunFolder folder;
    write_study(folder / "a.h5", run);
    return utilization(loaded(folder).runs[0], kNotMeasured)[0];
  };
  // The texts that the trainer records of the option.
  const TrainOption& option = *declared_train_option("tf32");
  TrainOptions settings;
  for (const bool on : {false, true}) {
    settings.tf32 = on;
    const Utilization used = in_tf32(option.value.text(settings));
    CHECK(used.of_data_sheet == doctest::Approx(4.8e9 / (on ? 494e12 : 67e12)));
    CHECK(used.of_probe == doctest::Approx(on ? 0.125 : 0.5));
  }
  CHECK(in_tf32("a word of another version").of_probe == doctest::Approx(0.5));
}

TEST_CASE("utilization: data sheets by all words of the name, n/a for what is not listed") {
  const auto bf16 = [](const char* device) {
    return 1e-12 * data_sheet_flop_per_s(device, "bf16");
  };
  CHECK(1e-12 * data_sheet_flop_per_s("NVIDIA L40", "fp32") == doctest::Approx(90.5));
  CHECK(1e-12 * data_sheet_flop_per_s("Tesla V100S-PCIE-32GB", "fp16") == doctest::Approx(130));
  CHECK(1e-12 * data_sheet_flop_per_s("Tesla V100-PCIE-16GB", "fp16") == doctest::Approx(112));
  CHECK(1e-12 * data_sheet_flop_per_s("Tesla T4", "fp16") == doctest::Approx(65));
  CHECK(bf16("NVIDIA L40S") == doctest::Approx(362));
  CHECK(bf16("NVIDIA L4") == doctest::Approx(121));
  CHECK(bf16("NVIDIA H100 NVL") == doctest::Approx(835));
  CHECK(bf16("NVIDIA H200 NVL") == doctest::Approx(835));
  CHECK(bf16("NVIDIA H200") == doctest::Approx(989));
  CHECK(bf16("NVIDIA GH200 480GB") == doctest::Approx(989));
  CHECK(bf16("NVIDIA A100 80GB PCIe") == doctest::Approx(312));
  CHECK(bf16("NVIDIA A100-PCIE-40GB") == doctest::Approx(312));
  CHECK(bf16("A100-SXM4-40GB") == doctest::Approx(312));  // drivers before 2021
  CHECK(bf16("NVIDIA A10") == doctest::Approx(125));
  CHECK(bf16("NVIDIA B200") == doctest::Approx(2250));
  for (const char* other : {"NVIDIA A10G",
                            "NVIDIA A10-24Q",
                            "NVIDIA A16",
                            "NVIDIA A1000",
                            "NVIDIA A4000",
                            "NVIDIA L400",
                            "NVIDIA L40G",
                            "NVIDIA L20",
                            "NVIDIA T4G",
                            "NVIDIA H100 CNX",
                            "NVIDIA H800",
                            "NVIDIA H20",
                            "NVIDIA A100X",
                            "NVIDIA A100-SXM-64GB",
                            "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
                            "NVIDIA B300",
                            "Tesla V100-SXM2-32GB-LS",
                            "NVIDIA RTX A4000",
                            "NVIDIA RTX 6000 Ada Generation",
                            "NVIDIA GeForce RTX 4090",
                            "GRID A100-10C",
                            "NVIDIA",
                            ""}) {
    CAPTURE(other);
    CHECK(std::isnan(bf16(other)));
    CHECK(std::isnan(data_sheet_flop_per_s(other, "fp16")));
  }
}

TEST_CASE("utilization: counters between samples, and where they say nothing") {
  CounterSamples counter;
  const auto per_s = [&](double begin_s, double end_s) {
    return counter.rate({{begin_s, end_s}}).per_s;
  };
  CHECK(std::isnan(per_s(1, 2)));
  counter.add(0, 100);
  counter.add(1, 110);
  counter.add(1, 500);  // of the same moment
  counter.add(2, kNotMeasured);
  counter.add(3, 150);
  CHECK(per_s(0.25, 0.75) == doctest::Approx(10));
  CHECK(per_s(0.5, 2) == doctest::Approx(25 / 1.5));
  CHECK(std::isnan(per_s(2, 4)));   // behind the last one
  CHECK(std::isnan(per_s(-1, 1)));  // before the first one
  const auto both = counter.rate({{0.25, 0.75}, {1, 2}, {2, 4}});
  CHECK(both.per_s == doctest::Approx((5 + 20) / 1.5));
  CHECK(both.per_window == doctest::Approx(12.5));
  // Beside a sample before a resume, or one that another contender's block lies in.
  CHECK(std::isnan(counter.rate({{0.25, 0.75, 0.2, 3}}).per_s));
  CHECK(std::isnan(counter.rate({{1.5, 2, 0, 2.5}}).per_s));
  CHECK(counter.rate({{1.5, 2, 1, 3}}).per_s == doctest::Approx(20));
  counter.add(4, 20);  // it began again
  CHECK(std::isnan(per_s(3.2, 3.8)));
  counter.add(14.5, 40);  // nobody looked for ten seconds
  CHECK(std::isnan(per_s(5, 6)));
}

TEST_CASE(
    "utilization: no stretch of a job goes over a resume, or the block of another contender") {
  const auto windows_of = [](const std::function<void(StudyRun&)>& change) {
    StudyRun run = used_run();
    change(run);
    const RunFolder folder;
    write_study(folder / "a.h5", run);
    const RunSet set = loaded(folder);
    return steady_windows(set.runs[0]);
  };
  const auto whole = windows_of([](StudyRun&) {});
  CHECK(whole.front().from_s == -HUGE_VAL);
  CHECK(whole.back().until_s == HUGE_VAL);
  const auto resumed = windows_of([](StudyRun& run) {
    run.add_more = [before = run.add_more](MadeRun& recorder) {
      before(recorder);
      recorder.add(ResumeRow{6, 0, "2026-11-28T00:00:00Z", "node0"});
    };
  });
  CHECK(resumed.front().until_s == doctest::Approx(5 * 0.032 + 0.020));
  CHECK(resumed.back().from_s == doctest::Approx(6 * 0.032));
  CHECK(resumed.back().until_s == HUGE_VAL);
  const auto in_turn = windows_of([](StudyRun& run) {
    run.change_info = [before = run.change_info](RunInfo& info) {
      before(info);
      info.experiment = {{"id", "1"}, {"contender", "ddp"}, {"contenders", "none,ddp"}};
    };
    run.change = [before = run.change](IterationRow& row) {
      before(row);
      row.round = row.iteration / 4;
    };
  });
  CHECK(in_turn.back().from_s == doctest::Approx(8 * 0.032));
  CHECK(in_turn.back().until_s == doctest::Approx(11 * 0.032 + 0.020));
}

TEST_CASE("table utilization: the mean of the ranks has the hosts' counters") {
  const RunFolder folder;
  write_study(folder / "a.h5", used_run());
  const Table table = make_utilization_table(loaded(folder), {});
  REQUIRE(table.rows.size() == 3);
  CHECK(shown(table, 0, "compute_percent") == "50.0");
  CHECK(shown(table, 0, "link_percent") == "25.0");
  CHECK(shown(table, 0, "cpu_ms") == "15.00");
  CHECK(shown(table, 0, "sent_gb_per_s") == "n/a");
  CHECK(shown(table, 2, "rank") == "mean");
  CHECK(shown(table, 2, "of_probe_percent") == "37.5");
  CHECK(shown(table, 2, "sent_gb_per_s") == "1.0000");
  CHECK(shown(table, 2, "received_gb_per_s") == "0.0000");
  CHECK(shown(table, 2, "memory_gb_per_s") == "n/a");
}

TEST_CASE("table energy: what was measured, and what an epoch costs") {
  const RunFolder folder;
  StudyRun run = used_run();
  const auto info = run.change_info;
  run.change_info = [info](RunInfo& of) {
    info(of);
    of.provenance.push_back({"epoch_iterations", "360"});
  };
  write_study(folder / "a.h5", run);
  TableOptions options;
  options.price_per_hour = 100;
  const RunSet set = loaded(folder);
  CHECK(has_energy_or_price(set, {}));
  const Table table = make_energy_table(set, options);
  REQUIRE(table.rows.size() == 1);
  CHECK(shown(table, 0, "gpus_j") == "4.000");        // 2 × 100 W × 20 ms
  CHECK(shown(table, 0, "processors_j") == "1.000");  // 50 W × 20 ms
  CHECK(shown(table, 0, "memory_j") == "n/a");
  CHECK(shown(table, 0, "total_j") == "5.000");
  CHECK(shown(table, 0, "power_w") == "250.0");
  CHECK(shown(table, 0, "images_per_j") == "12.80");
  CHECK(shown(table, 0, "epoch_kwh") == "0.0005000");
  CHECK(shown(table, 0, "epoch_cost") == "0.2000");
}

TEST_CASE("table energy: ranks that share a GPU count its energy once") {
  const auto joules = [](const std::vector<std::string>& uuids, bool rank_0_reads) {
    const RunFolder folder;
    StudyRun run = used_run();
    run.change_info = [before = run.change_info, uuids](RunInfo& info) {
      before(info);
      for (std::size_t rank = 0; rank < uuids.size(); ++rank)
        info.topology[rank].device_uuid = uuids[rank];
    };
    if (!rank_0_reads)
      run.add_more = [](MadeRun& recorder) {
        for (int i = 0; i <= 5; ++i) {
          DeviceSample sample;
          sample.rank = 1;
          sample.at_s = 0.2 * i;
          sample.energy_j = 100 * sample.at_s;
          recorder.add(sample);
        }
      };
    write_study(folder / "a.h5", run);
    return shown(make_energy_table(loaded(folder), {}), 0, "gpus_j");
  };
  CHECK(joules({"GPU-a", "GPU-b"}, true) == "4.000");
  CHECK(joules({"GPU-a", "GPU-a"}, true) == "2.000");
  CHECK(joules({"", ""}, true) == "4.000");             // not recorded: each has its own
  CHECK(joules({"GPU-a", "GPU-a"}, false) == "2.000");  // one of them reads the counter
  CHECK(joules({"GPU-a", "GPU-b"}, false) == "n/a");    // one GPU was not read
}

TEST_CASE("table energy: nothing is estimated without a counter") {
  const RunFolder folder;
  write_study(folder / "a.h5", {"ddp", 2, 32, 0.010});
  const RunSet set = loaded(folder);
  CHECK_FALSE(has_energy_or_price(set, {}));
  const Table table = make_energy_table(set, {});
  for (const char* column :
       {"gpus_j", "processors_j", "total_j", "power_w", "images_per_j", "epoch_kwh", "epoch_cost"})
    CHECK(shown(table, 0, column) == "n/a");
  TableOptions options;
  options.price_per_hour = 1;
  CHECK(has_energy_or_price(set, options));
}

TEST_CASE("table energy: what Slurm counted for the job step of a run") {
  const TestFolder folder;
  const auto of_step = [&](const char* name, const char* mode, const char* step) {
    StudyRun run{mode, 2, 32, 0.010};
    run.change_info = [step](RunInfo& info) {
      if (*step != 0) info.provenance.push_back({"env.SLURM_STEP_ID", step});
    };
    write_study(folder / name, run);
  };
  of_step("a.h5", "ddp", "0");
  of_step("b.h5", "allreduce", "1");
  of_step("c.h5", "gather-scatter", "1");
  of_step("d.h5", "none", "");
  const auto read = [&](const std::string& text) {
    std::ofstream(folder / "energy.txt") << text;
    return read_step_energies(folder / "energy.txt");
  };
  TableOptions options;
  options.step_energies = read(
      "JobIDRaw|Elapsed|ConsumedEnergyRaw\n42|00:01:00|\n42.batch|00:01:00|90000\n"
      "42.0|00:00:30|36000\n42.1|00:00:30|18000\n");
  const RunSet set = loaded(folder);
  CHECK(has_energy_or_price(set, options));
  const Table table = make_energy_table(set, options);
  REQUIRE(table.rows.size() == 4);
  for (std::size_t row = 0; row < 4; ++row)
    CHECK(shown(table, row, "step_j") == (shown(table, row, "mode") == "ddp" ? "36000.00" : "n/a"));
  const std::string lines = "JobIDRaw|ConsumedEnergyRaw|\r\n42.0|5|\r\n";
  CHECK(read("\xEF\xBB\xBF" + lines).at("42.0") == 5);
  CHECK(read("Warning: slow\n0: JobIDRaw|ConsumedEnergyRaw\n0: 42.0|5\n").at("42.0") == 5);
  // Slurm writes 0 where nothing gathers energy.
  options.step_energies = read("JobIDRaw|ConsumedEnergyRaw\n42|0\n42.0|0\n");
  const Table zero = make_energy_table(set, options);
  CHECK(shown(zero, 0, "step_j") == "n/a");
  CHECK(shown(zero, 1, "step_j") == "n/a");
  CHECK(
      contains(zero.notes.front(), "0 J, which Slurm writes where nothing gathers energy, is n/a"));
  CHECK(zero.notes.size() == table.notes.size() + 1);
  const auto refused = [&](const std::string& text) {
    return error_text(ExitCode::kBadData, [&] { read(text); });
  };
  CHECK(contains(refused("JobID|ConsumedEnergy\n42.0|36K\n"), "no column JobIDRaw"));
  CHECK(contains(refused("JobIDRaw|ConsumedEnergyRaw\n42.0|36K\n"), "line 2: '36K'"));
  CHECK(contains(refused("JobIDRaw|ConsumedEnergyRaw\n42.0|-1\n"), "not a number of joules"));
  CHECK(contains(refused("JobIDRaw|ConsumedEnergyRaw\n|5\n"), "names no job"));
  CHECK(contains(refused("JobIDRaw|ConsumedEnergyRaw\n1.0|5\n1.0|6\n"), "step 1.0 has 6 J"));
  CHECK(contains(error_text(ExitCode::kNoInput, [&] { read_step_energies(folder / "none"); }),
                 "none"));
}

TEST_CASE("table layers: each network once, with the sum of what is counted") {
  const RunFolder folder;
  write_study(folder / "a.h5", used_run());
  write_study(folder / "b.h5", used_run());
  const RunSet set = loaded(folder);
  CHECK(has_layers(set, {}));
  const Table table = make_layers_table(set, {});
  REQUIRE(table.rows.size() == 3);
  CHECK(shown(table, 1, "operation") == "not counted");
  CHECK(shown(table, 1, "forward_mflop") == "n/a");
  CHECK(shown(table, 2, "layer") == "all");
  CHECK(shown(table, 2, "parameters") == "462");
  CHECK(shown(table, 2, "backward_mflop") == "2.000");
  CHECK(shown(table, 2, "bytes_per_mflop") == "616.0");
}

TEST_CASE("table layers: no sum where no operation is counted") {
  const RunFolder folder;
  StudyRun run{"ddp", 2};
  run.add_more = [](MadeRun& recorder) { recorder.add(LayerRow{"fc", "", 1000}); };
  write_study(folder / "a.h5", run);
  const Table table = make_layers_table(loaded(folder), {});
  REQUIRE(table.rows.size() == 2);
  for (const char* column : {"forward_mflop", "backward_mflop", "bytes_per_mflop"})
    CHECK(shown(table, 1, column) == "n/a");
}

TEST_CASE("table networks: bytes of gradients for each operation of a rank") {
  const RunFolder folder;
  write_study(folder / "a.h5", used_run());
  CHECK(!has_networks(loaded(folder), {}));
  CHECK(!make_networks_plot(loaded(folder)));
  StudyRun other = of_network(used_run(), "other");
  other.add_more = [](MadeRun& recorder) {
    recorder.add(LayerRow{"fc", "matmul", 1000, 1e6, 1e6});
  };
  write_study(folder / "b.h5", other);
  const RunSet set = loaded(folder);
  CHECK(has_networks(set, {}));
  const Table table = make_networks_table(set, {});
  REQUIRE(table.rows.size() == 2);
  const std::size_t row = shown(table, 0, "model") == "other" ? 0 : 1;
  const auto value = [&](std::size_t of, const char* column) {
    return table.rows.at(of)[column_of(table, column)].number;
  };
  // 4 B x 1000 / (2 MFLOP x 32 samples); 4 B x 462 / (3 MFLOP x 32 samples).
  CHECK(value(row, "bytes_per_kflop") == doctest::Approx(0.0625));
  CHECK(value(1 - row, "bytes_per_kflop") == doctest::Approx(0.01925));
  CHECK(value(row, "parameters") == 1000);
  CHECK(value(row, "exposed_percent") > 0);
  const auto chart = make_networks_plot(set);
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 1);
  REQUIRE(chart->panels[0].series.size() == 1);
  REQUIRE(chart->panels[0].series[0].points.size() == 2);
  // In the order of the bytes per operation, with their names below.
  CHECK(chart->panels[0].series[0].points[0].name == "lenet, batch 32");
  CHECK(chart->panels[0].x_ticks[1].text == "other, batch 32: 0.0625");
}

TEST_CASE("table hardware: hosts that differ in nothing but their names are one row") {
  const RunFolder folder;
  StudyRun run = used_run();
  run.ranks = 4;
  run.add_more = [](MadeRun&) {};
  write_study(folder / "a.h5", run);
  const auto alike = run.change_info;
  run.change_info = [alike](RunInfo& info) {
    alike(info);
    info.topology[2].host_memory_bytes = 1 << 30;
  };
  write_study(folder / "b.h5", run);
  const RunSet set = loaded(folder);
  CHECK(has_hardware(set, {}));
  const Table table = make_hardware_table(set, {});
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 0, "host") == "node0");
  CHECK(shown(table, 0, "hosts") == "2");
  CHECK(shown(table, 0, "ranks") == "2");
  CHECK(shown(table, 0, "network") == "mlx5_0 port 1 200 Gbit/s");
  CHECK(shown(table, 0, "memory_gib") == "n/a");
  CHECK(shown(table, 1, "memory_gib") == "1.0");
}

TEST_CASE("nccl: what it chose in each run that recorded it") {
  const RunFolder folder;
  StudyRun run = used_run();
  run.add_more = [](MadeRun&) {};
  write_study(folder / "a.h5", run);
  CHECK_FALSE(has_nccl_choices(loaded(folder), {}));
  run.add_more = [](MadeRun& recorder) {
    for (const NcclChoice& choice : sample_nccl_choices())
      recorder.add(choice);
  };
  write_study(folder / "b.h5", run);
  const RunSet set = loaded(folder);
  CHECK(has_nccl_choices(set, {}));
  const Table table = make_nccl_table(set, {});
  REQUIRE(table.rows.size() == 2);
  CHECK(shown(table, 1, "collective") == "AllReduce");
  CHECK(shown(table, 1, "mib") == "25.00");
  CHECK(shown(table, 1, "algorithm") == "NVLS");
  CHECK(shown(table, 1, "protocol") == "SIMPLE");
  CHECK(shown(table, 1, "channels") == "16");
  CHECK(shown(table, 0, "mib") == "n/a");
}
