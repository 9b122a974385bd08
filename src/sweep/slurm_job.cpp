#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"
#include "base/version.h"
#include "sweep/slurm.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kProgram = "gradsync-sweep";

void say(const std::string& text) {
  std::cout << "== " << text << '\n' << std::flush;
}

std::string joined(const Words& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

// What the last line of a template says of it.
struct Template {
  std::string name;            // "four-gpu"
  std::string ranks_per_node;  // that it is for, or "any"
  std::string device;          // "gpu", "cpu" or "any"
  std::string work;            // "grid", "array", "quantize" or "calibrate"

  bool is_array() const { return work == "array"; }
};

// The template's job: what it got, and what the site says.
struct SlurmJob {
  Template from;
  SlurmSite site;
  Allocation allocation;
  Shape shape;
  std::string device;  // of the ranks: "cuda", "cpu" or "auto"
  std::int64_t most_restarts = 0;
};

[[noreturn]] void refuse_job(const SlurmJob& job, const std::string& what, const std::string& fix) {
  throw Error(ExitCode::kEnvironment, job.from.name + ": " + what, fix);
}

// --- the allocation ------------------------------------------------------------------------------

void require_batch(const Template& from, const Words& words) {
  if (from.is_array() && variable("SLURM_ARRAY_TASK_ID").empty())
    throw Error(ExitCode::kUsage, from.name + ": this is a template for job arrays",
                array_command(words));
  const bool in_batch = !variable("SLURM_JOB_ID").empty() && variable("ENVIRONMENT") == "BATCH" &&
                        variable("SLURM_STEP_ID").empty();
  if (in_batch) return;
  Words command = {"sbatch", "slurm/" + from.name + ".sbatch"};
  append(command, words);
  throw Error(ExitCode::kEnvironment, "this is a job for sbatch",
              "start it with: " + shell_text({{}, command}));
}

// The ranks compute on what the template is for, unless GRADSYNC_DEVICE says otherwise; every
// program reads it. "any" is what the job got, and no setting of its cells: whoever submitted them
// did not make it one.
std::string chosen_device(const SlurmJob& job) {
  std::string device = variable("GRADSYNC_DEVICE");
  if (device.empty()) device = job.from.device;
  if (device == "any") return job.allocation.gpus_per_node > 0 ? "cuda" : "auto";
  if (device == "gpu") device = "cuda";
  if (device != "cuda" && device != "cpu")
    throw Error(ExitCode::kUsage, fmt::format("GRADSYNC_DEVICE is gpu or cpu, not '{}'", device));
  ::setenv("GRADSYNC_DEVICE", device.c_str(), /*overwrite=*/1);
  return device;
}

// The shape of the allocation. Throws where its ranks do not fill its nodes, or are not those that
// the template is for.
Shape checked_shape(const SlurmJob& job) {
  const Shape shape{job.allocation.nodes, job.allocation.ranks_per_node};
  const std::string& wanted = job.from.ranks_per_node;
  if (wanted != "any" && wanted != std::to_string(shape.ranks_per_node))
    refuse_job(job,
               fmt::format("the allocation has {} ranks a node, the template is for {}",
                           shape.ranks_per_node, wanted),
               "leave out --ntasks and --ntasks-per-node, or take slurm/multi-node.sbatch");
  const std::int64_t ranks = slurm_count(variable, "SLURM_NTASKS");
  if (ranks > 0 && ranks != shape.nodes * shape.ranks_per_node)
    refuse_job(job,
               fmt::format("{} ranks do not fill {} nodes with {} each", ranks, shape.nodes,
                           shape.ranks_per_node),
               "give --nodes and --ntasks-per-node, and no --ntasks");
  return shape;
}

std::int64_t gpus_of_machine() {
  std::int64_t count = 0;
  for (const auto& file : fs::directory_iterator("/dev")) {
    const std::string name = file.path().filename().string();
    if (name.size() > 6 && name.starts_with("nvidia") && std::isdigit(name[6]) != 0) ++count;
  }
  return count;
}

// One GPU a rank, and none for two.
void require_gpus(const SlurmJob& job) {
  if (job.from.device != "gpu") return;
  const std::string& request = job.site.at("gpu-request");
  std::int64_t gpus = job.allocation.gpus_per_node;
  std::string fix =
      fmt::format("sbatch {} …", joined(gpu_option(request, job.shape.ranks_per_node)));
  if (request == "none") {
    // Slurm counts only what was requested.
    if (job.device != "cuda") return;
    gpus = gpus_of_machine();
    fix = "name a partition or constraint of nodes with GPUs in slurm/site";
  }
  if (gpus < job.shape.ranks_per_node)
    refuse_job(job,
               fmt::format("{} ranks a node, and {} GPUs on {}: a rank needs one of its own",
                           job.shape.ranks_per_node, gpus, variable("SLURMD_NODENAME")),
               fix);
}

void require_cores(const SlurmJob& job) {
  const std::int64_t cores = slurm_count(variable, "SLURM_CPUS_ON_NODE");
  const std::int64_t ranks = job.shape.ranks_per_node, each = job.allocation.cpus_per_rank;
  if (cores < ranks * each)
    refuse_job(
        job,
        fmt::format("{} ranks a node with {} cores each, and {} cores on {}", ranks, each, cores,
                    variable("SLURMD_NODENAME")),
        fmt::format("sbatch --cpus-per-task={} …", std::max<std::int64_t>(1, cores / ranks)));
}

std::int64_t most_restarts(const SlurmSite& site) {
  const std::string given = variable("GRADSYNC_MAX_RESTARTS");
  try {
    return parse_integer(given.empty() ? site.at("max-restarts") : given);
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage, fmt::format("GRADSYNC_MAX_RESTARTS: {}", error.what()));
  }
}

