#include "sweep/launcher.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/options.h"
#include "record/recorder.h"
#include "sweep/allocation.h"
#include "sweep/local_launcher.h"
#include "sweep/srun_launcher.h"

namespace gradsync::sweep {

namespace {

bool is_plain(const std::string& text) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%";
  return !text.empty() && text.find_first_not_of(kPlain) == std::string::npos;
}

std::string shell_quoted(const std::string& text) {
  if (is_plain(text)) return text;
  std::string quoted = "'";
  for (const char c : text)
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// Quotes in front of the = would make the shell take an assignment for a program.
std::string assignment(const std::string& setting) {
  const std::size_t value = setting.find('=') + 1;
  return setting.substr(0, value) + shell_quoted(setting.substr(value));
}

bool sets(const GridCell& cell, const std::string& key) {
  return std::any_of(cell.options.begin(), cell.options.end(),
                     [&](const auto& option) { return option.first == key; });
}

bool trainer_knows(const std::string& option) {
  const auto names = option_names(train_option_table());
  return std::find(names.begin(), names.end(), option) != names.end();
}

}  // namespace

CellFiles cell_files(const std::filesystem::path& folder, const GridCell& cell) {
  const auto file = [&](const char* ending) { return folder / (cell.name + ending); };
  return {file(".h5"),          file(".h5.journal"), file(".log"),
          file(".failed.json"), file(".running"),    file(".checkpoints")};
}

std::vector<std::string> trainer_arguments(const GridCell& cell) {
  std::set<std::string> switches;
  for (const auto& spec : train_option_table())
    if (spec.value_name.empty()) switches.insert(spec.name);
  std::vector<std::string> args;
  for (const auto& [key, value] : cell.options) {
    if (!switches.contains(key))
      args.push_back("--" + key + "=" + value);
    else
      args.push_back((parse_switch(value) ? "--" : "--no-") + key);
  }
  return args;
}

bool is_resumable(const GridCell& cell, const CellFiles& files) {
  const std::pair<std::string, std::string> afresh{"resume", "no"};
  if (!trainer_knows("resume") || std::count(cell.options.begin(), cell.options.end(), afresh) > 0)
    return false;
  if (!std::filesystem::exists(files.journal)) return false;
  if (holds_complete_run(files.run)) return true;
  std::error_code missing;
  for (const auto& file : std::filesystem::directory_iterator(files.checkpoints, missing))
    if (file.path().extension() == ".safetensors") return true;
  return false;
}

std::vector<std::string> trainer_command(const std::filesystem::path& trainer, const GridCell& cell,
                                         const CellFiles& files, std::int64_t threads) {
  std::vector<std::string> args = {trainer.string()};
  append(args, trainer_arguments(cell));
  if (!sets(cell, "threads")) args.push_back(fmt::format("--threads={}", threads));
  if (trainer_knows("resume") && !sets(cell, "resume")) args.push_back("--resume=auto");
  args.push_back("--output=" + files.run.string());
  return args;
}

void append(std::vector<std::string>& args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
}

std::string shell_text(const LaunchCommand& command) {
  std::string text;
  for (const auto& setting : command.environment)
    text += assignment(setting) + ' ';
  for (const auto& arg : command.args)
    text += shell_quoted(arg) + ' ';
  if (!text.empty()) text.pop_back();
  return text;
}

namespace {

std::int64_t most_ranks(const Grid& grid) {
  std::int64_t most = 1;
  for (const auto& cell : grid.cells)
    most = std::max(most, cell.ranks);
  return most;
}

}  // namespace

const std::vector<std::string>& launcher_names() {
  static const std::vector<std::string> names = {"auto", "local", "srun", "slurm"};
  return names;
}

std::string resolved_launcher(const std::string& name) {
  if (name != "auto") return name;
  return current_allocation() ? "srun" : "local";
}

std::unique_ptr<Launcher> make_launcher(const std::string& name, const Job& job, const Grid& grid,
                                        StopRequests stop_requests) {
  const auto words = [&](std::vector<std::string> options) {
    append(options, job.launcher_options);
    return options;
  };
  const auto trainer = program_beside_us("gradsync-train");
  if (name == "local")
    return std::make_unique<LocalLauncher>(ask_mpirun(job.mpirun), trainer,
                                           words(job.mpirun_options), most_ranks(grid),
                                           std::move(stop_requests));
  const auto allocation = current_allocation();
  if (!allocation)
    throw Error(ExitCode::kEnvironment,
                "--launcher srun needs a Slurm job to run in, and SLURM_JOB_ID is not set",
                "start it inside sbatch or salloc, or run here with --launcher local");
  return std::make_unique<SrunLauncher>(trainer, words(job.srun_options), *allocation,
                                        job.ranks_per_node, job.gpu_request,
                                        std::move(stop_requests));
}

}  // namespace gradsync::sweep
