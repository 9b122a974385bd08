// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/program_output.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"
#include "base/version.h"
#include "record/journal.h"
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

// The template's job: what it got, and what the site says.
struct SlurmJob {
  Template from;
  SlurmSite site;
  Allocation allocation;
  Shape shape;
  std::string device;  // of the ranks: "cuda", "cpu" or "auto"
  std::int64_t most_restarts = 0;
  std::string resume;  // the command that submits it again

  bool is_array() const { return from.work == "array"; }
};

[[noreturn]] void refuse_job(const SlurmJob& job, const std::string& what, const std::string& fix) {
  throw Error(ExitCode::kEnvironment, job.from.name + ": " + what, fix);
}

// --- the allocation ------------------------------------------------------------------------------

// The words behind a template's name: those of gradsync-sweep, and the trainer's. All behind -- are
// the trainer's.
struct GivenWords {
  Words sweep, trainer;
};

GivenWords split_words(const Words& words) {
  GivenWords given;
  for (auto word = words.begin(); word != words.end(); ++word) {
    const std::string name = word->substr(0, word->find('='));
    if (*word == "--") {
      given.trainer.insert(given.trainer.end(), word + 1, words.end());
      break;
    }
    const bool is_first = word == words.begin();
    if (!is_first && name != "--results" && name != "--set" && name != "--ranks-per-node") {
      given.trainer.push_back(*word);
      continue;
    }
    given.sweep.push_back(*word);
    if (is_first || *word != name) continue;
    if (++word == words.end()) throw Error(ExitCode::kUsage, name + " needs a value");
    given.sweep.push_back(*word);
  }
  return given;
}

// gradsync-sweep with `options` behind the words of a template.
Words sweep_command(const Words& words, const Words& options) {
  GivenWords given = split_words(words);
  Words command = {seen_from_here(program_beside_us(kProgram))};
  append(command, given.sweep);
  append(command, options);
  if (!given.trainer.empty()) command.push_back("--");
  append(command, given.trainer);
  return command;
}

// What scontrol says of this job, "TimeLimit" for one; empty where it says nothing.
std::string field_of_job(const std::string& fields, const std::string& name) {
  const std::size_t begin = fields.find(' ' + name + '=');
  if (begin == std::string::npos) return {};
  const std::string value = fields.substr(begin + name.size() + 2);
  return value.substr(0, value.find_first_of(" \n"));
}

// Options of sbatch that give a job the shape, the limit and the place of this one.
Words options_of_this_job(const Allocation& allocation) {
  const std::string fields = capture_process({"scontrol", "show", "job", allocation.job}).output;
  Words options;
  const auto add = [&](const std::string& option, const std::string& value) {
    if (!value.empty() && value != "0" && value != "(null)" && value != "UNLIMITED" &&
        value != "Partition_Limit")
      options.push_back(option + '=' + value);
  };
  add("--nodes", variable("SLURM_JOB_NUM_NODES"));
  add("--ntasks-per-node", variable("SLURM_NTASKS_PER_NODE"));
  add("--cpus-per-task", variable("SLURM_CPUS_PER_TASK"));
  // What was requested, "gres:gpu:h100:2": an exclusive job has all of a node.
  const std::string gpus = field_of_job(fields, "TresPerNode");
  if (gpus.find("gpu:") != std::string::npos)
    add("--gpus-per-node", gpus.substr(gpus.rfind(':') + 1));
  add("--time", field_of_job(fields, "TimeLimit"));
  add("--partition", field_of_job(fields, "Partition"));
  add("--account", field_of_job(fields, "Account"));
  add("--qos", field_of_job(fields, "QOS"));
  add("--reservation", variable("SLURM_JOB_RESERVATION"));
  add("--constraint", field_of_job(fields, "Features"));
  if (field_of_job(fields, "OverSubscribe") == "NO") options.emplace_back("--exclusive");
  return options;
}

// The command that submits a job again, as it was typed; after sbatch by hand, with what the
// job got.
std::string resume_command(const Template& from, const Words& words) {
  if (const std::string typed = variable("GRADSYNC_SUBMITTED"); !typed.empty()) return typed;
  if (from.work == "array") return typed_command(sweep_command(words, {"--launcher", "slurm"}));
  Words command = {seen_from_here(fs::path(variable("GRADSYNC_HOME")) / "slurm/submit")};
  append(command, options_of_this_job(*allocation_of(variable)));
  command.push_back(from.name);
  append(command, words);
  return typed_command(command);
}

