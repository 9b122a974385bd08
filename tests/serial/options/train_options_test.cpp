// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/run_group.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/study.h"
#include "analysis/plots/run_marks.h"
#include "analysis/report_options.h"
#include "analysis/tables/columns.h"
#include "options/option_roles.h"
#include "options/options.h"
#include "serial/expect_error.h"
#include "serial/option_sandbox.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "sweep/runner.h"
#include "transport/shared_all_reduce.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using namespace gradsync::sweep;

namespace {

TrainOptions trained(std::vector<const char*> args) {
  return train_options(resolve(std::move(args), train_option_table()).values);
}

}  // namespace

TEST_CASE("train options: the default of every option reads as it is declared") {
  const Sandbox sandbox;
  const TrainOptions read = trained({});
  for (const TrainOption& option : declared_train_options()) {
    INFO(option.name);
    CHECK(option.value.text(read) == option.value.text(TrainOptions{}));
  }
  const WatchLimits limits = watch_limits(read), standard;
  CHECK(limits.automatic);
  CHECK(limits.timeout_s == standard.timeout_s);
  CHECK(limits.start_s == standard.start_s);
  CHECK(limits.io_s == standard.io_s);
}

TEST_CASE("train options: every option is read") {
  const Sandbox sandbox;
  const auto options = trained({"--sync",
                                "allreduce",
                                "--granularity=tensor",
                                "--first-bucket",
                                "64KiB",
                                "--bucket-cap",
                                "4MB",
                                "--wire-dtype",
                                "bf16",
                                "--model",
                                "lenet",
                                "--data",
                                "/d",
                                "--no-augment",
                                "--no-set-epoch",
                                "--last-batch",
                                "drop",
                                "--loader-threads",
                                "3",
                                "--prefetch",
                                "7",
                                "--batch-global",
                                "256",
                                "--accumulate",
                                "2",
                                "--epochs",
                                "5",
                                "--iterations",
                                "40",
                                "--warmup",
                                "0",
                                "--seed",
                                "42",
                                "--lr",
                                "0.01",
                                "--momentum",
                                "0",
                                "--weight-decay",
                                "0",
                                "--precision",
                                "auto",
                                "--layout",
                                "nchw",
                                "--threads",
                                "2",
                                "--evaluate",
                                "each-rank",
                                "--log-every",
                                "1",
                                "--output",
                                "o.h5",
                                "--verify-modes",
                                "--verify",
                                "all",
                                "--start-timeout=30s",
                                "--io-timeout=1h",
                                "--timeout",
                                "2m",
                                "--inject-fault",
                                "nan@1:5"});
  CHECK(options.sync == "allreduce");
  CHECK(options.granularity == "tensor");
  CHECK(options.first_bucket_bytes == 65536);
  CHECK(options.bucket_cap_bytes == 4'000'000);
  CHECK(options.wire_dtype == "bf16");
  CHECK(options.model == "lenet");
  CHECK(options.data == "/d");
  CHECK_FALSE(options.augment);
  CHECK_FALSE(options.set_epoch);
  CHECK(options.last_batch == LastBatch::kDrop);
  CHECK(options.loader_threads == 3);
  CHECK(options.prefetch == 7);
  CHECK(options.batch_global == 256);
  CHECK(options.batch_per_rank == 0);
  CHECK(options.accumulate == 2);
  CHECK(options.epochs == 5);
  CHECK(options.iterations == 40);
  CHECK(options.warmup == 0);
  CHECK(options.seed == 42);
  CHECK(options.learning_rate.base == 0.01);
  CHECK(options.optimizer.momentum == 0);
  CHECK(options.optimizer.weight_decay == 0);
  CHECK(options.precision == "auto");
  CHECK(options.layout == "nchw");
  CHECK(options.threads == 2);
  CHECK(options.evaluate == EvaluateHow::kEachRank);
  CHECK(options.log_every == 1);
  CHECK(options.output == "o.h5");
  CHECK(options.verify_modes);
  CHECK(options.verify == "all");
  CHECK(options.timeout_s == 120);
  CHECK(options.start_timeout_s == 30);
  CHECK(options.io_timeout_s == 3600);
  CHECK_FALSE(watch_limits(options).automatic);
  CHECK(options.inject_fault.due(1, 5));
}

