// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <regex>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parse.h"
#include "base/process.h"
#include "sweep/slurm.h"

extern char** environ;

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

// --- templates and the site ----------------------------------------------------------------------

// slurm/ of the folder that GRADSYNC_HOME names, else of this installation: where `make install`
// put it, or of the checkout that we were built in.
fs::path templates_folder() {
  fs::path home = variable("GRADSYNC_HOME");
  if (home.empty()) home = program_beside_us("../share/gradsync");
  if (variable("GRADSYNC_HOME").empty() && !fs::exists(home / "slurm/submit"))
    home = program_beside_us("../..");
  const fs::path folder = (home / "slurm").lexically_normal();
  if (::access((folder / "submit").c_str(), X_OK) == 0) return folder;
  throw Error(ExitCode::kEnvironment,
              fmt::format("cannot run {}: {}", (folder / "submit").string(), errno_text()),
              "export GRADSYNC_HOME=FOLDER, a checkout with slurm/ and build/bin, or "
              "PREFIX/share/gradsync of make install");
}

// What stands in the place of --gpus-per-node=N in a word of sbatch or a line of a template;
// nothing where it is to be left out.
std::optional<std::string> with_gpu_request(const std::string& line, const SlurmSite& site) {
  static const std::regex request("(#SBATCH )?--gpus-per-node=([0-9]{1,9})");
  std::smatch parts;
  if (!std::regex_match(line, parts, request)) return line;
  const Words option = gpu_option(site.at("gpu-request"), std::stoll(parts[2]));
  if (option.empty()) return std::nullopt;
  return parts[1].str() + option.front();
}

std::string template_text(const fs::path& file, const SlurmSite& site) {
  std::string text;
  std::string left = read_text_file(file);
  while (!left.empty()) {
    const std::size_t end = std::min(left.find('\n'), left.size());
    if (const auto line = with_gpu_request(left.substr(0, end), site)) text += *line + '\n';
    left.erase(0, end + 1);
  }
  return text;
}

// The site's value of a key, for a template: partition-cpu goes before partition.
std::string value_of(const SlurmSite& site, const SlurmKey& key, const std::string& name) {
  const auto own = site.find(key.name + '-' + name);
  if (own != site.end() && !own->second.empty()) return own->second;
  // sbatch takes `exclusive` without a value; its variable is empty then.
  const std::string& value = site.at(key.name);
  return key.name == "exclusive" && value == "yes" ? "exclusive" : value;
}

// The values for sbatch as NAME=VALUE, where a variable that is set already stays, and the site for
// the job. `name` is the template, empty: any.
Words sbatch_environment(const SlurmSite& site, const std::string& name) {
  Words settings;
  for (const SlurmKey& key : slurm_keys())
    if (const std::string value = value_of(site, key, name);
        key.variable.starts_with("SBATCH_") && !value.empty() &&
        std::getenv(key.variable.c_str()) == nullptr)
      settings.push_back(key.variable + '=' + value);
  settings.push_back("GRADSYNC_SLURM_SITE=" + slurm_site_text(site));
  return settings;
}

// The values that sbatch takes as options alone.
Words sbatch_options(const SlurmSite& site) {
  Words options;
  for (const SlurmKey& key : slurm_keys())
    if (const std::string& value = site.at(key.name);
        key.variable.starts_with("--") && !value.empty())
      options.push_back(key.variable + '=' + value);
  append(options, option_words(site.at("sbatch-options")));
  return options;
}

// --- one job -------------------------------------------------------------------------------------

// What slurm/submit was given. A template is the first word that names one; those before it are
// sbatch's.
struct Request {
  Words options;
  std::string name;
  Words words;
  std::string typed = {};  // by the user; empty: by none
};

// The word of a command that names no template, but was meant to: one that is like a template, else
// the first that is neither an option, a number nor a file.
std::string mistaken_name(const Words& words) {
  std::string first;
  for (const std::string& word : words) {
    if (word.starts_with('-') || word.find_first_of("./:") != std::string::npos) continue;
    if (!nearest(word, slurm_templates()).empty()) return word;
    const bool has_letters = word.find_first_not_of("0123456789") != std::string::npos;
    if (first.empty() && has_letters) first = word;
  }
  return first;
}

