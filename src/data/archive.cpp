#include "data/archive.h"

#include <string>

#include <fmt/format.h>

#include "data/cifar10.h"
#include "support/error.h"
#include "support/file.h"
#include "support/process.h"

namespace gradsync {
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
