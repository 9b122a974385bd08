// SPDX-License-Identifier: BSD-3-Clause
#include "base/launcher.h"

#include <cstdlib>
#include <initializer_list>

namespace gradsync {

std::string variable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

namespace {

bool is_set(const char* name) {
  return std::getenv(name) != nullptr;
}

/// The first of `names` that is set, or null.
const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (is_set(name)) return name;
  return nullptr;
}

int number_in(const char* name, int otherwise) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  return text == nullptr ? otherwise : static_cast<int>(std::strtol(text, nullptr, 10));
}

/// MPICH's and Intel's: in a Slurm job its own processes are steps of srun, whose variables the
/// ranks inherit.
bool by_hydra() {
  return is_set("MPI_LOCALNRANKS") && is_set("PMI_SIZE");
}

std::string launcher_name() {
  if (is_set("OMPI_COMM_WORLD_SIZE")) return "mpirun";
  if (by_hydra()) return "mpiexec";
  // A batch script has SLURM_NTASKS as well, but is no step.
  if (is_set("SLURM_STEP_ID") && is_set("SLURM_PROCID")) return "srun";
  if (is_set("PMI_SIZE") || is_set("PMI_RANK")) return "mpiexec";
  return "";
}

}  // namespace

Launcher find_launcher() {
  Launcher found;
  found.name = launcher_name();
  const char* ranks =
      first_set({"OMPI_COMM_WORLD_SIZE", by_hydra() ? "PMI_SIZE" : "SLURM_STEP_NUM_TASKS",
                 "SLURM_NTASKS", "PMI_SIZE"});
  found.ranks = number_in(ranks, 1);
  found.ranks_from = ranks == nullptr ? "" : ranks;
  found.rank = number_in(first_set({"OMPI_COMM_WORLD_RANK", by_hydra() ? "PMI_RANK" : "PMIX_RANK",
                                    "SLURM_PROCID", "PMI_RANK"}),
                         0);
  found.pmix = is_set("PMIX_RANK") || is_set("PMIX_NAMESPACE");
  // PMI_CONTROL_PORT: of Cray's plugin for srun.
  found.pmi = is_set("PMI_FD") || is_set("PMI_RANK") || is_set("PMI_CONTROL_PORT");
  found.cores_per_rank = number_in("SLURM_CPUS_PER_TASK", 0);
  found.in_slurm_job = is_set("SLURM_JOB_ID");
  return found;
}

bool cannot_start(const Launcher& launcher) {
  return launcher.name == "srun" && launcher.ranks > 1 && !launcher.pmix && !launcher.pmi;
}

}  // namespace gradsync