Request request_of(const Words& words, const fs::path& folder) {
  const auto names_template = [&](const std::string& word) {
    return fs::exists(folder / (word + ".sbatch"));
  };
  // The last in front of the job file: a partition may have the name of a template.
  const auto names_job = [](const std::string& word) {
    std::error_code ignored;
    return word.ends_with(".cfg") || fs::is_regular_file(word, ignored);
  };
  const auto job = std::ranges::find_if(words, names_job);
  const auto last = std::find_if(std::reverse_iterator(job), words.rend(), names_template);
  const auto found = last != words.rend() ? std::prev(last.base())
                                          : std::find_if(job, words.end(), names_template);
  if (found != words.end()) return {{words.begin(), found}, *found, {found + 1, words.end()}};
  const std::string name = mistaken_name(words);
  throw Error(ExitCode::kUsage,
              name.empty() ? "no template is named"
                           : fmt::format("'{}' is no template{}", name,
                                         did_you_mean(name, slurm_templates())),
              fmt::format("slurm/submit [SBATCH OPTIONS] TEMPLATE JOB.cfg; templates: {}",
                          fmt::join(slurm_templates(), " ")));
}

// From the last line of its script.
Template template_of(const Request& request, const fs::path& folder) {
  static const std::regex body("/slurm/run\\.sh\" ([a-z-]+) ([0-9a-z]+) ([a-z]+) ([a-z]+) ");
  const fs::path script = folder / (request.name + ".sbatch");
  const std::string text = read_text_file(script);
  std::smatch parts;
  if (!std::regex_search(text, parts, body))
    throw Error(ExitCode::kEnvironment, script.string() + " does not call slurm/run.sh",
                "take the template of this version");
  return {parts[1], parts[2], parts[3], parts[4]};
}

// What sbatch's last word for an option says: "--nodes=4", "--nodes 4", "-N4" or "-N 4". Nothing
// where no word is for it.
std::optional<std::string> last_given(const Words& words, const std::string& option,
                                      const std::string& letter) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == option || word == letter)
      value = i + 1 < words.size() ? words[i + 1] : "";
    else if (word.starts_with(option + '='))
      value = word.substr(option.size() + 1);
    else if (!letter.empty() && word.starts_with(letter))
      value = word.substr(letter.size() + (word[letter.size()] == '='));
  }
  return value;
}

// The folder in which the job will run: that of sbatch's --chdir, while this lives.
class JobFolder {
 public:
  explicit JobFolder(const Words& options) : before_(fs::current_path()) {
    std::error_code ignored;  // sbatch says what is wrong with it
    if (const auto folder = last_given(options, "--chdir", "-D"))
      fs::current_path(*folder, ignored);
  }
  ~JobFolder() { fs::current_path(before_); }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

 private:
  fs::path before_;
};

// A number that sbatch is given, 1 without one. Nothing where it is none but a range, say.
std::optional<std::int64_t> requested(const Words& words, const std::string& option,
                                      const std::string& letter) {
  const std::string value = last_given(words, option, letter).value_or("1");
  const bool plain = !value.empty() && value.size() < 10 &&
                     value.find_first_not_of("0123456789") == std::string::npos;
  return plain ? std::optional(std::int64_t{std::stoll(value)}) : std::nullopt;
}

// Refuses cells for which the job would have no room. A number of tasks, or of nodes that Slurm may
// choose, is left to Slurm.
void require_shape(const Plan& plan, const Request& request, const fs::path& folder,
                   const SlurmSite& site) {
  Words words;
  for (const std::string& line :
       split_list(read_text_file(folder / (request.name + ".sbatch")), '\n'))
    if (line.starts_with("#SBATCH ")) words.push_back(line.substr(8));
  append(words, sbatch_options(site));
  append(words, request.options);
  const auto nodes = requested(words, "--nodes", "-N"),
             per_node = requested(words, "--ntasks-per-node", "");
  if (!nodes || !per_node || last_given(words, "--ntasks", "-n")) return;
  for (const GridCell& cell : plan.cells_to_run())
    if (cell.ranks > *nodes * *per_node)
      throw Error(ExitCode::kEnvironment,
                  fmt::format("cell {}: {}, and the job has {}", cell.name,
                              count_text(cell.ranks, "rank"), shape_text({*nodes, *per_node})),
                  fmt::format("another template, --nodes=N in front of its name, or --set "
                              "exclude=ranks={} behind the job file",
                              cell.ranks));
}

// A command of sbatch. The script that it names is there while this lives.
struct Submission {
  Words command;
  ProcessOptions process;
  std::unique_ptr<TemporaryFile> script;
};

