#include "sweep/results_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/parse.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Version 1 had the digest of the job's lists of values.
constexpr const char *kGridSchema = "gradsync-grid/2", *kFirstSchema = "gradsync-grid/1";

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

std::string digest_of(const json& content) {
  Sha256 digest;
  digest.update(content.dump(-1, ' ', false, json::error_handler_t::replace));
  return digest.hex();
}

// What every cell is started with.
json launch_content(const Job& job) {
  return {{"mpirun_options", job.mpirun_options},
          {"srun_options", job.srun_options},
          {"ranks_per_node", job.ranks_per_node}};
}

json cells_content(const std::vector<GridCell>& cells) {
  json list = json::array();
  for (const auto& cell : cells)
    list.push_back({{"name", cell.name},
                    {"ranks", cell.ranks},
                    {"repeat", cell.repeat},
                    {"options", json(std::map<std::string, std::string>(cell.options.begin(),
                                                                        cell.options.end()))}});
  return list;
}

/// What grid.json says.
struct RecordedGrid {
  json launch;
  std::vector<GridCell> cells;
};

std::vector<GridCell> recorded_cells(const json& list) {
  std::vector<GridCell> cells;
  for (const auto& cell : list) {
    const auto options = cell.at("options").get<std::map<std::string, std::string>>();
    cells.push_back(
        {cell.at("name"), cell.at("ranks"), cell.at("repeat"), {options.begin(), options.end()}});
    cells.back().number = cells.size();
  }
  return cells;
}

json launch_of_first_schema(const json& content) {
  return {{"mpirun_options", content.value("mpirun_options", json::array())},
          {"srun_options", content.value("srun_options", json::array())},
          {"ranks_per_node", content.value("ranks_per_node", 0)}};
}

// What the digest is of.
json content_of(const json& grid) {
  if (grid.value("schema", json()) == kFirstSchema) return grid.at("content");
  return {{"launch", grid.at("launch")}, {"cells", grid.at("cells")}};
}

RecordedGrid read_grid(const fs::path& file) {
  const json grid = json::parse(read_text_file(file), nullptr, /*allow_exceptions=*/false);
  try {
    const json schema = grid.is_object() ? grid.value("schema", json()) : json();
    const bool first = schema == kFirstSchema;
    if ((first || schema == kGridSchema) && grid.at("digest") == digest_of(content_of(grid)))
      return {first ? launch_of_first_schema(grid.at("content")) : grid.at("launch"),
              recorded_cells(grid.at("cells"))};
  } catch (const json::exception&) {
  }
  refuse_grid(file);
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

// Each option with its values in these cells, as `launch_content` has what is beside them.
json settings_of(const std::vector<GridCell>& cells, const json& launch) {
  json settings = launch;
  const auto add = [&](const std::string& key, const json& value) {
    json& values = settings[key];
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  };
  for (const auto& cell : cells) {
    add("ranks", cell.ranks);
    add("repeat", cell.repeat);
    for (const auto& [key, value] : cell.options)
      add(key, value);
  }
  return settings;
}

// Of the cells of a folder, which a job's cells are.
class KnownCells {
 public:
  explicit KnownCells(const std::vector<GridCell>& cells) {
    for (const auto& cell : cells) {
      places_.emplace(identity_of(cell), &cell);
      names_.insert(cell.name);
    }
  }

  // The same run, at best under the same name; null for none. A second cell gets another one.
  const GridCell* take(const GridCell& wanted) {
    const auto [begin, end] = places_.equal_range(identity_of(wanted));
    if (begin == end) return nullptr;
    auto found = std::find_if(begin, end,
                              [&](const auto& place) { return place.second->name == wanted.name; });
    if (found == end) found = begin;
    const GridCell* const cell = found->second;
    places_.erase(found);
    return cell;
  }

  bool has_name(const std::string& name) const { return names_.contains(name); }

 private:
  std::multimap<std::string, const GridCell*> places_;
  std::set<std::string> names_;
};

// The job's grid where nothing keeps it from sharing the folder; else nothing.
std::optional<FolderGrid> shared_grid(const RecordedGrid& there, const json& launch,
                                      const Grid& grid) {
  if (there.launch != launch) return std::nullopt;
  KnownCells known(there.cells);
  FolderGrid shared{grid, there.cells, there.cells.size()};
  std::size_t in_both = 0;
  for (GridCell& cell : shared.grid.cells) {
    if (const GridCell* same = known.take(cell)) {
      cell.name = same->name;
      cell.number = same->number;
      ++in_both;
    } else if (known.has_name(cell.name)) {
      return std::nullopt;
    } else {
      cell.number = shared.cells.size() + 1;
      shared.cells.push_back(cell);
    }
  }
  if (in_both == 0) return std::nullopt;
  return shared;
}

bool holds_runs(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const auto ending = entry.path().extension();
    if (ending == ".h5" || ending == ".journal") return true;
  }
  return false;
}

