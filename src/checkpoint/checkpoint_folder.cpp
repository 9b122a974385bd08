#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "support/error.h"
#include "support/file.h"

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

}  // namespace

fs::path checkpoint_folder(const fs::path& output) {
  if (output.extension() != ".h5") return output.string() + "-checkpoints";
  return fs::path(output).replace_extension(".checkpoints");
}

fs::path checkpoint_name(std::int64_t iteration) {
  return fmt::format("{}{:0{}}{}", kPrefix, iteration, kDigits, kEnding);
}

std::vector<NamedCheckpoint> checkpoints_in(const fs::path& folder) {
  std::vector<NamedCheckpoint> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (const auto iteration = iteration_of(entry.path().filename().string()))
      found.push_back({*iteration, entry.path()});
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.iteration > b.iteration; });
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

void remove_older_checkpoints(const fs::path& folder, std::size_t kept) {
  const auto all = checkpoints_in(folder);
  for (std::size_t i = kept; i < all.size(); ++i)
    remove_file(all[i].path);
  std::vector<fs::path> temporaries;
  for (const auto& entry : fs::directory_iterator(folder))
    if (is_temporary(entry.path().filename().string())) temporaries.push_back(entry.path());
  for (const fs::path& path : temporaries)
    remove_file(path);
}

}  // namespace gradsync