TEST_CASE("train options: values out of range") {
  const Sandbox sandbox;
  const std::vector<std::vector<const char*>> wrong = {{"--lr", "-0.1"},
                                                       {"--lr", "1001"},
                                                       {"--lr", "nan"},
                                                       {"--momentum", "1"},
                                                       {"--momentum", "-0.1"},
                                                       {"--optimizer", "lion"},
                                                       {"--clip-norm", "-1"},
                                                       {"--label-smoothing", "1"},
                                                       {"--warmup-epochs", "-1"},
                                                       {"--lr-milestones", "a"},
                                                       {"--batch-schedule", "32"},
                                                       {"--batch-schedule", "0:9000000000000"},
                                                       {"--weight-decay", "2"},
                                                       {"--threads", "1025"},
                                                       {"--threads", "-1"},
                                                       {"--target-accuracy", "101"},
                                                       {"--target-accuracy", "-1"},
                                                       {"--epochs", "0"},
                                                       {"--epochs", "1000001"},
                                                       {"--batch-per-rank", "0"},
                                                       {"--batch-global", "0"},
                                                       {"--batch-per-rank", "10000000001"},
                                                       {"--accumulate", "0"},
                                                       {"--iterations", "-1"},
                                                       {"--warmup", "-1"},
                                                       {"--seed", "-1"},
                                                       {"--prefetch", "0"},
                                                       {"--loader-threads", "0"},
                                                       {"--log-every", "-1"},
                                                       {"--timeout", "-1"},
                                                       {"--timeout", "169h"},
                                                       {"--start-timeout", "0"},
                                                       {"--io-timeout", "169h"},
                                                       {"--first-bucket", "0"},
                                                       {"--bucket-cap", "17GiB"},
                                                       {"--data", ""},
                                                       {"--inject-fault", "nan"},
                                                       {"--inject-fault", "nan@x:1"},
                                                       {"--inject-fault", "nan@1:"},
                                                       {"--seed", "18446744073709551616"}};
  for (const auto& args : wrong)
    CHECK_MESSAGE(contains(refusal([&] { trained(args); }), args[0]), args[0], " ", args[1]);
  CHECK(contains(refusal([] { trained({"--sync", "dpp"}); }), "did you mean ddp?"));
  CHECK(contains(refusal([] { trained({"--model", "resnet-18"}); }), "did you mean resnet18?"));
}

TEST_CASE("train options: networks are names, names with numbers, or files") {
  const Sandbox sandbox;
  const auto input = [](const char* model) { return network_input(trained({"--model", model})); };
  CHECK(input("resnet18").cifar10);
  CHECK(input("mlp:64x2").sizes == std::vector<std::int64_t>{3, 32, 32});
  CHECK(input("resnet50").sizes == std::vector<std::int64_t>{3, 224, 224});
  CHECK(input("vit-b16").classes == 1000);
  CHECK_FALSE(input("vit-b16").cifar10);
  const NetworkInput tokens =
      network_input(trained({"--model", "gpt2-small", "--sequence-length", "7"}));
  CHECK(tokens.tokens());
  CHECK(tokens.text() == "7 tokens of 50257");
  const NetworkInput file =
      network_input(trained({"--model", "a/b.pt", "--input", "1x28x30", "--classes", "12"}));
  CHECK(file.text() == "1 x 28 x 30 values of 12 classes");
  CHECK(file.values() == 840);
  const SyntheticShape shape = synthetic_shape(
      trained({"--model", "synthetic:parameters=1.5M,compute=120ms,tensors=200"}).model);
  CHECK(shape.parameters == 1'500'000);
  CHECK(shape.tensors == 200);
  CHECK(shape.compute_s == doctest::Approx(0.12));
  const MlpShape mlp = mlp_shape("mlp:64x2");
  CHECK(mlp.width == 64);
  CHECK(mlp.depth == 2);
}

TEST_CASE("train options: what no network can be is refused") {
  const Sandbox sandbox;
  const auto why = [](const char* model) { return refusal([&] { trained({"--model", model}); }); };
  for (const char* model : {"mlp:", "mlp:64", "mlp:64x", "mlp:0x2", "mlp:64x1001", "mlp:64x2x3",
                            "mlp:-1x2", "mlp:ax2", "synthetic:", "mlp", "synthetic", "b.pth"})
    CHECK_MESSAGE(contains(why(model), "--model"), model);
  CHECK(contains(why("synthetic:parameters=5,compute=1ms"), "lacks tensors"));
  CHECK(contains(why("synthetic:parameters=5,compute=1ms,tensors=6"), "to as many as parameters"));
  CHECK(contains(why("synthetic:parameters=3G,compute=1ms,tensors=6"), "at most 2000000000"));
  CHECK(contains(why("synthetic:parameters=5,parameters=5,compute=1ms,tensors=1"), "each once"));
  CHECK(contains(why("synthetic:parameters=5,compute=fast,tensors=1"), "fast"));
  for (const auto& args : std::vector<std::vector<const char*>>{{"--input", "3x224"},
                                                                {"--input", "3x0x4"},
                                                                {"--classes", "1"},
                                                                {"--sequence-length", "1025"}})
    CHECK_MESSAGE(contains(refusal([&] { trained(args); }), args[0]), args[1]);
  CHECK(contains(refusal([] {
                   trained({"--model", "a.pt", "--batch-norm", "sync"});
                 }),
                 "a TorchScript module keeps the batch norm"));
}

