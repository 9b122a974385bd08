#include <iostream>

#include <fmt/format.h>

#include "data/cifar10.h"
#include "data/fetch.h"
#include "data/synthetic.h"
#include "support/error.h"
#include "support/options.h"
#include "support/parse.h"
#include "support/table.h"
#include "support/version.h"

namespace {

using namespace gradsync;

constexpr const char* kProgram = "gradsync-dataset";

constexpr const char* kUsage =
    "gradsync-dataset COMMAND [OPTIONS]: makes, fetches and checks data sets in CIFAR-10's binary "
    "format.";

constexpr const char* kExamples =
    "gradsync-dataset synthesize --to data/synthetic\n"
    "gradsync-dataset synthesize --to data/small --seed 7 --train 5000 --test 1000\n"
    "gradsync-dataset fetch --to data/cifar-10\n"
    "gradsync-dataset fetch --to data/cifar-10 --from cifar-10-binary.tar.gz\n"
    "gradsync-dataset verify data/cifar-10\n"
    "gradsync-dataset info data/cifar-10";

const OptionSpec kTo = {"to", "FOLDER", "", "the folder to make; it must not exist", "Output"};

const OptionTable kSynthesizeTable =
    scoped("dataset",
           {
               kTo,
               {"seed", "N", "1", "number the images are drawn from, 0 or more", "Synthetic set"},
               {"train", "N", "50000", "training images, 1 to 10000000", "Synthetic set"},
               {"test", "N", "10000", "test images, 1 to 10000000", "Synthetic set"},
           });

const OptionTable kFetchTable = scoped(
    "dataset", {
                   kTo,
                   {"from", "ADDRESS|FILE", kOfficialAddress,
                    "where to download the archive, or an archive on this machine", "Source"},
               });

std::string required(const OptionValues& values, const std::string& name) {
  const std::string value = values.at(name).value;
  if (!value.empty()) return value;
  throw Error(ExitCode::kUsage, fmt::format("--{} is missing", name),
              fmt::format("{} --help shows commands that work", kProgram));
}

int synthesize_command(const ParsedCommandLine& given) {
  const std::string to = required(given.values, "to");
  const auto count = [&](const char* name) {
    return integer_option(given.values, name, 1, kMostSyntheticImages);
  };
  const std::int64_t seed = integer_option(given.values, "seed", 0, INT64_MAX);
  synthesize(to, static_cast<std::uint64_t>(seed), count("train"), count("test"));
  std::cout << fmt::format("{}: {} training and {} test images, seed {}\n", to, count("train"),
                           count("test"), seed);
  return 0;
}

void print_progress(const std::string& line) {
  std::cerr << line << std::endl;
}

int fetch_command(const ParsedCommandLine& given) {
  const std::string to = required(given.values, "to");
  const FetchResult result = fetch(to, required(given.values, "from"), print_progress);
  std::cout << fmt::format("{}: {}{}\n", to, result.digest.name,
                           result.already_there ? ", already there; nothing was done" : "");
  return 0;
}

std::string the_folder(const ParsedCommandLine& given) {
  if (given.positional.size() == 1) return given.positional.front();
  throw Error(ExitCode::kUsage, "give exactly one folder",
              fmt::format("{} verify data/cifar-10", kProgram));
}

int verify_command(const ParsedCommandLine& given) {
  const std::string folder = the_folder(given);
  const DataDigest digest = Cifar10(folder).verify();
  std::cout << fmt::format("{}: {}, all files right, SHA-256 {}\n", folder, digest.name,
                           digest.combined);
  return 0;
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

int info_command(const ParsedCommandLine& given) {
  const std::string folder = the_folder(given);
  const Cifar10 data(folder);
  print_text(std::cout, file_table(folder, data.verify()));
  std::cout << '\n';
  print_text(std::cout, class_table(data));
  return 0;
}

struct Command {
  std::string name;
  OptionTable options;
  std::string positional;  ///< empty: none
  int (*run)(const ParsedCommandLine&);
};

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"synthesize", kSynthesizeTable, "", synthesize_command},
      {"fetch", kFetchTable, "", fetch_command},
      {"verify", {}, "FOLDER", verify_command},
      {"info", {}, "FOLDER", info_command},
  };
  return all;
}

int print_help() {
  OptionTable all = kSynthesizeTable;
  all.push_back(kFetchTable.back());
  std::cout << help_text(kUsage, kExamples, all);
  return 0;
}

int print_version() {
  std::cout << version_text(kProgram) << '\n';
  return 0;
}

int run_command(const Command& command, int argc, const char* const* argv) {
  const ParsedCommandLine given = resolve_options(command.options, argc, argv, command.positional);
  if (given.help) return print_help();
  if (given.version) return print_version();
  if (given.print_config) {
    std::cout << config_text(command.options, given.values);
    return 0;
  }
  return command.run(given);
}

const Command& command_named(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& command : commands()) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const std::string near = nearest(name, names);
  throw Error(
      ExitCode::kUsage, fmt::format("'{}' is no command of {}", name, kProgram),
      near.empty() ? "synthesize, fetch, verify or info" : fmt::format("did you mean {}?", near));
}

int dispatch(int argc, const char* const* argv) {
  if (argc < 2) {
    throw Error(ExitCode::kUsage, "no command given",
                fmt::format("{} --help shows commands that work", kProgram));
  }
  const std::string first = argv[1];
  if (first == "--help" || first == "-h") return print_help();
  if (first == "--version") return print_version();
  return run_command(command_named(first), argc - 1, argv + 1);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(kProgram, [&] { return dispatch(argc, argv); });
}
