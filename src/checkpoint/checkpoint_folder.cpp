// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "base/ranges.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;
const std::string kPrefix = "iteration-", kEnding = ".safetensors";
constexpr std::size_t kDigits = 9;

std::optional<std::int64_t> iteration_of(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kEnding)) return std::nullopt;
  if (name.size() != kPrefix.size() + kDigits + kEnding.size()) return std::nullopt;
  std::int64_t iteration = 0;
  const char* begin = name.data() + kPrefix.size();
  const auto [last, error] = std::from_chars(begin, begin + kDigits, iteration);
  if (error != std::errc() || last != begin + kDigits || iteration < 0) return std::nullopt;
  return iteration;
}

bool is_temporary(const std::string& name) {
  return name.starts_with(kPrefix) && name.find(kEnding + ".tmp-") != std::string::npos;
}

void remove_file(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot remove '{}': {}", path.string(), error.message()));
}

void move_file(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    throw Error(ExitCode::kCannotCreate, fmt::format("cannot move '{}' to '{}': {}", from.string(),
                                                     to.string(), error.message()));
}

/// `front` and the first number from 1 that makes a name which is free.
fs::path first_free(const std::string& front) {
  for (int number = 1;; ++number)
    if (fs::path path = front + std::to_string(number); !fs::exists(fs::symlink_status(path)))
      return path;
}

bool is_older(const NamedCheckpoint& a, const NamedCheckpoint& b) {
  return a.iteration < b.iteration;
}

}  // namespace

fs::path checkpoint_folder(const fs::path& output) {
  fs::path folder = output;
  if (folder.extension() != ".h5") return folder.string() + ".checkpoint-files";
  return folder.replace_extension().string() + ".checkpoints";
}

fs::path checkpoint_name(std::int64_t iteration) {
  return fmt::format("{}{:0{}}{}", kPrefix, iteration, kDigits, kEnding);
}

std::vector<NamedCheckpoint> checkpoints_in(const fs::path& folder) {
  std::vector<NamedCheckpoint> found;
  std::error_code error;
  const fs::directory_iterator entries(folder, error);
  // A file in its place is refused where a checkpoint is written.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot read the folder '{}': {}", folder.string(), error.message()));
  for (const auto& entry : entries)
    if (const auto iteration = iteration_of(entry.path().filename().string()))
      found.push_back({*iteration, entry.path()});
  std::sort(found.rbegin(), found.rend(), is_older);
  return found;
}

void make_checkpoint_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directory(folder, error);
  if (error || !fs::is_directory(folder))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot make the folder '{}': {}", folder.string(),
                            error ? error.message() : "a file has that name"));
  sync_folder(folder_of(folder));
}

SetAside set_aside_checkpoints(const fs::path& folder, const std::vector<NamedCheckpoint>& own) {
  std::vector<NamedCheckpoint> others = checkpoints_in(folder);
  std::erase_if(others, [&](const auto& one) {
    return contains(own, one.iteration, &NamedCheckpoint::iteration);
  });
  if (others.empty()) return {};
  SetAside result{others.size(), first_free(folder.string() + ".earlier-")};
  make_checkpoint_folder(result.folder);
  for (const NamedCheckpoint& one : others)
    move_file(one.path, result.folder / one.path.filename());
  sync_folder(result.folder);
  sync_folder(folder);
  return result;
}

OwnCheckpoints::OwnCheckpoints(fs::path folder, std::vector<NamedCheckpoint> earlier)
    : folder_(std::move(folder)), own_(std::move(earlier)) {
  std::ranges::sort(own_, is_older);
}

void OwnCheckpoints::written(std::int64_t iteration, std::size_t kept) {
  if (!contains(own_, iteration, &NamedCheckpoint::iteration))
    own_.push_back({iteration, folder_ / checkpoint_name(iteration)});
  while (own_.size() > kept) {
    remove_file(own_.front().path);
    own_.erase(own_.begin());
  }
  std::vector<fs::path> temporaries;
  for (const auto& entry : fs::directory_iterator(folder_))
    if (is_temporary(entry.path().filename().string())) temporaries.push_back(entry.path());
  for (const fs::path& path : temporaries)
    remove_file(path);
}

}  // namespace gradsync
