#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "check/facts.h"

namespace gradsync::check {

namespace {

const std::string kSeen = "gpus.seen", kShared = "gpus.shared", kKind = "gpus.kind";

std::string lack_of(const OnRank<GpuFacts>& rank) {
  if (rank.facts.driver == "none") return rank.name() + ": no CUDA driver";
  if (rank.facts.uuids.empty()) return rank.name() + ": no visible GPU";
  return fmt::format("{}: {} visible GPUs for local rank {}", rank.name(), rank.facts.uuids.size(),
                     rank.facts.local_rank);
}

std::vector<std::string> lacks(const Ranks<GpuFacts>& ranks, bool may_share) {
  std::vector<std::string> texts;
  for (const auto& rank : ranks)
    if (chosen_gpu(rank.facts, may_share) < 0) texts.push_back(lack_of(rank));
  return texts;
}

bool none_anywhere(const Ranks<GpuFacts>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const auto& rank) { return rank.facts.uuids.empty(); });
}

Finding judge_lacks(const std::vector<std::string>& lacking) {
  return failed(kSeen, first_few(lacking),
                "request --gpus-per-node=RANKS-PER-NODE (not --gpus-per-task), look at "
                "CUDA_VISIBLE_DEVICES and nvidia-smi on that host; --device cpu uses no GPU");
}

/// Names of the ranks by host and device.
std::map<std::string, std::vector<std::string>> users_of_devices(const Ranks<GpuFacts>& ranks,
                                                                 bool may_share) {
  std::map<std::string, std::vector<std::string>> users;
  for (const auto& rank : ranks) {
    const int chosen = chosen_gpu(rank.facts, may_share);
    if (chosen < 0) continue;
    const std::string& uuid = rank.facts.uuids[static_cast<std::size_t>(chosen)];
    users[fmt::format("{} on {}", uuid, rank.host)].push_back(fmt::format("{}", rank.rank));
  }
  return users;
}

Finding judge_sharing(const Ranks<GpuFacts>& ranks, bool may_share) {
  std::vector<std::string> shared;
  for (const auto& [device, users] : users_of_devices(ranks, may_share))
    if (users.size() > 1)
      shared.push_back(fmt::format("{}: ranks {}", device, fmt::join(users, ", ")));
  if (shared.empty()) return passed(kShared, "each rank has its own GPU");
  const std::string fix =
      "request --gpus-per-node=RANKS-PER-NODE and no --gpu-bind, or start fewer ranks a node";
  if (may_share) return warned(kShared, first_few(shared), fix);
  return failed(kShared, first_few(shared), fix + "; --allow-shared-gpu for tests");
}

Finding judge_kinds(const Ranks<GpuFacts>& ranks, bool may_share) {
  std::map<std::string, std::vector<std::string>> ranks_of;
  for (const auto& rank : ranks) {
    const int chosen = chosen_gpu(rank.facts, may_share);
    if (chosen < 0) continue;
    const std::string& name = rank.facts.names[static_cast<std::size_t>(chosen)];
    ranks_of[fmt::format("{}, driver for CUDA {}", name, rank.facts.driver)].push_back(rank.name());
  }
  if (ranks_of.size() == 1) return passed(kKind, ranks_of.begin()->first);
  std::vector<std::string> texts;
  for (const auto& [kind, users] : ranks_of)
    texts.push_back(fmt::format("{}: {}", kind, fmt::join(users, ", ")));
  return warned(
      kKind, first_few(texts),
      "request nodes of one type (--constraint); the slowest GPU determines the iteration time");
}

}  // namespace

int chosen_gpu(const GpuFacts& facts, bool may_share) {
  return gpu_index(facts.local_rank, facts.uuids.size(), may_share);
}

std::vector<Finding> judge_gpus(const Ranks<GpuFacts>& ranks, const CheckOptions& options) {
  if (options.device == "cpu") return {skipped(kSeen, "--device cpu")};
  if (none_anywhere(ranks) && options.device == "auto")
    return {skipped(kSeen, lack_of(ranks.front()) + ", nor on any other rank")};
  const auto lacking = lacks(ranks, options.allow_shared_gpu);
  std::vector<Finding> findings = {lacking.empty() ? passed(kSeen, "every rank has a GPU")
                                                   : judge_lacks(lacking)};
  if (none_anywhere(ranks)) return findings;
  findings.push_back(judge_sharing(ranks, options.allow_shared_gpu));
  findings.push_back(judge_kinds(ranks, options.allow_shared_gpu));
  return findings;
}

CheckResult check_gpus(Job& job, const CheckOptions& options) {
  GpuFacts mine{job.place().local_rank, job.gpu_software().driver, {}, {}};
  for (const GpuDevice& device : job.gpus()) {
    mine.names.push_back(device.name);
    mine.uuids.push_back(device.uuid);
  }
  return judged(job, mine, [&](const Ranks<GpuFacts>& ranks) {
    return CheckResult{judge_gpus(ranks, options)};
  });
}

}  // namespace gradsync::check
