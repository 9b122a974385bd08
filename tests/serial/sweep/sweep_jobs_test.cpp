#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/cli/options.h"
#include "options/options.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"
#include "sweep/launcher.h"
#include "sweep/sweep_options.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

namespace {

// The commands of this suite in a text: lines that hold one of its programs and no more than that.
std::vector<Names> commands_in(const std::string& text) {
  std::vector<Names> commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Names command;
    for (std::string word; words >> word && (word != "#" || command.empty());)
      if (word != "#") command.push_back(word);
    if (command.empty()) continue;
    const std::string first = fs::path(command[0]).filename().string();
    if (first == "mpirun" || first == "gradsync-train" || first == "gradsync-sweep")
      commands.push_back(command);
  }
  return commands;
}

// Resolves a command as its program would, as far as that needs no machine. True if it was one.
bool parses(Names command) {
  while (!command.empty() && command[0].find("gradsync-") == std::string::npos)
    command.erase(command.begin());
  if (command.empty()) return false;
  const bool train = fs::path(command[0]).filename() == "gradsync-train";
  std::vector<const char*> args;
  for (const auto& word : command)
    args.push_back(word.c_str());
  const int count = static_cast<int>(args.size());
  if (train) {
    TrainOptions options =
        train_options(resolve_options(train_option_table(), count, args.data()).values);
    resolve_batch(options, 4);
    return true;
  }
  const auto [given, options, trainer_options] = read_sweep_command(count, args.data());
  REQUIRE(given.positional.size() == 1);
  const fs::path file = source_folder() / given.positional.front();
  return !expand(read_job(file, options.set, trainer_options)).cells.empty();
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> job_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source_folder() / "jobs"))
    if (entry.path().extension() == ".cfg") files.push_back(entry.path());
  REQUIRE(files.size() >= 7);
  return files;
}

}  // namespace

TEST_CASE("sweep: the job files of the suite") {
  const CleanEnvironment environment;
  const Grid demo = expand(read_job(source_folder() / "jobs" / "demo.cfg"));
  CHECK(demo.cells.size() == 16);  // none on 1 rank, five modes on 1, 2 and 4
  CHECK(demo.remarks.empty());
  const Grid modes = expand(read_job(source_folder() / "jobs" / "sync-modes.cfg"));
  CHECK(modes.cells.size() == 4);
  CHECK(modes.remarks.empty());
  const std::map<std::string, std::size_t> cells = {
      {"batch-size", 5}, {"speedup", 12},  {"compute-comm", 9}, {"large-batch", 36},
      {"scaling", 13},   {"report-a", 10}, {"report-b", 4},     {"report-c", 21},
      {"report-d", 15},  {"report-e", 14}};
  for (const auto& expected : cells) {
    const std::string& name = expected.first;
    const Grid grid = expand(read_job(source_folder() / "jobs" / (name + ".cfg")));
    CHECK_MESSAGE(grid.cells.size() == expected.second, name);
    CHECK_MESSAGE(grid.remarks.empty(), name);
  }
}

TEST_CASE("sweep: each job file says what it shows, its command and the time, and has commands") {
  const CleanEnvironment environment;
  for (const auto& file : job_files()) {
    const std::string text = text_of(file);
    const std::string command = "#   build/bin/gradsync-sweep jobs/" + file.filename().string();
    CHECK_MESSAGE(contains(text, command), file);
    CHECK_MESSAGE(contains(text, "# Expected: "), file);
    const Job job = read_job(file);
    const LocalLauncher launcher({}, "gradsync-train", job.mpirun_options, 8, [] { return 0; });
    for (const auto& cell : expand(job).cells)
      CHECK(parses(launcher.command(cell, cell_files(job.results, cell)).args));
  }
}

TEST_CASE("sweep: every documented command works") {
  const CleanEnvironment environment;
  std::vector<Names> commands = commands_in(full_help_text(sweep_help(), sweep_option_table()));
  std::vector<std::string> texts = {full_help_text(train_help(), train_option_table()),
                                    text_of(source_folder() / "docs" / "grids.md")};
  for (const auto& file : job_files())
    texts.push_back(text_of(file));
  for (const auto& text : texts) {
    const auto more = commands_in(text);
    CHECK_FALSE(more.empty());
    commands.insert(commands.end(), more.begin(), more.end());
  }
  CHECK(commands.size() >= 20);
  for (const auto& command : commands)
    CHECK(parses(command));
}
