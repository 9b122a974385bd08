#include "support/options.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "clean_environment.h"
#include "support/file.h"
#include "support/table.h"
#include "support/version.h"
#include "train/options.h"

using namespace gradsync;
namespace fs = std::filesystem;

namespace {

// A variable for the length of a test; what it was comes back.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

// A folder for files, and no site file of the person who runs the tests.
struct Sandbox {
  CleanEnvironment environment;
  fs::path folder = fs::temp_directory_path() / ("gradsync-options-" + random_suffix());
  Variable no_site{"XDG_CONFIG_HOME", folder.string()};

  Sandbox() { fs::create_directories(folder); }
  ~Sandbox() { fs::remove_all(folder); }

  std::string file(const std::string& name, const std::string& text) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
    return (folder / name).string();
  }
};

OptionTable small_table() {
  return {{"rate", "X", "0.5", "a number from 0 to 1", "Numbers"},
          {"count", "N", "3", "a whole number", "Numbers"},
          {"cap", "SIZE", "1MiB", "a size", "Numbers"},
          {"wait", "TIME", "10s", "a time", "Numbers"},
          {"mode", "a|b", "a", "a choice", "Words"},
          {"note", "TEXT", "", "any text", "Words"},
          {"set", "K=V", "", "may be repeated", "Words", true},
          {"augment", "", "true", "a switch that is on", "Words"},
          {"quick", "", "false", "a switch that is off", "Words"}};
}

ParsedCommandLine resolve(std::vector<const char*> args, const OptionTable& table = small_table(),
                          const std::string& positional = {}, Foreign foreign = Foreign::kIgnore) {
  args.insert(args.begin(), "program");
  return resolve_options(table, static_cast<int>(args.size()), args.data(), positional, foreign);
}

struct Refusal {
  std::string what, fix;
  bool mentions(const std::string& part) const {
    return (what + "\n" + fix).find(part) != std::string::npos;
  }
};

template <typename Call>
Refusal refusal(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    return {error.what(), error.fix()};
  }
  FAIL("nothing was thrown");
  return {};
}

TrainOptions trained(std::vector<const char*> args) {
  return train_options(resolve(std::move(args), train_option_table()).values);
}

}  // namespace

TEST_CASE("options: both ways to write a value, switches on and off") {
  const Sandbox sandbox;
  const auto given =
      resolve({"--rate", "0.25", "--count=-7", "--no-augment", "--quick", "--note", "a b"});
  CHECK(number_option(given.values, "rate", 0, 1) == 0.25);
  CHECK(integer_option(given.values, "count", -10, 10) == -7);
  CHECK_FALSE(switch_option(given.values, "augment"));
  CHECK(switch_option(given.values, "quick"));
  CHECK(text_option(given.values, "note") == "a b");
  CHECK(given.values.at("rate").source == "command line");
  CHECK(given.values.at("cap").source == "default");
  CHECK(size_option(given.values, "cap", 0, 1 << 30) == 1 << 20);
  CHECK(duration_option(given.values, "wait", 0, 60) == 10);
  CHECK(given.values.size() == small_table().size());
}

TEST_CASE("options: a misspelt or abbreviated option suggests the right one") {
  const Sandbox sandbox;
  CHECK(refusal([] { resolve({"--rat", "1"}); }).mentions("did you mean --rate?"));
  CHECK(refusal([] { resolve({"--cuont=1"}); }).mentions("did you mean --count?"));
  CHECK(refusal([] { resolve({"--no-agument"}); }).mentions("did you mean --no-augment?"));
  CHECK(refusal([] { resolve({"--xylophone"}); }).mentions("--help"));
  CHECK(refusal([] { resolve({"--hel"}); }).mentions("did you mean --help?"));
}

TEST_CASE("options: what a command line must not hold") {
  const Sandbox sandbox;
  CHECK(refusal([] { resolve({"--rate", "1", "--rate", "2"}); }).mentions("given twice"));
  CHECK(refusal([] { resolve({"--augment", "--no-augment"}); }).mentions("given twice"));
  CHECK(refusal([] { resolve({"--rate"}); }).mentions("--rate needs a value"));
  CHECK(refusal([] { resolve({"--rate", "--quick"}); }).mentions("--rate needs a value"));
  CHECK(refusal([] { resolve({"--rate="}); }).mentions("--rate needs a value"));
  CHECK(refusal([] { resolve({"--quick=yes"}); }).mentions("switch"));
  CHECK(refusal([] { resolve({"stray"}); }).mentions("\"stray\" is not expected"));
  CHECK(refusal([] { resolve({"-n", "4"}, small_table(), "FILE"); }).mentions("long names"));
}