void require_batch(const Template& from, const Words& words) {
  if (from.work == "array" && variable("SLURM_ARRAY_TASK_ID").empty())
    throw Error(ExitCode::kUsage, from.name + ": this is a template for job arrays",
                array_command(words));
  const bool in_batch = !variable("SLURM_JOB_ID").empty() && variable("ENVIRONMENT") == "BATCH" &&
                        variable("SLURM_STEP_ID").empty();
  if (in_batch) return;
  // sbatch hands its environment on: of a shell in a step of another job, that step's too.
  const bool from_a_step = variable("ENVIRONMENT") == "BATCH" && !variable("SLURM_STEP_ID").empty();
  Words command = from_a_step ? Words{"slurm/submit", from.name}
                              : Words{"sbatch", "slurm/" + from.name + ".sbatch"};
  append(command, words);
  throw Error(ExitCode::kEnvironment,
              from_a_step ? "this is a step, or was submitted by sbatch from inside another job"
                          : "this is a job for sbatch",
              "start it with: " + shell_text({{}, command}));
}

// The ranks compute on what the template is for, unless GRADSYNC_DEVICE says otherwise, which every
// program with ranks reads. "any" is what the job gets, and no setting of its cells: whoever
// submitted them did not make it one.
std::string chosen_device(const Template& from) {
  std::string device = variable("GRADSYNC_DEVICE");
  if (device.empty()) device = from.device;
  if (device == "any") return device;
  if (device == "gpu") device = "cuda";
  if (device != "cuda" && device != "cpu")
    throw Error(ExitCode::kUsage,
                fmt::format("GRADSYNC_DEVICE is '{}', which is neither cuda nor cpu", device),
                "export GRADSYNC_DEVICE=cuda, or =cpu; unset, the template decides");
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
               fmt::format("the allocation has {} a node, the template is for {}",
                           count_text(shape.ranks_per_node, "rank"), wanted),
               "leave out --ntasks and --ntasks-per-node, or take slurm/multi-node.sbatch");
  const std::int64_t ranks = slurm_count(variable, "SLURM_NTASKS");
  if (ranks > 0 && ranks != shape.nodes * shape.ranks_per_node)
    refuse_job(job,
               fmt::format("the allocation is for {}, not for {}", count_text(ranks, "rank"),
                           shape_text(shape)),
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
               fmt::format("{} a node, and {} on {}: a rank needs one of its own",
                           count_text(job.shape.ranks_per_node, "rank"), count_text(gpus, "GPU"),
                           variable("SLURMD_NODENAME")),
               fix);
}

