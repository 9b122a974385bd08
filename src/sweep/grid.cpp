// SPDX-License-Identifier: BSD-3-Clause
#include "sweep/grid.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/cli/options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/option_roles.h"
#include "options/options.h"
#include "stats/estimate.h"

namespace gradsync::sweep {

GridCell control_of(const GridCell& cell) {
  GridCell control = cell;
  control.name += "-control";
  return control;
}

namespace {

constexpr std::size_t kMaxCells = 100'000;

// Marks of values in cell names; where there is none the key itself stands before the value.
const std::map<std::string, std::string> kMarks = {
    {"batch-per-rank", "b"}, {"batch-global", "g"}, {"accumulate", "k"}, {"precision", ""},
    {"layout", ""},          {"granularity", ""},   {"seed", "seed"},    {"lr", "lr"},
};

// They set when a run stops and resumes, not what it measures.
const std::set<std::string> kOfTheRun = {"time-limit", "checkpoint-every", "resume"};

using Choice = std::map<std::string, std::string>;  // key -> value, `ranks` included

const Axis* find_axis(const Job& job, const std::string& key) {
  for (const auto& axis : job.axes)
    if (axis.key == key) return &axis;
  return nullptr;
}

std::size_t count_combinations(const Job& job) {
  std::size_t count = static_cast<std::size_t>(job.repeats);
  for (const auto& axis : job.axes) {
    count *= axis.values.size();
    if (count > kMaxCells)
      throw Error(
          ExitCode::kUsage,
          fmt::format("{}: {} has {}, and the grid more than {} cells", axis.where, axis.key,
                      count_text(static_cast<std::int64_t>(axis.values.size()), "value"),
                      kMaxCells),
          "shorten its axes");
  }
  return count;
}

// The number of a combination, read in the mixed base of the axes; the last one is the lowest
// digit.
Choice combination(const Job& job, std::size_t number) {
  Choice choice;
  for (auto axis = job.axes.rbegin(); axis != job.axes.rend(); ++axis) {
    choice[axis->key] = axis->values[number % axis->values.size()];
    number /= axis->values.size();
  }
  apply_variant(job.variants, choice);
  return choice;
}

std::string value_of(const Choice& choice, const OptionSpec& spec) {
  const auto found = choice.find(spec.name);
  return found == choice.end() ? spec.default_value : found->second;
}

bool meets(const Choice& choice, const Exclusion::Condition& condition) {
  static const OptionTable table = train_option_table();
  const auto own = choice.find(condition.key);
  std::string value = own == choice.end() ? "" : own->second;
  for (const auto& spec : table)
    if (spec.name == condition.key) value = value_of(choice, spec);
  return contains(condition.values, value);
}

bool meets(const Choice& choice, const Exclusion& exclusion) {
  return std::ranges::all_of(exclusion.conditions,
                             [&](const auto& condition) { return meets(choice, condition); });
}

// `text` without what the name of a file cannot hold, or begin with.
std::string as_file_name(std::string text) {
  for (char& c : text) {
    const bool is_first = &c == text.data();
    const bool fits = std::isalnum(static_cast<unsigned char>(c)) || c == '+' ||
                      (!is_first && (c == '.' || c == '-'));
    if (!fits) c = '_';
  }
  return text;
}

// A name that cell_name() may have given: what comes from a file must not leave the folder.
bool is_cell_name(const std::string& name) {
  return name == as_file_name(name) && !name.empty();
}

std::string mark_of(const std::string& key) {
  const auto mark = kMarks.find(key);
  return mark == kMarks.end() ? key + "-" : mark->second;
}

// The order of the marks is that of --help, so a name does not depend on the order of the lines.
std::string cell_name(const Job& job, const Choice& choice, std::int64_t repeat) {
  const OptionTable& table = train_option_table();
  std::map<std::string, std::string> fixed;
  std::string varying = job.variants.size() > 1 ? "-" + choice.at(kVariantKey) : "";
  for (const auto& spec : table) {
    fixed[spec.name] = value_of(choice, spec);
    const Axis* axis = find_axis(job, spec.name);
    const bool named = spec.name == "model" || spec.name == "sync";
    if (axis != nullptr && axis->values.size() > 1 && !named)
      varying += "-" + mark_of(spec.name) + choice.at(spec.name);
  }
  if (job.repeats > 1) varying += fmt::format("-x{}", repeat);
  return as_file_name(
      fmt::format("{}-{}-r{}{}", fixed["model"], fixed["sync"], choice.at("ranks"), varying));
}

GridCell make_cell(const Job& job, const Choice& choice, std::int64_t repeat) {
  GridCell cell{cell_name(job, choice, repeat), std::stoll(choice.at("ranks")), repeat, {}};
  if (const auto name = choice.find(kVariantKey); name != choice.end()) cell.variant = name->second;
  for (const auto& spec : train_option_table())
    if (const auto found = choice.find(spec.name); found != choice.end())
      cell.options.emplace_back(found->first, found->second);
  train_options_of(cell, &job);
  return cell;
}

// Values may differ only in characters a file name cannot hold, and a cell may have the name of
// the control of another (control_of()).
void make_names_unique(std::vector<GridCell>& cells) {
  std::set<std::string> taken;
  for (auto& cell : cells) {
    const std::string name = cell.name;
    for (int number = 2; taken.contains(cell.name) || taken.contains(control_of(cell).name);
         ++number)
      cell.name = fmt::format("{}_{}", name, number);
    taken.insert({cell.name, control_of(cell).name});
  }
}

// The line of the job that gives the cell an option.
std::string place_of(const std::string& key, const GridCell& cell, const Job& job) {
  const Variant* variant = find_variant(job.variants, cell.variant);
  const KeyValue* option = variant == nullptr ? nullptr : variant->option(key);
  if (option != nullptr) return option->where;
  const Axis* const axis = find_axis(job, key);
  return axis != nullptr ? axis->where : key;
}

// The options as the trainer reads them, with the lines of `job` where it is given.
OptionValues values_of(const GridCell& cell, const Job* job) {
  OptionValues values;
  for (const auto& spec : train_option_table())
    values[spec.name] = {spec.default_value, "default", "default"};
  for (const auto& [key, value] : cell.options)
    values[key] = {value, "job file", job == nullptr ? key : place_of(key, cell, *job)};
  // Every cell gets a run file; checkpoints lie beside it.
  values["output"] = {"run.h5", "job file", "output"};
  return values;
}

// Every option of the trainer, where the cell does not set it with its default.
std::map<std::string, std::string> settings_of(const GridCell& cell) {
  std::map<std::string, std::string> settings;
  for (const auto& spec : train_option_table())
    settings[spec.name] = spec.default_value;
  for (const auto& [key, value] : cell.options)
    settings[key] = value;
  return settings;
}

// Settings need not be UTF-8, and files of grids are.
std::string text_of(const GridCell& cell, const std::map<std::string, std::string>& settings) {
  return nlohmann::json{cell.ranks, cell.repeat, settings}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Equal for cells that may be contenders of each other.
std::string comparison_of(const GridCell& cell) {
  std::map<std::string, std::string> settings = settings_of(cell);
  for (const TrainOption& option : declared_train_options())
    if (is_of_contender(option)) settings.erase(option.name);
  settings.erase("sync");
  return text_of(cell, settings);
}

// Why the cells cannot be trained in one job; empty if they can.
std::string incomparable(const CellJob& cells, const Job& job) {
  try {
    const OptionValues values = values_of(start_of(cells), &job);
    contenders(values, train_options(values));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

void assign_jobs(const Job& job, Grid& grid) {
  std::map<std::string, std::size_t> first;
  for (std::size_t i = 0; i < grid.cells.size(); ++i) {
    GridCell& cell = grid.cells[i];
    cell.written = cell.job = i;
    if (job.interleave) cell.job = first.emplace(comparison_of(cell), i).first->second;
  }
  std::set<std::string> reasons;
  for (const CellJob& cells : jobs_of(grid.cells)) {
    const std::string reason = cells.size() > 1 ? incomparable(cells, job) : "";
    if (reason.empty()) continue;
    if (reasons.insert(reason).second)
      grid.remarks.push_back(fmt::format("each cell is a job of its own: {}", reason));
    for (const GridCell& cell : cells)
      grid.cells[cell.written].job = cell.written;
  }
}

// Remembers which exclusions left something out.
class Exclusions {
 public:
  explicit Exclusions(const Job& job) : job_(job), used_(job.exclusions.size(), false) {}

  bool leaves_out(const Choice& choice) {
    bool out = false;
    for (std::size_t i = 0; i < used_.size(); ++i) {
      if (!meets(choice, job_.exclusions[i])) continue;
      used_[i] = out = true;
    }
    return out;
  }

  std::vector<std::string> remarks() const {
    std::vector<std::string> list;
    for (std::size_t i = 0; i < used_.size(); ++i)
      if (!used_[i] && !of_replaced_axis(job_.exclusions[i]))
        list.push_back(fmt::format("{}: exclude = {} excludes no cell", job_.exclusions[i].where,
                                   job_.exclusions[i].text));
    return list;
  }

 private:
  // The values of an exclusion may be among those that --set has taken out of the grid.
  bool of_replaced_axis(const Exclusion& exclusion) const {
    return std::ranges::any_of(exclusion.conditions, [&](const Exclusion::Condition& condition) {
      const Axis* axis = find_axis(job_, condition.key);
      return axis != nullptr && axis->replaced();
    });
  }

  const Job& job_;
  std::vector<bool> used_;
};

}  // namespace

const std::string* GridCell::option(const std::string& key) const {
  for (const auto& option : options)
    if (option.first == key) return &option.second;
  return nullptr;
}

Grid expand(const Job& job) {
  Grid grid;
  Exclusions exclusions(job);
  const auto repeats = static_cast<std::size_t>(job.repeats);
  const std::size_t combinations = count_combinations(job) / repeats;
  for (std::size_t number = 0; number < combinations; ++number) {
    const Choice choice = combination(job, number);
    if (exclusions.leaves_out(choice)) continue;
    for (std::int64_t repeat = 1; repeat <= job.repeats; ++repeat)
      grid.cells.push_back(make_cell(job, choice, repeat));
  }
  if (grid.cells.empty())
    throw Error(ExitCode::kUsage, fmt::format("{}: the exclusions leave no cell", job.name),
                "remove an `exclude` line");
  make_names_unique(grid.cells);
  assign_jobs(job, grid);
  if (job.order == CellOrder::kRandom) Draws(job.order_seed).shuffle(grid.cells);
  for (std::size_t i = 0; i < grid.cells.size(); ++i)
    grid.cells[i].number = i + 1;
  for (const std::string& remark : exclusions.remarks())
    grid.remarks.push_back(remark);
  return grid;
}

std::vector<CellJob> jobs_of(const std::vector<GridCell>& cells) {
  std::vector<CellJob> jobs;
  std::map<std::size_t, std::size_t> places;
  for (const GridCell& cell : cells) {
    const auto [place, is_new] = places.emplace(cell.job, jobs.size());
    if (is_new) jobs.emplace_back();
    jobs[place->second].push_back(cell);
  }
  for (CellJob& job : jobs)
    std::ranges::sort(job,
                      [](const GridCell& a, const GridCell& b) { return a.written < b.written; });
  return jobs;
}

GridCell start_of(const CellJob& cells) {
  GridCell start = cells.front();
  if (cells.size() == 1) return start;
  const auto common = settings_of(start);
  std::set<std::string> differing;
  for (const GridCell& cell : cells)
    for (const auto& [key, value] : settings_of(cell))
      if (key != "sync" && value != common.at(key)) differing.insert(key);
  std::string compare;
  for (const GridCell& cell : cells) {
    compare += (compare.empty() ? "" : ",") + settings_of(cell).at("sync");
    for (const auto& [key, value] : cell.options)
      if (differing.contains(key)) compare += fmt::format(":{}={}", key, value);
  }
  std::erase_if(start.options, [&](const auto& option) {
    return option.first == "sync" || option.first == "time-limit" ||
           differing.contains(option.first);
  });
  start.options.emplace_back("compare", compare);
  // What the grid does not name is no cell.
  if (start.option("advise") == nullptr) start.options.emplace_back("advise", "0");
  if (const double limit_s = train_options_of(cells.front()).time_limit_s; limit_s > 0)
    start.options.emplace_back(
        "time-limit",
        fmt::format("{:.0f}s", std::ceil(limit_s * static_cast<double>(cells.size() + 1))));
  return start;
}

TrainOptions train_options_of(const GridCell& cell, const Job* job) {
  TrainOptions options = train_options(values_of(cell, job));
  try {
    resolve_batch(options, cell.ranks);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("cell {}: {}", cell.name, error.what()),
                "change the batch or the ranks, or `exclude` the cell");
  }
  return options;
}

const GridCell& cell_named(const Grid& grid, const std::string& text) {
  for (const GridCell& cell : grid.cells)
    if (cell.name == text || std::to_string(cell.number) == text) return cell;
  throw Error(
      ExitCode::kUsage,
      fmt::format("--cell: \"{}\" is not a cell of this grid of {}", text, grid.cells.size()),
      "give a number or a name of `gradsync-sweep JOB.cfg --list`");
}

std::string identity_of(const GridCell& cell) {
  std::map<std::string, std::string> settings = settings_of(cell);
  for (const std::string& key : kOfTheRun)
    settings.erase(key);
  return text_of(cell, settings);
}

// --- grid.json -----------------------------------------------------------------------------------

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

// The options of the launcher that every cell is started with.
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

// The content of a grid.json.
struct RecordedGrid {
  json launch;
  std::vector<GridCell> cells;
};

std::vector<GridCell> recorded_cells(const json& list, const fs::path& file) {
  std::vector<GridCell> cells;
  std::set<std::string> names;
  for (const auto& cell : list) {
    const auto options = cell.at("options").get<std::map<std::string, std::string>>();
    cells.push_back({cell.at("name"),
                     whole_number<std::int64_t>(cell.at("ranks")),
                     whole_number<std::int64_t>(cell.at("repeat")),
                     {options.begin(), options.end()}});
    cells.back().number = cells.size();
    if (!is_cell_name(cells.back().name) || !names.insert(cells.back().name).second)
      throw Error(ExitCode::kBadData,
                  fmt::format("{}: '{}' is no name of a cell, or of two", file.string(),
                              with_escaped_bytes(cells.back().name)),
                  "do not continue this grid: its file was changed by hand");
  }
  return cells;
}

json launch_of_first_schema(const json& content) {
  return {{"mpirun_options", content.value("mpirun_options", json::array())},
          {"srun_options", content.value("srun_options", json::array())},
          {"ranks_per_node", content.value("ranks_per_node", 0)}};
}

// The part of grid.json that its digest covers.
json content_of(const json& grid) {
  if (grid.value("schema", json()) == kFirstSchema) return grid.at("content");
  return {{"launch", grid.at("launch")}, {"cells", grid.at("cells")}};
}

RecordedGrid read_grid(const fs::path& file) {
  const json grid = parse_json(read_text_file(file), kMostTextBytes);
  try {
    const json schema = grid.is_object() ? grid.value("schema", json()) : json();
    const bool first = schema == kFirstSchema;
    if ((first || schema == kGridSchema) && grid.at("digest") == digest_of(content_of(grid)))
      return {first ? launch_of_first_schema(grid.at("content")) : grid.at("launch"),
              recorded_cells(grid.at("cells"), file)};
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
    if (a != b) list.push_back(fmt::format("{}: {} there, {} here", key, shown(a), shown(b)));
  }
}

// Each option with its values in these cells, behind the options of the launcher.
json settings_of(const std::vector<GridCell>& cells, const json& launch) {
  json settings = launch;
  const auto add = [&](const std::string& key, const json& value) {
    json& values = settings[key];
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  };
  for (const auto& cell : cells) {
    add("ranks", cell.ranks);
    add("repeat", cell.repeat);
    for (const auto& [key, value] : cell.options)
      add(key, value);
  }
  return settings;
}

// Matches a job's cells with those recorded in the folder.
class KnownCells {
 public:
  explicit KnownCells(const std::vector<GridCell>& cells) {
    for (const auto& cell : cells) {
      places_.emplace(identity_of(cell), &cell);
      names_.insert({cell.name, control_of(cell).name});
    }
  }

  // Returns the recorded cell of the same settings, at best that of the same name, once; null if
  // there is none.
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

  // Whether the run file of the cell, or of its control, would be that of another one.
  bool has_files_of(const GridCell& cell) const {
    return names_.contains(cell.name) || names_.contains(control_of(cell).name);
  }

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
    } else if (known.has_files_of(cell)) {
      return std::nullopt;
    } else {
      cell.number = shared.cells.size() + 1;
      shared.cells.push_back(cell);
    }
  }
  if (in_both == 0) return std::nullopt;
  return shared;
}

// Whether the folder has one of these files. Throws Error kCannotCreate where it cannot be read.
bool holds(const fs::path& folder, const std::set<std::string>& names,
           const std::set<std::string>& endings) {
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  if (error && error != std::errc::no_such_file_or_directory)
    throw Error(ExitCode::kCannotCreate,
                fmt::format("cannot read the folder {}: {}", folder.string(), error.message()),
                "give another folder with --results");
  return std::any_of(begin(entry), end(entry), [&](const fs::directory_entry& file) {
    return names.contains(file.path().filename()) || endings.contains(file.path().extension());
  });
}

// Whether the cells of the folder's grid.json were started, or submitted: then it has their logs or
// the folder for them.
bool was_begun(const fs::path& folder) {
  return holds(folder, {"slurm"}, {".h5", ".journal", ".log", ".running", ".checkpoints"});
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

void FolderGrid::require_same(const fs::path& folder) const {
  if (differences.empty()) return;
  throw Error(
      ExitCode::kUsage,
      fmt::format("{} holds another grid: {}", folder.string(), fmt::join(differences, "; ")),
      "give another folder with --results, or the job file of this one");
}

FolderGrid grid_in_folder(const Job& job, const Grid& grid) {
  const fs::path& folder = job.results;
  if (!holds(folder, {"grid.json"}, {})) {
    if (!holds(folder, {}, {".h5", ".journal"})) return {grid, grid.cells};
    throw Error(ExitCode::kUsage, fmt::format("{} holds run files of no grid", folder.string()),
                "give another folder with --results");
  }
  const RecordedGrid there = read_grid(grid_file(folder));
  const json launch = launch_content(job);
  if (auto shared = shared_grid(there, launch, grid)) return *std::move(shared);
  if (!was_begun(folder)) return {grid, grid.cells};
  FolderGrid other{grid, there.cells, there.cells.size()};
  list_differences(settings_of(there.cells, there.launch), settings_of(grid.cells, launch),
                   other.differences);
  return other;
}

void record_grid(const Job& job, const FolderGrid& there) {
  if (there.recorded < there.cells.size())
    write_file_atomically(grid_file(job.results), written(described(job, there.cells)));
}

}  // namespace gradsync::sweep
