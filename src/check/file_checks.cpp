// SPDX-License-Identifier: BSD-3-Clause
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <thread>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"
#include "check/check.h"
#include "comm/single_copy.h"
#include "data/cifar10.h"
#include "machine/host.h"
#include "record/hdf5.h"
#include "transport/shared_all_reduce.h"

namespace gradsync::check {

namespace {

namespace fs = std::filesystem;
const fs::path kFolder = kSharedMemory;
/// Open MPI 4 and 5 (and their one-sided windows), NCCL, PSM, UCX, LibTorch, ours.
constexpr std::array<std::string_view, 11> kSegments = {
    "vader_segment.", "sm_segment.", "osc_rdma.", "osc_sm.", "shared_window_", "nccl-",
    "psm_shm.",       "psm2_shm.",   "ucx_shm_",  "torch_",  "gradsync"};
/// What Open MPI's segments and a few of NCCL's buffers take of it, a rank.
constexpr std::int64_t kNeeded_bytes = std::int64_t{32} << 20;
/// What transport shm takes at least, a rank.
const auto kOurs_bytes = static_cast<std::int64_t>(SharedAllReduce::header_bytes() * 9 / 8);
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

/// A file that we may judge: of our own user, since others chose the names of theirs. A young one
/// may belong to a job that is starting.
bool may_be_left(const struct stat& file) {
  return S_ISREG(file.st_mode) && file.st_uid == geteuid() &&
         std::time(nullptr) - file.st_mtime > kYoung_s;
}

Finding judge_space(const Ranks<SharedMemoryFacts>& hosts) {
  const std::string id = "shared-memory.space";
  std::vector<std::string> tight, without, unknown;
  for (const auto& host : hosts) {
    if (host.facts.free_bytes < 0) unknown.push_back(host.host);
    if (host.facts.free_bytes < 0 || host.facts.free_bytes >= host.facts.ranks * kNeeded_bytes)
      continue;
    const bool fits =
        host.facts.ranks == 1 || host.facts.free_bytes > host.facts.ranks * kOurs_bytes;
    (fits ? tight : without)
        .push_back(
            fmt::format("{}: {} of {} free for {}", host.host, format_bytes(host.facts.free_bytes),
                        format_bytes(host.facts.size_bytes), count_text(host.facts.ranks, "rank")));
  }
  if (!without.empty())
    return failed(id, first_few(without) + "; --transport auto takes mpi, shm has no room",
                  kSharedMemoryFix);
  if (!tight.empty()) return warned(id, first_few(tight), kSharedMemoryFix);
  if (!unknown.empty())
    return skipped(id, fmt::format("{} of {} does not say how large it is", kFolder.string(),
                                   first_few(unknown)));
  return passed(id, fmt::format("{} free on {}", format_bytes(hosts.front().facts.free_bytes),
                                hosts.front().host));
}

std::string paths_of(const std::vector<Leftover>& leftovers) {
  std::string text;
  for (std::size_t i = 0; i < std::min(leftovers.size(), kNamed); ++i)
    text += ' ' + shell_quoted((kFolder / leftovers[i].name).string());
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

Finding judge_session(const Ranks<SharedMemoryFacts>& hosts) {
  const std::string id = "shared-memory.session";
  std::vector<std::string> exposed;
  for (const auto& host : hosts)
    if (!host.facts.exposed.empty())
      exposed.push_back(fmt::format("{}: {}", host.host, host.facts.exposed));
  if (!exposed.empty())
    return warned(id, first_few(exposed) + "; MPI keeps the files of the job there",
                  "export TMPDIR=$(mktemp -d) before mpirun, or name a folder of your own");
  if (hosts.front().facts.session.empty()) return skipped(id, "MPI names no folder of the job");
  return passed(id, fmt::format("'{}' is of this user alone", hosts.front().facts.session));
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

/// Nothing where it is not known, or has no limit: such a file system has no blocks.
std::optional<struct statvfs> space_of(const fs::path& folder) {
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0 || space.f_blocks == 0) return std::nullopt;
  return space;
}

SharedMemoryFacts look(int ranks) {
  SharedMemoryFacts facts{true, ranks, -1, -1, find_leftovers(kFolder)};
  facts.in_container = namespace_of("pid") != kFirstPidNamespace;
  if (const auto space = space_of(kFolder)) {
    facts.free_bytes = static_cast<std::int64_t>(space->f_bavail * space->f_frsize);
    facts.size_bytes = static_cast<std::int64_t>(space->f_blocks * space->f_frsize);
  }
  // In another namespace every other user, root too, has one number.
  const char* session = std::getenv("PMIX_SERVER_TMPDIR");
  if (session != nullptr && namespace_of("user") == kFirstUserNamespace) {
    facts.session = session;
    facts.exposed = why_exposed(session);
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

std::string why_exposed(const fs::path& folder) {
  for (fs::path at = folder; at.has_relative_path(); at = at.parent_path()) {
    struct stat found {};
    if (::lstat(at.c_str(), &found) != 0) {
      if (errno == ENOENT) continue;
      return fmt::format("'{}' cannot be looked at: {}", at.string(), errno_text());
    }
    if (found.st_uid != geteuid() && found.st_uid != 0)
      return fmt::format("'{}' belongs to user {}", at.string(), found.st_uid);
    const mode_t others = at == folder ? S_IWGRP | S_IWOTH : S_IWOTH;
    if ((found.st_mode & others) != 0 && (found.st_mode & S_ISVTX) == 0)
      return fmt::format("others can write in '{}'", at.string());
  }
  return {};
}

std::vector<Finding> judge_shared_memory(const Ranks<SharedMemoryFacts>& ranks) {
  Ranks<SharedMemoryFacts> hosts;
  for (const auto& rank : ranks)
    if (rank.facts.looked) hosts.push_back(rank);
  return {judge_space(hosts), judge_leftovers(hosts), judge_session(hosts),
          judge_single_copy(ranks)};
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

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLittleSpace_bytes = std::int64_t{1} << 30;
constexpr std::int64_t kTooLittle_bytes = std::int64_t{16} << 20;
constexpr int kLooks = 30;
constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

/// statfs(2)'s numbers of the file systems clusters have.
std::string file_system_name(long type) {
  static const std::map<long, std::string> kNames = {
      {0x6969, "nfs"},         {0x0BD00BD0, "lustre"}, {0x47504653, "gpfs"},
      {0x01021994, "tmpfs"},   {0xEF53, "ext4"},       {0x58465342, "xfs"},
      {0x794c7630, "overlay"}, {0x9123683E, "btrfs"},  {0x19830326, "beegfs"},
      {0x00c36400, "ceph"},    {0x65735546, "fuse"},   {0x2fc12fc1, "zfs"}};
  const auto known = kNames.find(type);
  return known == kNames.end() ? fmt::format("type {:#x}", type) : known->second;
}

/// Throws fs::filesystem_error where a part of the path cannot be looked at: what lies before it is
/// another file system, or another folder than a link means.
fs::path nearest_existing(const fs::path& folder) {
  fs::path path = fs::absolute(folder);
  while (!fs::exists(fs::symlink_status(path)) && path.has_relative_path())
    path = path.parent_path();
  static_cast<void>(fs::canonical(path));
  return path;
}

/// A small file as a run is written: made, synchronized, renamed. Returns its last name.
fs::path write_mark(const fs::path& folder) {
  const fs::path name = folder / (".gradsync-check-" + random_suffix());
  TemporaryFile file(name.string() + ".tmp");
  UniqueFd fd = create_file(file.path());
  const std::string text = "gradsync-check tests whether it can write here\n";
  write_all(fd.get(), std::as_bytes(std::span(text)), file.path());
  close_file(std::move(fd), file.path());
  file.rename_to(name);
  sync_folder(folder);
  return name;
}

/// An HDF5 file as runs are written, without a lock.
void write_hdf5(const fs::path& mark) {
  const TemporaryFile file(mark.string() + ".h5");
  create_hdf5_file(file.path()).close_checked(file.path().string());
}

/// Why flock or HDF5 with its own locking does not work; empty if both do.
std::string locking_error(const fs::path& mark) {
  const UniqueFd file(::open(mark.c_str(), O_RDWR | O_CLOEXEC));
  if (!file || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return "flock: " + errno_text();
  prepare_hdf5();
  const TemporaryFile locked(mark.string() + ".lock.h5");
  const H5Object made(H5Fcreate(locked.path().c_str(), H5F_ACC_EXCL, H5P_DEFAULT, H5P_DEFAULT),
                      H5Fclose);
  return made ? "" : "HDF5: " + hdf5_reason();
}

void look_at_space(FolderProbe& probe) {
  if (const auto space = space_of(probe.folder))
    probe.free_bytes = static_cast<std::int64_t>(space->f_bavail * space->f_frsize);
  struct statfs kind {};
  if (::statfs(probe.folder.c_str(), &kind) == 0)
    probe.file_system = file_system_name(static_cast<long>(kind.f_type));
}

/// A network file system may show a new name a little later.
bool appears(const std::string& path) {
  std::error_code ignored;
  for (int look = 0; look < kLooks; ++look) {
    if (fs::exists(path, ignored)) return true;
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return false;
}

Finding judge_space(const FolderProbe& probe) {
  const std::string id = "results.space";
  if (probe.free_bytes < 0)
    return skipped(id, fmt::format("'{}' ({}) does not say how much is free", probe.folder,
                                   probe.file_system));
  const std::string seen = fmt::format("{} free in '{}' ({})", format_bytes(probe.free_bytes),
                                       probe.folder, probe.file_system);
  const std::string fix = "free space, or name a folder on another file system with --results";
  if (probe.free_bytes < kTooLittle_bytes) return failed(id, seen, fix);
  if (probe.free_bytes < kLittleSpace_bytes) return warned(id, seen, fix);
  return passed(id, seen);
}

Finding judge_locking(const FolderProbe& probe) {
  const std::string id = "results.lock";
  if (probe.lock_error.empty()) return passed(id, "flock and HDF5's locking work");
  return warned(
      id, fmt::format("no file locks in '{}': {}", probe.folder, probe.lock_error),
      "export HDF5_USE_FILE_LOCKING=FALSE for h5py and other readers. gradsync-train then "
      "protects a run by a lock file alone; gradsync-sweep refuses such a folder");
}

Finding judge_sharing(const FolderProbe& probe, const Ranks<SeenFacts>& ranks) {
  const std::string id = "results.shared";
  std::vector<std::string> blind;
  bool several = false;
  for (const auto& rank : ranks) {
    several = several || rank.facts.looked;
    if (rank.facts.looked && !rank.facts.seen) blind.push_back(rank.host);
  }
  if (!several) return skipped(id, "one host");
  if (blind.empty()) return passed(id, "all hosts see what rank 0 writes");
  return warned(id,
                fmt::format("'{}' of {} is not seen on {}", probe.folder, ranks.front().host,
                            first_few(blind)),
                "name a folder that all nodes share with --results; else the files stay on rank "
                "0's node");
}

}  // namespace

FolderProbe probe_folder(const std::string& results, std::string& mark) {
  FolderProbe probe;
  mark.clear();
  try {
    const fs::path folder = nearest_existing(results);
    probe.folder = folder.string();
    look_at_space(probe);
    mark = write_mark(folder).string();
    write_hdf5(mark);
    probe.lock_error = locking_error(mark);
  } catch (...) {
    probe.write_error = current_error().what();
  }
  return probe;
}

std::vector<Finding> judge_results(const FolderProbe& probe, const Ranks<SeenFacts>& ranks) {
  const std::string id = "results.write";
  if (!probe.write_error.empty())
    return {failed(id, probe.write_error,
                   "name a folder you may write to: --results FOLDER (its quota and mode count)")};
  return {passed(id, fmt::format("create, fsync, rename and HDF5 work in '{}'", probe.folder)),
          judge_locking(probe), judge_space(probe), judge_sharing(probe, ranks)};
}

CheckResult check_results(Job& job, const CheckOptions& options) {
  FolderProbe probe;
  std::string mark;
  if (job.place().rank == 0) probe = probe_folder(options.results, mark);
  const TemporaryFile remove_at_end(mark);
  // A path is bytes, which JSON would not take.
  const std::string to_find = job.broadcast(mark), host = job.broadcast(job.place().host);
  SeenFacts mine;
  mine.looked = job.place().local_rank == 0 && host != job.place().host;
  if (mine.looked && !to_find.empty()) mine.seen = appears(to_find);
  return judged(job, mine,
                [&](const auto& ranks) { return CheckResult{judge_results(probe, ranks)}; });
}

namespace {

constexpr std::size_t kDigestShown = 16;

DataFacts look_at(const std::string& folder) {
  DataFacts facts{true, "", "", "", "", 0};
  try {
    const Cifar10 data(folder);
    const DataDigest digest = data.verify();
    facts.name = digest.name;
    facts.digest = digest.combined;
    facts.images = static_cast<long>(data.size(Split::kTrain) + data.size(Split::kTest));
  } catch (...) {
    const Error error = current_error();
    facts.error = error.what();
    facts.fix = error.fix();
  }
  return facts;
}

Ranks<DataFacts> those_that_looked(const Ranks<DataFacts>& ranks) {
  Ranks<DataFacts> looked;
  for (const auto& rank : ranks)
    if (rank.facts.looked) looked.push_back(rank);
  return looked;
}

}  // namespace

std::vector<Finding> judge_data(const Ranks<DataFacts>& ranks, const CheckOptions& options) {
  const std::string id = "data";
  const Ranks<DataFacts> hosts = those_that_looked(ranks);
  std::vector<std::string> errors, others;
  std::string fix;
  for (const auto& host : hosts) {
    if (!host.facts.error.empty()) {
      errors.push_back(fmt::format("{}: {}", host.host, host.facts.error));
      fix = host.facts.fix;
    } else if (host.facts.digest != hosts.front().facts.digest) {
      others.push_back(
          fmt::format("{} has {}", host.host, host.facts.digest.substr(0, kDigestShown)));
    }
  }
  if (!errors.empty()) return {failed(id, first_few(errors), fix)};
  const DataFacts& first = hosts.front().facts;
  const std::string digest = first.digest.substr(0, kDigestShown);
  if (!others.empty())
    return {failed(id,
                   fmt::format("hosts have different data in '{}': {} has {}, {}", options.data,
                               hosts.front().host, digest, first_few(others)),
                   "copy one data set to all nodes, or name a shared folder with --data")};
  return {passed(
      id, fmt::format("{}, {}, SHA-256 {}… on {}", first.name, count_text(first.images, "image"),
                      digest, count_text(hosts.size(), "host")))};
}

CheckResult check_data(Job& job, const CheckOptions& options) {
  const DataFacts mine = job.place().local_rank == 0 ? look_at(options.data) : DataFacts{};
  return judged(job, mine, [&](const Ranks<DataFacts>& ranks) {
    return CheckResult{judge_data(ranks, options)};
  });
}

}  // namespace gradsync::check
