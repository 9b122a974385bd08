#include "check/options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "check/check.h"

namespace gradsync::check {

namespace {

constexpr int kMostRanks = 1'000'000;
const std::vector<std::string> kDevices = {"auto", "cpu", "cuda"};

std::vector<std::string> check_names() {
  std::vector<std::string> names;
  for (const Check& check : checks())
    names.push_back(check.id);
  return names;
}

OptionTable own_options() {
  const std::string group = "What the job should be", out = "Output";
  return {
      {"ranks", "N", "0", "the job must have so many ranks; 0: as many as it has", group},
      {"ranks-per-node", "N", "0", "each host must have so many; 0: as many as it has", group},
      {"device", fmt::format("{}", fmt::join(kDevices, "|")), "auto",
       "cuda: a rank without a GPU fails; auto: GPUs are looked at where there are some", group},
      {"allow-shared-gpu", "", "false", "several ranks on one GPU only warn", group},
      {"results", "FOLDER", "results", "where runs will be written; it need not exist yet", group},
      {"skip", "NAMES", "",
       fmt::format("checks to leave out, with commas between: {}", fmt::join(check_names(), ", ")),
       group},
      {"timeout", "TIME", "60s", "end the job when a rank does not answer for so long, 1s to 1h",
       group},
      {"json", "FILE", "", "the findings as JSON; an older file is replaced", out},
      {"junit", "FILE", "", "the findings as JUnit XML, a test a row; an older file is replaced",
       out},
  };
}

/// These mean here what they mean to the trainer.
OptionTable shared_options() {
  const std::string group = "Of the training to come";
  return {
      {"data", "FOLDER", "data/cifar-10", "folder with CIFAR-10's binary files", group},
      {"threads", "N", "0", "threads per rank, 1 to 1024; 0: the trainer chooses", group},
  };
}

std::vector<std::string> read_skips(const OptionValues& values) {
  const std::string text = text_option(values, "skip");
  if (text.empty()) return {};
  const auto known = check_names();
  const auto chosen = split_list(text, ',');
  for (const std::string& name : chosen)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw option_error(values, "skip",
                         fmt::format("'{}' is no check{}", name, did_you_mean(name, known)),
                         fmt::format("one of {}", fmt::join(known, ", ")));
  return chosen;
}

}  // namespace

OptionTable check_option_table() {
  OptionTable table = scoped("check", own_options());
  for (const OptionSpec& spec : shared_options())
    table.push_back(spec);
  return table;
}

std::string check_help() {
  return help_text(
      "mpirun -n RANKS gradsync-check [OPTION…]\n"
      "Looks in seconds at what a run needs of these ranks, hosts, libraries, files and links, and "
      "says how to\n"
      "mend what is wrong. Exit code 0 (warnings too) or 69.",
      "mpirun -n 4 gradsync-check --data data/cifar-10\n"
      "srun --mpi=pmix -n 8 gradsync-check --ranks 8 --ranks-per-node 4 --device cuda\n"
      "mpirun -n 2 gradsync-check --skip data --results results/demo\n"
      "mpirun -n 2 gradsync-check --threads 1 --json check.json --junit check.xml\n"
      "gradsync-check --print-config",
      check_option_table());
}

CheckOptions check_options(const OptionValues& values) {
  CheckOptions options;
  options.data = text_option(values, "data");
  options.results = text_option(values, "results");
  options.ranks = static_cast<int>(integer_option(values, "ranks", 0, kMostRanks));
  options.ranks_per_node =
      static_cast<int>(integer_option(values, "ranks-per-node", 0, kMostRanks));
  options.threads = static_cast<int>(integer_option(values, "threads", 0, 1024));
  options.device = choice_option(values, "device", kDevices);
  options.allow_shared_gpu = switch_option(values, "allow-shared-gpu");
  options.skip = read_skips(values);
  options.timeout_s = duration_option(values, "timeout", 1, 3600);
  options.json = text_option(values, "json");
  options.junit = text_option(values, "junit");
  return options;
}

WatchLimits watch_limits(const CheckOptions& options) {
  WatchLimits limits;
  limits.timeout_s = limits.start_s = options.timeout_s;
  limits.timeout_option = limits.start_option = "--timeout";
  return limits;
}

}  // namespace gradsync::check
