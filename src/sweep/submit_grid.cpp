#include "sweep/submit_grid.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/process.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;

// Of the checkout we were built in, or where `make install` put the templates.
fs::path home_of_templates() {
  const fs::path installed = program_beside_us("../share/gradsync");
  return fs::exists(installed / "slurm/submit") ? installed : program_beside_us("../..");
}

// slurm/submit of the folder that GRADSYNC_HOME names, else of this installation.
std::string submit_program() {
  const std::string home = variable("GRADSYNC_HOME");
  const fs::path folder = home.empty() ? home_of_templates() : fs::path(home);
  const fs::path program = (folder / "slurm/submit").lexically_normal();
  if (::access(program.c_str(), X_OK) == 0) return program.string();
  throw Error(ExitCode::kEnvironment,
              fmt::format("cannot run {}: {}", program.string(), errno_text()),
              "export GRADSYNC_HOME=FOLDER, a checkout with slurm/ and build/bin, or "
              "PREFIX/share/gradsync of make install");
}

std::string site_value(const std::string& key) {
  const CapturedProcess asked = capture_process({submit_program(), "--value", key});
  if (!asked.result.succeeded())
    throw Error(ExitCode::kUsage, "slurm/site is not right", "see the message above");
  return asked.output.substr(0, asked.output.find('\n'));
}

std::vector<GridCell> missing_cells(const Job& job, const Grid& grid, const std::string& chosen) {
  std::vector<GridCell> cells = chosen_cells(grid, chosen);
  std::erase_if(cells, [&](const GridCell& cell) {
    return is_settled(cell_state(cell_files(job.results, cell)));
  });
  return cells;
}

// After the end, good or bad, of the jobs before.
std::vector<std::string> first_words(const std::string& jobs_before) {
  std::vector<std::string> words = {submit_program(), "--parsable"};
  if (!jobs_before.empty()) words.push_back("--dependency=afterany:" + jobs_before);
  return words;
}

std::string submitted(const ArrayJob& array, const std::vector<std::string>& before) {
  std::vector<std::string> command = first_words(fmt::format("{}", fmt::join(before, ":")));
  append(command, array.words);
  const CapturedProcess sbatch = capture_process(command);
  // "4711", or "4711;cluster".
  if (sbatch.result.succeeded()) return sbatch.output.substr(0, sbatch.output.find_first_of(";\n"));
  throw Error(ExitCode::kEnvironment,
              fmt::format("sbatch refused {}: {}; submitted before it: {}", array.what,
                          sbatch.result.text(),
                          before.empty() ? "none" : fmt::format("{}", fmt::join(before, " "))),
              "see its message above; options for it: key sbatch-options, or slurm/site");
}

void submit(const std::vector<ArrayJob>& arrays, std::ostream& out) {
  std::vector<std::string> jobs;
  for (const auto& array : arrays) {
    jobs.push_back(submitted(array, jobs));
    out << fmt::format("job {}: {}\n", jobs.back(), array.what) << std::flush;
  }
}

// Lines for a shell, in which $job1 is the number that Slurm gives to the first.
void print(const std::vector<ArrayJob>& arrays, const Job& job, std::ostream& out) {
  out << shell_text({{}, {"mkdir", "-p", log_folder(job).string()}}) << '\n';
  std::string before;
  for (std::size_t i = 1; i <= arrays.size(); ++i) {
    const std::string after = before.empty() ? "" : " --dependency=afterany:" + before;
    out << fmt::format("job{}=$({}{} {})\n", i, shell_text({{}, first_words("")}), after,
                       shell_text({{}, arrays[i - 1].words}));
    before += fmt::format("{}$job{}", before.empty() ? "" : ":", i);
  }
}

}  // namespace

void take_site_data() {
  const std::string data = site_value("data");
  if (!data.empty() && variable("GRADSYNC_DATA").empty())
    setenv("GRADSYNC_DATA", data.c_str(), /*overwrite=*/1);
}

int submit_grid(const Job& job, const Grid& grid, const SweepCommand& command, std::ostream& out) {
  const auto cells = missing_cells(job, grid, command.options.cell);
  if (cells.empty()) return std::cerr << "all cells are there already\n", 0;
  const auto arrays = array_jobs(job, cells, site_value("array-tasks"), command);
  if (command.options.dry_run) return print(arrays, job, out), 0;
  const ResultsFolder folder(job, grid, FolderUse::kOneCell);
  make_folder(log_folder(job));
  submit(arrays, out);
  return 0;
}

