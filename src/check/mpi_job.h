// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "check/job.h"
#include "comm/places.h"
#include "comm/session.h"
#include "record/run.h"
#include "transport/mpi_transport.h"
#include "transport/rank_transport.h"

namespace gradsync::check {

/// The job over MPI. Every collective is watched: a rank that does not come ends the job with
/// kHang.
class MpiJob : public Job {
 public:
  MpiJob(const Session& session, Launcher launcher);

  const Place& place() const override { return place_; }
  const Launcher& launcher() const override { return launcher_; }
  std::vector<Library> libraries() const override;
  std::vector<GpuDevice> gpus() const override { return visible_gpus(); }
  std::unique_ptr<GpuMonitor> gpu_monitor(const std::string& uuid) const override;
  std::uint64_t cma_namespace() const override { return gradsync::cma_namespace(); }

  DeviceFacts devices(bool may_share) override { return find_devices(session_, may_share); }
  std::vector<std::string> gather(const std::string& mine) override;
  std::string broadcast(const std::string& of_root) override;
  void meet() override;
  SteadyOffset read_clock() override;
  void sum(std::span<float> data) override;
  NcclTrial sum_on_gpus(int index) override;
  void swap(int peer, std::span<const float> out, std::span<float> in) override;

 private:
  const Session& session_;
  Launcher launcher_;
  MpiTransport transport_;
  Place place_;
};

/// The trial of Job::sum_on_gpus with that NCCL and device. Collective.
NcclTrial try_nccl(const Session& session, NcclApi& api, Device& device, ScaleOnDevice scale);

/// Has NCCL write what it chooses into memory of this process, unless NCCL_DEBUG is set. To be
/// called before any other thread is there.
void keep_nccl_log();
/// What NCCL wrote there so far; empty if its log goes elsewhere.
std::string kept_nccl_log();

/// This program, MPI, HDF5, LibTorch, CUDA's run-time library, NCCL, and the system's C and C++
/// libraries. One that is loaded from two files has two entries. Needs MPI initialized.
std::vector<Library> suite_libraries();

/// LibTorch's version by its headers, and by the library that is loaded with the commit it was
/// built from: "2.11.0 (70d99e99)".
std::string libtorch_compiled();
std::string libtorch_loaded();

}  // namespace gradsync::check