void require_cores(const SlurmJob& job) {
  const std::int64_t cores = slurm_count(variable, "SLURM_CPUS_ON_NODE");
  const std::int64_t ranks = job.shape.ranks_per_node, each = job.allocation.cpus_per_rank;
  if (cores < ranks * each)
    refuse_job(
        job,
        fmt::format("{} a node with {} each, and {} on {}", count_text(ranks, "rank"),
                    count_text(each, "core"), count_text(cores, "core"),
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

// The site counts as it was at the submission, if that was slurm/submit's or gradsync-sweep's.
SlurmSite site_of_job() {
  const std::string text = variable("GRADSYNC_SLURM_SITE");
  return text.empty() ? this_site() : slurm_site_of(text, "GRADSYNC_SLURM_SITE");
}

SlurmJob begun_job(const Template& from, const Words& words) {
  require_batch(from, words);
  SlurmJob job{from, site_of_job(), *allocation_of(variable), {}, {}, 0, {}};
  job.resume = resume_command(from, words);
  job.device = chosen_device(from);
  if (job.device == "any") job.device = job.allocation.gpus_per_node > 0 ? "cuda" : "auto";
  job.shape = checked_shape(job);
  require_gpus(job);
  require_cores(job);
  job.most_restarts = most_restarts(job.site);
  // Newer srun does not take it from the allocation, and mpirun starts its own processes with srun.
  ::setenv("SRUN_CPUS_PER_TASK", std::to_string(job.allocation.cpus_per_rank).c_str(), 1);
  describe_job(job);
  return job;
}

// --- all ranks of the job ------------------------------------------------------------------------

// What this site puts on the command line of its launcher, behind whose options a program stands.
// One without MPI does not need the site's way to connect ranks, which may be missing.
std::string launcher_words(const SlurmSite& site, bool of_mpi = true) {
  Words words;
  if (site.at("launcher") == "srun")
    for (const std::string key : {"mpi", "hint", "gpu-bind", "cpu-freq"}) {
      const std::string value = key == "mpi" && !of_mpi ? "none" : site.at(key);
      if (!value.empty() && value != "pmix") words.push_back(fmt::format("--{}={}", key, value));
    }
  if (const std::string& container = site.at("container"); !container.empty())
    words.push_back(container);
  return joined(words);
}

std::string launcher_name(const SlurmSite& site) {
  return site.at("launcher") == "mpirun" ? "local" : "srun";
}

// Runs a program on the ranks of a shape; the options of a grid are not its own.
int run_on(const SlurmJob& job, const Shape& shape, const Words& program, bool of_mpi) {
  Job plain;
  plain.launcher_options = option_words(launcher_words(job.site, of_mpi));
  plain.gpu_request = job.site.at("gpu-request");
  const char* const name = kProgram.c_str();
  plain.mpirun = read_sweep_command(1, &name).options.mpirun;
  const auto launcher = make_launcher(launcher_name(job.site), plain, {}, [] { return 0; });
  const LaunchCommand command = launcher->command_on(shape, program);
  ProcessOptions process;
  process.environment = command.environment;
  return exit_code_of(run_process(command.args, process));
}

// Runs a program of the suite on all ranks of the job.
int run_on_all_ranks(const SlurmJob& job, const std::string& program, const Words& options) {
  Words words = {program_beside_us(program).string()};
  append(words, options);
  return run_on(job, job.shape, words, /*of_mpi=*/true);
}

// A folder for temporary files on every node that this user alone enters, in TMPDIR while it lives:
// MPI puts its sockets there, under a name that others could have taken in /tmp. Where TMPDIR is
// one already, as sites make it for each job, it stays. Nodes may share TMPDIR.
class PrivateTemporaryFolder {
 public:
  explicit PrivateTemporaryFolder(const SlurmJob& job) : job_(job) {
    const fs::path given = variable("TMPDIR").empty() ? "/tmp" : variable("TMPDIR");
    std::error_code ignored;
    const fs::perms perms = fs::status(given, ignored).permissions();
    if ((perms & (fs::perms::group_write | fs::perms::others_write)) == fs::perms::none) return;
    folder_ = given / ("gradsync-" + job.allocation.job + '-' + random_suffix());
    if (run_on_nodes({"mkdir", "-p", "-m", "700", folder_.string()}) != 0)
      refuse_job(job_, fmt::format("cannot make {} on every node", folder_.string()),
                 "export TMPDIR=FOLDER, one on each node that you alone can write");
    ::setenv("TMPDIR", folder_.c_str(), /*overwrite=*/1);
  }
  ~PrivateTemporaryFolder() { remove(); }
  PrivateTemporaryFolder(const PrivateTemporaryFolder&) = delete;
  PrivateTemporaryFolder& operator=(const PrivateTemporaryFolder&) = delete;

  void remove() {
    if (folder_.empty()) return;
    ::setenv("TMPDIR", folder_.parent_path().c_str(), /*overwrite=*/1);
    try {
      run_on_nodes({"rm", "-rf", folder_.string()});
    } catch (const Error&) {
      // It stays behind, empty but for what a killed rank left.
    }
    folder_.clear();
  }

 private:
  int run_on_nodes(const Words& program) const {
    return run_on(job_, {job_.shape.nodes, 1}, program, /*of_mpi=*/false);
  }

  const SlurmJob& job_;
  fs::path folder_;
};

// --- the grid ------------------------------------------------------------------------------------

// The options of the sweep for this site.
Words site_options(const Template& from, const SlurmSite& site) {
  Words options = {"--launcher", launcher_name(site)};
  if (site.at("launcher") == "srun") append(options, {"--gpu-request", site.at("gpu-request")});
  if (const std::string words = launcher_words(site); !words.empty())
    options.push_back("--launcher-options=" + words);
  if (from.work == "array") append(options, {"--cell", variable("SLURM_ARRAY_TASK_ID")});
  return options;
}

// What the preflight is to look at.
struct Needs {
  bool reads_data = false;          // else each network draws its samples
  std::string data;                 // of the cells that read it; empty: none sets it
  std::int64_t threads = 1;         // of a rank, the most
  std::set<std::string> transport;  // of the cells; empty: it sets none
};

// Throws where the cells do not fit the allocation.
Needs checked_needs(const SlurmJob& job, const Plan& plan, const Launcher& launcher) {
  const std::vector<GridCell> cells = plan.chosen_cells();
  require_room(cells, plan.job.results, launcher);
  Needs needs;
  for (const GridCell& cell : cells) {
    const TrainOptions options = train_options_of(cell);
    const std::string* transport = cell.option("transport");
    needs.transport.insert(transport != nullptr ? *transport : "");
    needs.threads =
        std::max(needs.threads, options.threads > 0 ? options.threads : launcher.threads());
    if (!network_input(options).cifar10) continue;
    needs.reads_data = true;
    if (const std::string* data = cell.option("data")) needs.data = *data;
  }
  const std::int64_t cores = job.allocation.cpus_per_rank;
  if (needs.threads > cores)
    refuse_job(job,
               fmt::format("{} has cells with {} a rank, the allocation has {} for one",
                           plan.command.given.positional.front(),
                           count_text(needs.threads, "thread"), count_text(cores, "core")),
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
  if (needs.transport.size() == 1 && !needs.transport.begin()->empty())
    append(options, {"--transport", *needs.transport.begin()});
  if (!needs.reads_data) {
    const std::string given = variable("GRADSYNC_CHECK_SKIP");
    append(options, {"--skip", given.empty() ? "data" : given + ",data"});
  }
  say("preflight: gradsync-check");
  if (run_on_all_ranks(job, "gradsync-check", options) != 0)
    throw Error(ExitCode::kEnvironment, "the preflight failed: the lines above are the fixes");
}

// The tables, by the task that finds all cells complete: a batch that does not fit is a result.
int finish_array(const Plan& plan, const StopRequests& requests, const std::string& resume,
                 ProgramOutput& output) {
  const auto& cells = plan.there.grid.cells;
  Plan whole = plan;
  whole.command.options.cell.clear();
  if (const auto left = whole.cells_to_run().size(); left > 0) {
    say(fmt::format("not complete: {} of {} cells", left, cells.size()));
    return 0;
  }
  return run_plan(whole, resume, requests, output);
}

// Every network of the results that has a checkpoint and no int8 form yet, on all ranks; then the
// tables. Throws Error kStoppedEarly on a request to stop: the networks that have one are kept.
int quantize_results(const SlurmJob& job, const Plan& plan, const Needs& needs,
                     const StopRequests& requests) {
  const fs::path& results = plan.job.results;
  std::vector<fs::path> runs;
  for (const auto& entry : fs::directory_iterator(results))
    if (entry.path().extension() == ".checkpoints" && !is_set_aside(entry.path()))
      runs.push_back(entry.path());
  std::ranges::sort(runs);
  for (const fs::path& checkpoints : runs) {
    const std::string base = fs::path(checkpoints).replace_extension().string() + "-int8";
    if (fs::exists(base + ".h5")) continue;
    const auto require_time = [&] {
      if (requests() > 0)
        throw Error(ExitCode::kStoppedEarly, "stopped before " + base + ".h5 was complete");
    };
    require_time();
    fs::remove(base + ".safetensors");
    say("int8:     " + base + ".h5");
    Words options = {"--checkpoint", checkpoints.string(),
                     "--output",     base + ".h5",
                     "--save",       base + ".safetensors",
                     "--threads",    std::to_string(job.allocation.cpus_per_rank)};
    if (!needs.data.empty()) append(options, {"--data", needs.data});
    if (const int code = run_on_all_ranks(job, "gradsync-quantize", options)) {
      require_time();
      return code;
    }
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
    return fmt::format("it was restarted {}, the most allowed (GRADSYNC_MAX_RESTARTS)",
                       count_text(restarts, "time"));
  if (now <= before) return "it did nothing that lasts in this start: raise --time";
  return {};
}

// The job as scontrol requeues it. The id of an array's task may be that of the whole array.
std::string requeued_job(const SlurmJob& job) {
  const std::string task = variable("SLURM_ARRAY_TASK_ID");
  return task.empty() ? job.allocation.job : variable("SLURM_ARRAY_JOB_ID") + "_" + task;
}

// Puts the job back into the queue. Slurm then ends this process, and may end its children first
// (by TERM or KILL): that is no failure. False if Slurm refuses.
bool requeue(const SlurmJob& job, const StopSignals& signals) {
  const int before = signals.count();
  const int code = exit_code_of(run_process({"scontrol", "requeue", requeued_job(job)}));
  if (code != 0 && code != 128 + SIGTERM && code != 128 + SIGKILL) return false;
  for (int tenths = 0; tenths < 600 && signals.count() == before; ++tenths)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return true;
}

// Ends a job whose grid ended with `error`, if there was one. After 75 it goes back into the queue,
// if it may; else the error has the command that resumes it.
int end_job(const SlurmJob& job, const fs::path& results, int code,
            const std::optional<Error>& error, const DurableProgress& before,
            const StopSignals& signals, PrivateTemporaryFolder& temporary) {
  if (!error || error->code() != ExitCode::kStoppedEarly) {
    if (error) print_error(kProgram, *error);
    std::error_code ignored;
    if (fs::exists(results / "tables", ignored))
      say(fmt::format("results:  {0}, tables in {0}/tables", results.string()));
    say(fmt::format("ends with exit code {}", code));
    return code;
  }
  std::string reason = reason_to_stay(job, signals, before, durable_progress(results));
  if (reason.empty()) {
    say(fmt::format("stopped before the time limit; requeued (restart {})",
                    slurm_count(variable, "SLURM_RESTART_COUNT") + 1));
    temporary.remove();
    if (requeue(job, signals)) {
      print_error(kProgram, Error(error->code(), error->what()));
      return code;
    }
    reason = fmt::format("scontrol requeue {} failed", requeued_job(job));
  }
  print_error(kProgram,
              Error(error->code(), fmt::format("{}; not queued again: {}", error->what(), reason),
                    "to resume, submit it again: " + job.resume));
  return code;
}

int run_grid_job(const SlurmJob& job, const Words& words, const StopSignals& signals,
                 PrivateTemporaryFolder& temporary) {
  const Plan plan = plan_in_job(job.from, words, job.site);
  const StopRequests requests = [&] { return signals.count(); };
  const auto launcher = make_launcher(launcher_name(job.site), plan.job, plan.there.grid, requests);
  require_writable(plan.command.given.json);
  const Needs needs = checked_needs(job, plan, *launcher);
  const auto cells = static_cast<std::int64_t>(plan.there.grid.cells.size());
  say(fmt::format(
      "grid:     {}, {}", words.front(),
      job.is_array() ? "--cell " + plan.command.options.cell : count_text(cells, "cell")));
  say("results:  " + plan.job.results.string());
  run_preflight(job, plan, needs);
  const DurableProgress before = durable_progress(plan.job.results);
  say(shell_text({{}, sweep_command(words, site_options(job.from, job.site))}));
  ProgramOutput output(plan.command.given, kProgram);
  int code = 0;
  std::optional<Error> error;
  try {
    code = run_plan(plan, job.resume, requests, output);
    if (code == 0 && job.is_array()) code = finish_array(plan, requests, job.resume, output);
    if (code == 0 && job.from.work == "quantize")
      code = quantize_results(job, plan, needs, requests);
  } catch (...) {
    error = current_error();
    code = error->exit_code();
  }
  return end_job(job, plan.job.results, code, error, before, signals, temporary);
}

int run_calibration(const SlurmJob& job, const Words& options) {
  Words words = options;
  const bool chosen = std::ranges::any_of(options, [](const std::string& word) {
    return word == "--output" || word.starts_with("--output=");
  });
  const fs::path output =
      fs::path("results/calibrate") /
      fmt::format("{}-{}x{}.h5", job.allocation.job, job.shape.nodes, job.shape.ranks_per_node);
  if (!chosen) {
    make_folder(output.parent_path());
    append(words, {"--output", output.string()});
  }
  const int code = run_on_all_ranks(job, "gradsync-calibrate", words);
  if (!chosen && code == 0) say("results:  " + output.string());
  say(fmt::format("ends with exit code {}", code));
  return code;
}

}  // namespace

Plan plan_in_job(const Template& from, const Words& words, const SlurmSite& site) {
  if (words.empty() || words.front().starts_with('-'))
    throw Error(ExitCode::kUsage, from.name + ": give a job file",
                fmt::format("for example: slurm/submit {} jobs/demo.cfg", from.name));
  chosen_device(from);
  take_site_data(site);
  const Words command = sweep_command(words, site_options(from, site));
  std::vector<const char*> argv;
  for (const auto& word : command)
    argv.push_back(word.c_str());
  Plan plan = plan_of(read_sweep_command(static_cast<int>(argv.size()), argv.data()));
  plan.there.require_same(plan.job.results);
  return plan;
}

std::string array_command(const Words& words) {
  const std::string job = words.empty() ? "JOB.cfg" : words.front();
  Words options = {"--launcher", "slurm"};
  // Which one is right, only the user knows; the templates for GPUs have four ranks a node.
  std::error_code ignored;
  const Words given = split_words(words).sweep;
  const bool is_set = std::ranges::any_of(
      given, [](const std::string& word) { return word.starts_with("--ranks-per-node"); });
  if (!is_set && (!fs::exists(job, ignored) || read_job(job).ranks_per_node == 0))
    append(options, {"--ranks-per-node", "4"});
  return shell_text({{}, sweep_command(words.empty() ? Words{job} : words, options)});
}

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
  PrivateTemporaryFolder temporary(job);
  if (from.work == "calibrate") return run_calibration(job, given);
  return run_grid_job(job, given, signals, temporary);
}

}  // namespace gradsync::sweep