Submission submission_of(const Request& request, const fs::path& folder, const SlurmSite& site) {
  Submission submission;
  submission.process.environment = sbatch_environment(site, request.name);
  // sbatch's copy of the script looks for the rest of it here.
  submission.process.environment.push_back("GRADSYNC_HOME=" + folder.parent_path().string());
  submission.process.environment.push_back("GRADSYNC_SUBMITTED=" + request.typed);
  Words& command = submission.command = {"sbatch"};
  append(command, sbatch_options(site));
  for (const auto& option : request.options)
    if (const auto word = with_gpu_request(option, site)) command.push_back(*word);
  fs::path script = folder / (request.name + ".sbatch");
  if (site.at("gpu-request") != "gpus-per-node") {
    // sbatch copies it when it is submitted.
    const fs::path ours = fs::temp_directory_path() / ("gradsync-" + random_suffix());
    submission.script = std::make_unique<TemporaryFile>(ours);
    const std::string text = template_text(script, site);
    write_all(create_file(ours).get(), std::as_bytes(std::span(text)), ours);
    script = ours;
  }
  command.push_back(script.string());
  append(command, request.words);
  return submission;
}

// From inside a job: what Slurm says of that one is not for the next.
void forget_own_job() {
  if (variable("SLURM_JOB_ID").empty()) return;
  Words names;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (const std::string setting = *entry; setting.starts_with("SLURM_"))
      names.push_back(setting.substr(0, setting.find('=')));
  std::erase(names, "SLURM_CONF");
  for (const auto& name : names)
    ::unsetenv(name.c_str());
}

}  // namespace

SlurmSite this_site() {
  return read_slurm_site(templates_folder(), shared_site_file());
}

void take_site_data(const SlurmSite& site) {
  const std::string& data = site.at("data");
  if (!data.empty() && variable("GRADSYNC_DATA").empty())
    setenv("GRADSYNC_DATA", data.c_str(), /*overwrite=*/1);
}

std::string seen_from_here(const fs::path& file) {
  const std::string relative = file.lexically_relative(fs::current_path()).string();
  return relative.empty() || relative.starts_with("..") ? file.string() : relative;
}

std::string typed_command(const Words& words) {
  Words settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string setting = *entry, name = setting.substr(0, setting.find('='));
    const bool is_ours = name.starts_with("GRADSYNC_") && name != "GRADSYNC_HOME" &&
                         name != "GRADSYNC_SLURM_SITE" && name != "GRADSYNC_SUBMITTED";
    if (is_ours || name.starts_with("SBATCH_")) settings.push_back(setting);
  }
  std::ranges::sort(settings);
  return shell_text({settings, words});
}

