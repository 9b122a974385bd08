#include "machine/choice.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace gradsync {

namespace {

const std::string kNone = "none";
const std::string kToTheCpu = "; --device cpu uses no GPU";

std::string name_of(const DeviceFacts& rank) {
  return fmt::format("rank {} ({})", rank.rank, rank.host);
}

/// A driver serves every CUDA version of its own major number and older ones.
bool too_old(const DeviceFacts& rank) {
  return rank.driver != kNone && rank.runtime != kNone &&
         std::atoi(rank.driver.c_str()) < std::atoi(rank.runtime.c_str());
}

/// Why this rank has no GPU to drive; empty if it has one.
std::string lack_of(const DeviceFacts& rank, const DeviceRequest& request) {
  if (rank.runtime == kNone) return "this build is without CUDA";
  if (rank.driver == kNone) return "no CUDA driver";
  if (too_old(rank))
    return fmt::format("the driver is for CUDA {}, this build needs CUDA {}", rank.driver,
                       rank.runtime);
  if (rank.gpus.empty()) return "no visible GPU";
  if (gpu_index(rank.local_rank, rank.gpus.size(), request.allow_shared_gpu) < 0)
    return fmt::format("{} visible GPUs for local rank {}", rank.gpus.size(), rank.local_rank);
  return {};
}

std::string fix_of(const DeviceFacts& rank) {
  if (rank.runtime == kNone) return "make status shows what a build with CUDA needs" + kToTheCpu;
  if (rank.driver == kNone)
    return "run on a host with a GPU: nvidia-smi must list it, in a container with its --nv or "
           "--gpus option" +
           kToTheCpu;
  if (too_old(rank)) return "request a node with a driver of 580 or later" + kToTheCpu;
  return "request --gpus-per-node=RANKS-PER-NODE (not --gpus-per-task), look at "
         "CUDA_VISIBLE_DEVICES" +
         kToTheCpu;
}

[[noreturn]] void refuse(const DeviceFacts& rank, const DeviceRequest& request) {
  throw Error(ExitCode::kEnvironment,
              fmt::format("{} has no GPU to compute on: {}", name_of(rank), lack_of(rank, request)),
              fix_of(rank));
}

const GpuDevice& gpu_of(const DeviceFacts& rank, const DeviceRequest& request) {
  const int index = gpu_index(rank.local_rank, rank.gpus.size(), request.allow_shared_gpu);
  return rank.gpus[static_cast<std::size_t>(index)];
}

/// The first GPU with several ranks, if there is one: its UUID, host and ranks.
std::string shared_gpu(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  std::map<std::string, std::vector<int>> users;
  for (const DeviceFacts& rank : ranks)
    users[fmt::format("{} ({})", gpu_of(rank, request).uuid, rank.host)].push_back(rank.rank);
  for (const auto& [gpu, of_it] : users)
    if (of_it.size() > 1)
      return fmt::format("ranks {} are on one GPU, {}", fmt::join(of_it, ", "), gpu);
  return {};
}

DeviceChoice on_gpus(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  DeviceChoice choice;
  choice.cuda = true;
  const std::string shared = shared_gpu(request, ranks);
  choice.shared = !shared.empty();
  if (choice.shared && !request.allow_shared_gpu)
    throw Error(ExitCode::kEnvironment, shared,
                "request --gpus-per-node=RANKS-PER-NODE and no --gpu-bind, or start fewer ranks a "
                "node; --allow-shared-gpu for tests" +
                    kToTheCpu);
  return choice;
}

}  // namespace

int gpu_index(int local_rank, std::size_t visible, bool may_share) {
  if (visible == 1) return 0;
  if (may_share && visible > 0) return local_rank % static_cast<int>(visible);
  return local_rank < static_cast<int>(visible) ? local_rank : -1;
}

DeviceChoice choose_device(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  if (request.device == "cpu") return {};
  const auto lacks = [&](const DeviceFacts& rank) { return !lack_of(rank, request).empty(); };
  const auto lacking = std::find_if(ranks.begin(), ranks.end(), lacks);
  if (lacking == ranks.end()) return on_gpus(request, ranks);
  const bool none_anywhere = std::all_of(ranks.begin(), ranks.end(),
                                         [](const DeviceFacts& rank) { return rank.gpus.empty(); });
  if (request.device == "cuda" || !none_anywhere) refuse(*lacking, request);
  return {false, false, fmt::format("{}: {}", name_of(*lacking), lack_of(*lacking, request))};
}

}  // namespace gradsync
