#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <set>

#include <fmt/ranges.h>

#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"
#include "check/facts.h"
#include "comm/single_copy.h"
#include "machine/host.h"

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

/// What processes have mapped, and the users of those that do not show it to us.
struct Mapped {
  std::set<std::string> files;
  std::set<uid_t> hidden;
};

/// Whether the file is there and may not be read; one of a process that has just ended is not
/// there.
bool is_refused(const fs::path& file) {
  const UniqueFd opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  return !opened && (errno == EACCES || errno == EPERM);
}

void add_mapped(const fs::path& process, const std::string& folder, Mapped& mapped) {
  std::ifstream file(process / "maps");
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find(folder + "/");
    if (begin != std::string::npos) mapped.files.insert(line.substr(begin));
  }
  struct stat owner {};
  // The first process of a host uses no MPI, and may have rights that hide it from root.
  const bool first = process.filename() == "1";
  if (!file.is_open() && !first && is_refused(process / "maps") &&
      ::stat(process.c_str(), &owner) == 0)
    mapped.hidden.insert(owner.st_uid);
}

Mapped mapped_files(const fs::path& folder) {
  Mapped mapped;
  std::error_code error;
  for (fs::directory_iterator process("/proc", error), end; !error && process != end;
       process.increment(error))
    if (std::isdigit(static_cast<unsigned char>(process->path().filename().string()[0])) != 0)
      add_mapped(process->path(), folder.string(), mapped);
  return mapped;
}

/// A file that we may judge: others' maps cannot be read, but by root, which in a user namespace is
/// any user. A young one may belong to a job that is starting.
bool may_be_left(const struct stat& file) {
  const bool all = geteuid() == 0 && namespace_of("user") == kFirstUserNamespace;
  const bool ours = file.st_uid == geteuid() || all;
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
  std::vector<std::string> seen, fixes, unknown;
  for (const auto& host : hosts) {
    const auto& left = host.facts.leftovers;
    if (left.empty()) continue;
    std::int64_t bytes = 0;
    for (const Leftover& one : left)
      bytes += one.bytes;
    if (host.facts.in_container) {
      unknown.push_back(fmt::format("{}: no process of this container uses {} of {}", host.host,
                                    count_text(left.size(), "file"), format_bytes(bytes)));
      continue;
    }
    seen.push_back(fmt::format("{}: {} of dead runs, {}, first {}", host.host,
                               count_text(left.size(), "file"), format_bytes(bytes), left[0].name));
    fixes.push_back(fmt::format("on {}: rm{}", host.host, paths_of(left)));
  }
  if (!seen.empty()) return warned(id, first_few(seen), fmt::format("{}", fmt::join(fixes, "; ")));
  if (!unknown.empty())
    return skipped(id, first_few(unknown) +
                           "; processes outside of its process-id namespace are not seen: run "
                           "gradsync-check on the host");
  return passed(id, "no files of dead runs in /dev/shm");
}

Finding judge_single_copy(const Ranks<SharedMemoryFacts>& ranks) {
  const std::string id = "shared-memory.cma";
  std::vector<std::string> hosts;
  std::vector<std::uint64_t> namespaces;
  for (const auto& rank : ranks) {
    hosts.push_back(rank.host);
    namespaces.push_back(rank.facts.cma_namespace);
  }
  if (std::all_of(namespaces.begin(), namespaces.end(), [](auto number) { return number == 0; }))
    return skipped(id, "MPI does not copy messages from process to process (CMA), or does not say");
  const auto apart = hosts_where_cma_fails(hosts, namespaces);
  if (!apart.empty()) {
    const bool another_way = ranks.front().facts.fast_network;
    return (another_way ? warned : failed)(
        id,
        fmt::format("ranks of {} are in different user namespaces (a container each), where long "
                    "messages hang in Open MPI 4{}",
                    first_few(apart), another_way ? ", unless UCX carries them" : ""),
        kCmaFix);
  }
  return passed(id, "ranks of a host may copy from each other (CMA)");
}

SharedMemoryFacts look(int ranks) {
  SharedMemoryFacts facts{true, ranks, 0, 0, find_leftovers(kFolder)};
  facts.in_container = namespace_of("pid") != kFirstPidNamespace;
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
  const Mapped mapped = mapped_files(folder);
  std::erase_if(candidates, [&](const Leftover& one) {
    struct stat file {};
    const std::string path = folder / one.name;
    return ::lstat(path.c_str(), &file) != 0 || mapped.files.contains(path) ||
           mapped.hidden.contains(file.st_uid);
  });
  std::sort(candidates.begin(), candidates.end(),
            [](const Leftover& a, const Leftover& b) { return a.name < b.name; });
  return candidates;
}

std::vector<Finding> judge_shared_memory(const Ranks<SharedMemoryFacts>& ranks) {
  Ranks<SharedMemoryFacts> hosts;
  for (const auto& rank : ranks)
    if (rank.facts.looked) hosts.push_back(rank);
  return {judge_space(hosts), judge_leftovers(hosts), judge_single_copy(ranks)};
}

CheckResult check_shared_memory(Job& job, const CheckOptions&) {
  SharedMemoryFacts mine =
      job.place().local_rank == 0 ? look(job.place().local_size) : SharedMemoryFacts{};
  mine.cma_namespace = job.cma_namespace();
  mine.fast_network = has_fast_network();
  return judged(job, mine, [](const Ranks<SharedMemoryFacts>& ranks) {
    return CheckResult{judge_shared_memory(ranks)};
  });
}

}  // namespace gradsync::check
