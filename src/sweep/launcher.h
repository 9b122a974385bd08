// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/launcher.h"
#include "base/process.h"
#include "sweep/cell_store.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"

/// How ranks are started: with mpirun on this machine or with srun inside a Slurm job. What is
/// known of families of mpirun, of srun and of requests for GPUs stands here and nowhere else.
namespace gradsync::sweep {

/// The nodes that Slurm has given to the job this process runs in.
struct Allocation {
  std::string job;  ///< its id
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;  ///< asked for; where nothing was: one a GPU, else one a node
  std::int64_t cpus_per_node = 1;   ///< of the node with the fewest
  std::int64_t cpus_per_rank = 1;  ///< asked for; where nothing was: those of a node over its ranks
  std::int64_t gpus_per_node = 0;
  std::int64_t most_ranks_per_node = 0;  ///< asked for with --ntasks-per-node; 0: was not
};

/// The value of an environment variable; empty if it is not set.
using Environment = std::function<std::string(const std::string& name)>;

/// Reads SLURM_*; nothing outside a job. Throws Error kEnvironment for a value that Slurm would not
/// write.
std::optional<Allocation> allocation_of(const Environment& environment);

/// A count as Slurm writes it ("4", "4(x2),2", "gpu:h200:4"), the smallest of a list; 0 if the
/// variable is not set. Throws Error kEnvironment.
std::int64_t slurm_count(const Environment& environment, const std::string& name);

/// Nodes and ranks on each of them (the last may hold fewer).
struct Shape {
  std::int64_t nodes = 1, ranks_per_node = 1;
  auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The fewest nodes that hold `ranks` with at most `ranks_per_node` on each. Both are at least 1.
Shape shape_of(std::int64_t ranks, std::int64_t ranks_per_node);

/// "2 nodes × 4 ranks".
std::string shape_text(const Shape& shape);

/// The option by which a site gives each node `gpus` GPUs: `request` is gpus-per-node,
/// gpus-per-task (one each), gres (as --gres=gpu:N), gres:TYPE (as --gres=gpu:TYPE:N) or none
/// (nothing). Throws Error kUsage for another.
std::vector<std::string> gpu_option(const std::string& request, std::int64_t gpus);

/// Launchers named mpirun or mpiexec, by the options that they accept: each refuses those of the
/// others.
struct MpirunFamily {
  std::string name;     ///< "open-mpi-4", "open-mpi-5", "hydra", "intel" or "unknown"
  std::string version;  ///< regular expression of the first line of `mpirun --version`
  /// The options beside -n: ranks may outnumber cores, they are not bound, the launcher adds no
  /// messages, and a lost node is noticed after 20 s.
  std::string options;
  std::string per_node;  ///< the option for N ranks on each node, N as {}
};

/// The family, from what `mpirun --version` prints on standard output.
const MpirunFamily& family_of_version(const std::string& text);

struct Mpirun {
  std::string program = "mpirun";
  MpirunFamily family;
};

/// Runs `program --version`. In place of Intel's mpirun, which passes no signal to the ranks,
/// stands the mpiexec.hydra beside it. A program that cannot be started is of an unknown family:
/// the first cell reports it.
Mpirun ask_mpirun(const std::string& program);

/// The cell's options as arguments of gradsync-train: --name=value, and --name or --no-name.
std::vector<std::string> trainer_arguments(const GridCell& cell);

/// A command as it is run, without a shell.
struct LaunchCommand {
  std::vector<std::string> environment;  ///< "NAME=value", added to ours
  std::vector<std::string> args;
};

/// The command as a line that a POSIX shell reads back as exactly these words.
std::string shell_text(const LaunchCommand& command);

/// Puts `more` behind `args`.
void append(std::vector<std::string>& args, const std::vector<std::string>& more);

/// How often the sweep was asked to stop: once, the run in progress may write a checkpoint; more
/// often, it is ended at once.
using StopRequests = std::function<int()>;

/// Starts cells, one after the other.
class Launcher {
 public:
  /// `trainer` is the program of cells, `options` are put behind those of mpirun or srun.
  explicit Launcher(std::filesystem::path trainer = {}, std::vector<std::string> options = {},
                    StopRequests stop_requests = {});
  virtual ~Launcher() = default;

  /// Throws Error kEnvironment if the cell needs more than there is to run on: before anything
  /// runs.
  virtual void require_room(const GridCell&) const {}

