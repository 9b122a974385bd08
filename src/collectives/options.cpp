#include "collectives/options.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "options/transport_choice.h"
#include "support/parse.h"
namespace gradsync::calibrate {

namespace {

const std::string kAll = "all";
const std::string kBoth = "both";
constexpr int kMostCalls = 1'000'000;

std::string operation_names() {
  std::vector<std::string> names;
  for (const OperationEntry& entry : operations())
    names.push_back(entry.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

OptionSpec with_letter(char letter, OptionSpec spec) {
  spec.letter = letter;
  return spec;
}

OptionTable size_options() {
  const std::string group = "Sizes (payload of one rank; 4KiB, 4MB; K, M and G are KiB, MiB, GiB)";
  return {
      with_letter('b', {"minbytes", "SIZE", "1KiB", "smallest size", group}),
      with_letter('e', {"maxbytes", "SIZE", "64MiB", "largest size, below 2GiB", group}),
      with_letter('f', {"stepfactor", "X", "2", "factor from size to size, above 1", group}),
      with_letter('i', {"stepbytes", "SIZE", "0",
                        "step from size to size instead of the factor; "
                        "0: the factor counts",
                        group}),
      {"sizes-from", "RUN.h5", "", "a run file: the sizes of its buckets as well", group},
  };
}

OptionTable call_options() {
  const std::string group = "Calls";
  return {
      {"collective", "NAMES", kAll,
       fmt::format("with commas between, or all: {}", operation_names()), group},
      {"cadence", "isolated|back-to-back|both", kBoth,
       "a barrier before each call, or one call after the other", group},
      with_letter('n', {"iters", "N", "20", "timed calls of each size, 1 to 1000000", group}),
      with_letter('w', {"warmup-iters", "N", "1", "calls before them, 0 to 1000000", group}),
      with_letter(
          'c', {"check", "N", "1", "calls whose results are compared, 0 (none) to 1000000", group}),
      with_letter('d', {"datatype", "float", "float", "type of the values; float only", group}),
      with_letter('o', {"op", "sum", "sum", "what reductions do; sum only", group}),
      with_letter('g', {"ngpus", "1", "1", "ignored but for 1: a rank drives one device", group}),
      with_letter('t',
                  {"nthreads", "1", "1", "ignored but for 1: a rank calls from one thread", group}),
      {"timeout", "TIME", "60s", "end a call that takes longer, 1s to 168h", group},
  };
}

OptionTable file_options() {
  const std::string group = "Output";
  return {
      {"output", "FILE.h5", "", "a run file without iterations, for gradsync-report", group},
      with_letter('J', {"json", "FILE", "", "the same as JSON, with nccl-tests' names", group}),
  };
}

const std::vector<std::string> kDevices = {"auto", "cpu", "cuda"};

/// What they say holds for the trainer too.
OptionTable machine_options() {
  const std::string group = "Machine";
  return {
      {"device", fmt::format("{}", fmt::join(kDevices, "|")), "auto",
       "where the data lies; auto: on the GPUs where there are any, one for each rank", group},
      {"allow-shared-gpu", "", "false", "for tests: several ranks on one GPU", group},
      {"transport", fmt::format("{}|all", fmt::join(transport_names(), "|")), "auto",
       transport_help() +
           "; several as a list with commas, or all that these ranks can use: what MPI moves for "
           "each of them is measured once",
       group},
  };
}

/// A size as nccl-tests' users write it: K, M and G are powers of 1024 there.
std::int64_t size_of(OptionValues values, const std::string& name, std::int64_t low) {
  std::string& text = values.at(name).value;
  if (!text.empty() && std::string_view("KMG").find(text.back()) != std::string_view::npos)
    text += "iB";
  return size_option(values, name, low, kLargestMessageBytes);
}

std::vector<std::int64_t> read_sizes(const OptionValues& values) {
  const std::int64_t first = size_of(values, "minbytes", 1), last = size_of(values, "maxbytes", 1);
  const std::int64_t step = size_of(values, "stepbytes", 0);
  const double factor = number_option(values, "stepfactor", 1, 1e9);
  if (step > 0 && values.at("stepfactor").source == values.at("stepbytes").source)
    throw option_error(values, "stepbytes", "a step together with a factor", "give one of the two");
  return size_range(first, last, factor, step);
}

std::vector<const OperationEntry*> read_operations(const OptionValues& values) {
  const std::string text = text_option(values, "collective");
  std::vector<const OperationEntry*> chosen;
  if (text == kAll) {
    for (const OperationEntry& entry : operations())
      chosen.push_back(&entry);
    return chosen;
  }
  try {
    for (const std::string& name : split_list(text, ','))
      chosen.push_back(&find_operation(name));
  } catch (const Error& error) {
    throw option_error(values, "collective", error.what(), error.fix());
  }
  return chosen;
}

std::vector<std::string> read_cadences(const OptionValues& values) {
  auto choices = kCadences;
  choices.push_back(kBoth);
  const std::string chosen = choice_option(values, "cadence", choices);
  return chosen == kBoth ? kCadences : std::vector<std::string>{chosen};
}

void require_only(const OptionValues& values, const std::string& name, const std::string& only,
                  const std::string& why, const std::string& fix) {
  if (text_option(values, name) != only) throw option_error(values, name, why, fix);
}

void refuse_other_letters(const OptionValues& values) {
  require_only(values, "datatype", "float", "gradients travel as float32 here",
               "leave -d out, or give float");
  require_only(values, "op", "sum", "gradients are summed here", "leave -o out, or give sum");
  require_only(values, "ngpus", "1", "a rank drives one device",
               "start more ranks: mpirun -n RANKS gradsync-calibrate …");
  require_only(values, "nthreads", "1", "a rank calls from one thread",
               "start more ranks: mpirun -n RANKS gradsync-calibrate …");
}

std::vector<std::string> read_transports(const OptionValues& values) {
  const std::string text = text_option(values, "transport");
  if (text == kAllTransports) return {text};
  std::vector<std::string> chosen;
  for (const std::string& word : split_list(text, ',')) {
    const std::string name(trimmed(word));
    const auto& names = transport_names();
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw option_error(values, "transport",
                         fmt::format("'{}' is none of {}, all{}", name, fmt::join(names, ", "),
                                     did_you_mean(name, names)),
                         "give one, several with commas, or all");
    if (std::find(chosen.begin(), chosen.end(), name) == chosen.end()) chosen.push_back(name);
  }
  return chosen;
}

}  // namespace

OptionTable calibrate_option_table() {
  OptionTable table;
  for (const auto& part : {size_options(), call_options(), file_options()})
    table.insert(table.end(), part.begin(), part.end());
  table = scoped("calibrate", table);
  const OptionTable machine = machine_options();
  table.insert(table.end(), machine.begin(), machine.end());
  return table;
}

std::string calibrate_help() {
  return help_text(
      "mpirun -n RANKS gradsync-calibrate [OPTION…]\n"
      "Measures what the collectives of training reach on these ranks, as nccl-tests does.",
      "mpirun -n 2 gradsync-calibrate -b 1KiB -e 64MiB -f 2\n"
      "mpirun -n 4 gradsync-calibrate --transport mpi --collective allreduce,allreduce-ring\n"
      "mpirun -n 4 gradsync-calibrate --transport all --collective allreduce\n"
      "srun --mpi=pmix -n 4 gradsync-calibrate --transport nccl -b 8 -e 1GiB\n"
      "mpirun -n 2 gradsync-calibrate --sizes-from run.h5 --output calibration.h5 -J out.json\n"
      "gradsync-calibrate -b 8 -e 1M -n 100 -w 5 -c 1 --print-config",
      calibrate_option_table());
}

CalibrateOptions calibrate_options(const OptionValues& values) {
  refuse_other_letters(values);
  CalibrateOptions options;
  options.sizes = read_sizes(values);
  options.sizes_from = text_option(values, "sizes-from");
  options.operations = read_operations(values);
  options.cadences = read_cadences(values);
  options.counts.timed = static_cast<int>(integer_option(values, "iters", 1, kMostCalls));
  options.counts.warmup = static_cast<int>(integer_option(values, "warmup-iters", 0, kMostCalls));
  options.counts.checked = static_cast<int>(integer_option(values, "check", 0, kMostCalls));
  options.output = text_option(values, "output");
  options.json = text_option(values, "json");
  options.device = {choice_option(values, "device", kDevices),
                    switch_option(values, "allow-shared-gpu")};
  options.transports = read_transports(values);
  options.timeout_s = duration_option(values, "timeout", 1, 168 * 3600.0);
  return options;
}

WatchLimits watch_limits(const CalibrateOptions& options) {
  WatchLimits limits;
  limits.timeout_s = options.timeout_s;
  limits.timeout_option = limits.start_option = "--timeout";
  return limits;
}

}  // namespace gradsync::calibrate