TEST_CASE("train options: what a mode cannot do right is refused") {
  const Sandbox sandbox;
  struct Refused {
    std::vector<const char*> args;
    const char* why;
  };
  for (const Refused& one : std::vector<Refused>{
           {{"--sync", "none", "--batch-norm", "sync"}, "--sync none exchange nothing"},
           {{"--sync", "local-sgd", "--batch-norm", "broadcast"}, "nothing in most iterations"},
           {{"--sync", "powersgd", "--precision", "fp16"}, "carry what overflows"},
           {{"--sync", "top-k", "--precision", "fp16"}, "carry what overflows"},
           {{"--sync", "zero1", "--wire-dtype", "bf16"}, "--sync zero1 sends what it has"},
           {{"--sync", "zero1", "--optimizer", "lamb"}, "whole layers, whose norms lamb needs"},
           {{"--sync", "zero1", "--init", "per-rank"}, "moves parameters between the ranks"},
           {{"--sync", "fsdp", "--init", "per-rank"}, "moves parameters between the ranks"},
           {{"--sync", "local-sgd", "--init", "per-rank"}, "moves parameters between the ranks"},
           {{"--sync", "data-parallel", "--init", "per-rank"}, "moves parameters between"},
           {{"--sync", "zero1", "--sync-only", "gradients"}, "--sync zero1 moves parameters"},
           {{"--sync", "fsdp", "--sync-only", "gradients"}, "--sync fsdp moves parameters"},
           {{"--sync", "local-sgd", "--sync-only", "gradients"}, "moves parameters"},
           {{"--sync", "powersgd", "--overlap", "step"}, "cannot be combined with --sync powersgd"},
           {{"--powersgd-rank", "0"}, "powersgd-rank"},
           {{"--top-k", "0"}, "top-k"},
           {{"--top-k", "101"}, "top-k"},
           {{"--local-steps", "0"}, "local-steps"}})
    CHECK_MESSAGE(contains(refusal([&] { trained(one.args); }), one.why), one.why);
  CHECK(trained({"--sync", "none", "--init", "per-rank"}).init == Init::kPerRank);
  CHECK(trained({"--sync", "zero1", "--optimizer", "adam"}).optimizer.name == "adam");
  CHECK(trained({"--sync", "zero1", "--precision", "fp16"}).optimizer.scales_loss);
  for (const char* mode : {"powersgd", "zero1", "fsdp"})
    CHECK(trained({"--sync", mode, "--clip-norm", "1"}).clip_norm == 1);
}

TEST_CASE("train options: drawn samples are not evaluated") {
  const Sandbox sandbox;
  CHECK(trained({"--model", "resnet50"}).evaluate == EvaluateHow::kNone);
  CHECK(trained({"--model", "mlp:8x1"}).evaluate == EvaluateHow::kShard);
  CHECK(contains(refusal([] {
                   trained({"--model", "resnet50", "--target-accuracy", "5"});
                 }),
                 "have no test accuracy"));
}

TEST_CASE("train options: a target accuracy needs an evaluation") {
  const Sandbox sandbox;
  CHECK(trained({"--target-accuracy", "62.5"}).target_accuracy == 62.5);
  CHECK(contains(refusal([] {
                   trained({"--target-accuracy", "60", "--evaluate", "none"});
                 }),
                 "needs the test accuracy"));
}

TEST_CASE("train options: one of the two batches") {
  const Sandbox sandbox;
  CHECK(contains(refusal([] {
                   trained({"--batch-global", "256", "--batch-per-rank", "64"});
                 }),
                 "one of the two"));
  const std::string job = sandbox.file("job.cfg", "batch-global = 256\n");
  CHECK(contains(refusal([&] {
                   trained({"--config", job.c_str(), "--batch-per-rank", "64"});
                 }),
                 "job.cfg:1: batch-global"));
  CHECK(trained({"--config", job.c_str(), "--batch-global", "auto", "--batch-per-rank", "64"})
            .batch_per_rank == 64);
  TrainOptions huge = trained({"--batch-per-rank", "10000000000", "--accumulate", "1000000"});
  CHECK(contains(refusal([&] { resolve_batch(huge, 1000); }), "too large"));
  TrainOptions none = trained({});
  resolve_batch(none, 2);
  CHECK(none.batch_global == 256);
}