  /// Threads of a rank of a cell that does not set them: the same for all cells, so that few ranks
  /// are a fair base for many.
  virtual std::int64_t threads() const { return 1; }

  /// What `launch` runs; starts and writes nothing.
  LaunchCommand command(const GridCell& cell, const CellFiles& files) const;

  /// The command that runs `program` and its arguments on all ranks of a shape.
  LaunchCommand command_on(const Shape& shape, const std::vector<std::string>& program) const;

  /// Runs the cell to its end, its output to `files.log`. A run that fails is no error here.
  /// Throws Error kEnvironment if it cannot be started at all.
  virtual ProcessResult launch(const GridCell& cell, const CellFiles& files);

 protected:
  /// The command up to the options of the constructor, for ranks in a `shape` or, without one, in
  /// that of a cell.
  virtual LaunchCommand start(const std::string& name, std::int64_t ranks,
                              std::optional<Shape> shape) const;

 private:
  std::filesystem::path trainer_;
  std::vector<std::string> options_;
  StopRequests stop_requests_;
};

/// Runs cells on this machine, or on the nodes of a Slurm job that mpirun knows, with mpirun.
class LocalLauncher : public Launcher {
 public:
  /// Cells without `threads` get the cores this process may use over `most_ranks` (of the grid's
  /// largest cell), at least 1; on several nodes of a Slurm job, `allocation`, the cores that it
  /// has for a rank.
  LocalLauncher(Mpirun mpirun, std::filesystem::path trainer, std::vector<std::string> options,
                std::int64_t most_ranks, StopRequests stop_requests,
                std::optional<Allocation> allocation = {});

  /// Checks several nodes: mpirun itself starts more ranks than there are places.
  void require_room(const GridCell& cell) const override;
  std::int64_t threads() const override;

 protected:
  LaunchCommand start(const std::string& name, std::int64_t ranks,
                      std::optional<Shape> shape) const override;

 private:
  Mpirun mpirun_;
  std::int64_t most_ranks_;
  std::optional<Allocation> allocation_;  ///< of several nodes
};

/// Runs cells as steps of a Slurm job, over PMIx, one GPU a rank where the allocation has GPUs.
class SrunLauncher : public Launcher {
 public:
  /// srun takes the last of an option given twice: `options` replace ours. Steps are bound to cores
  /// unless there is a hint (--hint among `options`, or the job's), which excludes that.
  /// `ranks_per_node` 0: the allocation's. Cells without `threads` get the cores of a rank of the
  /// allocation. `gpu_request`: see gpu_option.
  SrunLauncher(std::filesystem::path trainer, const std::vector<std::string>& options,
               Allocation allocation, std::int64_t ranks_per_node, std::string gpu_request,
               StopRequests stop_requests);

  void require_room(const GridCell& cell) const override;
  std::int64_t threads() const override;

 protected:
  LaunchCommand start(const std::string& name, std::int64_t ranks,
                      std::optional<Shape> shape) const override;

 private:
  std::int64_t most_per_node() const;

  Allocation allocation_;
  std::int64_t ranks_per_node_;
  std::string gpu_request_;
  bool has_hint_;
};

/// The names that --launcher takes.
const std::vector<std::string>& launcher_names();

/// What `auto` stands for: srun inside a Slurm job, local elsewhere; any other name is itself.
std::string resolved_launcher(const std::string& name);

/// The launcher of a resolved name, local or srun (slurm starts nothing itself, see slurm.h).
/// Throws Error kEnvironment for srun outside a Slurm job.
std::unique_ptr<Launcher> make_launcher(const std::string& name, const Job& job, const Grid& grid,
                                        StopRequests stop_requests);

/// The program `name` in the folder of this executable, whether it is there or not.
std::filesystem::path program_beside_us(const std::string& name);

/// Throws Error kEnvironment if the program is missing or may not be run.
void require_program(const std::filesystem::path& file);

/// The exit code as a shell has it: 128 and the signal for a program that one ended.
int exit_code_of(const ProcessResult& result);

/// Runs mpirun or srun to its end, its output behind what `files.log` holds, in a process group of
/// its own: a signal reaches it only through us. At the first request to stop it gets SIGUSR1,
/// which it forwards to its ranks: they finish the iteration, write a checkpoint and end with exit
/// code 75. At a second request it gets SIGTERM, which ends it at once.
ProcessResult run_stoppable(const LaunchCommand& command, const CellFiles& files,
                            const StopRequests& stop_requests);

}  // namespace gradsync::sweep
