#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <span>
#include <thread>

#include "base/file.h"
#include "check/facts.h"
#include "record/hdf5.h"

namespace gradsync::check {

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

fs::path nearest_existing(const fs::path& folder) {
  std::error_code ignored;
  fs::path path = fs::absolute(folder);
  while (!fs::exists(path, ignored) && path.has_relative_path())
    path = path.parent_path();
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
  struct statvfs space {};
  if (::statvfs(probe.folder.c_str(), &space) == 0)
    probe.free_bytes = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
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
  const auto from_root = nlohmann::json::parse(
      job.broadcast(nlohmann::json{{"mark", mark}, {"host", job.place().host}}.dump()));
  const std::string to_find = from_root["mark"];
  SeenFacts mine;
  mine.looked = job.place().local_rank == 0 && from_root["host"] != job.place().host;
  if (mine.looked && !to_find.empty()) mine.seen = appears(to_find);
  return judged(job, mine,
                [&](const auto& ranks) { return CheckResult{judge_results(probe, ranks)}; });
}

}  // namespace gradsync::check
