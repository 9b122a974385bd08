#pragma once

#include "sweep/allocation.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

/// The option by which a site gives each node `gpus` GPUs: `request` is gpus-per-node, gres (as
/// --gres=gpu:N), gres:TYPE (as --gres=gpu:TYPE:N) or none (nothing). slurm/site.sh has the same.
/// Throws Error kUsage for another.
std::vector<std::string> gpu_option(const std::string& request, std::int64_t gpus);

/// Runs cells one after the other as steps of a Slurm job, over PMIx, one GPU a rank where the
/// allocation has GPUs.
class SrunLauncher : public Launcher {
 public:
  /// `srun_options` are put behind ours, in whose place they so stand. `ranks_per_node` 0: the
  /// allocation's. Cells without `threads` get the cores of a rank of the allocation, the same for
  /// all cells. `gpu_request`: see gpu_option.
  SrunLauncher(std::filesystem::path trainer, std::vector<std::string> srun_options,
               Allocation allocation, std::int64_t ranks_per_node, std::string gpu_request,
               StopRequests stop_requests);

  void require_room(const GridCell& cell) const override;
  LaunchCommand command(const GridCell& cell, const CellFiles& files) const override;
  ProcessResult launch(const GridCell& cell, const CellFiles& files) override;

 private:
  Shape shape(const GridCell& cell) const;
  std::int64_t most_per_node() const;
  std::int64_t cpus_per_rank() const;

  std::filesystem::path trainer_;
  std::vector<std::string> srun_options_;
  Allocation allocation_;
  std::int64_t ranks_per_node_;
  std::string gpu_request_;
  StopRequests stop_requests_;
};

}  // namespace gradsync::sweep
