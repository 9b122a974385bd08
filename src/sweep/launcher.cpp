// SPDX-License-Identifier: BSD-3-Clause
#include "sweep/launcher.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <regex>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/options.h"
#include "record/reader.h"

namespace gradsync::sweep {

namespace {

using Words = std::vector<std::string>;

// --- allocation and shape ------------------------------------------------------------------------

// Slurm's counts: "4", "4(x2)" for two nodes alike, "gpu:4" or "gpu:h200:4" for a type.
std::int64_t count_in(const std::string& text, const std::string& name) {
  const std::string plain = text.substr(0, text.find('('));
  const std::size_t colon = plain.rfind(':');
  try {
    return parse_integer(colon == std::string::npos ? plain : plain.substr(colon + 1));
  } catch (const Error& error) {
    throw Error(ExitCode::kEnvironment, fmt::format("{}={}: {}", name, text, error.what()),
                "unset it, or start inside sbatch or salloc");
  }
}

// A node with GPUs of several types has all of them: "a100:2,v100:2" is 4. Other lists have an
// entry a kind of node.
std::int64_t gpus_per_node(const Environment& environment) {
  for (const char* name : {"SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"}) {
    const std::string text = environment(name);
    std::int64_t count = 0;
    for (const auto& part : split_list(text, ','))
      count += text.empty() ? 0 : std::max<std::int64_t>(0, count_in(part, name));
    if (count > 0) return count;
  }
  const std::string ids = environment("SLURM_JOB_GPUS");
  return ids.empty() ? 0 : static_cast<std::int64_t>(split_list(ids, ',').size());
}

std::int64_t ranks_per_node(const Environment& environment, const Allocation& allocation) {
  if (allocation.most_ranks_per_node > 0) return allocation.most_ranks_per_node;
  if (const std::int64_t tasks = slurm_count(environment, "SLURM_NTASKS"); tasks > 0)
    return shape_of(tasks, (tasks + allocation.nodes - 1) / allocation.nodes).ranks_per_node;
  return std::max<std::int64_t>(1, allocation.gpus_per_node);
}

std::int64_t at_least_one(std::int64_t count) {
  return std::max<std::int64_t>(1, count);
}

}  // namespace

std::int64_t slurm_count(const Environment& environment, const std::string& name) {
  const std::string text = environment(name);
  if (text.empty()) return 0;
  std::int64_t least = 0;
  for (const auto& part : split_list(text, ',')) {
    const std::int64_t count = count_in(part, name);
    least = least == 0 ? count : std::min(least, count);
  }
  return std::max<std::int64_t>(0, least);
}

std::optional<Allocation> allocation_of(const Environment& environment) {
  Allocation allocation;
  allocation.job = environment("SLURM_JOB_ID");
  if (allocation.job.empty()) return std::nullopt;
  allocation.nodes = at_least_one(slurm_count(environment, "SLURM_JOB_NUM_NODES"));
  allocation.gpus_per_node = gpus_per_node(environment);
  allocation.most_ranks_per_node = slurm_count(environment, "SLURM_NTASKS_PER_NODE");
  allocation.ranks_per_node = ranks_per_node(environment, allocation);
  allocation.cpus_per_node = at_least_one(slurm_count(environment, "SLURM_JOB_CPUS_PER_NODE"));
  allocation.cpus_per_rank = slurm_count(environment, "SLURM_CPUS_PER_TASK");
  if (allocation.cpus_per_rank == 0)
    allocation.cpus_per_rank = at_least_one(allocation.cpus_per_node / allocation.ranks_per_node);
  return allocation;
}

Shape shape_of(std::int64_t ranks, std::int64_t ranks_per_node) {
  const std::int64_t on_node = std::min(ranks, ranks_per_node);
  return {(ranks + on_node - 1) / on_node, on_node};
}

std::string shape_text(const Shape& shape) {
  return count_text(shape.nodes, "node") + " × " + count_text(shape.ranks_per_node, "rank");
}

Words gpu_option(const std::string& request, std::int64_t gpus) {
  if (request == "none") return {};
  if (request == "gpus-per-task") return {"--gpus-per-task=1"};
  if (request == "gpus-per-node") return {fmt::format("--gpus-per-node={}", gpus)};
  if (request == "gres" || (request.starts_with("gres:") && request.size() > 5))
    return {fmt::format("--gres=gpu{}:{}", request.substr(4), gpus)};
  throw Error(ExitCode::kUsage,
              fmt::format("--gpu-request: \"{}\" is no way to request GPUs", request),
              "give gpus-per-node, gpus-per-task, gres, gres:TYPE or none");
}

// --- words of every command ----------------------------------------------------------------------

namespace {

// Quotes in front of the = would make the shell take an assignment for a program.
std::string assignment(const std::string& setting) {
  const std::size_t value = setting.find('=') + 1;
  return setting.substr(0, value) + shell_quoted(setting.substr(value));
}

// The threads of a run that is to be resumed, which cannot change; −1: there is none, or it is
// damaged, which the trainer reports.
std::int64_t threads_of_begun(const GridCell& cell, const CellFiles& files) {
  if (!is_resumable(cell, files)) return -1;
  try {
    return parse_integer(open_run(files.journal)->option("threads"));
  } catch (const Error&) {
    return -1;
  }
}

// The end of every launcher's command: the trainer with the cell's options, as many `threads`
// unless the cell sets them or has begun, and going on from a checkpoint where there is one.
Words trainer_command(const std::filesystem::path& trainer, const GridCell& cell,
                      const CellFiles& files, std::int64_t threads) {
  Words args = {trainer.string()};
  append(args, trainer_arguments(cell));
  if (cell.option("threads") == nullptr) {
    const std::int64_t begun = threads_of_begun(cell, files);
    args.push_back(fmt::format("--threads={}", begun > 0 ? begun : threads));
  }
  if (cell.option("resume") == nullptr) args.push_back("--resume=auto");
  args.push_back("--output=" + files.run.string());
  return args;
}

}  // namespace

Words trainer_arguments(const GridCell& cell) {
  std::set<std::string> switches;
  for (const auto& spec : train_option_table())
    if (spec.value_name.empty()) switches.insert(spec.name);
  Words args;
  for (const auto& [key, value] : cell.options) {
    if (!switches.contains(key))
      args.push_back("--" + key + "=" + value);
    else
      args.push_back((parse_switch(value) ? "--" : "--no-") + key);
  }
  return args;
}

void append(Words& args, const Words& more) {
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

Launcher::Launcher(std::filesystem::path trainer, Words options, StopRequests stop_requests)
    : trainer_(std::move(trainer)),
      options_(std::move(options)),
      stop_requests_(std::move(stop_requests)) {}

LaunchCommand Launcher::command(const GridCell& cell, const CellFiles& files) const {
  LaunchCommand command = start(cell.name, cell.ranks, std::nullopt);
  append(command.args, options_);
  append(command.args, trainer_command(trainer_, cell, files, threads()));
  return command;
}

LaunchCommand Launcher::command_on(const Shape& shape, const Words& program) const {
  const std::string name = std::filesystem::path(program.front()).filename().string();
  LaunchCommand command = start(name, shape.nodes * shape.ranks_per_node, shape);
  append(command.args, options_);
  append(command.args, program);
  return command;
}

ProcessResult Launcher::launch(const GridCell& cell, const CellFiles& files) {
  return run_stoppable(command(cell, files), files, stop_requests_);
}

LaunchCommand Launcher::start(const std::string&, std::int64_t, std::optional<Shape>) const {
  return {};
}

// --- mpirun --------------------------------------------------------------------------------------

namespace {

// With the default keep-alive of 5 minutes a lost node is noticed after 8.
const std::vector<MpirunFamily>& mpirun_families() {
  static const std::vector<MpirunFamily> families = {
      {"open-mpi-4", R"([a-z.]+ \((Open MPI|OpenRTE)\) [34]\.\d+.*)",
       "--oversubscribe --bind-to none --quiet --mca oob_tcp_keepalive_time 5 "
       "--mca oob_tcp_keepalive_intvl 2 --mca oob_tcp_keepalive_probes 3",
       "--map-by ppr:{}:node"},
      {"open-mpi-5", R"([a-z.]+ \((Open MPI|OpenRTE)\) [56]\.\d+.*)",
       "--oversubscribe --bind-to none --prtemca oob_tcp_keepalive_time 5 "
       "--prtemca oob_tcp_keepalive_intvl 2 --prtemca oob_tcp_keepalive_probes 3",
       "--map-by ppr:{}:node"},
      {"hydra", "HYDRA build details:", "", "-ppn {}"},  // MPICH, MVAPICH
      {"intel", R"(Intel\(R\) MPI Library for Linux\* OS, Version 20\d\d.*)", "-genv I_MPI_PIN 0",
       "-ppn {}"},
      {"unknown", ".*", "", ""}};
  return families;
}

std::int64_t usable_cores() {
  cpu_set_t cores = {};
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  // More cores than the fixed-size set holds.
  return std::max(1L, sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

const MpirunFamily& family_of_version(const std::string& text) {
  const std::string line = text.substr(0, text.find('\n'));
  const auto fits = [&](const MpirunFamily& family) {
    return std::regex_match(line, std::regex(family.version));
  };
  const auto& families = mpirun_families();
  const auto found = std::ranges::find_if(families, fits);
  return found == families.end() ? families.back() : *found;
}

Mpirun ask_mpirun(const std::string& program) {
  ProcessOptions quietly;
  quietly.stdin_path = quietly.stderr_path = "/dev/null";
  try {
    const auto asked = capture_process({program, "--version"}, quietly);
    const MpirunFamily& family = family_of_version(asked.output);
    // Intel's mpirun is a shell script, which a signal ends in place of reaching the ranks.
    if (family.name != "intel") return {program, family};
    return {std::filesystem::path(program).replace_filename("mpiexec.hydra"), family};
  } catch (const Error&) {
    return {program, mpirun_families().back()};
  }
}

namespace {

// Where root is the only user there is, and mpirun's question whether root is meant is none.
bool in_container() {
  std::error_code ignored;
  return std::filesystem::exists("/.dockerenv", ignored) ||
         std::filesystem::exists("/run/.containerenv", ignored) ||
         namespace_of("user") != kFirstUserNamespace;
}

}  // namespace

LocalLauncher::LocalLauncher(Mpirun mpirun, std::filesystem::path trainer, Words options,
                             std::int64_t most_ranks, StopRequests stop_requests,
                             std::optional<Allocation> allocation)
    : Launcher(std::move(trainer), std::move(options), std::move(stop_requests)),
      mpirun_(std::move(mpirun)),
      most_ranks_(most_ranks),
      allocation_(std::move(allocation)) {
  // On one node that states no ranks, as in a plain salloc, all of its cores are there.
  if (allocation_ && allocation_->nodes == 1 && allocation_->most_ranks_per_node == 0)
    allocation_.reset();
}

namespace {

Error no_room(const GridCell& cell, const Allocation& allocation, std::int64_t ranks_per_node,
              const std::string& fix) {
  return {ExitCode::kEnvironment,
          fmt::format("cell {}: {} do not fit the allocation (job {}): {} with {} on each",
                      cell.name, count_text(cell.ranks, "rank"), allocation.job,
                      count_text(allocation.nodes, "node"), count_text(ranks_per_node, "rank")),
          fix};
}

}  // namespace

void LocalLauncher::require_room(const GridCell& cell) const {
  if (allocation_ && cell.ranks > allocation_->nodes * allocation_->ranks_per_node)
    throw no_room(cell, *allocation_, allocation_->ranks_per_node,
                  fmt::format("request more with --nodes or --ntasks-per-node, or exclude the cell "
                              "with --set exclude=ranks={}",
                              cell.ranks));
}

std::int64_t LocalLauncher::threads() const {
  if (allocation_) return allocation_->cpus_per_rank;
  return at_least_one(usable_cores() / most_ranks_);
}

LaunchCommand LocalLauncher::start(const std::string&, std::int64_t ranks,
                                   std::optional<Shape> shape) const {
  LaunchCommand command;
  if (geteuid() == 0 && in_container())
    command.environment = {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  command.args = {mpirun_.program, "-n", std::to_string(ranks)};
  append(command.args, option_words(mpirun_.family.options));
  if (shape)
    append(command.args,
           option_words(fmt::format(fmt::runtime(mpirun_.family.per_node), shape->ranks_per_node)));
  return command;
}

// --- srun ----------------------------------------------------------------------------------------

namespace {

// A rank that leaves ends the step at once if it failed, and after a minute if it did not.
const Words kStep = {"srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--wait=60"};

// Slurm's other fence, the tree, lets a rank leave MPI_Init before all are ready, and its first
// message crashes those that are not: docs/slurm.md. Whoever sets the variable knows better.
Words step_environment() {
  Words settings;
  if (std::getenv("SLURM_PMIX_FENCE") == nullptr) settings.emplace_back("SLURM_PMIX_FENCE=ring");
  // Cray MPICH ends a program in MPI_Init where a module has set it: slurm/run.sh.
  if (const std::string gpu = variable("MPICH_GPU_SUPPORT_ENABLED"); !gpu.empty() && gpu != "0")
    settings.emplace_back("MPICH_GPU_SUPPORT_ENABLED=0");
  return settings;
}

}  // namespace

SrunLauncher::SrunLauncher(std::filesystem::path trainer, const Words& options,
                           Allocation allocation, std::int64_t ranks_per_node,
                           std::string gpu_request, StopRequests stop_requests)
    : Launcher(std::move(trainer), options, std::move(stop_requests)),
      allocation_(std::move(allocation)),
      ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : allocation_.ranks_per_node),
      gpu_request_(std::move(gpu_request)),
      has_hint_(!variable("SLURM_HINT").empty() ||
                std::ranges::any_of(
                    options, [](const std::string& word) { return word.starts_with("--hint"); })) {
  gpu_option(gpu_request_, 1);
}

// An array task for a cell of one rank has the cores of one, whatever other cells put on a node.
std::int64_t SrunLauncher::most_per_node() const {
  const std::int64_t asked = allocation_.most_ranks_per_node;
  return asked > 0 ? std::min(asked, ranks_per_node_) : ranks_per_node_;
}

std::int64_t SrunLauncher::threads() const {
  const std::int64_t most = allocation_.cpus_per_node / most_per_node();
  return at_least_one(std::min(allocation_.cpus_per_rank, most));
}

void SrunLauncher::require_room(const GridCell& cell) const {
  const Shape needed = shape_of(cell.ranks, ranks_per_node_);
  if (needed.nodes > allocation_.nodes || needed.ranks_per_node > most_per_node())
    throw no_room(
        cell, allocation_, most_per_node(),
        fmt::format("request --nodes={} --ntasks-per-node={}, or exclude the cell with --set "
                    "exclude=ranks={}",
                    needed.nodes, needed.ranks_per_node, cell.ranks));
  if (allocation_.gpus_per_node > 0 && needed.ranks_per_node > allocation_.gpus_per_node)
    throw Error(ExitCode::kEnvironment,
                fmt::format("cell {}: {} on a node that has {} in the allocation (job {})",
                            cell.name, count_text(needed.ranks_per_node, "rank"),
                            count_text(allocation_.gpus_per_node, "GPU"), allocation_.job),
                fmt::format("request {}, or give fewer ranks a node with --ranks-per-node",
                            fmt::join(gpu_option(gpu_request_, needed.ranks_per_node), "")));
}

LaunchCommand SrunLauncher::start(const std::string& name, std::int64_t ranks,
                                  std::optional<Shape> shape) const {
  const auto& [nodes, on_node] = shape.value_or(shape_of(ranks, ranks_per_node_));
  LaunchCommand command{step_environment(), kStep};
  if (!has_hint_) command.args.emplace_back("--cpu-bind=cores");
  append(
      command.args,
      {"--job-name=" + name, fmt::format("--nodes={}", nodes), fmt::format("--ntasks={}", ranks),
       fmt::format("--ntasks-per-node={}", on_node), fmt::format("--cpus-per-task={}", threads())});
  if (allocation_.gpus_per_node == 0) return command;
  append(command.args, gpu_option(gpu_request_, on_node));
  // A task that is confined to one GPU cannot reach the others' memory, and NCCL fails.
  if (gpu_request_ == "gpus-per-task" || !variable("SLURM_GPU_BIND").empty() ||
      !variable("SLURM_GPUS_PER_TASK").empty())
    command.args.emplace_back("--gpu-bind=none");
  return command;
}

// --- choice and processes ------------------------------------------------------------------------

const Words& launcher_names() {
  static const Words names = {"auto", "local", "srun", "slurm"};
  return names;
}

namespace {

// Whether this process is in a step that has its cores to itself: srun in it would wait for them.
// The shells of sbatch and salloc are steps too, with the highest numbers.
bool in_a_step() {
  constexpr std::int64_t kLastStep = 0xfffffff0;
  const std::string step = variable("SLURM_STEP_ID");
  return !step.empty() && parse_integer(step) < kLastStep;
}

}  // namespace

std::string resolved_launcher(const std::string& name) {
  if (name != "auto") return name;
  return allocation_of(variable) && !in_a_step() ? "srun" : "local";
}

std::unique_ptr<Launcher> make_launcher(const std::string& name, const Job& job, const Grid& grid,
                                        StopRequests stop_requests) {
  const auto words = [&](Words options) {
    append(options, job.launcher_options);
    return options;
  };
  const auto trainer = program_beside_us("gradsync-train");
  const auto allocation = allocation_of(variable);
  if (name == "local") {
    std::int64_t most_ranks = 1;
    for (const auto& cell : grid.cells)
      most_ranks = std::max(most_ranks, cell.ranks);
    return std::make_unique<LocalLauncher>(ask_mpirun(job.mpirun), trainer,
                                           words(job.mpirun_options), most_ranks,
                                           std::move(stop_requests), allocation);
  }
  if (!allocation)
    throw Error(ExitCode::kEnvironment,
                "--launcher srun needs a Slurm job to run in, and SLURM_JOB_ID is not set",
                "start it inside sbatch or salloc, or run here with --launcher local");
  return std::make_unique<SrunLauncher>(trainer, words(job.srun_options), *allocation,
                                        job.ranks_per_node, job.gpu_request,
                                        std::move(stop_requests));
}

std::filesystem::path program_beside_us(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

void require_program(const std::filesystem::path& file) {
  if (::access(file.c_str(), X_OK) == 0) return;
  throw Error(ExitCode::kEnvironment, fmt::format("cannot run {}: {}", file.string(), errno_text()),
              "build it with `make`");
}

int exit_code_of(const ProcessResult& result) {
  return result.signal == 0 ? result.exit_code : 128 + result.signal;
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Batch systems may signal mpirun as well as us, and mpirun (4.1) that gets a second signal at once
// leaves its ranks running. A terminal that closes signals twice: once from its shell, once from
// the kernel. So what comes within this time is one request.
constexpr auto kGrace = milliseconds(3000);
constexpr auto kPoll = milliseconds(50);

// Waits for `condition` or for the end of the run; true if the condition came first.
bool wait_for(const std::stop_token& ended, const std::function<bool()>& condition) {
  while (!ended.stop_requested()) {
    if (condition()) return true;
    std::this_thread::sleep_for(kPoll);
  }
  return false;
}

void pass_requests_on(const std::stop_token& ended, const StopRequests& requests,
                      const std::atomic<pid_t>& pid) {
  if (!wait_for(ended, [&] { return requests() > 0 && pid != 0; })) return;
  ::kill(pid, SIGUSR1);
  const auto until = steady_clock::now() + kGrace;
  if (!wait_for(ended, [&] { return steady_clock::now() > until; })) return;
  const int counted = requests();
  if (wait_for(ended, [&] { return requests() > counted; })) ::kill(pid, SIGTERM);
}

}  // namespace

ProcessResult run_stoppable(const LaunchCommand& command, const CellFiles& files,
                            const StopRequests& stop_requests) {
  std::atomic<pid_t> pid = 0;
  ProcessOptions options{"/dev/null", files.log, files.log, command.environment, {}};
  options.append = options.own_group = true;
  options.started = [&](pid_t started) { pid = started; };
  std::jthread messenger(
      [&](const std::stop_token& ended) { pass_requests_on(ended, stop_requests, pid); });
  options.ended = [&] { messenger = {}; };
  return run_process(command.args, options);
}

}  // namespace gradsync::sweep