TEST_CASE("train options: the batch of all ranks is ranks × batch of a rank × accumulate") {
  TrainOptions options;
  options.batch_per_rank = 32;
  options.accumulate = 2;
  resolve_batch(options, 4);
  CHECK(options.batch_global == 256);
  resolve_batch(options, 4);
  CHECK(options.batch_per_rank == 32);
  CHECK(options.batch_global == 256);

  TrainOptions global;
  global.batch_global = 256;
  resolve_batch(global, 4);
  CHECK(global.batch_per_rank == 64);
  global = {};
  global.batch_global = 250;
  const auto refused = refusal([&] { resolve_batch(global, 4); });
  CHECK(contains(refused, "250 does not divide by 4"));
  CHECK(contains(refused, "--batch-global 252"));
}

TEST_CASE("train options: --print-config of any settings is read back the same") {
  const Sandbox sandbox;
  const std::vector<std::vector<const char*>> settings = {
      {}, {"--batch-global", "256", "--no-augment"}, {"--batch-per-rank", "64", "--data", "a # b"}};
  for (const auto& args : settings) {
    const auto first = resolve(args, train_option_table()).values;
    const std::string job = sandbox.file("again.cfg", config_text(train_option_table(), first));
    const auto second = resolve({"--config", job.c_str()}, train_option_table()).values;
    require_same_values(second, first);
    CHECK(train_options(second).batch_per_rank == train_options(first).batch_per_rank);
  }
}

namespace {

// A row without a role does not compile; one with a role does.
template <typename... Fields>
concept MakesTrainOption = requires {
  TrainOption{std::declval<Fields>()...};
};
static_assert(!MakesTrainOption<const char*, BoundValue<TrainOptions>, const char*>);
static_assert(MakesTrainOption<OptionRole, const char*, BoundValue<TrainOptions>, const char*>);

const std::set<std::string> kHeld = {"model", "sync", "batch-per-rank", "batch-global"};

void set_option(RunInfo& info, const std::string& name, const std::string& value) {
  std::erase_if(info.config, [&](const ConfigEntry& entry) { return entry.name == name; });
  info.config.push_back({name, value, "command line"});
}

/// What a run records that was started with another value of the option.
void differ_in(RunInfo& info, const std::string& name) {
  set_option(info, name, name == "batch-global" || name == "batch-per-rank" ? "1024" : "other");
  if (name == "batch-per-rank") set_option(info, "batch-global", "2048");
  for (RankPlace& place : info.topology) {
    if (name == "threads") place.threads = 7;
    if (name == "device") place.device = "NVIDIA H200";
  }
}

using Options = std::vector<std::pair<std::string, std::string>>;

void write_run(const std::filesystem::path& path, const SampleShape& shape,
               const Options& options) {
  RunInfo info = sample_info_at(path, shape);
  for (const auto& [name, value] : options)
    set_option(info, name, value);
  Recorder recorder(path, info);
  record_sample(recorder, shape);
  recorder.finish(RunStatus::kComplete);
}

RunSet pair_differing_in(const TestFolder& folder, const std::string& name) {
  write_sample(folder / "a.h5", {});
  RunInfo info = sample_info({});
  differ_in(info, name);
  Recorder recorder(folder / "b.h5", info);
  record_sample(recorder, {});
  recorder.finish(RunStatus::kComplete);
  return loaded(folder);
}

void check_different_cells(const RunSet& set, const TrainOption& option) {
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  const auto names = cell_names(pointers_to(groups));
  CHECK(names[0] != names[1]);
  const auto cells = study_cells(set);
  CHECK(cells[0].name != cells[1].name);
  const bool same_law = option.role == OptionRole::kTraining || option.name == "batch-global" ||
                        option.name == "batch-per-rank";
  CHECK((cells[0].family == cells[1].family) == same_law);
  if (kHeld.contains(option.name)) return;
  const GroupLabels labels(groups);
  CHECK(contains(labels.settings(groups[1]) + labels.settings(groups[0]), option.name + "=other"));
  const auto marks = labels_of(pointers_to(groups), {Trait::kModel, Trait::kMode});
  CHECK(contains(marks[0] + marks[1], option.name + "=other"));
}

void check_not_merged(const RunSet& set, const TrainOption& option) {
  REQUIRE(group_runs(set).size() == 1);
  const std::string text = error_text(ExitCode::kBadData, [&] { require_mergeable(set); });
  CHECK(contains(text, "differ in " + option.name));
  CHECK(merged_across(set) == "MERGED ACROSS " + option.name);
}

void check_repeats(const RunSet& set) {
  CHECK(group_runs(set).size() == 1);
  CHECK_NOTHROW(require_mergeable(set));
}

}  // namespace

