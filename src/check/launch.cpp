#include "base/parse.h"
#include "check/facts.h"
#include "check/loaded_files.h"

namespace gradsync::check {

namespace {

const std::string kOpenMpi = "Open MPI";
/// Open MPI's launcher and its programs both load this one.
const std::string kMpiLibrary = "libopen-pal.so";

bool is_open_mpi(const LaunchFacts& facts) {
  return facts.mpi_library.find(kOpenMpi) != std::string::npos;
}

std::string how_to_start(int ranks) {
  return fmt::format("srun --mpi=pmix -n {0} gradsync-check …, or mpirun -n {0} gradsync-check …",
                     ranks);
}

/// Of a process that is rank 0 of 1 where there should be more.
std::string why_alone(const LaunchFacts& facts) {
  const Launcher& launcher = facts.launcher;
  if (launcher.name.empty()) return "it was started without srun or mpirun";
  return fmt::format("{} started it, but {} does not find the other ranks: no PMIx, or another MPI",
                     launcher.name, facts.mpi_library);
}

Finding judge_size(const LaunchFacts& facts, const CheckOptions& options) {
  const Launcher& launcher = facts.launcher;
  const std::string id = "launch.ranks";
  if (facts.ranks == 1 && launcher.ranks > 1)
    return failed(id,
                  fmt::format("this is rank 0 of 1, but {} says {} ranks: {}", launcher.ranks_from,
                              launcher.ranks, why_alone(facts)),
                  how_to_start(launcher.ranks));
  if (launcher.ranks > 1 && facts.ranks != launcher.ranks)
    return failed(
        id,
        fmt::format("{} ranks by MPI, {} by {}", facts.ranks, launcher.ranks, launcher.ranks_from),
        how_to_start(launcher.ranks));
  if (options.ranks > 0 && facts.ranks != options.ranks)
    return failed(id, fmt::format("{} ranks, --ranks says {}", facts.ranks, options.ranks),
                  how_to_start(options.ranks));
  const std::string by = launcher.name.empty() ? "without a launcher" : "by " + launcher.name;
  return passed(id,
                fmt::format("{} {}, {}", count_text(facts.ranks, "rank"), by, facts.mpi_library));
}

Finding judge_library(const LaunchFacts& facts) {
  const std::string id = "launch.mpi";
  const bool open_mpi = is_open_mpi(facts);
  const std::string& by = facts.launcher.name;
  if (by.empty()) return skipped(id, "no launcher");
  if ((by == "mpirun" && !open_mpi) || (by == "mpiexec" && open_mpi))
    return failed(id, fmt::format("started by {} of another MPI than {}", by, facts.mpi_library),
                  "start with the mpirun of the MPI in use (`make status` says which), or build "
                  "with the other: make MPICXX=…");
  if (facts.mpi_path.empty() || facts.launcher_path.empty())
    return skipped(
        id, "the libraries of the launcher cannot be read, or are those outside of a container");
  if (facts.mpi_path != facts.launcher_path)
    return warned(id,
                  fmt::format("the launcher runs on {}, the ranks on {}", facts.launcher_path,
                              facts.mpi_path),
                  "load one MPI only: same module, same PATH and LD_LIBRARY_PATH");
  return passed(id, "launcher and ranks use the same MPI");
}

Finding judge_pmix(const LaunchFacts& facts) {
  const std::string id = "launch.pmix";
  if (facts.launcher.name != "srun") return skipped(id, "not started by srun");
  if (facts.launcher.pmix) return passed(id, "srun gives PMIx");
  const bool all = facts.ranks >= facts.launcher.ranks;
  if (all && !is_open_mpi(facts)) return passed(id, "srun connects the ranks without PMIx");
  if (!all) return failed(id, "srun without PMIx", kSrunFix);
  return warned(id, "srun without PMIx; the ranks were connected by other means", kSrunFix);
}

}  // namespace

std::vector<Finding> judge_launch(const LaunchFacts& facts, const CheckOptions& options) {
  return {judge_size(facts, options), judge_library(facts), judge_pmix(facts)};
}

CheckResult check_launch(Job& job, const CheckOptions& options) {
  if (job.place().rank != 0) return {};
  LaunchFacts facts{job.launcher(), job.place().size, "", "", ""};
  for (const Library& library : job.libraries())
    if (library.name == "MPI") facts.mpi_library = library.loaded;
  facts.mpi_path = loaded_path(kMpiLibrary);
  facts.launcher_path = path_in_ancestors(kMpiLibrary);
  return {judge_launch(facts, options)};
}

}  // namespace gradsync::check
