#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "options/option_roles.h"
#include "options/options.h"
#include "serial/option_sandbox.h"

using namespace gradsync;

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
                                "c10d",
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
  CHECK(options.sync == "c10d");
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
  CHECK(options.inject_fault == "nan@1:5");
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