TEST_CASE("options: positional and repeated values") {
  const Sandbox sandbox;
  const auto given =
      resolve({"one", "--set", "a=1", "two", "--set=b=2", "--", "--three"}, small_table(), "FILE");
  CHECK(given.positional == std::vector<std::string>{"one", "two", "--three"});
  CHECK(list_option(given.values, "set") == std::vector<std::string>{"a=1", "b=2"});
  CHECK(list_option(resolve({}).values, "set").empty());
}

TEST_CASE("options: command line > environment > job file > site file > default") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "rate = 0.1\ncount = 11\ncap = 1KiB\n");
  sandbox.file("gradsync/site.cfg", "rate = 0.2\ncount = 22\ncap = 2KiB\nwait = 22s\n");
  const Variable rate("GRADSYNC_RATE", "0.3"), count("GRADSYNC_COUNT", "33");
  const auto values = resolve({"--config", job.c_str(), "--rate", "0.4"}).values;
  CHECK(values.at("rate").value == "0.4");
  CHECK(values.at("rate").source == "command line");
  CHECK(values.at("count").value == "33");
  CHECK(values.at("count").source == "environment");
  CHECK(values.at("count").where == "GRADSYNC_COUNT");
  CHECK(values.at("cap").value == "1KiB");
  CHECK(values.at("cap").where == job + ":3");
  CHECK(values.at("wait").value == "22s");
  CHECK(values.at("wait").source == "site file");
  CHECK(values.at("mode").source == "default");
}

TEST_CASE("options: files are named by variable, too, and an empty variable is unset") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "rate = 0.1\n");
  const std::string site = sandbox.file("site.cfg", "count = 9\n");
  sandbox.file("gradsync/site.cfg", "count = 22\n");
  const Variable config("GRADSYNC_CONFIG", job), named("GRADSYNC_SITE", site),
      empty("GRADSYNC_RATE", "");
  const auto values = resolve({}).values;
  CHECK(values.at("rate").value == "0.1");
  CHECK(values.at("count").value == "9");
  CHECK(resolve({"--site", "/dev/null"}).values.at("count").value == "3");
}

TEST_CASE("options: unknown keys and variables") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "\nraet = 0.1\n");
  CHECK(refusal([&] {
          resolve({"--config", job.c_str()});
        }).mentions("job.cfg:2: raet is not a key; did you mean rate?"));
  const std::string twice = sandbox.file("twice.cfg", "rate = 1\nrate = 2\n");
  CHECK(refusal([&] { resolve({"--config", twice.c_str()}); }).mentions("twice.cfg:2"));

  const std::string site = sandbox.file("site.cfg", "raet = 0.1\n");
  CHECK_NOTHROW(resolve({"--site", site.c_str()}));
  CHECK(refusal([&] {
          resolve({"--site", site.c_str()}, small_table(), "", Foreign::kReject);
        }).mentions("did you mean rate?"));

  const Variable allowed("GRADSYNC_MAX_RESTARTS", "3"), misspelt("GRADSYNC_CUONT", "1");
  CHECK_NOTHROW(resolve({}));
  CHECK(refusal([] {
          resolve({}, small_table(), "", Foreign::kReject);
        }).mentions("did you mean GRADSYNC_COUNT?"));
  CHECK_NOTHROW(resolve({"--help"}, small_table(), "", Foreign::kReject));
}

TEST_CASE("options: a missing file is exit 66") {
  const Sandbox sandbox;
  try {
    resolve({"--config", "/nonexistent/job.cfg"});
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kNoInput);
  }
}