void describe_job(const SlurmJob& job) {
  const std::string list = variable("SLURM_JOB_NODELIST");
  const auto hosts = capture_process({"scontrol", "show", "hostnames", list});
  const std::string version = version_text(kProgram);
  say(fmt::format("gradsync {}: job {}, start {}, {}", job.from.name, job.allocation.job,
                  slurm_count(variable, "SLURM_RESTART_COUNT") + 1, utc_now()));
  say("hosts:    " + joined(split_list(trimmed(hosts.output), '\n')));
  say(fmt::format("shape:    {}, {} a rank, {}", shape_text(job.shape),
                  count_text(job.allocation.cpus_per_rank, "core"), job.device));
  say("version:  " + version.substr(0, version.find('\n')));
  say("launcher: " + job.site.at("launcher") +
      (job.site.at("container").empty() ? "" : ' ' + job.site.at("container")));
}

SlurmJob begun_job(const Template& from, const Words& words) {
  require_batch(from, words);
  SlurmJob job{from, this_site(), *allocation_of(variable), {}, {}, 0};
  job.device = chosen_device(job);
  job.shape = checked_shape(job);
  require_gpus(job);
  require_cores(job);
  job.most_restarts = most_restarts(job.site);
  take_site_data(job.site);
  // Newer srun does not take it from the allocation, and mpirun starts its own processes with srun.
  ::setenv("SRUN_CPUS_PER_TASK", std::to_string(job.allocation.cpus_per_rank).c_str(), 1);
  describe_job(job);
  return job;
}

// --- all ranks of the job ------------------------------------------------------------------------

// What this site puts on the command line of its launcher, behind whose options a program stands.
std::string launcher_words(const SlurmSite& site) {
  std::string words = site.at("container");
  if (site.at("launcher") == "srun" && site.at("mpi") != "pmix")
    words = "--mpi=" + site.at("mpi") + (words.empty() ? "" : " ") + words;
  return words;
}