// Without O_CLOEXEC: mpirun inherits the lock, so a run that outlives a killed sweep keeps it.
UniqueFd opened_lock(const fs::path& file) {
  UniqueFd lock(::open(file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW, 0666));
  if (lock) return lock;
  throw Error(ExitCode::kCannotCreate, fmt::format("{}: {}", file.string(), errno_text()));
}

[[noreturn]] void refuse_lock(const fs::path& file) {
  throw Error(ExitCode::kCannotCreate,
              fmt::format("cannot lock {}: {}", file.string(), errno_text()));
}

UniqueFd waited_lock(const fs::path& file) {
  UniqueFd lock = opened_lock(file);
  if (::flock(lock.get(), LOCK_EX) != 0) refuse_lock(file);
  return lock;
}

UniqueFd locked(const fs::path& file, int kind) {
  UniqueFd lock = opened_lock(file);
  if (::flock(lock.get(), kind | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) refuse_lock(file);
  throw Error(ExitCode::kUsage,
              fmt::format("{}: another sweep, or a run that it started, uses this folder",
                          file.parent_path().string()),
              "wait until it ends, or give another folder with --results");
}

json described(const Job& job, const std::vector<GridCell>& cells) {
  json grid = {{"schema", kGridSchema},
               {"name", job.name},
               {"launch", launch_content(job)},
               {"cells", cells_content(cells)},
               {"order", job.order == CellOrder::kRandom ? "random" : "as-written"},
               {"order_seed", job.order_seed},
               {"written", utc_now()}};
  grid["digest"] = digest_of(content_of(grid));
  return grid;
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

void FolderGrid::require_same(const fs::path& folder) const {
  if (differences.empty()) return;
  throw Error(
      ExitCode::kUsage,
      fmt::format("{} holds another grid: {}", folder.string(), fmt::join(differences, "; ")),
      "give another folder with --results, or the job file of this one");
}

FolderGrid grid_in_folder(const Job& job, const Grid& grid) {
  const fs::path& folder = job.results;
  if (!fs::exists(grid_file(folder))) {
    if (!holds_runs(folder)) return {grid, grid.cells};
    throw Error(ExitCode::kUsage, fmt::format("{} holds run files of no grid", folder.string()),
                "give another folder with --results");
  }
  const RecordedGrid there = read_grid(grid_file(folder));
  const json launch = launch_content(job);
  if (auto shared = shared_grid(there, launch, grid)) return *std::move(shared);
  FolderGrid other{grid, there.cells, there.cells.size()};
  list_differences(settings_of(there.cells, there.launch), settings_of(grid.cells, launch),
                   other.differences);
  return other;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!fs::is_directory(folder))
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot make the folder {}: {}", folder.string(),
                            error ? error.message() : "a file of that name exists"),
                "give another folder with --results");
}

ResultsFolder::ResultsFolder(const Job& job, const Grid& grid, FolderUse use) : path_(job.results) {
  make_folder(path_);
  lock_ = locked(path_ / "sweep.lock", use == FolderUse::kWholeGrid ? LOCK_EX : LOCK_SH);
  // Sweeps of single cells share the first lock; each adds its cells to those it read.
  const UniqueFd writes = waited_lock(path_ / "grid.lock");
  const FolderGrid there = grid_in_folder(job, grid);
  there.require_same(path_);
  if (there.recorded < there.cells.size())
    write_file_atomically(grid_file(path_), written(described(job, there.cells)));
}

}  // namespace gradsync::sweep
