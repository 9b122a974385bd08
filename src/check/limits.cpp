#include <sys/resource.h>

#include <cstdlib>

#include "check/facts.h"
#include "machine/host.h"

namespace gradsync::check {

namespace {

/// Below it, registering gradient buckets with the adapter fails.
constexpr std::int64_t kLocked_bytes = std::int64_t{1} << 30;
constexpr std::int64_t kOpenFiles = 1024;

std::int64_t limit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return kUnlimited;
  return limit.rlim_cur == RLIM_INFINITY ? kUnlimited : static_cast<std::int64_t>(limit.rlim_cur);
}

Finding judge_locked(const Ranks<LimitFacts>& ranks) {
  const std::string id = "limits.locked-memory";
  std::vector<std::string> low;
  bool infiniband = false;
  for (const auto& rank : ranks) {
    infiniband = infiniband || rank.facts.infiniband;
    const auto bytes = rank.facts.locked_bytes;
    if (rank.facts.infiniband && bytes != kUnlimited && bytes < kLocked_bytes)
      low.push_back(fmt::format("{}: {}", rank.name(), format_bytes(bytes)));
  }
  if (!infiniband) return skipped(id, "no InfiniBand adapter");
  if (low.empty()) return passed(id, "enough for an adapter's buffers");
  return warned(id, "the limit of locked memory is low: " + first_few(low),
                "LimitMEMLOCK=infinity in slurmd's unit, or ulimit -l unlimited before mpirun");
}

Finding judge_files(const Ranks<LimitFacts>& ranks) {
  const std::string id = "limits.open-files";
  std::vector<std::string> low;
  for (const auto& rank : ranks)
    if (rank.facts.open_files != kUnlimited && rank.facts.open_files < kOpenFiles)
      low.push_back(fmt::format("{}: {}", rank.name(), rank.facts.open_files));
  if (low.empty()) return passed(id, fmt::format("at least {} per rank", kOpenFiles));
  return warned(id, "the limit of open files is low: " + first_few(low),
                "ulimit -n 4096 before the launch");
}

Finding judge_omp(const Ranks<LimitFacts>& ranks, int threads) {
  const std::string id = "limits.omp-threads";
  const std::string& first = ranks.front().facts.omp_threads;
  std::vector<std::string> others;
  for (const auto& rank : ranks)
    if (rank.facts.omp_threads != first)
      others.push_back(fmt::format("{}: '{}'", rank.name(), rank.facts.omp_threads));
  if (!others.empty())
    return warned(id,
                  fmt::format("OMP_NUM_THREADS differs: {}: '{}', {}", ranks.front().name(), first,
                              first_few(others)),
                  "srun --export=ALL, or mpirun -x OMP_NUM_THREADS");
  if (threads > 0 && !first.empty() && first != std::to_string(threads))
    return warned(id, fmt::format("OMP_NUM_THREADS is {}, --threads {}", first, threads),
                  fmt::format("export OMP_NUM_THREADS={}; the trainer takes --threads", threads));
  return passed(id, first.empty() ? "OMP_NUM_THREADS is not set" : "OMP_NUM_THREADS is " + first);
}

}  // namespace

std::vector<Finding> judge_limits(const Ranks<LimitFacts>& ranks, const CheckOptions& options) {
  return {judge_locked(ranks), judge_files(ranks), judge_omp(ranks, options.threads)};
}

CheckResult check_limits(Job& job, const CheckOptions& options) {
  const char* omp = std::getenv("OMP_NUM_THREADS");
  const LimitFacts mine{limit_of(RLIMIT_MEMLOCK), limit_of(RLIMIT_NOFILE), has_infiniband(),
                        omp == nullptr ? "" : omp};
  return judged(job, mine, [&](const Ranks<LimitFacts>& ranks) {
    return CheckResult{judge_limits(ranks, options)};
  });
}

}  // namespace gradsync::check