std::string launcher_name(const SlurmSite& site) {
  return site.at("launcher") == "mpirun" ? "local" : "srun";
}

// Runs a program of the suite on all ranks of the job; the options of a grid are not its own.
int run_on_all_ranks(const SlurmJob& job, const std::string& program, const Words& options) {
  Job plain;
  plain.launcher_options = option_words(launcher_words(job.site));
  plain.gpu_request = job.site.at("gpu-request");
  const char* const name = kProgram.c_str();
  plain.mpirun = read_sweep_command(1, &name).options.mpirun;
  const auto launcher = make_launcher(launcher_name(job.site), plain, {}, [] { return 0; });
  Words words = {program_beside_us(program).string()};
  append(words, options);
  const LaunchCommand command = launcher->command_on(job.shape, words);
  ProcessOptions process;
  process.environment = command.environment;
  return exit_code_of(run_process(command.args, process));
}

// --- the grid ------------------------------------------------------------------------------------

// The command line of the sweep for this site and the user's words: options of gradsync-sweep, and
// the trainer's. All behind -- are the trainer's.
Words sweep_words(const SlurmJob& job, const Words& words) {
  Words command = {program_beside_us(kProgram).string(), words.front()}, trainer;
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    const std::string name = word->substr(0, word->find('='));
    if (*word == "--") {
      trainer.insert(trainer.end(), word + 1, words.end());
      break;
    }
    if (name != "--results" && name != "--set" && name != "--ranks-per-node") {
      trainer.push_back(*word);
      continue;
    }
    command.push_back(*word);
    if (*word != name) continue;
    if (++word == words.end()) throw Error(ExitCode::kUsage, name + " needs a value");
    command.push_back(*word);
  }
  append(command, {"--launcher", launcher_name(job.site)});
  if (job.site.at("launcher") == "srun")
    append(command, {"--gpu-request", job.site.at("gpu-request")});
  if (const std::string options = launcher_words(job.site); !options.empty())
    append(command, {"--launcher-options", options});
  if (job.from.is_array()) append(command, {"--cell", variable("SLURM_ARRAY_TASK_ID")});
  if (!trainer.empty()) command.push_back("--");
  append(command, trainer);
  return command;
}

Plan planned(const Words& words) {
  std::vector<const char*> argv;
  for (const auto& word : words)
    argv.push_back(word.c_str());
  Plan plan = plan_of(read_sweep_command(static_cast<int>(argv.size()), argv.data()));
  plan.there.require_same(plan.job.results);
  return plan;
}

// What the preflight is to look at.
struct Needs {
  std::string data;          // of the cells; empty: none sets it
  std::int64_t threads = 1;  // of a rank, the most
};

// Throws where the cells do not fit the allocation.
Needs checked_needs(const SlurmJob& job, const Plan& plan, const Launcher& launcher) {
  const std::vector<GridCell> cells = plan.chosen_cells();
  require_room(cells, plan.job.results, launcher);
  Needs needs;
  for (const GridCell& cell : cells) {
    if (const std::string* data = cell.option("data")) needs.data = *data;
    const std::int64_t threads = train_options_of(cell).threads;
    needs.threads = std::max(needs.threads, threads > 0 ? threads : launcher.threads());
  }
  const std::int64_t cores = job.allocation.cpus_per_rank;
  if (needs.threads > cores)
    refuse_job(job,
               fmt::format("{} has cells with {} threads a rank, the allocation has {} cores for "
                           "one",
                           plan.command.given.positional.front(), needs.threads, cores),
               fmt::format("sbatch --cpus-per-task={} …, or --threads {} behind the job file",
                           needs.threads, cores));
  return needs;
}

