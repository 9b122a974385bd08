// SPDX-License-Identifier: BSD-3-Clause
#include "options/options.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "base/ranges.h"
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
  static const auto names = each(kModes, [](const Mode& mode) { return std::string(mode.name); });
  return names;
}

const OptionTable& train_option_table() {
  static const OptionTable table = each(declared_train_options(), [](const TrainOption& option) {
    return spec_of<TrainOptions>({option.name, option.value, option.help, option.group});
  });
  return table;
}

ProgramHelp train_help() {
  return {"gradsync-train",
          "mpirun -n RANKS gradsync-train [OPTION...]",
          "Trains a network in one synchronization mode, or in several in turn, measured.",
          "mpirun -n 2 gradsync-train --model vgg11 --iterations 40 --output run.h5\n"
          "mpirun -n 4 gradsync-train --compare none,ddp,allreduce --output cmp.h5\n"
          "mpirun -n 4 gradsync-train --time-limit 3h --output run.h5 --resume auto\n"
          "gradsync-train --sync none --model lenet --epochs 2 --data data/cifar-10\n"
          "mpirun -n 4 gradsync-train --sync allreduce --granularity tensor --batch-global 256\n"
          "mpirun -n 2 gradsync-train --sync ddp --bucket-cap 4MiB --wire-dtype bf16 --no-augment\n"
          "mpirun -n 2 gradsync-train --verify-modes --iterations 1\n"
          "mpirun -n 2 gradsync-train --model gpt2-small --sequence-length 128 --batch-per-rank 1\n"
          "mpirun -n 2 gradsync-train --compare none,ddp,ddp:overlap=none,ddp:stamps=off\n"
          "gradsync-train --batch-per-rank 64 --print-config",
          {ExitCode::kCheckFailed, ExitCode::kStoppedEarly, ExitCode::kNumbers, ExitCode::kHang,
           ExitCode::kRanksDisagree},
          {"sync", "compare", "bucket-cap", "model", "data", "batch-per-rank", "epochs",
           "iterations", "lr", "device", "transport", "threads", "calibrate", "output",
           "verify-modes", "checkpoint-every", "resume", "time-limit"}};
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

constexpr const char* kFaultNames[] = {"nan",   "kill",       "stop",       "leave",         "skip",
                                       "short", "other-type", "other-root", "out-of-memory", "usr1",
                                       "term",  "delay",      "slow",       "slow-loader"};

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
  fault.kind = static_cast<FaultKind>(known - std::begin(kFaultNames) + 1);
  const bool lasts = fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kSlowLoader;
  const std::string number = shaped ? text.substr(colon + 1) : "";
  const std::string rank = shaped ? text.substr(at + 1, colon - at - 1) : "";
  const bool on_all = lasts && rank == "all";
  if (on_all) fault.rank = Fault::kAllRanks;
  if (known == std::end(kFaultNames) || !shaped || !(on_all || read_number(rank, fault.rank)) ||
      !(lasts
            ? read_number(number, fault.factor) && fault.factor >= 1 && std::isfinite(fault.factor)
            : read_number(number, fault.iteration)))
    throw Error(ExitCode::kUsage,
                fmt::format("\"{}\" is not KIND@RANK:ITERATION, as nan@1:5, or "
                            "KIND@RANK:FACTOR, as slow@1:1.5 or slow@all:1.5",
                            text),
                fmt::format("KIND is one of {}; the last two have a FACTOR from 1 on",
                            fmt::join(kFaultNames, ", ")));
  return fault;
}