TEST_CASE("options: a bad value names the option, the value, its place and the range") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "rate = 2\nmode = c\n");
  const auto values =
      resolve({"--config", job.c_str(), "--count", "12x", "--cap", "4M", "--wait", "nan"}).values;
  const auto rate = refusal([&] { number_option(values, "rate", 0, 1); });
  CHECK(rate.mentions("job.cfg:1: rate"));
  CHECK(rate.mentions("\"2\" is out of range"));
  CHECK(rate.mentions("from 0 to 1"));
  CHECK(refusal([&] {
          integer_option(values, "count", 0, 9);
        }).mentions("--count: \"12x\" is not a whole number"));
  CHECK(refusal([&] { size_option(values, "cap", 1, 1 << 30); }).mentions("4MiB"));
  CHECK(refusal([&] { duration_option(values, "wait", 0, 60); }).mentions("--wait"));
  const auto mode = refusal([&] { choice_option(values, "mode", {"a", "b"}); });
  CHECK(mode.mentions("job.cfg:2: mode: \"c\""));
  CHECK(mode.mentions("a, b"));
  const Variable quick("GRADSYNC_QUICK", "maybe");
  CHECK(refusal([] { switch_option(resolve({}).values, "quick"); }).mentions("GRADSYNC_QUICK"));
  CHECK_THROWS_AS(text_option(values, "no-such"), Error);
}

TEST_CASE("options: --print-config is a job file that says the same") {
  const Sandbox sandbox;
  const auto first = resolve({"--note", "  # \"odd\" \\n\n", "--rate", "0.75", "--no-augment",
                              "--set", "a=1", "--set", "b=2"})
                         .values;
  const std::string text = config_text(small_table(), first);
  CHECK(text.find("rate    = 0.75  # command line\n") == 0);
  CHECK(text.find("count   = 3  # default\n") != std::string::npos);
  const std::string job = sandbox.file("again.cfg", text);
  const auto second = resolve({"--config", job.c_str()}).values;
  for (const auto& [name, value] : first) {
    CHECK_MESSAGE(second.at(name).value == value.value, name);
    if (!value.value.empty()) CHECK(second.at(name).source == "job file");
  }
}

