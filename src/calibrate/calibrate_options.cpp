// SPDX-License-Identifier: BSD-3-Clause
#include "calibrate/calibrate_options.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/bound_option.h"
#include "base/file.h"
#include "base/parse.h"
#include "options/transport_choice.h"

namespace gradsync::calibrate {

namespace {

const std::string kAll = "all";
const std::string kBoth = "both";
using Group = BoundGroup<CalibrateOptions>;
using Groups = std::vector<Group>;
using Value = BoundValue<CalibrateOptions>;
using O = CalibrateOptions;

std::string operation_names() {
  std::vector<std::string> names;
  for (const OperationEntry& entry : operations())
    names.push_back(entry.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// A size as nccl-tests' users write it: K, M and G are powers of 1024 there.
std::string with_unit(const std::string& text) {
  const bool bare =
      !text.empty() && std::string_view("KMG").find(text.back()) != std::string_view::npos;
  return bare ? text + "iB" : text;
}

Value sweep_size(std::int64_t SizeSweep::*bytes, std::int64_t low) {
  const auto place = part_of(&O::sweep, bytes);
  Value value = Value::size(place, low, kLargestMessageBytes);
  value.range.clear();
  value.read = [=](OptionValues values, const std::string& name, CalibrateOptions& options) {
    std::string& text = values.at(name).value;
    text = with_unit(text);
    place(options) = read_value(values, name, size_form(low, kLargestMessageBytes));
  };
  return value;
}

std::vector<const OperationEntry*> parse_operations(const std::string& text) {
  std::vector<const OperationEntry*> chosen;
  for (const OperationEntry& entry : operations())
    if (text == kAll) chosen.push_back(&entry);
  if (text == kAll) return chosen;
  for (const std::string& name : split_list(text, ','))
    chosen.push_back(&find_operation(name));
  return chosen;
}

OverRanks parse_over_ranks(const std::string& text) {
  if (text.size() != 1 || text[0] < '0' || text[0] > '3')
    throw Error(ExitCode::kUsage, fmt::format("\"{}\" is not a choice", text),
                "give 0 (rank 0), 1 (mean), 2 (fastest) or 3 (slowest rank)");
  return static_cast<OverRanks>(text[0] - '0');
}

bool parse_unmeasured(const std::string& text) {
  if (text != "N/A" && text != "repeat")
    throw Error(ExitCode::kUsage, fmt::format("\"{}\" is not a choice", text),
                "give N/A or repeat");
  return text == "repeat";
}

std::vector<std::string> parse_cadences(const std::string& text) {
  if (text == kBoth) return kCadences;
  if (std::find(kCadences.begin(), kCadences.end(), text) != kCadences.end()) return {text};
  std::vector<std::string> names = kCadences;
  names.emplace_back(kBoth);
  throw no_such("cadence", text, names);
}

std::vector<std::string> parse_transports(const std::string& text) {
  if (text == kAllTransports) return {text};
  std::vector<std::string> chosen;
  std::vector<std::string> names = transport_names();
  names.emplace_back(kAllTransports);
  for (const std::string& name : split_list(text, ',')) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw no_such("transport", name, names);
    if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) chosen.push_back(name);
  }
  return chosen;
}

std::vector<ValueType> parse_types(const std::string& text) {
  std::vector<ValueType> types;
  for (const DataType& one : kDataTypes)
    if (text == kAll) types.push_back(one.type);
  if (text == kAll) return types;
  for (const std::string& name : split_list(text, ','))
    types.push_back(find_data_type(name));
  return types;
}

constexpr std::string_view kMeasure = "busbw", kAtLeast = "busbw>=";

Expectation parse_expectation(const std::string& text) {
  const auto wrong = [&](const std::string& why) {
    return Error(ExitCode::kUsage, fmt::format("--expect: \"{}\": {}", text, why),
                 "write busbw>=GB/S@SIZE, as busbw>=180@1G or allreduce:busbw>=2.5@64MiB");
  };
  const auto limit = text.find(kAtLeast), at = text.find('@');
  if (limit == std::string::npos || at == std::string::npos || at < limit)
    throw wrong("not [COLLECTIVE:]busbw>=GB/S@SIZE");
  Expectation one;
  one.text = text;
  if (limit > 0) {
    if (text[limit - 1] != ':') throw wrong("no colon behind the collective");
    one.collective = find_operation(text.substr(0, limit - 1)).name;
  }
  const auto from = limit + kAtLeast.size();
  one.busbw = kGB * parse_number(text.substr(from, at - from));
  one.bytes = parse_size(with_unit(text.substr(at + 1)));
  if (!(one.busbw > 0)) throw wrong("a bandwidth is above 0");
  return one;
}

/// Rules in the option itself, or one per line of a file, where # begins a comment.
std::vector<Expectation> parse_expected(const std::string& text) {
  std::vector<Expectation> all;
  // A misspelled rule, "busbw>20@1G", is no name of a file.
  const auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  std::error_code no_file;
  const bool rules =
      has(kAtLeast) || (has(kMeasure) && has("@") && !std::filesystem::exists(text, no_file));
  const std::string lines = rules || text.empty() ? text : read_foreign_text(text);
  for (const std::string& line : split_list(lines, rules ? ',' : '\n')) {
    std::string rule = line.substr(0, line.find('#'));
    std::erase_if(rule, [](unsigned char c) { return std::isspace(c) != 0; });
    if (!rule.empty()) all.push_back(parse_expectation(rule));
  }
  if (!text.empty() && all.empty())
    throw Error(ExitCode::kUsage, fmt::format("--expect: '{}' holds no rule", text),
                "write one rule per line, as busbw>=180@1G");
  return all;
}

/// An option of nccl-tests that has one value here; `why` and `fix` are for any other.
BoundOption<CalibrateOptions> only(const std::string& name, const std::string& one,
                                   const std::string& help, char letter, const std::string& why,
                                   const std::string& fix) {
  const auto read = [=](const OptionValues& values, const std::string&, CalibrateOptions&) {
    if (text_option(values, name) != one) throw option_error(values, name, why, fix);
  };
  return {name, {one, "", read, [one](const auto&) { return one; }}, help, {}, letter};
}

Group sizes_group() {
  return {"Sizes (payload of one rank; 4KiB, 4MB; K, M and G are KiB, MiB, GiB)",
          {
              {"minbytes", sweep_size(&SizeSweep::first_bytes, 1), "smallest size", {}, 'b'},
              {"maxbytes", sweep_size(&SizeSweep::last_bytes, 1), "largest size", {}, 'e'},
              {"stepfactor",
               Value::number(part_of(&O::sweep, &SizeSweep::factor), 1, 1e9),
               "factor between sizes",
               {},
               'f'},
              {"stepbytes",
               sweep_size(&SizeSweep::step_bytes, 0),
               "step between sizes instead of the factor; 0: the factor counts",
               {},
               'i'},
              {"sizes-from", Value::text_value(&O::sizes_from, "RUN.h5"),
               "a run file: the sizes of its buckets as well"},
          }};
}

Group calls_group() {
  constexpr int kMostCalls = 1'000'000;
  const auto calls = [](int CallCounts::*count, int low, const std::string& zero = {}) {
    return Value::integer<int>(part_of(&O::counts, count), low, kMostCalls, zero);
  };
  const std::string more_ranks = "start more ranks: mpirun -n RANKS gradsync-calibrate …";
  return {
      "Calls",
      {
          {"collective", Value::parsed("NAMES", kAll, &O::operations, parse_operations),
           fmt::format("separated by commas, or all: {}", operation_names())},
          {"cadence",
           Value::parsed(fmt::format("{}|{}", fmt::join(kCadences, "|"), kBoth), kBoth,
                         &O::cadences, parse_cadences),
           "a barrier before each call, or one call after the other"},
          {"iters", calls(&CallCounts::timed, 1), "timed calls of each size", {}, 'n'},
          {"warmup-iters", calls(&CallCounts::warmup, 0), "calls before them", {}, 'w'},
          {"check",
           calls(&CallCounts::checked, 0, "none"),
           "calls whose results are compared",
           {},
           'c'},
          {"datatype",
           Value::parsed("NAMES", std::string(kFloatType), &O::types, parse_types),
           "type of the values: float, half, bfloat16, double, int8, int32, several separated "
           "by commas, or all",
           {},
           'd'},
          {"run-cycles",
           Value::integer<int>(&O::cycles, 1, kMostCalls),
           "how often each table is measured and printed",
           {},
           'N'},
          {"average",
           Value::parsed("N", "3", part_of(&O::counts, &CallCounts::over_ranks), parse_over_ranks),
           "time of a call: of rank 0 (0), mean (1), fastest (2) or slowest rank (3)",
           {},
           'a'},
          only("op", "sum", "reduction; sum only", 'o', "gradients are summed here",
               "leave -o out, or give sum"),
          only("ngpus", "1", "ignored except for 1: a rank drives one device", 'g',
               "a rank drives one device", more_ranks),
          only("root", "0", "root of rooted collectives; 0 only", 'r', "rank 0 is the root",
               "leave -r out, or give 0"),
          only("agg-iters", "1", "collectives in one group; 1 only", 'm',
               "each call is made for itself", "leave -m out, or give 1"),
          only("cudagraph", "0", "replays of a CUDA graph; 0 only", 'G',
               "calls are enqueued one by one", "leave -G out, or give 0"),
          only("nthreads", "1", "ignored except for 1: a rank calls from one thread", 't',
               "a rank calls from one thread", more_ranks),
          {"timeout", Value::duration(&O::timeout_s, 1, 168 * 3600.0),
           "end a call that takes longer"},
      }};
}

Group output_group() {
  return {
      "Output",
      {
          {"output", Value::text_value(&O::output, "FILE.h5"),
           "a run file without iterations, for gradsync-report"},
          {"json",
           Value::text_value(&O::json, "FILE"),
           "the same as JSON; nccl-tests' layout if there is one table, else that of each table "
           "in a file of its own beside it",
           {},
           'J'},
          {"per-iter-timing",
           Value::integer<int>(part_of(&O::columns, &PrintedColumns::per_iteration), 0, 1),
           "columns of the shortest and longest call, 99 % quantile, variation",
           {},
           'I'},
          {"report-timestamps",
           Value::integer<int>(part_of(&O::columns, &PrintedColumns::timestamps), 0, 1),
           "column of the time of day",
           {},
           'S'},
          {"unmeasured",
           Value::parsed("N/A|repeat", "N/A", part_of(&O::columns, &PrintedColumns::repeated),
                         parse_unmeasured),
           "columns of the placement that is not measured: N/A, or those of the other, for "
           "readers that need numbers"},
          {"expect", Value::parsed("RULES|FILE", "", &O::expected, parse_expected),
           "[COLLECTIVE:]busbw>=GB/S@SIZE separated by commas, or a file of them; exit code 1 "
           "if one is not met"},
      }};
}

Groups own_options() {
  return {sizes_group(), calls_group(), output_group()};
}

/// What they say holds for the trainer too.
Groups shared_options() {
  return {
      {"Machine",
       {
           {"device",
            Value::choice(part_of(&O::device, &DeviceRequest::device), {"auto", "cpu", "cuda"}),
            "where the data lies; auto: one GPU per rank where there are GPUs"},
           {"allow-shared-gpu",
            Value::on_off(part_of(&O::device, &DeviceRequest::allow_shared_gpu)),
            "for tests: several ranks on one GPU"},
           {"transport",
            Value::parsed(fmt::format("{}|all", fmt::join(transport_names(), "|")), "auto",
                          &O::transports, parse_transports),
            transport_help() + "; several separated by commas, or all that these ranks can use: "
                               "what MPI moves for each of them is measured once"},
       }}};
}

/// Whether the factor is from a source that counts more than that of the step. Throws Error kUsage
/// if both are from one.
bool factor_counts(const OptionValues& values) {
  const std::vector<std::string> sources = {"default", "site file", "job file", "environment",
                                            "command line"};
  const auto strength = [&](const char* name) {
    return std::ranges::find(sources, values.at(name).source) - sources.begin();
  };
  if (strength("stepfactor") == strength("stepbytes"))
    throw option_error(values, "stepbytes", "a step together with a factor", "give one of the two");
  return strength("stepfactor") > strength("stepbytes");
}

ProgramOptions<CalibrateOptions> all_options() {
  return {"calibrate", own_options(), shared_options()};
}

}  // namespace

OptionTable calibrate_option_table() {
  return all_options().table();
}

ProgramHelp calibrate_help() {
  return {
      "gradsync-calibrate",
      "mpirun -n RANKS gradsync-calibrate [OPTION...]",
      "Measures time and bandwidth of collectives, with the columns of nccl-tests.",
      "mpirun -n 2 gradsync-calibrate -b 1KiB -e 64MiB -f 2\n"
      "mpirun -n 4 gradsync-calibrate --transport all --collective allreduce\n"
      "mpirun -n 2 gradsync-calibrate --sizes-from run.h5 --output calibration.h5\n"
      "mpirun -n 4 gradsync-calibrate --transport mpi --collective allreduce,allreduce-ring\n"
      "srun --mpi=pmix -n 4 gradsync-calibrate --transport nccl -b 8 -e 1GiB\n"
      "srun --mpi=pmix -n 8 gradsync-calibrate -b 1G -e 1G --expect 'allreduce:busbw>=20@1G'\n"
      "gradsync-calibrate -b 8 -e 1M -n 100 -w 5 -c 1 -J out.json --print-config",
      {ExitCode::kCheckFailed, ExitCode::kStoppedEarly, ExitCode::kHang, ExitCode::kRanksDisagree},
      {"minbytes", "maxbytes", "stepfactor", "sizes-from", "collective", "cadence", "iters",
       "warmup-iters", "check", "datatype", "expect", "output", "json", "device", "transport"}};
}

CalibrateOptions calibrate_options(const OptionValues& values) {
  CalibrateOptions options = all_options().read(values);
  SizeSweep& sweep = options.sweep;
  if (sweep.step_bytes > 0 && factor_counts(values)) sweep.step_bytes = 0;
  options.sizes = size_range(sweep.first_bytes, sweep.last_bytes, sweep.factor, sweep.step_bytes);
  return options;
}

WatchLimits watch_limits(const CalibrateOptions& options) {
  WatchLimits limits;
  limits.timeout_s = options.timeout_s;
  limits.timeout_option = limits.start_option = "--timeout";
  return limits;
}

}  // namespace gradsync::calibrate