namespace {

std::string role_text(OptionRole role) {
  switch (role) {
    case OptionRole::kMode:
    case OptionRole::kBetweenRanks:
      return "what ranks exchange";
    case OptionRole::kStep:
      return "what an iteration computes";
    case OptionRole::kTraining:
      return "what is learned";
    case OptionRole::kMachine:
      return "the machine";
    case OptionRole::kCourse:
      return "how long a run is";
    case OptionRole::kFree:
      return "what is recorded";
  }
  return "";
}

/// "wire-dtype=bf16" of a contender, into its values.
void set_of_contender(const std::string& setting, const std::string& where, OptionValues& values) {
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    return Error(ExitCode::kUsage, fmt::format("--compare: '{}' {}", where, why), fix);
  };
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos)
    throw refuse(fmt::format("has '{}', which sets no option", setting), "MODE:OPTION=VALUE");
  const std::string name = setting.substr(0, equals);
  std::vector<std::string> allowed;
  for (const TrainOption& option : declared_train_options())
    if (is_of_contender(option)) allowed.push_back(option.name);
  const TrainOption* option = declared_train_option(name);
  if (option == nullptr)
    throw refuse(
        fmt::format("sets '{}', not an option of the trainer{}", name, did_you_mean(name, allowed)),
        fmt::format("{}", fmt::join(allowed, ", ")));
  // Tests make one contender slower than the others; fewer updates are another training, and said
  // so.
  if (!is_of_contender(*option) && name != "inject-fault" && name != "accumulate")
    throw refuse(fmt::format("sets {}, which changes {}: contenders differ in what ranks exchange",
                             name, name == "sync" ? "the mode" : role_text(option->role)),
                 fmt::format("{}; or --{} for all contenders", fmt::join(allowed, ", "), name));
  const std::string& mode = values.at("sync").value;
  if (name == "wire-dtype" && setting.substr(equals + 1) != "fp32" && !mode_named(mode).casts)
    throw refuse(fmt::format("sets wire-dtype, and {} sends what it has", mode),
                 "leave it out; --help names the modes that have it");
  values[name] = {setting.substr(equals + 1), "--compare", fmt::format("--compare '{}'", where)};
}

Contender contender(const std::string& text, const OptionValues& values) {
  std::vector<std::string> parts;
  for (const std::string& part : split_list(text, ':'))
    if (!parts.empty() && parts.back().starts_with("inject-fault=") &&
        part.find('=') == std::string::npos)
      parts.back() += ":" + part;  // slow@1:1.5
    else
      parts.push_back(part);
  const std::vector<std::string>& modes = sync_mode_names();
  if (!contains(modes, parts.front()))
    throw Error(ExitCode::kUsage,
                fmt::format("--compare: '{}' is no mode{}", parts.front(),
                            did_you_mean(parts.front(), modes)),
                fmt::format("{}, or all", fmt::join(modes, ", ")));
  Contender made{text, values, {}};
  const std::string where = fmt::format("--compare '{}'", text);
  made.values["sync"] = {parts.front(), "--compare", where};
  // Ranks that exchange nothing in an iteration have no common statistics.
  if (mode_named(parts.front()).local)
    made.values["batch-norm"] = {batch_norm_name(BatchNormMode::kLocal), "--compare", where};
  for (std::size_t i = 1; i < parts.size(); ++i)
    set_of_contender(parts[i], text, made.values);
  made.options = train_options(made.values);
  return made;
}

/// cmp-ddp-wire-dtype-bf16.h5 for cmp.h5.
std::string output_of(const std::string& output, const std::string& name) {
  if (output.empty()) return output;
  std::string part;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_')
      part += c;
    else if (!part.empty() && part.back() != '-')
      part += '-';
  while (part.ends_with('-'))
    part.pop_back();
  const std::filesystem::path path(output);
  return path.parent_path() /
         fmt::format("{}-{}{}", path.stem().string(), part, path.extension().string());
}

/// What all contenders have in common.
OptionValues common_values(const OptionValues& values, const TrainOptions& options) {
  OptionValues common = values;
  // The laws of these ranks are what predictions rest on.
  if (values.at("calibrate").source == "default") common["calibrate"].value = "true";
  if (options.block == 0) common["block-warmup"].value = "auto";
  return common;
}

/// The files of the contenders. --output lists those of the
/// others in one folder ("runs/none.h5,ddp.h5"), or has the name from which theirs are made.
std::vector<std::string> outputs_of(const OptionValues& values, const std::string& output,
                                    const std::vector<Contender>& all) {
  const std::filesystem::path path(output);
  std::vector<std::string> files = split_list(path.filename().string(), ',');
  const bool has_control = all.back().control;
  const std::size_t named = all.size() - (has_control ? 1 : 0);
  if (files.size() == 1)
    return each(all, [&](const Contender& one) { return output_of(output, one.name); });
  if (files.size() != named)
    throw option_error(values, "output",
                       fmt::format("{} files for {}", files.size(),
                                   count_text(static_cast<std::int64_t>(named), "contender")),
                       "FILE.h5, from which the names are made, or a file for each");
  for (const std::string& file : files)
    if (file.empty())
      throw option_error(values, "output", "a contender without a file", "a file for each");
  for (std::string& file : files)
    file = path.parent_path() / file;
  if (has_control) files.push_back(output_of(files.front(), "control"));
  for (const std::string& file : files)
    if (std::ranges::count(files, file) > 1)
      throw option_error(values, "output", fmt::format("two contenders for \"{}\"", file),
                         "a file for each");
  return files;
}

