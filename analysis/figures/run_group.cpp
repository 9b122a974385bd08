// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/run_group.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/experiments.h"
#include "analysis/read/columns.h"
#include "base/error.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/modes.h"
#include "options/option_roles.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// Options that Run holds, as they were settled.
constexpr std::array<std::string_view, 4> kHeldByRun = {"model", "sync", "batch-per-rank",
                                                        "batch-global"};

/// What provenance says of one run only: its environment, the timings that chose its settings, what
/// was remarked on it.
constexpr std::array<std::string_view, 3> kOfOneRun = {"env.", "probed", kRemarkPrefix};

/// A value a rank, equal neighbors counted: "2 (4 ranks), 1 (1 rank)".
std::string run_lengths(const std::vector<std::string>& values) {
  std::string text;
  for (std::size_t from = 0, to = 0; from < values.size(); from = to) {
    while (to < values.size() && values[to] == values[from])
      ++to;
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", values[from],
                        count_text(to - from, "rank"));
  }
  return text;
}

template <typename Value>
std::string of_ranks(const Run& run, Value&& value) {
  return run_lengths(each(run.reader->info().topology, value));
}

/// Which ranks share a host, without the names: "host 1 (2 ranks), host 2 (2 ranks)".
std::string placement(const Run& run) {
  std::map<std::string, std::size_t> hosts;
  return of_ranks(run, [&](const RankPlace& place) {
    return fmt::format("host {}", hosts.emplace(place.host, hosts.size() + 1).first->second);
  });
}

std::string device_of_ranks(const Run& run) {
  return of_ranks(run, [](const RankPlace& place) { return place.device; });
}

