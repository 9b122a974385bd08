// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include <fmt/format.h>

#include "base/cli/bound_option.h"
#include "base/cli/program_help.h"
#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/table.h"
#include "data/cifar10.h"

namespace {

using namespace gradsync;
namespace fs = std::filesystem;

constexpr const char* kProgram = "gradsync-dataset";

constexpr const char* kExamples =
    "gradsync-dataset synthesize --to data/synthetic\n"
    "gradsync-dataset verify data/cifar-10\n"
    "gradsync-dataset synthesize --to data/small --seed 7 --train 5000 --test 1000\n"
    "gradsync-dataset info data/cifar-10";

/// Options of the command that makes a folder; `verify` and `info` have none.
struct DatasetOptions {
  fs::path to;
  std::uint64_t seed = 1;
  std::int64_t train = 50000, test = 10000;  ///< images
};

using Options = ProgramOptions<DatasetOptions>;
using Value = BoundValue<DatasetOptions>;

BoundGroup<DatasetOptions> output_options() {
  return {"Output",
          {{"to", Value::text_value<fs::path>(&DatasetOptions::to, "FOLDER"),
            "the folder to make; it must not exist"}}};
}

BoundGroup<DatasetOptions> synthetic_options() {
  using O = DatasetOptions;
  return {"Synthetic set",
          {
              {"seed", Value::integer<std::uint64_t>(&O::seed, 0, INT64_MAX),
               "number the images are drawn from"},
              {"train", Value::integer(&O::train, 1, kMostSyntheticImages), "training images"},
              {"test", Value::integer(&O::test, 1, kMostSyntheticImages), "test images"},
          }};
}

Options options_of(std::vector<BoundGroup<DatasetOptions>> groups) {
  return {"dataset", std::move(groups)};
}

/// What a command is given.
struct Request {
  DatasetOptions options;
  std::vector<std::string> folders;
  ProgramOutput& output;
};

template <typename Text>
const Text& required(const Text& value, const char* name) {
  if (!value.empty()) return value;
  throw Error(ExitCode::kUsage, fmt::format("--{} is missing", name),
              fmt::format("{} --help shows commands that work", kProgram));
}

int synthesize_command(const Request& request) {
  const auto& [to, seed, train, test] = request.options;
  synthesize(required(to, "to"), seed, train, test);
  std::cout << fmt::format("{}: {} training and {} test images, seed {}\n", to.string(), train,
                           test, seed);
  return 0;
}

const std::string& the_folder(const Request& request) {
  if (request.folders.size() == 1) return request.folders.front();
  throw Error(ExitCode::kUsage, "give exactly one folder",
              fmt::format("{} verify data/cifar-10", kProgram));
}

Table file_table(const std::string& folder, const DataDigest& digest) {
  Table table;
  table.name = "files";
  table.title = fmt::format("{}: {}", folder, digest.name);
  table.columns = {{"file", "file", true}, {"records", "records"}, {"sha256", "SHA-256", true}};
  for (const FileDigest& file : digest.files) {
    table.add({file.file, Cell::count(static_cast<double>(file.records)), file.sha256});
  }
  table.notes = {fmt::format("all files together: SHA-256 {}", digest.combined)};
  return table;
}

Table class_table(const Cifar10& data) {
  Table table;
  table.name = "classes";
  table.title = "Images of each class";
  table.columns = {{"class", "class"}, {"train", "train"}, {"test", "test"}};
  const auto train = data.class_counts(Split::kTrain), test = data.class_counts(Split::kTest);
  for (std::size_t label = 0; label < train.size(); ++label) {
    table.add({Cell::count(static_cast<double>(label)),
               Cell::count(static_cast<double>(train[label])),
               Cell::count(static_cast<double>(test[label]))});
  }
  return table;
}

int verify_command(const Request& request) {
  const std::string& folder = the_folder(request);
  const DataDigest digest = Cifar10(folder).verify();
  std::cout << fmt::format("{}: {}, all files right, SHA-256 {}\n", folder, digest.name,
                           digest.combined);
  request.output.add(file_table(folder, digest));
  return 0;
}

int info_command(const Request& request) {
  const std::string& folder = the_folder(request);
  const Cifar10 data(folder);
  request.output.print(file_table(folder, data.verify()));
  std::cout << '\n';
  request.output.print(class_table(data));
  return 0;
}

struct Command {
  std::string name;
  Options options;
  std::string positional;  ///< empty: none
  int (*run)(const Request&);
};

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"synthesize", options_of({output_options(), synthetic_options()}), "", synthesize_command},
      {"verify", options_of({}), "FOLDER", verify_command},
      {"info", options_of({}), "FOLDER", info_command},
  };
  return all;
}

Error no_command() {
  return Error(ExitCode::kUsage, "no command given",
               fmt::format("{} --help prints examples", kProgram));
}

ProgramHelp dataset_help() {
  ProgramHelp help{kProgram,
                   "gradsync-dataset synthesize|verify|info [OPTION...]",
                   "Makes and verifies data sets in the binary format of CIFAR-10.",
                   kExamples,
                   {ExitCode::kStoppedEarly}};
  for (const Command& command : commands())
    help.commands.push_back({command.name, command.options.table()});
  return help;
}

OptionTable options_of_all_commands() {
  return options_of({output_options(), synthetic_options()}).table();
}

// Without a command: --help and its like.
int answer_without_command(int argc, const char* const* argv) {
  const OptionTable table = options_of_all_commands();
  const auto text = answer(dataset_help(), table, resolve_options(table, argc, argv));
  if (!text) throw no_command();
  std::cout << *text;
  return 0;
}

int run_command(const Command& command, int argc, const char* const* argv) {
  const OptionTable table = command.options.table();
  const ParsedCommandLine given = resolve_options(table, argc, argv, command.positional);
  if (given.question == Question::kConfig) return std::cout << config_text(table, given.values), 0;
  if (const auto text = answer(dataset_help(), options_of_all_commands(), given))
    return std::cout << *text, 0;
  require_writable(given.json);
  ProgramOutput output(given, kProgram);
  const int code = command.run({command.options.read(given.values), given.positional, output});
  output.write_json();
  return code;
}

const Command& command_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  throw no_such("command", name, names);
}

int dispatch(int argc, const char* const* argv) {
  if (argc < 2) throw no_command();
  if (*argv[1] == '-') return answer_without_command(argc, argv);
  return run_command(command_named(argv[1]), argc - 1, argv + 1);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(kProgram, [&] { return dispatch(argc, argv); });
}
