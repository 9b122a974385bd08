#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <fstream>
#include <set>

#include <fmt/ranges.h>

#include "check/facts.h"
#include "support/parse.h"

namespace gradsync::check {

namespace {

namespace fs = std::filesystem;
const fs::path kFolder = "/dev/shm";
/// Open MPI 4 and 5 (and their one-sided windows), NCCL, PSM, UCX, LibTorch, ours.
constexpr std::array<std::string_view, 11> kSegments = {
    "vader_segment.", "sm_segment.", "osc_rdma.", "osc_sm.", "shared_window_", "nccl-",
    "psm_shm.",       "psm2_shm.",   "ucx_shm_",  "torch_",  "gradsync"};
/// What Open MPI's segments and a few of NCCL's buffers take of it, a rank.
constexpr std::int64_t kNeeded_bytes = std::int64_t{32} << 20;
constexpr std::time_t kYoung_s = 60;
constexpr std::size_t kNamed = 20;

bool is_segment(const std::string& name) {
  return std::any_of(kSegments.begin(), kSegments.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

void add_mapped(const fs::path& maps, const std::string& folder, std::set<std::string>& mapped) {
  std::ifstream file(maps);
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find(folder + "/");
    if (begin != std::string::npos) mapped.insert(line.substr(begin));
  }
}

/// The files of `folder` that processes have mapped.
std::set<std::string> mapped_files(const fs::path& folder) {
  std::set<std::string> mapped;
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error))
    if (std::isdigit(static_cast<unsigned char>(process->path().filename().string()[0])) != 0)
      add_mapped(process->path() / "maps", folder.string(), mapped);
  return mapped;
}

/// A file that we may judge: others' maps cannot be read. A young one may belong to a job that is
/// starting.
bool may_be_left(const struct stat& file) {
  const bool ours = file.st_uid == geteuid() || geteuid() == 0;
  return S_ISREG(file.st_mode) && ours && std::time(nullptr) - file.st_mtime > kYoung_s;
}

Finding judge_space(const Ranks<SharedMemoryFacts>& hosts) {
  const std::string id = "shared-memory.space";
  std::vector<std::string> tight;
  for (const auto& host : hosts)
    if (host.facts.free_bytes < host.facts.ranks * kNeeded_bytes)
      tight.push_back(fmt::format("{}: {} of {} free for {} ranks", host.host,
                                  format_bytes(host.facts.free_bytes),
                                  format_bytes(host.facts.size_bytes), host.facts.ranks));
  if (!tight.empty())
    return warned(id, first_few(tight),
                  "mount -o remount,size=SIZE /dev/shm as root; in a container: docker run "
                  "--shm-size=1g, or --ipc=host");
  return passed(id, fmt::format("{} free on {}", format_bytes(hosts.front().facts.free_bytes),
                                hosts.front().host));
}

std::string paths_of(const std::vector<Leftover>& leftovers) {
  std::string text;
  for (std::size_t i = 0; i < std::min(leftovers.size(), kNamed); ++i)
    text += fmt::format(" {}", (kFolder / leftovers[i].name).string());
  return leftovers.size() > kNamed ? text + " …" : text;
}

Finding judge_leftovers(const Ranks<SharedMemoryFacts>& hosts) {
  const std::string id = "shared-memory.leftovers";
  std::vector<std::string> seen, fixes;
  for (const auto& host : hosts) {
    const auto& left = host.facts.leftovers;
    if (left.empty()) continue;
    std::int64_t bytes = 0;
    for (const Leftover& one : left)
      bytes += one.bytes;
    seen.push_back(fmt::format("{}: {} of dead runs, {}, first {}", host.host,
                               count_text(left.size(), "file"), format_bytes(bytes), left[0].name));
    fixes.push_back(fmt::format("on {}: rm{}", host.host, paths_of(left)));
  }
  if (seen.empty()) return passed(id, "no files of dead runs in /dev/shm");
  return warned(id, first_few(seen), fmt::format("{}", fmt::join(fixes, "; ")));
}

SharedMemoryFacts look(int ranks) {
  SharedMemoryFacts facts{true, ranks, 0, 0, find_leftovers(kFolder)};
  struct statvfs space {};
  if (::statvfs(kFolder.c_str(), &space) == 0) {
    facts.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
    facts.size_bytes = static_cast<std::int64_t>(space.f_blocks * space.f_frsize);
  }
  return facts;
}

}  // namespace

std::vector<Leftover> find_leftovers(const fs::path& folder) {
  std::vector<Leftover> candidates;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat file {};
    const std::string name = entry->path().filename().string();
    if (is_segment(name) && ::lstat(entry->path().c_str(), &file) == 0 && may_be_left(file))
      candidates.push_back({name, static_cast<std::int64_t>(file.st_size)});
  }
  if (candidates.empty()) return candidates;
  const auto mapped = mapped_files(folder);
  std::erase_if(candidates, [&](const Leftover& one) {
    return mapped.count((folder / one.name).string()) > 0;
  });
  std::sort(candidates.begin(), candidates.end(),
            [](const Leftover& a, const Leftover& b) { return a.name < b.name; });
  return candidates;
}

std::vector<Finding> judge_shared_memory(const Ranks<SharedMemoryFacts>& ranks) {
  Ranks<SharedMemoryFacts> hosts;
  for (const auto& rank : ranks)
    if (rank.facts.looked) hosts.push_back(rank);
  return {judge_space(hosts), judge_leftovers(hosts)};
}

CheckResult check_shared_memory(Job& job, const CheckOptions&) {
  const SharedMemoryFacts mine =
      job.place().local_rank == 0 ? look(job.place().local_size) : SharedMemoryFacts{};
  return judged(job, mine, [](const Ranks<SharedMemoryFacts>& ranks) {
    return CheckResult{judge_shared_memory(ranks)};
  });
}

}  // namespace gradsync::check