TEST_CASE("option roles: every option of the trainer makes a cell, must match or is free") {
  REQUIRE(declared_train_options().size() == train_option_table().size());
  for (const TrainOption& option : declared_train_options()) {
    INFO(option.name);
    const TestFolder folder;
    const RunSet set = pair_differing_in(folder, option.name);
    switch (option.role) {
      case OptionRole::kMode:
      case OptionRole::kBetweenRanks:
      case OptionRole::kStep:
      case OptionRole::kTraining:
        check_different_cells(set, option);
        break;
      case OptionRole::kMachine:
      case OptionRole::kCourse:
        check_not_merged(set, option);
        break;
      case OptionRole::kFree:
        check_repeats(set);
        break;
    }
  }
}

TEST_CASE("option roles: a file from before an option is a repeat of what runs did then") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {});
  Options all;
  for (const TrainOption& option : declared_train_options())
    if (!kHeld.contains(option.name)) all.emplace_back(option.name, value_before(option));
  write_run(folder / "b.h5", {}, all);
  check_repeats(loaded(folder));
  CHECK(value_before(*declared_train_option("transport")) == "mpi");
}

TEST_CASE("option roles: an option that this version does not know must match") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {});
  write_run(folder / "b.h5", {}, {{"of-a-later-version", "on"}});
  const RunSet set = loaded(folder);
  CHECK(contains(error_text(ExitCode::kBadData, [&] { require_mergeable(set); }),
                 "of-a-later-version"));
}

TEST_CASE("option roles: what was taken for auto decides, where the run says it") {
  const TestFolder folder;
  for (const char* taken : {"fp32", "bf16"}) {
    const auto path = folder / (std::string(taken) + ".h5");
    RunInfo info = sample_info_at(path, {});
    set_option(info, "precision", "auto");
    info.provenance.push_back({"precision", taken});
    Recorder recorder(path, info);
    record_sample(recorder, {});
    recorder.finish(RunStatus::kComplete);
  }
  CHECK(group_runs(loaded(folder)).size() == 2);
}

TEST_CASE("option roles: one rank is of the family of several, whose transport it cannot have") {
  const TestFolder folder;
  write_run(folder / "one.h5", {"ddp", 1}, {{"transport", "mpi"}});
  write_run(folder / "two.h5", {"ddp", 2}, {{"transport", "shm"}});
  {
    const RunSet set = loaded(folder);
    const auto cells = study_cells(set);
    REQUIRE(cells.size() == 2);
    CHECK(cells[0].family == cells[1].family);
    // Nor is its label burdened with it.
    CHECK(GroupLabels(group_runs(set)).settings(group_runs(set)[0]).empty());
  }
  write_run(folder / "mpi.h5", {"ddp", 2}, {{"transport", "mpi"}});
  const RunSet set = loaded(folder);
  const auto cells = study_cells(set);
  REQUIRE(cells.size() == 3);
  CHECK(cells[1].family != cells[2].family);
  const std::size_t over_mpi = cells[1].run().name == "mpi" ? 1 : 2;
  CHECK(cells[0].family == cells[over_mpi].family);
  CHECK(cells[over_mpi].mode_text() == "ddp, transport=mpi");
  CHECK(cells[3 - over_mpi].mode_text() == "ddp, transport=shm");
}

TEST_CASE("option roles: a base that differs in what changes the time is named") {
  const TestFolder folder;
  write_run(folder / "two.h5", {"ddp", 2}, {{"transport", "shm"}, {"feed", "loader"}});
  write_run(folder / "four.h5", {"ddp", 4, 12, 5, 16},
            {{"transport", "two-level"}, {"feed", "resident"}, {"lr", "9"}});
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  const auto all = comparisons(groups);
  const auto four = std::find_if(all.begin(), all.end(), [](const Comparison& one) {
    return one.group->first().ranks == 4 && one.base->first().ranks == 2;
  });
  REQUIRE(four != all.end());
  const std::string text = unfairness(*four);
  CHECK(contains(text, "transport shm in the base, two-level here"));
  CHECK(contains(text, "feed loader in the base, resident here"));
  CHECK_FALSE(contains(text, "lr"));
}

