#include "data/fetch.h"

#include <unistd.h>

#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"
#include "data/cifar10.h"
#include "data/staging.h"

namespace gradsync {
namespace {

namespace fs = std::filesystem;

bool is_address(const std::string& from) {
  return from.find("://") != std::string::npos;
}

/// The data set in `to` if it is a valid one. Throws Error kCannotCreate if it is anything else.
FetchResult keep_existing(const fs::path& to) {
  try {
    FetchResult result;
    result.already_there = true;
    result.digest = Cifar10(to).verify();
    return result;
  } catch (const Error& error) {
    throw Error(ExitCode::kCannotCreate,
                fmt::format("'{}' exists and is not a valid data set; it was not changed ({})",
                            to.string(), error.what()),
                "choose another --to, or remove that folder first");
  }
}

std::vector<std::string> curl_command(const std::string& address, const fs::path& file) {
  std::vector<std::string> command = {"curl", "--fail", "--location", "--proto", "=http,https,file",
                                      "--retry", "3",
                                      // Ten times the official archive.
                                      "--max-filesize", "1700000000", "--continue-at", "-",
                                      "--output", file.string(), "--url", address};
  if (::isatty(STDERR_FILENO) != 0) {
    command.emplace_back("--progress-bar");
  } else {
    command.insert(command.end(), {"--silent", "--show-error"});
  }
  return command;
}

/// A download that was finished but not unpacked; asked to continue at its end, curl would fail.
bool is_finished_download(const fs::path& archive) {
  return fs::exists(archive) && is_official_archive(sha256_file(archive));
}

void download(const std::string& address, const fs::path& file) {
  std::error_code error;
  fs::create_directories(folder_of(file), error);
  if (error) {
    throw Error(ExitCode::kCannotCreate, fmt::format("cannot make the folder '{}': {}",
                                                     folder_of(file).string(), error.message()));
  }
  const ProcessResult result = run_process(curl_command(address, file));
  if (result.succeeded()) return;
  throw Error(ExitCode::kInputOutput,
              fmt::format("cannot download {}: curl ended with {}", address, result.text()),
              fmt::format("run the same command again (it continues '{}'), or copy the archive to "
                          "this machine and give it with --from FILE",
                          file.string()));
}

void require_archive(const fs::path& archive) {
  std::error_code ignored;
  if (fs::is_regular_file(archive, ignored)) return;
  throw Error(ExitCode::kNoInput, fmt::format("no archive '{}'", archive.string()),
              "give the path of cifar-10-binary.tar.gz, or leave --from out to download it");
}

FetchResult unpack(const fs::path& archive, const fs::path& to, const FetchProgress& progress) {
  StagedFolder staged(to);
  FetchResult result;
  result.archive_sha256 = sha256_file(archive);
  result.official_archive = is_official_archive(result.archive_sha256);
  progress(result.official_archive
               ? "the archive is the official one"
               : fmt::format("not the official archive (SHA-256 {}); its files must pass",
                             result.archive_sha256));
  extract_cifar10(archive, staged.path());
  result.digest = Cifar10(staged.path()).verify();
  staged.publish();
  return result;
}

/// Unpacks a finished download and removes it: a good one is not needed any more, after a bad one a
/// second try must not continue it.
FetchResult unpack_download(const fs::path& archive, const fs::path& to,
                            const FetchProgress& progress) {
  std::error_code ignored;
  try {
    FetchResult result = unpack(archive, to, progress);
    fs::remove(archive, ignored);
    return result;
  } catch (const Error& error) {
    if (error.code() == ExitCode::kBadData) fs::remove(archive, ignored);
    throw;
  }
}

}  // namespace

FetchResult fetch(const fs::path& to, const std::string& from, const FetchProgress& progress) {
  const fs::path target = without_trailing_slash(to);
  if (fs::exists(fs::symlink_status(target))) return keep_existing(target);
  if (!is_address(from)) {
    require_archive(from);
    return unpack(from, target, progress);
  }
  const fs::path archive = target.string() + ".download";
  if (!is_finished_download(archive)) {
    progress(fmt::format("downloading {}", from));
    download(from, archive);
  }
  return unpack_download(archive, target, progress);
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kNamesFile = "batches.meta.txt";
constexpr std::size_t kMostNameBytes = 64 * 1024;
constexpr std::size_t kMostFileBytes = kOfficialRecords * kRecordBytes;

const std::string kFix = "fetch the official archive again, without --from";

std::vector<std::string> tar_command(const fs::path& archive, const std::string& member) {
  // Without --force-local a colon in the file's name would make tar call another machine.
  return {"tar",
          "--extract",
          "--to-stdout",
          "--file",
          archive.string(),
          "--force-local",
          "--no-wildcards",
          "--occurrence=1",
          "--",
          fmt::format("{}/{}", kArchiveFolder, member)};
}

fs::path log_of(const fs::path& target) {
  return target.string() + ".log";
}

/// The last line of what tar said.
std::string complaint(const fs::path& log) {
  std::string text = read_text_file(log);
  while (text.ends_with('\n'))
    text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// Writes one member to `target`, whose folder is private to us.
void extract(const fs::path& archive, const std::string& member, const fs::path& target,
             std::size_t most_bytes) {
  const fs::path log = log_of(target);
  UniqueFd file = create_file(target);
  std::size_t written = 0;
  const auto consume = [&](std::span<const std::byte> bytes) {
    written += bytes.size();
    if (written > most_bytes) {
      throw Error(
          ExitCode::kBadData,
          fmt::format("'{}': {} is larger than {} bytes", archive.string(), member, most_bytes),
          kFix);
    }
    write_all(file.get(), bytes, target);
  };
  ProcessOptions quiet;
  quiet.stdin_path = "/dev/null";
  quiet.stderr_path = log;
  quiet.environment = {"TAR_OPTIONS="};
  const ProcessResult result = run_process(tar_command(archive, member), quiet, consume);
  if (!result.succeeded()) {
    throw Error(ExitCode::kBadData,
                fmt::format("'{}': cannot read {}: tar ended with {}: {}", archive.string(), member,
                            result.text(), complaint(log)),
                kFix);
  }
  close_file(std::move(file), target);
  fs::remove(log);
}

/// The class names are for people; an archive without them is as good.
void extract_if_good(const fs::path& archive, const std::string& member, const fs::path& folder) {
  try {
    extract(archive, member, folder / member, kMostNameBytes);
  } catch (const Error&) {
    fs::remove(folder / member);
    fs::remove(log_of(folder / member));
  }
}

}  // namespace

void extract_cifar10(const fs::path& archive, const fs::path& folder) {
  for (const char* name : kTrainFiles)
    extract(archive, name, folder / name, kMostFileBytes);
  extract(archive, kTestFile, folder / kTestFile, kMostFileBytes);
  extract_if_good(archive, kNamesFile, folder);
}

}  // namespace gradsync
