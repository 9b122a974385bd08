#include "check/check_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/bound_option.h"
#include "check/check.h"

namespace gradsync::check {

namespace {

using Groups = std::vector<BoundGroup<CheckOptions>>;

std::vector<std::string> check_names() {
  std::vector<std::string> names;
  for (const Check& check : checks())
    names.push_back(check.id);
  return names;
}

std::vector<std::string> parse_skips(const std::string& text) {
  if (text.empty()) return {};
  const auto known = check_names();
  const auto chosen = split_list(text, ',');
  for (const std::string& name : chosen)
    if (std::find(known.begin(), known.end(), name) == known.end())
      throw Error(ExitCode::kUsage,
                  fmt::format("'{}' is no check{}", name, did_you_mean(name, known)),
                  fmt::format("one of {}", fmt::join(known, ", ")));
  return chosen;
}

Groups own_options() {
  using Value = BoundValue<CheckOptions>;
  using O = CheckOptions;
  constexpr int kMostRanks = 1'000'000;
  return {
      {"Requirements of the job",
       {
           {"ranks", Value::integer<int>(&O::ranks, 0, kMostRanks, "any"),
            "the job must have N ranks"},
           {"ranks-per-node", Value::integer<int>(&O::ranks_per_node, 0, kMostRanks, "any"),
            "each host must have N ranks"},
           {"device", Value::choice(&O::device, {"auto", "cpu", "cuda"}),
            "cuda: a rank without a GPU fails; auto: GPUs are checked where there are any"},
           {"allow-shared-gpu", Value::on_off(&O::allow_shared_gpu),
            "several ranks on one GPU give a warning only"},
           {"results", Value::text_value(&O::results, "FOLDER"),
            "where runs will be written; it need not exist"},
           {"skip", Value::parsed("NAMES", "", &O::skip, parse_skips),
            fmt::format("checks to leave out, separated by commas: {}",
                        fmt::join(check_names(), ", "))},
           {"least-link", Value::fraction(&O::least_link),
            "a link between hosts must reach this share of its nominal rate, and the NVLinks of a "
            "GPU must have it, as 0.7; 0: warnings, between hosts below half of it"},
           {"sysfs", Value::text_value(&O::sysfs, "FOLDER"),
            "for tests: where the kernel states the rates of ports"},
           {"timeout", Value::duration(&O::timeout_s, 1, 3600),
            "end the job when a rank does not answer within TIME"},
       }},
      {"Output",
       {
           {"json", Value::text_value(&O::json, "FILE"),
            "write the findings as JSON; an older file is replaced"},
           {"junit", Value::text_value(&O::junit, "FILE"),
            "write the findings as JUnit XML, a test per row; an older file is replaced"},
       }},
  };
}

/// These mean here what they mean to the trainer.
Groups shared_options() {
  using Value = BoundValue<CheckOptions>;
  return {{"Of the training to come",
           {
               {"data", Value::text_value(&CheckOptions::data, "FOLDER"),
                "folder with CIFAR-10's binary files"},
               {"threads", Value::integer<int>(&CheckOptions::threads, 0, 1024),
                "threads per rank; 0: the trainer chooses"},
           }}};
}

ProgramOptions<CheckOptions> all_options() {
  return {"check", own_options(), shared_options()};
}

}  // namespace

OptionTable check_option_table() {
  return all_options().table();
}

ProgramHelp check_help() {
  return {"gradsync-check",
          "mpirun -n RANKS gradsync-check [OPTION...]",
          "Checks ranks, hosts, libraries, files and links before a run; prints fixes.",
          "mpirun -n 4 gradsync-check --data data/cifar-10\n"
          "srun --mpi=pmix -n 8 gradsync-check --ranks 8 --ranks-per-node 4 --device cuda\n"
          "mpirun -n 2 gradsync-check --skip data --results results/demo\n"
          "mpirun -n 2 gradsync-check --threads 1 --json check.json --junit check.xml\n"
          "gradsync-check --print-config",
          {},
          "The exit code is 69 if a check fails, else 0; warnings do not change it."};
}

CheckOptions check_options(const OptionValues& values) {
  return all_options().read(values);
}

WatchLimits watch_limits(const CheckOptions& options) {
  WatchLimits limits;
  limits.timeout_s = limits.start_s = options.timeout_s;
  limits.timeout_option = limits.start_option = "--timeout";
  return limits;
}

}  // namespace gradsync::check
