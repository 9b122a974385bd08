#include "analysis/read/failed_cells.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kEnding = ".failed.json";
constexpr std::size_t kMostNamed = 20;

std::vector<fs::path> failures_in(const std::vector<std::string>& places) {
  std::vector<fs::path> paths;
  for (const fs::path place : places) {
    if (is_failed_cell(place)) paths.push_back(place);
    std::error_code failure;
    if (!fs::is_directory(place, failure)) continue;
    fs::recursive_directory_iterator entry(place, failure);
    for (; !failure && entry != fs::recursive_directory_iterator(); entry.increment(failure))
      if (is_failed_cell(entry->path())) paths.push_back(entry->path());
  }
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

/// Null for what cannot be read.
json read_json(const fs::path& path) {
  try {
    json value = json::parse(read_text_file(path), nullptr, /*allow_exceptions=*/false);
    return value.is_discarded() ? json() : value;
  } catch (const Error&) {
    return {};
  }
}

std::string text_of(const json& object, const std::string& key) {
  if (!object.is_object()) return {};
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// So that products of damaged numbers do not overflow.
std::int64_t in_range(std::int64_t number) {
  return std::clamp<std::int64_t>(number, 0, 1'000'000'000);
}

/// 0 for what is missing, negative or no number.
std::int64_t count_in(const json& object, const std::string& key) {
  if (!object.is_object()) return 0;
  const auto found = object.find(key);
  if (found == object.end()) return 0;
  try {
    if (found->is_number_integer()) return in_range(found->get<std::int64_t>());
    return found->is_string() ? in_range(parse_integer(found->get<std::string>())) : 0;
  } catch (const Error&) {
    return 0;  // "auto"
  }
}

/// What grid.json says of a cell; null if it says nothing.
json grid_cell(const fs::path& folder, const std::string& name) {
  const json grid = read_json(folder / "grid.json");
  if (!grid.is_object() || !grid.contains("cells") || !grid["cells"].is_array()) return {};
  for (const json& cell : grid["cells"])
    if (text_of(cell, "name") == name) return cell;
  return {};
}

void fill_in_batch(FailedCell& failed, const json& options) {
  const std::int64_t accumulate = std::max<std::int64_t>(1, count_in(options, "accumulate"));
  const std::int64_t parts = in_range(std::max<std::int64_t>(1, failed.ranks) * accumulate);
  failed.batch_per_rank = count_in(options, "batch-per-rank");
  failed.batch_global = count_in(options, "batch-global");
  if (failed.batch_global == 0) failed.batch_global = in_range(failed.batch_per_rank * parts);
  failed.batch_per_rank = failed.batch_global / parts;
}

FailedCell described(const fs::path& path, const json& failure) {
  FailedCell failed;
  failed.path = path;
  const std::string file = path.filename().string();
  failed.cell = file.substr(0, file.size() - kEnding.size());
  failed.exit_code = static_cast<int>(count_in(failure, "exit_code"));
  failed.kind = text_of(failure, "kind");
  const std::string message = text_of(failure, "message");
  failed.message = message.substr(0, message.find('\n'));
  const json cell = grid_cell(folder_of(path), failed.cell);
  const json options = cell.is_object() ? cell.value("options", json()) : json();
  failed.ranks = count_in(cell, "ranks");
  failed.mode = or_unknown(text_of(options, "sync"));
  failed.model = or_unknown(text_of(options, "model"));
  fill_in_batch(failed, options);
  return failed;
}

}  // namespace

std::string FailedCell::verdict() const {
  if (not_run()) return message;
  return out_of_memory() ? fmt::format("OUT OF MEMORY (exit code {})", exit_code)
                         : fmt::format("FAILED (exit code {}): {}", exit_code, message);
}

bool is_failed_cell(const fs::path& path) {
  return path.filename().string().ends_with(kEnding);
}

Error all_cells_failed(const std::vector<FailedCell>& failed) {
  const bool some_not_run =
      std::any_of(failed.begin(), failed.end(), [](const auto& cell) { return cell.not_run(); });
  const std::string cells =
      failed.size() == 1 ? "the only cell" : fmt::format("all {} cells", failed.size());
  std::string text = cells + (some_not_run ? " failed or were not run" : " failed and left no run");
  for (std::size_t i = 0; i < std::min(kMostNamed, failed.size()); ++i)
    text += fmt::format("\n  {}: {}", failed[i].cell, failed[i].verdict());
  if (failed.size() > kMostNamed)
    text += fmt::format("\n  and {} more", failed.size() - kMostNamed);
  return Error(
      ExitCode::kBadData, text,
      fmt::format("{} has each message in full and names its log; then run the sweep again",
                  failed.front().path.string()));
}

std::vector<FailedCell> find_failed_cells(const std::vector<std::string>& places,
                                          std::vector<std::string>& remarks) {
  std::vector<FailedCell> all;
  for (const fs::path& path : failures_in(places)) {
    const json failure = read_json(path);
    if (failure.is_object())
      all.push_back(described(path, failure));
    else
      remarks.push_back(
          fmt::format("left out: {} is not a record of a failed cell", path.string()));
  }
  return all;
}

}  // namespace gradsync::report