bool of_one_run(const std::string& name) {
  return std::ranges::any_of(kOfOneRun,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string one_line(std::string text) {
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

/// Options that must match. Options that this version does not know are not compared.
std::map<std::string, std::string> matching_options(const Run& run) {
  std::map<std::string, std::string> all;
  for (const TrainOption& option : declared_train_options())
    if (option.role == OptionRole::kMachine || option.role == OptionRole::kCourse)
      all[option.name] = option_value(run, option.name);
  if (run.reader->option("sync").empty()) return all;  // not of the trainer
  for (const ConfigEntry& entry : run.reader->info().config)
    if (declared_train_option(entry.name) == nullptr) all[entry.name] = entry.value;
  return all;
}

/// All that must be equal, by name. What each rank had says more than the option of that name.
std::map<std::string, std::string> circumstances(const Run& run) {
  std::map<std::string, std::string> all = matching_options(run);
  all["ranks per host"] = placement(run);
  all["device"] = device_of_ranks(run);
  all["threads"] =
      of_ranks(run, [](const RankPlace& place) { return fmt::to_string(place.threads); });
  for (const NamedText& entry : run.reader->info().provenance)
    if (!of_one_run(entry.name)) all[entry.name] = one_line(entry.value);
  return all;
}

}  // namespace

std::vector<std::string> options_of(std::initializer_list<OptionRole> roles) {
  std::vector<std::string> names;
  for (const TrainOption& option : declared_train_options())
    if (contains(roles, option.role) && !contains(kHeldByRun, option.name))
      names.push_back(option.name);
  return names;
}

const std::vector<std::string>& cell_options() {
  using enum OptionRole;
  static const std::vector<std::string> names =
      options_of({kMode, kBetweenRanks, kStep, kTraining});
  return names;
}

std::string_view core_shortage(const RunGroup& group) {
  for (const Run* run : group.repeats)
    if (const std::string_view word = core_shortage(*run); !word.empty()) return word;
  return {};
}

std::string option_value(const Run& run, std::string_view name) {
  const std::string recorded = run.reader->option(name);
  if (recorded == "auto")
    if (std::string taken = provenance_of(*run.reader, name); !taken.empty()) return taken;
  if (!recorded.empty()) return recorded;
  const TrainOption* option = declared_train_option(name);
  return option == nullptr ? "" : value_before(*option);
}

TrainOptions settings_of(const Run& run, std::initializer_list<std::string_view> names) {
  TrainOptions settings;
  for (const std::string_view name : names) {
    const TrainOption& option = *declared_train_option(name);
    try {
      option.value.read({{option.name, {option_value(run, name), "", run.name}}}, option.name,
                        settings);
    } catch (const Error&) {
      continue;
    }
  }
  return settings;
}

namespace {

std::set<std::string> device_names(const Run& run) {
  std::set<std::string> names;
  for (const RankPlace& place : run.reader->info().topology)
    if (!place.device.empty()) names.insert(place.device);
  return names;
}

}  // namespace

std::string devices_of(const Run& run) {
  return fmt::format("{}", fmt::join(device_names(run), " and "));
}

std::string batch_schedule(const Run& run) {
  return run.reader->option("batch-schedule");
}

std::vector<std::string> option_values(const Run& run, const std::vector<std::string>& names) {
  return each(names, [&](const std::string& name) { return option_value(run, name); });
}

std::vector<std::string> conditions_of(const Run& run, const std::vector<std::string>& options) {
  std::vector<std::string> all = option_values(run, options);
  // Traces of some ranks may be missing: a device that is the only one known stands for theirs.
  const bool of_one_kind = device_names(run).size() <= 1;
  all.insert(all.end(), {placement(run), of_one_kind ? devices_of(run) : device_of_ranks(run)});
  return all;
}

std::vector<const RunGroup*> pointers_to(const std::vector<RunGroup>& groups) {
  return each(groups, [](const RunGroup& group) { return &group; });
}

std::vector<std::string> differing_options(const std::vector<const RunGroup*>& groups) {
  std::vector<std::string> names;
  for (const std::string& name : cell_options()) {
    const bool between_ranks = declared_train_option(name)->role == OptionRole::kBetweenRanks;
    std::array<std::set<std::string>, 2> values;
    for (const RunGroup* group : groups)
      values[between_ranks && group->first().ranks == 1].insert(option_value(group->first(), name));
    if (values[0].size() > 1 || values[1].size() > 1) names.push_back(name);
  }
  return names;
}

std::string settings_text(const Run& run, const std::vector<std::string>& options) {
  std::string text;
  for (const std::string& name : options)
    if (const std::string value = option_value(run, name); !value.empty())
      text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  return text;
}

std::vector<std::string> told_apart(std::vector<std::string> labels,
                                    const std::vector<const RunGroup*>& groups,
                                    const std::string& separator, const std::string& number) {
  std::map<std::string, std::vector<std::size_t>> bearers;
  for (std::size_t i = 0; i < labels.size(); ++i)
    bearers[labels[i]].push_back(i);
  for (const auto& [label, same] : bearers) {
    std::vector<const RunGroup*> alike = each(same, [&](const std::size_t i) { return groups[i]; });
    const auto options = differing_options(alike);
    for (const std::size_t i : same)
      if (const std::string settings = settings_text(groups[i]->first(), options);
          !settings.empty())
        labels[i] += separator + settings;
  }
  std::map<std::string, int> seen;
  for (std::string& label : labels)
    if (const int count = ++seen[label]; count > 1)
      label += fmt::format(fmt::runtime(number), count);
  return labels;
}

bool is_known_work(const Run& run) {
  return run.batch_global > 0 && run.model != or_unknown("");
}

namespace {

/// Options that change the layers of a network.
constexpr std::array<std::string_view, 3> kOfLayers = {"sequence-length", "input", "classes"};

}  // namespace

std::string network_text(const Run& run, const std::vector<const Run*>& among) {
  std::vector<std::string> differing;
  for (const std::string_view name : kOfLayers)
    if (std::ranges::any_of(among, [&](const Run* other) {
          return other->model == run.model && option_value(*other, name) != option_value(run, name);
        }))
      differing.emplace_back(name);
  const std::string settings = settings_text(run, differing);
  return settings.empty() ? run.model : fmt::format("{}, {}", run.model, settings);
}

std::string images_text(const Run& run) {
  if (const std::string schedule = batch_schedule(run); !schedule.empty())
    return "batch schedule " + schedule;
  return run.batch_per_rank > 0 ? count_text(run.batch_per_rank, "image") + " per rank"
                                : "an unknown batch";
}

std::string batch_text(const Run& run) {
  if (!batch_schedule(run).empty()) return images_text(run);
  return run.batch_per_rank > 0 ? fmt::format("batch {} per rank", run.batch_per_rank)
                                : "unknown batch";
}

std::vector<std::string> cell_key(const Run& run) {
  std::vector<std::string> key = {run.model, run.mode, std::to_string(run.ranks),
                                  std::to_string(run.batch_per_rank),
                                  std::to_string(run.batch_global)};
  for (std::string& value : option_values(run, cell_options()))
    key.push_back(std::move(value));
  if (!is_known_work(run)) key.push_back(run.path.string());
  return key;
}

std::vector<RunGroup> group_runs(const RunSet& set) {
  std::vector<RunGroup> groups;
  std::vector<std::vector<std::string>> keys;
  for (const Run& run : set.runs) {
    const bool again = is_control(run) && std::ranges::any_of(set.runs, [&](const Run& other) {
                         return experiment_id(other) == experiment_id(run) &&
                                cell_key(other) == cell_key(run) && !is_control(other);
                       });
    if (again) continue;
    const auto key = cell_key(run);
    const auto known = std::ranges::find(keys, key);
    if (known == keys.end()) {
      keys.push_back(key);
      groups.push_back({{&run}});
    } else {
      groups[static_cast<std::size_t>(known - keys.begin())].repeats.push_back(&run);
    }
  }
  return groups;
}

// A value that only one of the two has counts as empty in the other.
std::vector<RunDifference> differences(const Run& one, const Run& other) {
  auto a = circumstances(one), b = circumstances(other);
  for (const auto& entry : b)
    a.emplace(entry.first, "");
  std::vector<RunDifference> found;
  for (const auto& [name, value] : a)
    if (b[name] != value) found.push_back({name, &one, &other, value, b[name]});
  return found;
}

std::vector<RunDifference> differences(const RunSet& set) {
  std::vector<RunDifference> found;
  for (const RunGroup& group : group_runs(set))
    for (const Run* run : group.repeats) {
      const auto more = differences(group.first(), *run);
      found.insert(found.end(), more.begin(), more.end());
    }
  return found;
}

void require_mergeable(const RunSet& set) {
  const auto found = differences(set);
  if (found.empty()) return;
  const RunDifference& first = found.front();
  throw Error(
      ExitCode::kBadData,
      fmt::format("two repeats of one cell differ in {}: '{}' in {}, '{}' in {}{}", first.what,
                  first.value_of_one, first.one->path.string(), first.value_of_other,
                  first.other->path.string(),
                  found.size() == 1 ? "" : fmt::format(" ({} differences in all)", found.size())),
      "report them apart, set one against the other with `gradsync-report compare A B`, or "
      "merge them with --force-merge, which every table then names");
}

std::string merged_across(const RunSet& set) {
  std::set<std::string> names;
  for (const RunDifference& difference : differences(set))
    names.insert(difference.what);
  return names.empty() ? "" : fmt::format("MERGED ACROSS {}", fmt::join(names, ", "));
}

bool is_recorded(const Run& run) {
  return option_value(run, "stamps") != "off";
}

std::string sources_of(const RunGroup& group) {
  std::string text;
  for (const Run* run : group.repeats)
    text += (text.empty() ? "" : ", ") + run->path.string();
  return text;
}

namespace {

/// Values of the steady iterations of all repeats; `values_of` gives one for each iteration of a
/// run. Of a run that does not exchange in each iteration the means over so many that one does, for
/// a median would leave the exchange out.
template <typename ValuesOf>
std::vector<double> of_steady_iterations(const RunGroup& group, ValuesOf values_of) {
  std::vector<double> all;
  for (const Run* run : group.repeats) {
    const auto values = values_of(*run->reader);
    std::vector<double> kept;
    for (std::size_t row = 0; row < values.size(); ++row)
      if (run->steady.keeps(row)) kept.push_back(static_cast<double>(values[row]));
    const auto means = period_means(kept, exchange_period(*run->reader));
    all.insert(all.end(), means.begin(), means.end());
  }
  return all;
}

std::vector<double> steady_samples(const RunGroup& group) {
  return of_steady_iterations(group, [](RunReader& run) { return run.index().samples; });
}

}  // namespace

std::vector<double> steady_values(const RunGroup& group, Phase phase) {
  return of_steady_iterations(group, [&](RunReader& run) { return slowest_rank(run, phase); });
}

std::vector<double> steady_rank_means(const RunGroup& group, Phase phase) {
  return of_steady_iterations(group, [&](RunReader& run) { return mean_over_ranks(run, phase); });
}

double steady_images(const RunGroup& group) {
  return positive(mean(steady_samples(group)));
}

Estimate images_per_s(const RunGroup& group) {
  const Estimate time_s = median_estimate(steady_values(group, Phase::kIteration));
  if (!batch_schedule(group.first()).empty())
    return {steady_images(group) / mean(steady_values(group, Phase::kIteration)), kNotMeasured,
            kNotMeasured, time_s.count};
  // Rates fall as times rise: the ends of the interval change places.
  const double images = positive(median(steady_samples(group)));
  return {images / time_s.value, images / time_s.high, images / time_s.low, time_s.count};
}

namespace {

std::string base_name(const Run& run) {
  const std::string schedule = batch_schedule(run);
  const std::string batch = run.batch_per_rank > 0 ? std::to_string(run.batch_per_rank) : "unknown";
  return fmt::format("{}.{}.n{}.{}", run.model, run.mode, run.ranks,
                     schedule.empty() ? "b" + batch : "batch-schedule=" + schedule);
}

}  // namespace

std::string fom_line(const Fom& fom) {
  const std::string value = std::isfinite(fom.value) ? fmt::format("{:.9g}", fom.value) : "n/a";
  return fmt::format("FOM {} {} {}", fom.name, value, fom.unit);
}

std::vector<std::string> cell_names(const std::vector<const RunGroup*>& groups) {
  std::vector<std::string> names =
      each(groups, [](const RunGroup* group) { return base_name(group->first()); });
  names = told_apart(std::move(names), groups, ".", "-{}");
  for (std::string& name : names)
    name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
  return names;
}

std::vector<Fom> figures_of_merit(const std::vector<RunGroup>& groups) {
  const auto names = cell_names(pointers_to(groups));
  std::vector<Fom> figures;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double iteration_s = median(steady_values(groups[i], Phase::kIteration));
    const double exposed_s = median(steady_values(groups[i], Phase::kExposed));
    figures.push_back({"iteration_median." + names[i], 1e3 * iteration_s, "ms"});
    figures.push_back({"images_per_s." + names[i], images_per_s(groups[i]).value, "images/s"});
    figures.push_back({"exposed_median_slowest_rank." + names[i], 1e3 * exposed_s, "ms"});
  }
  return figures;
}

void CountRange::add(std::size_t count) {
  least = std::min(least, count);
  most = std::max(most, count);
}

std::string CountRange::text() const {
  return least >= most ? fmt::format("{}", most) : fmt::format("{} to {}", least, most);
}

}  // namespace gradsync::report