TEST_CASE("option roles: the law of a family is of its own transport") {
  StudyCell two;
  two.mode = "ddp";
  two.ranks = 2;
  std::vector<CalibrationPoint> calibration;
  double alpha_s = 1e-6;
  for (const char* name : {"nccl", "shm", "two-level", "tcp-ring", "mpi-ring", "mpi"}) {
    for (const double bytes : {1e3, 1e4, 1e5, 1e6})
      calibration.push_back(
          {CollectiveKind::kAllReduce, name, "isolated", 2, bytes, alpha_s + bytes * 1e-9});
    alpha_s *= 2;
  }
  const auto law_over = [&](const char* transport, const char* mode) {
    two.transport = transport;
    two.mode = mode;
    return choose_law(CollectiveKind::kAllReduce, {&two}, calibration).source;
  };
  CHECK(law_over("nccl", "ddp") == "calibration (nccl, isolated)");
  CHECK(law_over("shm", "ddp") == "calibration (shm, isolated)");
  CHECK(law_over("two-level", "allreduce") == "calibration (two-level, isolated)");
  CHECK(law_over("tcp-ring", "ddp") == "calibration (tcp-ring, isolated)");
  CHECK(law_over("mpi", "ddp") == "calibration (mpi-ring, isolated)");
  CHECK(law_over("mpi", "allreduce") == "calibration (mpi, isolated)");
  std::erase_if(calibration,
                [](const CalibrationPoint& point) { return point.transport == "shm"; });
  CHECK(law_over("shm", "ddp") ==
        "measured in training (over shm; the calibration is of mpi, mpi-ring, nccl, tcp-ring, "
        "two-level)");
}

namespace {

// A program with an output of its own and the folder of the images that the trainer takes, too.
OptionTable checking_table() {
  OptionTable table = scoped("check", {{"output", "FILE", "", "a report", "Own"}});
  table.push_back({"data", "FOLDER", "here", "the images", "Own"});
  return table;
}

}  // namespace

TEST_CASE("scoped options: a variable of the trainer does not reach another program's option") {
  const Sandbox sandbox;
  const Variable trainers("GRADSYNC_OUTPUT", "run.h5"), data("GRADSYNC_DATA", "/images");
  CHECK(resolve({}, train_option_table()).values.at("output").value == "run.h5");
  CHECK(resolve({}, report_option_table()).values.at("output").value.empty());
  const auto values = resolve({}, checking_table()).values;
  CHECK(values.at("output").value.empty());
  CHECK(values.at("data").value == "/images");
}

TEST_CASE("scoped options: each program reads variables and site keys of its own name") {
  const Sandbox sandbox;
  const std::string site =
      sandbox.file("site.cfg", "output = trainer.h5\ncheck-output = checked\ndata = /shared\n");
  auto values = resolve({"--site", site.c_str()}, checking_table()).values;
  CHECK(values.at("output").value == "checked");
  CHECK(values.at("output").where == site + ":2");
  CHECK(values.at("data").value == "/shared");

  const Variable own("GRADSYNC_CHECK_OUTPUT", "elsewhere");
  values = resolve({"--site", site.c_str()}, checking_table()).values;
  CHECK(values.at("output").value == "elsewhere");
  CHECK(values.at("output").where == "GRADSYNC_CHECK_OUTPUT");
}

TEST_CASE("scoped options: the trainer leaves other programs' names to them, not misspelt ones") {
  const Sandbox sandbox;
  const OptionTable& trainer = train_option_table();
  const std::string site = sandbox.file("site.cfg", "report-output = tables\nlr = 0.5\n");
  const Variable reports("GRADSYNC_REPORT_OUTPUT", "tables");
  const auto values = resolve({"--site", site.c_str()}, trainer, "", Foreign::kReject).values;
  CHECK(values.at("lr").value == "0.5");
  CHECK(values.at("output").value.empty());
  const Variable misspelt("GRADSYNC_REPROT_OUTPUT", "tables");
  CHECK(contains(refusal([&] { resolve({}, trainer, "", Foreign::kReject); }),
                 "GRADSYNC_REPROT_OUTPUT"));
}

TEST_CASE("scoped options: a program refuses what is misspelt under its own name") {
  const Sandbox sandbox;
  const std::string site = sandbox.file("site.cfg", "report-fromat = csv\n");
  CHECK(contains(refusal([&] {
                   resolve({"--site", site.c_str()}, report_option_table());
                 }),
                 "did you mean report-format?"));
  const Variable misspelt("GRADSYNC_SWEEP_RESLUTS", "there");
  CHECK_NOTHROW(resolve({}, report_option_table()));
  CHECK(contains(refusal([] { resolve({}, sweep_option_table()); }),
                 "did you mean GRADSYNC_SWEEP_RESULTS?"));
}

