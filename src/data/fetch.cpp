#include "data/fetch.h"

#include <unistd.h>

#include <fmt/format.h>

#include "data/archive.h"
#include "data/staging.h"
#include "support/error.h"
#include "support/file.h"
#include "support/hash.h"
#include "support/process.h"

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

}  // namespace gradsync