// Looks at what the ranks need before anything is measured; docs/slurm.md has a log.
void run_preflight(const SlurmJob& job, const Plan& plan, const Needs& needs) {
  Words options = {"--results", plan.job.results.string(), "--ranks-per-node",
                   std::to_string(job.shape.ranks_per_node)};
  if (!needs.data.empty()) append(options, {"--data", needs.data});
  append(options, {"--threads", std::to_string(needs.threads), "--device", job.device});
  say("preflight: gradsync-check");
  if (run_on_all_ranks(job, "gradsync-check", options) != 0)
    throw Error(ExitCode::kEnvironment, "the preflight failed: the lines above are the fixes");
}

// The tables, by the task that finds all cells complete: a batch that does not fit is a result.
int finish_array(const Plan& plan, const StopRequests& requests, const std::string& resume,
                 ProgramOutput& output) {
  const auto& cells = plan.there.grid.cells;
  const auto left = std::count_if(cells.begin(), cells.end(), [&](const GridCell& cell) {
    const CellState state = cell_state(cell_files(plan.job.results, cell));
    return !is_settled(state) && state != CellState::kNotRun;
  });
  if (left > 0) {
    say(fmt::format("not complete: {} of {} cells", left, cells.size()));
    return 0;
  }
  Plan whole = plan;
  whole.command.options.cell.clear();
  return run_plan(whole, resume, requests, output);
}

// Every network of the results that has a checkpoint and no int8 form yet, on all ranks; then the
// tables.
int quantize_results(const SlurmJob& job, const Plan& plan, const Needs& needs) {
  const fs::path& results = plan.job.results;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(results))
    if (entry.path().extension() == ".checkpoints") runs.push_back(entry.path());
  std::sort(runs.begin(), runs.end());
  for (const fs::path& checkpoints : runs) {
    const std::string base = fs::path(checkpoints).replace_extension().string() + "-int8";
    if (fs::exists(base + ".h5")) continue;
    fs::remove(base + ".safetensors");
    say("int8:     " + base + ".h5");
    Words options = {"--checkpoint", checkpoints.string(),
                     "--output",     base + ".h5",
                     "--save",       base + ".safetensors",
                     "--threads",    std::to_string(job.allocation.cpus_per_rank)};
    if (!needs.data.empty()) append(options, {"--data", needs.data});
    if (const int code = run_on_all_ranks(job, "gradsync-quantize", options)) return code;
  }
  return exit_code_of(run_process({program_beside_us("gradsync-report").string(), results.string(),
                                   "--table", "quantize,ranges,quantize-layers", "--format", "all",
                                   "--output", (results / "tables").string(), "--verdict", "no"}));
}

// --- the end -------------------------------------------------------------------------------------

// Why a job that ended with 75 must not queue itself again; empty if it may.
std::string reason_to_stay(const SlurmJob& job, const StopSignals& signals,
                           const DurableProgress& before, const DurableProgress& now) {
  const std::int64_t restarts = slurm_count(variable, "SLURM_RESTART_COUNT");
  if (signals.received() != SIGUSR1) return "it was not the time limit that stopped it";
  if (restarts >= job.most_restarts)
    return fmt::format("it was restarted {} times, the most allowed (GRADSYNC_MAX_RESTARTS)",
                       restarts);
  if (now <= before) return "it did nothing that lasts in this start: raise --time";
  return {};
}