TEST_CASE("scoped options: a job file in GRADSYNC_CONFIG is the trainer's, keys have plain names") {
  const Sandbox sandbox;
  const std::string trainers = sandbox.file("train.cfg", "lr = 0.5\n");
  const std::string reports = sandbox.file("report.cfg", "format = csv\n");
  const Variable config("GRADSYNC_CONFIG", trainers);
  CHECK(resolve({}, report_option_table()).values.at("format").value == "text");
  CHECK_NOTHROW(resolve({}, OptionTable{}));
  const Variable own("GRADSYNC_REPORT_CONFIG", reports);
  CHECK(resolve({}, report_option_table()).values.at("format").value == "csv");
}

TEST_CASE("scoped options: --help says how the variables are called") {
  const std::string text = full_help_text({"program", "program", "", "", {}}, checking_table());
  for (const char* part : {"environment GRADSYNC_CHECK_<NAME>", "(GRADSYNC_CHECK_CONFIG)",
                           "the images (GRADSYNC_DATA) [here]", "check- before"})
    CHECK_MESSAGE(contains(text, part), part);
  CHECK_FALSE(contains(text, "GRADSYNC_OUTPUT"));
}

namespace {

std::vector<Contender> compared(std::vector<const char*> args) {
  const Sandbox sandbox;
  const OptionValues values = resolve(std::move(args), train_option_table()).values;
  return contenders(values, train_options(values));
}

std::vector<std::string> names_of(const std::vector<Contender>& contenders) {
  std::vector<std::string> names;
  for (const Contender& one : contenders)
    names.push_back(one.name);
  return names;
}

}  // namespace

TEST_CASE("contenders: the reference first, its control last unless it is named twice") {
  using Names = std::vector<std::string>;
  CHECK(names_of(compared({"--sync", "allreduce"})) == Names{"allreduce"});
  CHECK(names_of(compared({"--compare", "none,ddp"})) == Names{"none", "ddp", "none (control)"});
  CHECK(names_of(compared({"--compare", "ddp,ddp"})) == Names{"ddp", "ddp (2)"});
  CHECK(names_of(compared({"--compare", "ddp,none,none"})) ==
        Names{"ddp", "none", "none (2)", "ddp (control)"});
  CHECK(compared({"--compare", "all"}).size() == sync_mode_names().size() + 1);
}

TEST_CASE("contenders: fewer updates are allowed, and said to be another training") {
  const std::string name = "ddp:accumulate=2:bucket-cap=4MiB";
  CHECK(compared({"--compare", "ddp,ddp:accumulate=2:bucket-cap=4MiB"})[1].options.accumulate == 2);
  CHECK(other_training_text(name) ==
        " (another training: 2 passes per update; times per as many images)");
  CHECK(other_training_text("ddp:bucket-cap=4MiB").empty());
  CHECK(other_training_text(name + " (control)") == other_training_text(name));
  CHECK(other_training_text("powersgd (2)") == other_training_text("powersgd"));
}

TEST_CASE("contenders: calibrate unless told not to, and measure a block where that is asked for") {
  CHECK(compared({"--compare", "ddp,none"})[0].options.calibrate);
  CHECK(compared({"--compare", "ddp,none", "--wire-dtype", "bf16"})[0].options.wire_dtype ==
        "bf16");
  CHECK(contains(refusal([] {
                   compared({"--compare", "ddp,top-k", "--wire-dtype", "bf16"});
                 }),
                 "--sync top-k sends what it has"));
  CHECK_FALSE(compared({"--compare", "ddp,none", "--no-calibrate"})[0].options.calibrate);
  CHECK_FALSE(compared({"--sync", "ddp"})[0].options.calibrate);
  const Contender measured = compared({"--compare", "ddp,none", "--block", "auto"})[0];
  CHECK(measured.options.block == 0);
  CHECK(measured.options.block_warmup == -1);
  const Contender given =
      compared({"--compare", "ddp,none", "--block", "4", "--block-warmup", "1"})[0];
  CHECK(given.options.block_warmup == 1);
  CHECK(compared({"--compare", "ddp,none", "--until", "1%"})[0].options.until_percent == 1);
  CHECK(compared({"--compare", "ddp,none", "--until", "2.5"})[0].options.until_percent == 2.5);
  for (const char* wrong : {"-1%", "100.1", "1 percent", "%"})
    CHECK_THROWS_AS(compared({"--compare", "ddp,none", "--until", wrong}), Error);
  CHECK_THROWS_AS(compared({"--compare", "ddp,none", "--block", "2", "--block-warmup", "2"}),
                  Error);
  CHECK_THROWS_AS(compared({"--compare", "ddp,none", "--block", "auto", "--block-warmup", "1"}),
                  Error);
}