namespace {

// Cells of one shape share a job array.
struct Group {
  Shape shape;
  std::int64_t threads = 0;                        // a rank; 0: not set
  auto operator<=>(const Group&) const = default;  // NOLINT(modernize-use-nullptr)
};

using Numbers = std::vector<std::size_t>;

Group group_of(const Job& job, const GridCell& cell) {
  if (job.ranks_per_node == 0 && cell.ranks > 1)
    throw Error(ExitCode::kUsage,
                fmt::format("cell {}: how many of its {} ranks run on one node is not set",
                            cell.name, cell.ranks),
                "give --ranks-per-node N, or the key ranks-per-node");
  return {shape_of(cell.ranks, std::max<std::int64_t>(1, job.ranks_per_node)),
          train_options_of(cell).threads};
}

std::string name_of(const Group& group) {
  std::string name = fmt::format("{}x{}", group.shape.nodes, group.shape.ranks_per_node);
  return group.threads > 0 ? name + fmt::format("x{}", group.threads) : name;
}

// "1-3,7".
std::string ranges(const Numbers& numbers) {
  std::string text;
  for (std::size_t first = 0, last = 0; first < numbers.size(); first = ++last) {
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1)
      ++last;
    text += fmt::format("{}{}", first == 0 ? "" : ",", numbers[first]);
    if (last > first) text += fmt::format("-{}", numbers[last]);
  }
  return text;
}

// % is sbatch's own sign, and a backslash makes it take all others as they are.
std::string log_pattern(const Job& job) {
  std::string pattern;
  for (const char c : log_folder(job).string())
    pattern += c == '%' ? "%%" : std::string(1, c);
  if (pattern.find('\\') == std::string::npos) return pattern + "/%x-%A_%a.log";
  throw Error(ExitCode::kUsage, "sbatch cannot write logs to a folder with a backslash: " + pattern,
              "give another folder with --results");
}

// `-p cpu` as `-pcpu`: slurm/submit would take the value for the name of its template.
std::vector<std::string> with_values_joined(const std::vector<std::string>& words) {
  std::vector<std::string> options;
  for (const auto& word : words)
    if (word.starts_with('-') || options.empty())
      options.push_back(word);
    else
      options.back() += (options.back().starts_with("--") ? "=" : "") + word;
  return options;
}

std::vector<std::string> sbatch_words(const Job& job, const Group& group,
                                      const std::string& array) {
  const auto& [shape, threads] = group;
  std::vector<std::string> words = {"--array=" + array, fmt::format("--nodes={}", shape.nodes),
                                    fmt::format("--ntasks-per-node={}", shape.ranks_per_node)};
  if (threads > 0) words.push_back(fmt::format("--cpus-per-task={}", threads));
  if (job.gpus_per_rank > 0)
    words.push_back(fmt::format("--gpus-per-node={}", shape.ranks_per_node * job.gpus_per_rank));
  append(words, {fmt::format("--job-name={}-{}", job.name, name_of(group)),
                 "--output=" + log_pattern(job)});
  append(words, with_values_joined(job.sbatch_options));
  return words;
}

// What brings a task to the same grid.
std::vector<std::string> task_words(const Job& job, const SweepCommand& command) {
  std::vector<std::string> words = {command.given.positional.front(), "--results",
                                    job.results.string()};
  for (const auto& text : command.options.set)
    append(words, {"--set", text});
  if (const std::int64_t count = command.options.ranks_per_node; count > 0)
    append(words, {"--ranks-per-node", std::to_string(count)});
  GridCell options;
  for (const auto& option : command.trainer_options)
    options.options.emplace_back(option.key, option.value);
  if (!options.options.empty()) words.push_back("--");
  append(words, trainer_arguments(options));
  return words;
}

}  // namespace

std::filesystem::path log_folder(const Job& job) {
  return std::filesystem::absolute(job.results).lexically_normal() / "slurm";
}

std::vector<ArrayJob> array_jobs(const Job& job, const std::vector<GridCell>& cells,
                                 const std::string& at_once, const SweepCommand& command) {
  std::map<Group, Numbers> groups;
  for (const GridCell& cell : cells)
    groups[group_of(job, cell)].push_back(cell.number);
  for (auto& [group, numbers] : groups)
    std::sort(numbers.begin(), numbers.end());
  std::vector<ArrayJob> arrays;
  for (const auto& [group, members] : groups) {
    const std::string list = ranges(members);
    arrays.push_back({fmt::format("{}, cell{} {}", shape_text(group.shape),
                                  members.size() == 1 ? "" : "s", list),
                      sbatch_words(job, group, list + '%' + at_once)});
    arrays.back().words.push_back("grid");
    append(arrays.back().words, task_words(job, command));
  }
  return arrays;
}

}  // namespace gradsync::sweep
