#include "sweep/results_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "support/error.h"
#include "support/utc_time.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kGridSchema = "gradsync-grid/1";

// Paths and logs need not be UTF-8.
std::string written(const json& value) {
  return value.dump(2, ' ', false, json::error_handler_t::replace) + '\n';
}

fs::path grid_file(const fs::path& folder) {
  return folder / "grid.json";
}

[[noreturn]] void refuse_grid(const fs::path& file) {
  throw Error(ExitCode::kBadData,
              fmt::format("{} is damaged or from another version", file.string()),
              "give another folder with --results");
}

json read_grid(const fs::path& file) {
  const json grid = json::parse(read_text_file(file), nullptr, /*allow_exceptions=*/false);
  const bool whole = grid.is_object() && grid.value("schema", json()) == kGridSchema &&
                     grid.contains("content") && grid["content"].is_object() &&
                     grid.value("digest", json()) == grid_digest(grid["content"]);
  if (!whole) refuse_grid(file);
  return grid;
}

std::vector<GridCell> recorded_cells(const json& grid, const fs::path& folder) {
  std::vector<GridCell> cells;
  try {
    for (const auto& cell : grid.at("cells")) {
      const auto options = cell.at("options").get<std::map<std::string, std::string>>();
      cells.push_back(
          {cell.at("name"), cell.at("ranks"), cell.at("repeat"), {options.begin(), options.end()}});
    }
  } catch (const json::exception&) {
    refuse_grid(grid_file(folder));
  }
  return cells;
}

std::string shown(const json& value) {
  if (value.is_null()) return "not set";
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& part : value)
    text += (text.empty() ? "" : ", ") + shown(part);
  return text.empty() ? "none" : text;
}

// Keys that two objects do not have alike: "lr: 0.1 there, 0.2 here".
void list_differences(const json& there, const json& here, std::vector<std::string>& list) {
  std::set<std::string> keys;
  for (const auto& object : {there, here})
    for (const auto& [key, value] : object.items())
      keys.insert(key);
  for (const auto& key : keys) {
    const json a = there.value(key, json()), b = here.value(key, json());
    if (a == b) continue;
    if (a.is_object() && b.is_object())
      list_differences(a, b, list);
    else
      list.push_back(fmt::format("{}: {} there, {} here", key, shown(a), shown(b)));
  }
}

bool holds_runs(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto ending = entry.path().extension();
    if (ending == ".h5" || ending == ".journal") return true;
  }
  return false;
}

UniqueFd locked(const fs::path& folder, FolderUse use) {
  const fs::path file = folder / "sweep.lock";
  // Without O_CLOEXEC: mpirun inherits the lock, so a run that outlives a killed sweep keeps it.
  UniqueFd lock(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0666));
  if (!lock)
    throw Error(ExitCode::kCannotCreate, fmt::format("{}: {}", file.string(), errno_text()));
  const int kind = use == FolderUse::kWholeGrid ? LOCK_EX : LOCK_SH;
  if (::flock(lock.get(), kind | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK)
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot lock {}: {}", file.string(), errno_text()));
  throw Error(ExitCode::kUsage,
              fmt::format("{}: another sweep, or a run it left behind, works in this folder",
                          folder.string()),
              "wait for its end, or give another folder with --results");
}

json described(const Job& job, const Grid& grid) {
  const json content = grid_content(job);
  json cells = json::array();
  for (const auto& cell : grid.cells)
    cells.push_back({{"name", cell.name},
                     {"ranks", cell.ranks},
                     {"repeat", cell.repeat},
                     {"options", json(std::map<std::string, std::string>(cell.options.begin(),
                                                                         cell.options.end()))}});
  return {{"schema", kGridSchema},
          {"name", job.name},
          {"digest", grid_digest(content)},
          {"content", content},
          {"order", job.order == CellOrder::kRandom ? "random" : "as-written"},
          {"order_seed", job.order_seed},
          {"cells", cells},
          {"written", utc_now()}};
}

}  // namespace

void set_aside_leftovers(const fs::path& folder, const GridCell& cell) {
  const CellFiles files = cell_files(folder, cell);
  const std::pair<fs::path, std::string> leftovers[] = {
      {files.journal, ".journal"}, {files.run, ".run"}, {files.checkpoints, ".checkpoints"}};
  const auto any = [&](auto exists) {
    return std::any_of(std::begin(leftovers), std::end(leftovers), exists);
  };
  if (!any([](const auto& one) { return fs::exists(one.first); })) return;
  std::string base;
  for (int number = 1;; ++number) {
    base = (folder / fmt::format("{}.interrupted-{}", cell.name, number)).string();
    if (!any([&](const auto& one) { return fs::exists(base + one.second); })) break;
  }
  for (const auto& [path, ending] : leftovers)
    if (fs::exists(path)) fs::rename(path, base + ending);
}

FolderGrid grid_of_folder(const fs::path& folder, const Job& job, const Grid& grid) {
  if (!fs::exists(grid_file(folder))) {
    if (!holds_runs(folder)) return {grid.cells, {}};
    throw Error(ExitCode::kUsage, fmt::format("{} holds run files of no grid", folder.string()),
                "give another folder with --results");
  }
  const json there = read_grid(grid_file(folder));
  FolderGrid found{recorded_cells(there, folder), {}};
  list_differences(there["content"], grid_content(job), found.differences);
  return found;
}

void require_same_grid(const fs::path& folder, const Job& job, const Grid& grid) {
  const auto differences = grid_of_folder(folder, job, grid).differences;
  if (differences.empty()) return;
  throw Error(
      ExitCode::kUsage,
      fmt::format("{} holds another grid: {}", folder.string(), fmt::join(differences, "; ")),
      "give another folder with --results, or the job file of this one");
}

Grid in_order_of_folder(const Job& job, Grid grid) {
  const FolderGrid there = grid_of_folder(job.results, job, grid);
  if (!there.differences.empty()) return grid;
  std::map<std::string, std::size_t> place;
  for (const auto& cell : there.cells)
    place.emplace(cell.name, place.size());
  std::stable_sort(grid.cells.begin(), grid.cells.end(), [&](const GridCell& a, const GridCell& b) {
    return place[a.name] < place[b.name];
  });
  return grid;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot make the folder {}: {}", folder.string(),
                            error ? error.message() : "a file of that name is in the way"),
                "give another folder with --results");
}

ResultsFolder::ResultsFolder(const Job& job, const Grid& grid, FolderUse use) : path_(job.results) {
  make_folder(path_);
  lock_ = locked(path_, use);
  require_same_grid(path_, job, grid);
  const bool written_by_others = use == FolderUse::kOneCell && fs::exists(grid_file(path_));
  if (!written_by_others) write_file_atomically(grid_file(path_), written(described(job, grid)));
}

}  // namespace gradsync::sweep