TEST_CASE("contenders: what counts of a block holds equally many exchanges of local-sgd") {
  for (const char* block : {"1", "3", "8"})
    CHECK(compared({"--compare", "none,local-sgd", "--block", block}).size() == 3);
  const char* both = "none,local-sgd:local-steps=4,local-sgd:local-steps=6";
  CHECK(compared({"--compare", both, "--block", "14", "--block-warmup", "2"}).size() == 4);
  CHECK_THROWS_WITH_AS(compared({"--compare", both, "--block", "8", "--block-warmup", "2"}),
                       doctest::Contains("equally many exchanges of local-sgd"), Error);
  CHECK_THROWS_WITH_AS(
      compared({"--compare", "none,local-sgd", "--block", "8", "--block-warmup", "1"}),
      doctest::Contains("7 iterations of each that count"), Error);
  CHECK_THROWS_AS(
      compared({"--compare", "local-sgd:local-steps=999999999,local-sgd:local-steps=1000000000"}),
      Error);
}

TEST_CASE("contenders: one may be made slower than the others") {
  const auto all = compared({"--compare", "ddp,ddp:inject-fault=slow@1:1.5:bucket-cap=4MiB"});
  CHECK(all[0].options.inject_fault.kind == FaultKind::kNone);
  CHECK(all[1].options.inject_fault.kind == FaultKind::kSlow);
  CHECK(all[1].options.inject_fault.factor == 1.5);
  CHECK(all[1].options.bucket_cap_bytes == 4 << 20);
}

TEST_CASE("contenders: each has its settings, and a file of its own") {
  const auto all = compared({"--compare", "ddp:bucket-cap=4MiB:wire-dtype=bf16,none", "--lr", "0.5",
                             "--output", "runs/cmp.h5"});
  CHECK(all[0].options.sync == "ddp");
  CHECK(all[0].options.bucket_cap_bytes == 4 << 20);
  CHECK(all[0].options.wire_dtype == "bf16");
  CHECK(all[0].values.at("wire-dtype").value == "bf16");
  CHECK(all[0].options.output == "runs/cmp-ddp-bucket-cap-4MiB-wire-dtype-bf16.h5");
  CHECK(all[1].options.sync == "none");
  CHECK(all[1].options.bucket_cap_bytes != 4 << 20);
  CHECK(all[2].options.output == "runs/cmp-ddp-bucket-cap-4MiB-wire-dtype-bf16-control.h5");
  for (const Contender& one : all) {
    CHECK(one.options.learning_rate.base == 0.5);
    CHECK(one.values.at("output").value == one.options.output);
  }
}

TEST_CASE("contenders: --output may list their files, the control's is beside the reference's") {
  const auto outputs = [](const char* compare, const char* output) {
    std::vector<std::string> files;
    for (const Contender& one : compared({"--compare", compare, "--output", output}))
      files.push_back(one.options.output);
    return files;
  };
  using Names = std::vector<std::string>;
  CHECK(outputs("none,ddp", "runs, old/a.h5,b.h5") ==
        Names{"runs, old/a.h5", "runs, old/b.h5", "runs, old/a-control.h5"});
  CHECK(outputs("ddp,ddp", "a.h5,b.h5") == Names{"a.h5", "b.h5"});
  CHECK(contains(refusal([&] { outputs("none,ddp,c10d", "a.h5,b.h5"); }),
                 "2 files for 3 contenders"));
  CHECK(contains(refusal([&] { outputs("none,ddp", "a.h5,"); }), "a contender without a file"));
  CHECK(
      contains(refusal([&] { outputs("none,ddp", "a.h5,a.h5"); }), "two contenders for \"a.h5\""));
}

TEST_CASE("contenders: a data type on the wire is refused where the mode does not cast") {
  const auto said = refusal([] { compared({"--compare", "zero1,zero1:wire-dtype=bf16"}); });
  CHECK(contains(said, "sets wire-dtype, and zero1 sends what it has"));
  CHECK(compared({"--compare", "zero1:wire-dtype=fp32,ddp:wire-dtype=bf16"}).size() == 3);
}

TEST_CASE("contenders: options of single runs are refused, a mode in the environment is not") {
  for (const char* option : {"--sync=ddp", "--target-accuracy=5"})
    CHECK_MESSAGE(contains(refusal([&] {
                             compared({"--compare", "none,ddp", option});
                           }),
                           std::string(option).substr(0, std::string(option).find('='))),
                  option);
  const Variable mode("GRADSYNC_SYNC", "allreduce");
  CHECK(compared({"--compare", "none,ddp"}).front().options.sync == "none");
}