TEST_CASE("options: --help fits 100 columns and names everything") {
  const std::string text = help_text("program [OPTION…]", "program --rate 1", small_table());
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    CHECK_MESSAGE(display_width(line) <= 100, line);
  for (const char* part :
       {"Usage: program", "  program --rate 1", "--rate X", "a number from 0 to 1 [0.5]", "Words",
        "--[no-]augment", "[on]", "--print-config", "--config FILE",
        "Precedence:", "64  usage or configuration", "87  ranks disagree"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
  std::istringstream trainer(train_help());
  for (std::string line; std::getline(trainer, line);)
    CHECK_MESSAGE(display_width(line) <= 100, line);
}

TEST_CASE("options: the version") {
  CHECK(version_text("gradsync-train").find("gradsync-train 0.1.0 (revision ") == 0);
}

TEST_CASE("train options: the defaults of the table are those of TrainOptions") {
  const Sandbox sandbox;
  const TrainOptions read = trained({}), made;
  CHECK(read.sync == made.sync);
  CHECK(read.model == made.model);
  CHECK(read.data == made.data);
  CHECK(read.output == made.output);
  CHECK(read.epochs == made.epochs);
  CHECK(read.iterations == made.iterations);
  CHECK(read.warmup == made.warmup);
  CHECK(read.batch_per_rank == 128);
  CHECK(read.batch_global == 0);
  CHECK(read.accumulate == made.accumulate);
  CHECK(read.learning_rate == made.learning_rate);
  CHECK(read.momentum == made.momentum);
  CHECK(read.weight_decay == made.weight_decay);
  CHECK(read.granularity == made.granularity);
  CHECK(read.first_bucket_bytes == made.first_bucket_bytes);
  CHECK(read.bucket_cap_bytes == made.bucket_cap_bytes);
  CHECK(read.wire_dtype == made.wire_dtype);
  CHECK(read.precision == made.precision);
  CHECK(read.layout == made.layout);
  CHECK(read.threads == made.threads);
  CHECK(read.loader_threads == made.loader_threads);
  CHECK(read.prefetch == made.prefetch);
  CHECK(read.seed == made.seed);
  CHECK(read.augment == made.augment);
  CHECK(read.set_epoch == made.set_epoch);
  CHECK(read.last_batch == made.last_batch);
  CHECK(read.evaluate == made.evaluate);
  CHECK(read.log_every == made.log_every);
  CHECK(read.verify_modes == made.verify_modes);
  CHECK(read.verify == made.verify);
  CHECK(read.timeout_s == made.timeout_s);
  CHECK(read.inject_fault == made.inject_fault);
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
  CHECK(options.last_batch == "drop");
  CHECK(options.loader_threads == 3);
  CHECK(options.prefetch == 7);
  CHECK(options.batch_global == 256);
  CHECK(options.batch_per_rank == 0);
  CHECK(options.accumulate == 2);
  CHECK(options.epochs == 5);
  CHECK(options.iterations == 40);
  CHECK(options.warmup == 0);
  CHECK(options.seed == 42);
  CHECK(options.learning_rate == 0.01);
  CHECK(options.momentum == 0);
  CHECK(options.weight_decay == 0);
  CHECK(options.precision == "auto");
  CHECK(options.layout == "nchw");
  CHECK(options.threads == 2);
  CHECK(options.evaluate == "each-rank");
  CHECK(options.log_every == 1);
  CHECK(options.output == "o.h5");
  CHECK(options.verify_modes);
  CHECK(options.verify == "all");
  CHECK(options.timeout_s == 120);
  CHECK(options.inject_fault == "nan@1:5");
}

TEST_CASE("train options: values out of range") {
  const Sandbox sandbox;
  const std::vector<std::vector<const char*>> wrong = {{"--lr", "-0.1"},
                                                       {"--lr", "1001"},
                                                       {"--lr", "nan"},
                                                       {"--momentum", "1"},
                                                       {"--momentum", "-0.1"},
                                                       {"--weight-decay", "2"},
                                                       {"--threads", "1025"},
                                                       {"--threads", "-1"},
                                                       {"--epochs", "0"},
                                                       {"--epochs", "1000001"},
                                                       {"--batch-per-rank", "0"},
                                                       {"--batch-global", "0"},
                                                       {"--batch-per-rank", "1000001"},
                                                       {"--accumulate", "0"},
                                                       {"--iterations", "-1"},
                                                       {"--warmup", "-1"},
                                                       {"--seed", "-1"},
                                                       {"--prefetch", "0"},
                                                       {"--loader-threads", "0"},
                                                       {"--log-every", "0"},
                                                       {"--timeout", "-1"},
                                                       {"--timeout", "169h"},
                                                       {"--first-bucket", "0"},
                                                       {"--bucket-cap", "17GiB"},
                                                       {"--data", ""},
                                                       {"--inject-fault", "nan"},
                                                       {"--inject-fault", "nan@x:1"},
                                                       {"--inject-fault", "nan@1:"},
                                                       {"--seed", "18446744073709551616"}};
  for (const auto& args : wrong)
    CHECK_MESSAGE(refusal([&] { trained(args); }).mentions(args[0]), args[0], " ", args[1]);
  CHECK(refusal([] { trained({"--sync", "dpp"}); }).mentions("did you mean ddp?"));
  CHECK(refusal([] { trained({"--model", "resnet-18"}); }).mentions("did you mean resnet18?"));
}

TEST_CASE("train options: one of the two batches") {
  const Sandbox sandbox;
  CHECK(refusal([] {
          trained({"--batch-global", "256", "--batch-per-rank", "64"});
        }).mentions("one of the two"));
  const std::string job = sandbox.file("job.cfg", "batch-global = 256\n");
  CHECK(refusal([&] {
          trained({"--config", job.c_str(), "--batch-per-rank", "64"});
        }).mentions("job.cfg:1: batch-global"));
  CHECK(trained({"--config", job.c_str(), "--batch-global", "auto", "--batch-per-rank", "64"})
            .batch_per_rank == 64);
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
  CHECK(refused.mentions("250 does not divide by 4"));
  CHECK(refused.mentions("--batch-global 252"));
}

TEST_CASE("train options: --print-config of any settings is read back the same") {
  const Sandbox sandbox;
  const std::vector<std::vector<const char*>> settings = {
      {}, {"--batch-global", "256", "--no-augment"}, {"--batch-per-rank", "64", "--data", "a # b"}};
  for (const auto& args : settings) {
    const auto first = resolve(args, train_option_table()).values;
    const std::string job = sandbox.file("again.cfg", config_text(train_option_table(), first));
    const auto second = resolve({"--config", job.c_str()}, train_option_table()).values;
    for (const auto& [name, value] : first)
      CHECK_MESSAGE(second.at(name).value == value.value, name);
    CHECK(train_options(second).batch_per_rank == train_options(first).batch_per_rank);
  }
}
