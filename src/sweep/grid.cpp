#include "sweep/grid.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/cli/options.h"
#include "base/error.h"
#include "options/options.h"

namespace gradsync::sweep {

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
      throw Error(ExitCode::kUsage,
                  fmt::format("{}: the grid has more than {} cells", axis.where, kMaxCells),
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
  return std::find(condition.values.begin(), condition.values.end(), value) !=
         condition.values.end();
}

bool meets(const Choice& choice, const Exclusion& exclusion) {
  return std::all_of(exclusion.conditions.begin(), exclusion.conditions.end(),
                     [&](const auto& condition) { return meets(choice, condition); });
}

std::string as_file_name(std::string text) {
  for (char& c : text) {
    const bool fits =
        std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '+' || c == '-';
    if (!fits) c = '_';
  }
  return text;
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

// std::shuffle differs between standard libraries; a recorded seed must not.
void shuffle(std::vector<GridCell>& cells, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::size_t left = cells.size(); left > 1; --left)
    std::swap(cells[left - 1], cells[random() % left]);
}

// Values that differ only in characters a file name cannot hold.
void make_names_unique(std::vector<GridCell>& cells) {
  std::set<std::string> taken;
  for (auto& cell : cells) {
    const std::string name = cell.name;
    for (int number = 2; !taken.insert(cell.name).second; ++number)
      cell.name = fmt::format("{}_{}", name, number);
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
  // Its values may be among those that --set has taken out of the grid.
  bool of_replaced_axis(const Exclusion& exclusion) const {
    return std::any_of(exclusion.conditions.begin(), exclusion.conditions.end(),
                       [&](const Exclusion::Condition& condition) {
                         const Axis* axis = find_axis(job_, condition.key);
                         return axis != nullptr && axis->replaced();
                       });
  }

  const Job& job_;
  std::vector<bool> used_;
};

// The line of the job that gives the cell an option.
std::string place_of(const std::string& key, const GridCell& cell, const Job& job) {
  const Variant* variant = find_variant(job.variants, cell.variant);
  const KeyValue* option = variant == nullptr ? nullptr : variant->option(key);
  return option != nullptr ? option->where : find_axis(job, key)->where;
}

}  // namespace

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
  if (job.order == CellOrder::kRandom) shuffle(grid.cells, job.order_seed);
  for (std::size_t i = 0; i < grid.cells.size(); ++i)
    grid.cells[i].number = i + 1;
  grid.remarks = exclusions.remarks();
  return grid;
}

TrainOptions train_options_of(const GridCell& cell, const Job* job) {
  OptionValues values;
  for (const auto& spec : train_option_table())
    values[spec.name] = {spec.default_value, "default", "default"};
  for (const auto& [key, value] : cell.options)
    values[key] = {value, "job file", job == nullptr ? key : place_of(key, cell, *job)};
  // Every cell gets a run file; checkpoints lie beside it.
  values["output"] = {"run.h5", "job file", "output"};
  TrainOptions options = train_options(values);
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

std::vector<GridCell> chosen_cells(const Grid& grid, const std::string& cell) {
  return cell.empty() ? grid.cells : std::vector{cell_named(grid, cell)};
}

std::string identity_of(const GridCell& cell) {
  std::map<std::string, std::string> settings;
  for (const auto& spec : train_option_table())
    settings[spec.name] = spec.default_value;
  for (const auto& [key, value] : cell.options)
    settings[key] = value;
  for (const std::string& key : kOfTheRun)
    settings.erase(key);
  // A path need not be UTF-8, and files of grids are.
  return nlohmann::json{cell.ranks, cell.repeat, settings}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace gradsync::sweep