// Puts the job back into the queue. Slurm then ends this process, and may end its children first
// (by TERM or KILL): that is no failure. False if Slurm refuses.
bool requeue(const SlurmJob& job, const StopSignals& signals) {
  const int before = signals.count();
  const int code = exit_code_of(run_process({"scontrol", "requeue", job.allocation.job}));
  if (code != 0 && code != 128 + SIGTERM && code != 128 + SIGKILL) return false;
  for (int tenths = 0; tenths < 600 && signals.count() == before; ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return true;
}

// Ends the job with `code`; after 75 it goes back into the queue, if it may.
int end_job(const SlurmJob& job, const Plan& plan, int code, const DurableProgress& before,
            const StopSignals& signals, const std::string& resume) {
  const std::string results = plan.job.results.string();
  if (code != static_cast<int>(ExitCode::kStoppedEarly)) {
    say(fmt::format("results:  {0}, tables in {0}/tables", results));
    say(fmt::format("ends with exit code {}", code));
    return code;
  }
  std::string reason = reason_to_stay(job, signals, before, durable_progress(plan.job.results));
  if (reason.empty()) {
    say(fmt::format("stopped before the time limit; requeued (restart {})",
                    slurm_count(variable, "SLURM_RESTART_COUNT") + 1));
    if (requeue(job, signals)) return code;
    reason = fmt::format("scontrol requeue {} failed", job.allocation.job);
  }
  say("stopped early, not queued again: " + reason);
  say("to resume, submit it again: " + resume);
  return code;
}

int run_grid_job(const SlurmJob& job, const Words& words, const StopSignals& signals) {
  if (words.empty() || words.front().starts_with('-'))
    throw Error(ExitCode::kUsage, job.from.name + ": give a job file",
                fmt::format("for example: sbatch slurm/{}.sbatch jobs/demo.cfg", job.from.name));
  Words again = {"sbatch", "slurm/" + job.from.name + ".sbatch"};
  if (job.from.is_array()) again = {program_beside_us(kProgram).string(), "--launcher", "slurm"};
  append(again, words);
  const std::string resume = shell_text({{}, again});
  const Words command = sweep_words(job, words);
  const Plan plan = planned(command);
  const StopRequests requests = [&] { return signals.count(); };
  const auto launcher = make_launcher(launcher_name(job.site), plan.job, plan.there.grid, requests);
  require_writable(plan.command.given.json);
  const Needs needs = checked_needs(job, plan, *launcher);
  const auto cells = static_cast<std::int64_t>(plan.there.grid.cells.size());
  say(fmt::format(
      "grid:     {}, {}", words.front(),
      job.from.is_array() ? "--cell " + plan.command.options.cell : count_text(cells, "cell")));
  say("results:  " + plan.job.results.string());
  run_preflight(job, plan, needs);
  const DurableProgress before = durable_progress(plan.job.results);
  say(shell_text({{}, command}));
  ProgramOutput output(plan.command.given, kProgram);
  int code = 0;
  try {
    code = run_plan(plan, resume, requests, output);
    if (code == 0 && job.from.is_array()) code = finish_array(plan, requests, resume, output);
    if (code == 0 && job.from.work == "quantize") code = quantize_results(job, plan, needs);
  } catch (...) {
    const Error error = current_error();
    print_error(kProgram, error);
    code = error.exit_code();
  }
  return end_job(job, plan, code, before, signals, resume);
}

int run_calibration(const SlurmJob& job, const Words& options) {
  const fs::path output =
      fs::path("results/calibrate") /
      fmt::format("{}-{}x{}.h5", job.allocation.job, job.shape.nodes, job.shape.ranks_per_node);
  make_folder(output.parent_path());
  Words words = {"--output", output.string()};
  append(words, options);
  const int code = run_on_all_ranks(job, "gradsync-calibrate", words);
  say("results:  " + output.string());
  say(fmt::format("ends with exit code {}", code));
  return code;
}

}  // namespace

int run_in_job(const Words& words) {
  if (words.size() < 4)
    throw Error(ExitCode::kUsage, "job: this is what the templates of slurm/ call",
                "sbatch slurm/four-gpu.sbatch jobs/demo.cfg");
  const Template from{words[0], words[1], words[2], words[3]};
  const Words given(words.begin() + 4, words.end());
  // Slurm signals only this process (--signal=B:USR1@120), whatever runs at that moment: a signal
  // to the steps alone would be lost between two of them.
  const StopSignals signals({SIGUSR1, SIGTERM, SIGINT, SIGHUP});
  const SlurmJob job = begun_job(from, given);
  if (from.work == "calibrate") return run_calibration(job, given);
  return run_grid_job(job, given, signals);
}

}  // namespace gradsync::sweep
