// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "check/check.h"
#include "expect_error.h"

// What the tests of the preflight share.
namespace gradsync::check {

/// Ranks with the given facts, `per_host` on each of the hosts node1, node2, …
template <typename Facts>
Ranks<Facts> on_ranks(const std::vector<Facts>& facts, int per_host) {
  Ranks<Facts> ranks;
  for (const Facts& one : facts) {
    const int rank = static_cast<int>(ranks.size());
    ranks.push_back({rank, "node" + std::to_string(rank / per_host + 1), one});
  }
  return ranks;
}

/// The finding of that name; a failing one with that said if there is none.
inline Finding finding(const std::vector<Finding>& findings, const std::string& id) {
  for (const Finding& one : findings)
    if (one.id == id) return one;
  return failed(id, "no such finding", "");
}

/// Rank 0 of a job whose other ranks state what it states.
class FakeJob : public Job {
 public:
  Place where{0, 1, 0, 1, "node1", "0", "a processor"};
  Launcher started_by;
  std::vector<Library> loaded;
  std::vector<GpuDevice> visible;
  std::uint64_t user_namespace = 0;
  bool nccl_right = true;
  int nccl_index = -1;                    ///< GPU of the last NCCL trial
  float sum_factor = 1, swap_factor = 1;  ///< what the network makes of rank 0's data

  const Place& place() const override { return where; }
  const Launcher& launcher() const override { return started_by; }
  std::vector<Library> libraries() const override { return loaded; }
  std::vector<GpuDevice> gpus() const override { return visible; }
  DeviceFacts devices(bool) override {
    return {where.rank, where.local_rank, where.host, visible.empty() ? "none" : "13.0",
            "13.0",     visible,          {}};
  }
  std::unique_ptr<GpuMonitor> gpu_monitor(const std::string& uuid) const override {
    std::string why;
    return open_nvml(uuid, why, "build/tests/libfake_nvml.so");
  }
  std::uint64_t cma_namespace() const override { return user_namespace; }
  std::vector<std::string> gather(const std::string& mine) override {
    return std::vector<std::string>(static_cast<std::size_t>(where.size), mine);
  }
  std::string broadcast(const std::string& of_root) override { return of_root; }
  void meet() override {}
  SteadyOffset read_clock() override { return {}; }
  void sum(std::span<float> data) override {
    for (float& value : data)
      value *= sum_factor;
  }
  NcclTrial sum_on_gpus(int index) override {
    nccl_index = index;
    return {nccl_right, 2e-3, "network IB"};
  }
  void swap(int, std::span<const float> out, std::span<float> in) override {
    std::transform(out.begin(), out.end(), in.begin(),
                   [this](float value) { return value * swap_factor; });
  }
};

}  // namespace gradsync::check