/// What counts of a block is to hold equally many exchanges of each contender, where iterations
/// between do not count; else rounds are taken together (rounds_per_exchange).
void require_whole_periods(const OptionValues& values, const std::vector<Contender>& all) {
  const std::int64_t block = all.front().options.block;
  const std::int64_t warmup = all.front().options.block_warmup;
  std::int64_t period = 1;
  for (const Contender& one : all)
    period = common_period(period, one.options);
  if (warmup <= 0 || (block - warmup) % period == 0) return;
  throw option_error(values, "block",
                     fmt::format("{} of each that count would not hold equally many exchanges of "
                                 "local-sgd",
                                 count_text(block - warmup, "iteration")),
                     fmt::format("--block {}", period + warmup));
}

void require_comparable(const OptionValues& values, const TrainOptions& options) {
  const std::string& source = values.at("sync").source;
  if (source == "command line" || source == "job file")
    throw option_error(values, "sync", "--compare names the modes", "leave it out");
  if (options.resume != "no" && options.resume != "auto")
    throw option_error(values, "resume", "a file is of one contender, --compare has several",
                       "--resume auto");
  if (options.block > 0 && options.block_warmup >= options.block)
    throw option_error(values, "block-warmup",
                       fmt::format("no iteration of a block of {} would count", options.block),
                       fmt::format("--block {}", options.block_warmup + 1));
  if ((options.block == 0) != (options.block_warmup < 0) &&
      values.at("block-warmup").source != "default")
    throw option_error(values, "block-warmup", "it is measured with the length of a block",
                       "--block auto, or both as numbers");
  if (options.target_accuracy > 0)
    throw option_error(values, "target-accuracy", "contenders would end at different iterations",
                       "leave it out; gradsync-report --target-accuracy finds it in the run files");
}

}  // namespace

std::int64_t common_period(std::int64_t period, const TrainOptions& options) {
  const Mode& mode = mode_named(options.sync);
  if (!mode.exchanges || !mode.local) return period;
  const std::int64_t common = std::lcm(period, options.local_steps);
  if (common > kMaxIterations)
    throw Error(ExitCode::kUsage, "--compare: no block holds equally many exchanges of local-sgd",
                "--local-steps that are multiples of each other");
  return common;
}

std::vector<Contender> contenders(const OptionValues& values, const TrainOptions& options) {
  if (options.compare.empty()) return {{options.sync, values, options}};
  require_comparable(values, options);
  const OptionValues common = common_values(values, options);
  std::vector<Contender> all;
  for (const std::string& text : split_list(options.compare, ',')) {
    if (text == "all")
      for (const std::string& mode : sync_mode_names())
        all.push_back(contender(mode, common));
    else
      all.push_back(contender(text, common));
  }
  std::map<std::string, int> times;
  for (Contender& one : all)
    if (const int time = ++times[one.name]; time > 1) one.name += fmt::format(" ({})", time);
  if (times[all.front().name] == 1) {
    all.push_back(all.front());
    all.back().name += kControlEnding;
    all.back().control = true;
  }
  require_whole_periods(values, all);
  const auto outputs = outputs_of(values, options.output, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].values["output"].value = all[i].options.output = outputs[i];
  return all;
}

Contender joining(const std::string& text, const OptionValues& values) {
  const TrainOptions options = train_options(values);
  Contender made = contender(text, common_values(values, options));
  made.options.resume = "no";
  const std::filesystem::path output(options.output);
  const std::vector<std::string> files = split_list(output.filename().string(), ',');
  made.options.output = output_of(output.parent_path() / files.front(), made.name);
  made.values["output"].value = made.options.output;
  return made;
}

}  // namespace gradsync
