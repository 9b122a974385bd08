// SPDX-License-Identifier: BSD-3-Clause
#include "options/options.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/modes.h"
#include "options/option_roles.h"

namespace gradsync {

const std::vector<std::string>& batch_norm_names() {
  static const std::vector<std::string> names = {"local", "broadcast", "sync"};
  return names;
}

const std::string& batch_norm_name(BatchNormMode batch_norm) {
  return batch_norm_names().at(static_cast<std::size_t>(batch_norm));
}

const std::vector<std::string>& sync_mode_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Mode& mode : kModes)
      all.emplace_back(mode.name);
    return all;
  }();
  return names;
}

const OptionTable& train_option_table() {
  static const OptionTable table = [] {
    OptionTable all;
    for (const TrainOption& option : declared_train_options())
      all.push_back(spec_of<TrainOptions>({option.name, option.value, option.help, option.group}));
    return all;
  }();
  return table;
}

ProgramHelp train_help() {
  return {
      "gradsync-train",
      "mpirun -n RANKS gradsync-train [OPTION...]",
      "Trains a network in one synchronization mode and records every iteration.",
      "mpirun -n 2 gradsync-train --model vgg11 --iterations 40 --output run.h5\n"
      "mpirun -n 4 gradsync-train --time-limit 3h --output run.h5 --resume auto\n"
      "gradsync-train --sync none --model lenet --epochs 2 --data data/cifar-10\n"
      "mpirun -n 4 gradsync-train --sync allreduce --granularity tensor --batch-global 256\n"
      "mpirun -n 2 gradsync-train --sync ddp --bucket-cap 4MiB --wire-dtype bf16 --no-augment\n"
      "mpirun -n 2 gradsync-train --verify-modes --iterations 1\n"
      "mpirun -n 2 gradsync-train --model gpt2-small --sequence-length 128 --batch-per-rank 1\n"
      "mpirun -n 2 gradsync-train --calibrate --counterfactual 20 --iterations 50 --output run.h5\n"
      "gradsync-train --batch-per-rank 64 --print-config",
      {ExitCode::kCheckFailed, ExitCode::kStoppedEarly, ExitCode::kNumbers, ExitCode::kHang,
       ExitCode::kRanksDisagree},
      {"sync", "bucket-cap", "model", "data", "batch-per-rank", "epochs", "iterations", "lr",
       "device", "transport", "threads", "calibrate", "counterfactual", "output", "verify-modes",
       "checkpoint-every", "resume", "time-limit"}};
}

TrainOptions train_options(const OptionValues& values) {
  TrainOptions options;
  for (const TrainOption& option : declared_train_options())
    option.value.read(values, option.name, options);
  options.learning_rate.epochs = options.epochs;
  options.optimizer.scales_loss = options.precision == "fp16";
  if (options.data.empty())
    throw option_error(values, "data", "the folder has no name", "give a folder, as data/cifar-10");
  // What is drawn from a seed has no answers to learn.
  if (!network_input(options).cifar10) options.evaluate = EvaluateHow::kNone;
  require_possible(values, options);
  return options;
}

void resolve_batch(TrainOptions& options, std::int64_t ranks) {
  const std::int64_t shares = ranks * options.accumulate;
  if (ranks < 1 || shares < 1)
    throw Error(ExitCode::kInternal, "resolve_batch for " + count_text(ranks, "rank"));
  if (!options.batch_schedule.empty()) {
    options.batch_schedule.require_fits(options.epochs, shares);
    options.batch_global = options.batch_schedule.at(0);
  }
  if (options.batch_global == 0 && options.batch_per_rank == 0)
    options.batch_per_rank = kDefaultBatchPerRank;
  if (options.batch_global == 0) {
    // Products of what each option allows need not fit: steps · batch · ranks is computed as well.
    constexpr std::int64_t kMost = std::int64_t{1} << 60;
    if (shares > kMost / options.batch_per_rank)
      throw Error(
          ExitCode::kUsage,
          fmt::format("--batch-per-rank {} x {} x --accumulate {} is too large",
                      options.batch_per_rank, count_text(ranks, "rank"), options.accumulate),
          "a smaller --batch-per-rank: no batch holds more than all images");
    options.batch_global = options.batch_per_rank * shares;
  }
  if (options.batch_global % shares != 0)
    throw Error(ExitCode::kUsage,
                fmt::format("--batch-global {} does not divide by {} (ranks {} × accumulate {})",
                            options.batch_global, shares, ranks, options.accumulate),
                fmt::format("--batch-global {}", (options.batch_global / shares + 1) * shares));
  options.batch_per_rank = options.batch_global / shares;
  options.learning_rate.global_batch = options.batch_global;
}

WatchLimits watch_limits(const TrainOptions& options) {
  WatchLimits limits;
  limits.automatic = options.timeout_s == 0;
  if (!limits.automatic) limits.timeout_s = options.timeout_s;
  limits.start_s = options.start_timeout_s;
  limits.io_s = options.io_timeout_s;
  limits.timeout_option = "--timeout";
  limits.start_option = "--start-timeout";
  limits.io_option = "--io-timeout";
  return limits;
}

namespace {

constexpr const char* kFaultNames[] = {"nan",           "kill",  "stop",       "leave",
                                       "skip",          "short", "other-type", "other-root",
                                       "out-of-memory", "usr1",  "term",       "delay"};

template <typename Number>
bool read_number(const std::string& text, Number& value) {
  const auto end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && last == end && value >= 0;
}

}  // namespace

Fault parse_fault(const std::string& text) {
  if (text.empty()) return {};
  Fault fault;
  const auto at = text.find('@'), colon = text.find(':');
  const std::string kind = text.substr(0, at);
  const auto known = std::find(std::begin(kFaultNames), std::end(kFaultNames), kind);
  const bool shaped = at != std::string::npos && colon != std::string::npos && at < colon;
  if (known == std::end(kFaultNames) || !shaped ||
      !read_number(text.substr(at + 1, colon - at - 1), fault.rank) ||
      !read_number(text.substr(colon + 1), fault.iteration))
    throw Error(ExitCode::kUsage,
                fmt::format("\"{}\" is not KIND@RANK:ITERATION, as nan@1:5", text),
                fmt::format("KIND is one of {}", fmt::join(kFaultNames, ", ")));
  fault.kind = static_cast<FaultKind>(known - std::begin(kFaultNames) + 1);
  return fault;
}

}  // namespace gradsync
