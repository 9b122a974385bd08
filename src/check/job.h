// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/launcher.h"
#include "machine/gpus.h"

namespace gradsync::check {

/// Where this process stands in the job.
struct Place {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  ///< among the ranks of its host
  std::string host;
  std::string cores;  ///< those it may use, as the kernel lists them: "0-3,8"
  std::string cpu;    ///< "AMD EPYC …"
};

/// Seconds to add to this rank's steady clock to read rank 0's, and how far that may be off.
struct SteadyOffset {
  double offset_s = 0, uncertainty_s = 0;
};

/// A library of the suite as this process has it.
struct Library {
  std::string name;      ///< "MPI", "HDF5", …
  std::string compiled;  ///< version of the headers, or "none" in a build without it
  std::string loaded;    ///< what the loaded library says of itself
  std::string path;      ///< the file it was loaded from; empty: not loaded
  std::string identity;  ///< equal for equal builds: its build ID, else size and checksum
};

/// An all-reduce of kNcclTrialBytes by a communicator of NCCL's over all ranks.
struct NcclTrial {
  bool right = true;   ///< every value was that of the sum
  double time_s = 0;   ///< of a call behind others; one rank makes none
  std::string chosen;  ///< nccl_choices of its log; empty: not known
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NcclTrial, right, time_s, chosen)
inline constexpr std::size_t kNcclTrialBytes = std::size_t{64} << 20;

/// The job as a check sees it: this rank's place, devices and libraries, and the other ranks.
/// Whatever is not const is collective: all ranks call it in the same order.
class Job {
 public:
  virtual ~Job() = default;

  virtual const Place& place() const = 0;
  virtual const Launcher& launcher() const = 0;  ///< as before MPI_Init
  virtual std::vector<Library> libraries() const = 0;
  virtual std::vector<GpuDevice> gpus() const = 0;
  /// NVML's monitor of a GPU of this host; null where the driver's NVML is not there.
  virtual std::unique_ptr<GpuMonitor> gpu_monitor(const std::string& uuid) const = 0;

  /// This process's user namespace if its MPI copies messages from process to process; else 0.
  virtual std::uint64_t cma_namespace() const = 0;

  /// What this rank computes on, and what of its host's other ranks is hidden from it.
  virtual DeviceFacts devices(bool may_share) = 0;
  /// One text of each rank, in order of rank, on rank 0; empty elsewhere.
  virtual std::vector<std::string> gather(const std::string& mine) = 0;
  /// Rank 0's text, on all ranks.
  virtual std::string broadcast(const std::string& of_root) = 0;
  /// Returns when all ranks are there.
  virtual void meet() = 0;
  virtual SteadyOffset read_clock() = 0;
  /// Sums in place over all ranks, by the path that training uses.
  virtual void sum(std::span<float> data) = 0;
  /// Sums over all ranks by NCCL, in the memory of the visible GPU of this index.
  virtual NcclTrial sum_on_gpus(int index) = 0;
  /// Sends `out` to `peer` and receives as much from it: called by these two ranks only.
  virtual void swap(int peer, std::span<const float> out, std::span<float> in) = 0;
};

}  // namespace gradsync::check