int submit_template(const Words& words, std::ostream& out) {
  const fs::path folder = templates_folder();
  const std::string first = words.empty() ? "" : words.front();
  const Words rest(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (first == "--help" || first == "-h") {
    // The comment of the script, behind its first line.
    for (const auto& line : split_list(read_text_file(folder / "submit"), '\n'))
      if (line.starts_with("# ") || line == "#")
        out << line.substr(std::min<std::size_t>(2, line.size())) << '\n';
    return 0;
  }
  const SlurmSite site = this_site();
  if (first == "--environment") {
    for (const auto& setting : sbatch_environment(site, ""))
      out << "export " << shell_text({{setting}, {}}) << '\n';
    return 0;
  }
  if (first == "--value") {
    if (rest.empty() || !site.contains(rest.front()))
      throw Error(ExitCode::kUsage, "--value: give a key of slurm/site.example");
    return out << site.at(rest.front()) << '\n', 0;
  }
  if (first == "--print")
    return out << template_text(folder / (request_of(rest, folder).name + ".sbatch"), site), 0;
  Request request = request_of(words, folder);
  Words typed = {seen_from_here(folder / "submit")};
  append(typed, words);
  request.typed = typed_command(typed);
  if (request.name == "grid" && !last_given(request.options, "--array", "-a"))
    throw Error(ExitCode::kUsage, "grid: which cells, and on how many nodes?",
                array_command(request.words));
  const Template from = template_of(request, folder);
  if (from.work == "grid" || from.work == "quantize") {
    const JobFolder of_the_job(request.options);
    require_shape(plan_in_job(from, request.words, site), request, folder, site);
  }
  forget_own_job();
  const Submission submission = submission_of(request, folder, site);
  return exit_code_of(run_process(submission.command, submission.process));
}

// --- job arrays ----------------------------------------------------------------------------------

namespace {

// Cells of one shape: a job array of the template slurm/grid.sbatch.
struct ArrayJob {
  std::string what;  // "2 nodes × 4 ranks, cells 1-3,7"
  Request request;
};

// The folder, absolute, of the logs of tasks. sbatch does not make it.
fs::path log_folder(const Job& job) {
  return fs::absolute(job.results).lexically_normal() / "slurm";
}

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
std::string log_pattern(const Job& job, const std::string& name) {
  std::string pattern;
  for (const char c : log_folder(job).string())
    pattern += c == '%' ? "%%" : std::string(1, c);
  if (pattern.find('\\') == std::string::npos) return pattern + '/' + name + "-%A_%a.log";
  throw Error(ExitCode::kUsage, "sbatch cannot write logs to a folder with a backslash: " + pattern,
              "give another folder with --results");
}

// `-p cpu` as `-pcpu`: slurm/submit would take the value for the name of its template.
Words with_values_joined(const Words& words) {
  Words options;
  for (const auto& word : words)
    if (word.starts_with('-') || options.empty())
      options.push_back(word);
    else
      options.back() += (options.back().starts_with("--") ? "=" : "") + word;
  return options;
}

// One for all arrays of a results folder.
std::string array_name(const Job& job) {
  Sha256 digest;
  digest.update(fs::weakly_canonical(job.results).string());
  return job.name + '-' + digest.hex().substr(0, 6);
}

Words options_of(const Job& job, const Group& group, const std::string& array) {
  const auto& [shape, threads] = group;
  Words words = {"--dependency=singleton", "--array=" + array,
                 fmt::format("--nodes={}", shape.nodes),
                 fmt::format("--ntasks-per-node={}", shape.ranks_per_node)};
  std::string name = fmt::format("{}-{}x{}", job.name, shape.nodes, shape.ranks_per_node);
  if (threads > 0) {
    name += fmt::format("x{}", threads);
    words.push_back(fmt::format("--cpus-per-task={}", threads));
  }
  if (job.gpus_per_rank > 0)
    words.push_back(fmt::format("--gpus-per-node={}", shape.ranks_per_node * job.gpus_per_rank));
  append(words, {"--job-name=" + array_name(job), "--output=" + log_pattern(job, name)});
  for (std::string option : with_values_joined(job.sbatch_options)) {
    // It would stand in the place of ours.
    if (option.starts_with("--dependency=") || option.starts_with("-d")) option += ",singleton";
    words.push_back(option);
  }
  return words;
}

// What brings a task to the same grid.
Words task_words(const Job& job, const SweepCommand& command) {
  Words words = {command.given.positional.front(), "--results", job.results.string()};
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

std::vector<ArrayJob> array_jobs(const Plan& plan, const std::vector<GridCell>& cells,
                                 const std::string& at_once) {
  struct Members {
    Numbers tasks, cells;
  };
  std::map<Group, Members> groups;
  for (const CellJob& job : jobs_of(cells)) {
    Members& members = groups[group_of(plan.job, job.front())];
    members.tasks.push_back(job.front().number);
    for (const GridCell& cell : job)
      members.cells.push_back(cell.number);
  }
  std::vector<ArrayJob> arrays;
  for (auto& [group, members] : groups) {
    std::ranges::sort(members.tasks);
    std::ranges::sort(members.cells);
    arrays.push_back({fmt::format("{}, cell{} {}", shape_text(group.shape),
                                  members.cells.size() == 1 ? "" : "s", ranges(members.cells)),
                      {options_of(plan.job, group, ranges(members.tasks) + '%' + at_once), "grid",
                       task_words(plan.job, plan.command)}});
  }
  return arrays;
}

std::string submitted(const ArrayJob& array, const Words& before, const SlurmSite& site) {
  Request request = array.request;
  request.options.insert(request.options.begin(), "--parsable");
  const Submission submission = submission_of(request, templates_folder(), site);
  const CapturedProcess sbatch = capture_process(submission.command, submission.process);
  // "4711", or "4711;cluster".
  if (sbatch.result.succeeded()) return sbatch.output.substr(0, sbatch.output.find_first_of(";\n"));
  throw Error(ExitCode::kEnvironment,
              fmt::format("sbatch refused {}: {}; submitted before it: {}", array.what,
                          sbatch.result.text(),
                          before.empty() ? "none" : fmt::format("{}", fmt::join(before, " "))),
              "see its message above; options for it: key sbatch-options, or slurm/site");
}

// Lines for a shell.
void print_arrays(const std::vector<ArrayJob>& arrays, const Job& job, std::ostream& out) {
  out << shell_text({{}, {"mkdir", "-p", log_folder(job).string()}}) << '\n';
  for (const auto& [what, request] : arrays) {
    Words words = {(templates_folder() / "submit").string()};
    append(words, request.options);
    words.push_back(request.name);
    append(words, request.words);
    out << shell_text({{}, words}) << '\n';
  }
}

// What a command of Slurm's prints; nothing where it cannot be run: sbatch will say what is
// missing.
std::string answer_of(const Words& command) {
  ProcessOptions quietly;
  quietly.stderr_path = "/dev/null";
  try {
    return capture_process(command, quietly).output;
  } catch (const Error&) {
    return {};
  }
}

// The jobs that run this grid, or will.
Words queued_jobs(const Job& job) {
  Words jobs = split_list(answer_of({"squeue", "--me", "--noheader", "--sort=i", "--format=%F",
                                     "--name=" + array_name(job)}),
                          '\n');
  std::erase(jobs, "");
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

// The number that indices of arrays are below here; the largest number where Slurm does not say.
std::size_t most_array_tasks() {
  const std::string config = answer_of({"scontrol", "show", "config"});
  std::smatch found;
  if (std::regex_search(config, found, std::regex("MaxArraySize *= *([0-9]{1,9})\\b")))
    return static_cast<std::size_t>(parse_integer(found[1].str()));
  return std::numeric_limits<std::size_t>::max();
}

// Or the arrays before the one that sbatch refuses would be queued. `most`: most_array_tasks.
void require_array_tasks(const std::vector<GridCell>& cells, std::size_t most) {
  std::size_t last = 0;
  for (const CellJob& job : jobs_of(cells))
    last = std::max(last, job.front().number);
  if (last >= most)
    throw Error(
        ExitCode::kEnvironment,
        fmt::format("cell {} is no index of a job array here: MaxArraySize is {}", last, most),
        "divide the grid: values of an axis by --set, another folder by --results; an "
        "administrator can raise MaxArraySize in slurm.conf");
}

}  // namespace

int submit_grid(const Plan& asked, const SlurmSite& site, std::ostream& out) {
  // The tasks have the environment and the site's settings, and no word of this command but those
  // that make the grid.
  for (const char* const option : {"mpirun", "launcher-options", "gpu-request"})
    if (const OptionValue& value = asked.command.given.values.at(option);
        value.source == "command line" || value.source == "job file")
      throw Error(ExitCode::kUsage,
                  fmt::format("{} does not reach the tasks of --launcher slurm", value.where),
                  "set launcher, mpi or gpu-request in slurm/site, or srun-options or "
                  "mpirun-options in the job file");
  Plan plan = asked;
  const Job& job = plan.job;
  const auto cells = plan.cells_to_run();
  if (cells.empty()) return std::cerr << "all cells are there already\n", 0;
  const std::size_t most = most_array_tasks();
  require_array_tasks(cells, most);
  auto arrays = array_jobs(plan, cells, site.at("array-tasks"));
  if (plan.command.options.dry_run) return print_arrays(arrays, job, out), 0;
  ResultsFolder folder(job, plan.there.grid, FolderUse::kSubmission);
  // Another submission may have numbered cells of its own until this one had the lock.
  plan.there = folder.there();
  arrays = array_jobs(plan, plan.cells_to_run(), site.at("array-tasks"));
  require_array_tasks(plan.cells_to_run(), most);
  make_folder(log_folder(job));
  forget_own_job();
  if (const Words before = queued_jobs(job); !before.empty())
    std::cerr << fmt::format(
        "gradsync-sweep: this grid is queued or runs already: {} {}; what is "
        "submitted now begins after that\n",
        before.size() == 1 ? "job" : "jobs", fmt::join(before, ", "));
  Words jobs;
  try {
    for (const auto& array : arrays) {
      jobs.push_back(submitted(array, jobs, site));
      folder.record(job);
      out << fmt::format("job {}: {}\n", jobs.back(), array.what) << std::flush;
    }
  } catch (...) {
    std::error_code is_in_use;
    if (jobs.empty()) fs::remove(log_folder(job), is_in_use);
    throw;
  }
  return 0;
}

}  // namespace gradsync::sweep
