#include "sweep/array_jobs.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "support/error.h"
#include "sweep/allocation.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

namespace {

// Cells of one shape share a job array.
struct Group {
  Shape shape;
  std::int64_t threads = 0;  // a rank; 0: not set
  auto operator<=>(const Group&) const = default;
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
