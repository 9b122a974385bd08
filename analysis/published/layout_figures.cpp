// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/published/layout_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/comparisons.h"
#include "analysis/figures/epoch_figures.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "stats/statistics.h"

namespace gradsync::report::published {

std::optional<std::size_t> LayoutSetting::rank() const {
  const std::size_t at = mode.find(":rank");
  if (at == std::string::npos) return {};
  return static_cast<std::size_t>(parse_integer(mode.substr(at + 5)));
}

bool is_without_exchange(const std::string& mode) {
  constexpr std::array<std::string_view, 6> kNames = {"",       "single",   "none",
                                                      "serial", "baseline", "sequential"};
  return contains(kNames, mode);
}

double epoch_iterations(std::int64_t images, std::int64_t global_batch) {
  if (images <= 0 || global_batch <= 0) return kNotMeasured;
  return std::max(1.0, std::ceil(static_cast<double>(images) / static_cast<double>(global_batch)));
}

namespace {

bool accumulates(const Run& run) {
  return run.batch_global > run.ranks * run.batch_per_rank;
}

bool is_of_epoch(const LayoutQuantity& quantity) {
  return quantity.number > 0 && !quantity.name.starts_with("loss_iter");
}

/// What runs that accumulate give as well.
bool is_learnt(const LayoutQuantity& quantity) {
  return (quantity.kind == Kind::kLoss || quantity.kind == Kind::kAccuracy) &&
         is_of_epoch(quantity);
}

bool unsteady(const RunGroup& group) {
  return std::ranges::any_of(group.repeats, [](const Run* run) {
    return run->steady.verdict == SteadyVerdict::kNotSteady;
  });
}

/// The group that `order` puts first of at least one, and whether others are as good.
template <typename Order>
std::pair<const RunGroup*, bool> best_of(const std::vector<const RunGroup*>& groups,
                                         Order&& order) {
  const RunGroup* best = groups.front();
  for (const RunGroup* one : groups)
    if (order(*one) > order(*best)) best = one;
  const auto as_good = [&](const RunGroup* one) { return order(*one) == order(*best); };
  return {best, std::ranges::count_if(groups, as_good) > 1};
}

/// Groups with `threads` first, or with the most; then those with the most epochs.
auto by_threads(const std::string& threads) {
  return [threads](const RunGroup& group) {
    const std::string own = option_value(group.first(), "threads");
    const auto count = parsed_or(parse_integer, own, std::int64_t{0});
    return std::tuple(threads.empty() ? count : std::int64_t{own == threads},
                      last_common_epoch(group));
  };
}

double of_rank(const ModeFigures& rank, const LayoutQuantity& quantity, double total) {
  if (quantity.kind == Kind::kIterationTime) return rank.mean_s;
  if (quantity.kind == Kind::kCorrect) return rank.test_accuracy * positive(total);
  const bool test = quantity.name.starts_with("test");
  if (quantity.kind == Kind::kAccuracy) return test ? rank.test_accuracy : rank.train_accuracy;
  if (test) return rank.test_loss;
  return quantity.number > 0 ? rank.loss_at.front() : rank.mean_loss;
}

double of_ranks(const Run& run, const LayoutSetting& setting, const LayoutQuantity& quantity,
                double total) {
  const auto ranks =
      mode_figures(*run.reader, run.steady, {std::max<std::int64_t>(1, quantity.number)});
  std::vector<double> values;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    if (!setting.rank() || *setting.rank() == rank)
      values.push_back(of_rank(ranks[rank], quantity, total));
  return values.empty() ? kNotMeasured : mean(values);
}

}  // namespace

std::string needs_text(const LayoutSetting& setting, const LayoutQuantity& quantity) {
  return is_learnt(quantity) && setting.batch != kNotSaid
             ? fmt::format("needs a run of {} images a step", setting.devices * setting.batch)
             : fmt::format("needs {} GPUs, or free cores for as many ranks", setting.devices);
}

bool is_timed(const LayoutQuantity& quantity) {
  return quantity.kind != Kind::kLoss && quantity.kind != Kind::kAccuracy &&
         quantity.kind != Kind::kCorrect;
}

std::string settings_apart(const RunGroup& one, const RunGroup& other) {
  std::vector<std::string> differences;
  const auto add = [&](std::string_view what, const std::string& here, const std::string& there) {
    if (here != there) differences.push_back(fmt::format("{} {} and {}", what, here, there));
  };
  for (const std::string_view name : {"threads", "precision"})
    add(name, option_value(one.first(), name), option_value(other.first(), name));
  add("device", devices_of(one.first()), devices_of(other.first()));
  return fmt::format("{}", fmt::join(differences, ", "));
}

LayoutFigures::LayoutFigures(const RunSet& set, const Layout& layout)
    : layout_(layout), groups_(group_runs(set)), splits_(groups_) {}

MeasuredNumber LayoutFigures::of(const LayoutSetting& setting, const LayoutQuantity& quantity,
                                 double total, const std::string& threads,
                                 const std::string& remedy) {
  const Kind kind = quantity.kind;
  const std::string mode = is_without_exchange(setting.mode) ? "none" : setting.synchronization();
  // One rank without exchange has no communication, one that calls the library may have some.
  const bool calls = setting.devices == 1 && (kind == Kind::kCommTime || kind == Kind::kBandwidth);
  const auto fitting = find([&](const Run& run) {
    return !accumulates(run) && (calls ? run.mode != "none" : run.mode == mode) &&
           run.ranks == setting.devices &&
           (setting.batch == kNotSaid || run.batch_per_rank == setting.batch);
  });
  if (fitting.empty() || !remedy.empty()) return by_accumulation(setting, quantity, remedy);
  // A plain run stands for a published one before a run with a remedy does.
  const auto [group, several] = best_of(fitting, [&](const RunGroup& one) {
    return std::tuple_cat(std::tuple(remedies_of(one).front() == "none"), by_threads(threads)(one));
  });
  MeasuredNumber number = value(*group, setting, quantity, total);
  if (quantity.per_iteration) {
    const double count = iterations(*group);
    number = number.with([count](double epoch_s) { return 1e3 * epoch_s / count; });
  }
  number.several = several;
  number.group = group;
  if (!is_timed(quantity) || !std::isfinite(number.value)) return number;
  if (first_ == nullptr) first_ = group;
  number.unlike = settings_apart(*first_, *group);
  return number;
}

std::vector<std::string> LayoutFigures::remedies_of(const RunGroup& group) const {
  return split_list(remedy_text(group, smallest_batch(groups_, group)), ',');
}

MeasuredNumber LayoutFigures::by_accumulation(const LayoutSetting& setting,
                                              const LayoutQuantity& quantity,
                                              const std::string& remedy) {
  if (!is_learnt(quantity) || setting.batch == kNotSaid) return {};
  auto fitting = find([&](const Run& run) {
    const bool has_the_ranks = !remedy.empty() && run.ranks == setting.devices;
    return (accumulates(run) || has_the_ranks) &&
           run.batch_global == setting.devices * setting.batch;
  });
  std::erase_if(fitting, [&](const RunGroup* group) {
    return std::ranges::none_of(remedies_of(*group), [&](const std::string& one) {
      return one == "none" ? remedy.empty() : !remedy.empty() && one.starts_with(remedy + ' ');
    });
  });
  if (fitting.empty()) return {};
  const auto [group, several] = best_of(fitting, [&](const RunGroup& one) {
    return std::tuple(-std::ssize(remedies_of(one)), one.first().batch_per_rank,
                      last_common_epoch(one));
  });
  MeasuredNumber number = at_epoch(*group, quantity);
  number.several = several;
  const Run& run = group->first();
  if (!accumulates(run)) return number;
  number.stands_in =
      fmt::format("{} x {} images in {} passes", count_text(run.ranks, "rank"), run.batch_per_rank,
                  run.batch_global / (run.ranks * run.batch_per_rank));
  return number;
}

std::string LayoutFigures::threads_of_several(const std::vector<LayoutSetting>& settings) const {
  for (const LayoutSetting& setting : settings)
    for (const RunGroup& group : groups_)
      if (setting.devices > 1 && group.first().ranks == setting.devices)
        return option_value(group.first(), "threads");
  return {};
}

std::int64_t LayoutFigures::most_ranks() const {
  std::int64_t most = 0;
  for (const RunGroup& group : groups_)
    most = std::max(most, group.first().ranks);
  return most;
}

std::vector<const RunGroup*> LayoutFigures::unused() const {
  std::vector<const RunGroup*> groups;
  for (const RunGroup& group : groups_)
    if (used_.count(&group) == 0) groups.push_back(&group);
  return groups;
}

std::vector<const RunGroup*> LayoutFigures::find(const Fits& fits) {
  std::vector<const RunGroup*> found;
  for (const RunGroup& group : groups_)
    if (fits(group.first())) found.push_back(&group);
  used_.insert(found.begin(), found.end());
  return found;
}

/// Iterations of what the layout calls an epoch.
double LayoutFigures::iterations(const RunGroup& group) const {
  if (layout_.images == "each")
    return epoch_iterations(training_images(group.first()), group.first().batch_per_rank);
  return positive(static_cast<double>(iterations_of_whole_epoch(group.first())));
}

double LayoutFigures::scale(const RunGroup& group) const {
  return iterations(group) /
         positive(static_cast<double>(iterations_of_whole_epoch(group.first())));
}

MeasuredNumber LayoutFigures::value(const RunGroup& group, const LayoutSetting& setting,
                                    const LayoutQuantity& quantity, double total) {
  const Kind kind = quantity.kind;
  if (is_epoch_time(kind))
    return epoch(group, quantity.number,
                 kind == Kind::kEpochTime ? epochs_train() : kind == Kind::kTrainingTime);
  if (kind == Kind::kSpeedup) return speedup_of(group);
  if (kind == Kind::kComputeTime) return compute(group);
  if (kind == Kind::kCommTime) return communication(group);
  if (kind == Kind::kBandwidth) return bandwidth_of(group);
  if (kind == Kind::kComputeShare)
    return {splits_.measured(group).percent(Phase::kCompute) / 1e2, false, unsteady(group)};
  if (kind == Kind::kCommShare) return {share_of_communication(group), false, unsteady(group)};
  if (is_of_epoch(quantity)) return at_epoch(group, quantity);
  std::vector<double> repeats;
  for (const Run* run : group.repeats)
    if (const double one = of_ranks(*run, setting, quantity, total); std::isfinite(one))
      repeats.push_back(one);
  return {mean(repeats), false, kind == Kind::kIterationTime && unsteady(group), false, repeats};
}

/// The epoch of this number, from 1; 0: any after the first.
MeasuredNumber LayoutFigures::epoch(const RunGroup& group, std::int64_t number,
                                    bool training) const {
  std::vector<double> repeats;
  const auto add = [&](double seconds) {
    if (std::isfinite(seconds)) repeats.push_back(seconds * scale(group));
  };
  for (const Run* run : group.repeats) {
    std::vector<double> seconds;
    for (const EpochFigures& one : epoch_figures(*run))
      if (one.whole && (number > 0 ? one.epoch + 1 == number : one.epoch > 0))
        seconds.push_back(training ? one.training_s : one.running_s);
    add(median(seconds));
  }
  const bool whole = !repeats.empty();
  if (!whole)
    for (const Run* run : group.repeats)
      add(number == 1 ? unfinished_first_epoch_s(*run, training)
                      : unfinished_later_epoch_s(*run, training));
  return {mean(repeats), !whole, !whole && unsteady(group), false, repeats};
}

/// T(1), of one rank with the same network, arithmetic, device and batch per rank, without exchange
/// where there is one.
MeasuredNumber LayoutFigures::base_time(const RunGroup& group, bool training) {
  auto bases = find([&](const Run& run) {
    const Run& own = group.first();
    return run.ranks == 1 && !accumulates(run) && run.batch_per_rank == own.batch_per_rank &&
           run.model == own.model && devices_of(run) == devices_of(own) &&
           option_value(run, "precision") == option_value(own, "precision");
  });
  if (bases.empty()) return {};
  const auto exchanges = [](const RunGroup* base) { return base->first().mode != "none"; };
  if (!std::ranges::all_of(bases, exchanges)) std::erase_if(bases, exchanges);
  const auto base = best_of(bases, by_threads(option_value(group.first(), "threads"))).first;
  return epoch(*base, 0, training);
}

MeasuredNumber LayoutFigures::speedup_of(const RunGroup& group) {
  const bool training = layout_.speedup_clock == "training", weak = layout_.speedup != "speedup";
  const double factor = weak ? static_cast<double>(group.first().ranks) : 1;
  return base_time(group, training)
      .with(epoch(group, 0, training),
            [factor](double base, double own) { return factor * speedup(base, own); });
}

/// The epoch of a phase's mean.
MeasuredNumber LayoutFigures::phase(const RunGroup& group, Phase phase) {
  MeasuredNumber number{splits_.measured(group)[phase] * iterations(group),
                        epoch(group, 0, epochs_train()).extrapolated, unsteady(group)};
  if (group.repeats.size() > 1)
    for (const Run* run : group.repeats)
      number.repeats.push_back(mean_of(split_figures(*run->reader, run->steady))[phase] *
                               iterations(group));
  return number;
}

MeasuredNumber LayoutFigures::compute(const RunGroup& group) {
  if (layout_.compute == "whole-epoch") return epoch(group, 0, epochs_train());
  if (layout_.compute == "measured") return phase(group, Phase::kCompute);
  const double ranks = static_cast<double>(group.first().ranks);
  return base_time(group, epochs_train()).with([ranks](double base) {
    return derived_compute(base, ranks);
  });
}

MeasuredNumber LayoutFigures::communication(const RunGroup& group) {
  if (layout_.communication == "measured") return phase(group, Phase::kCommBusy);
  const double ranks = static_cast<double>(group.first().ranks);
  return base_time(group, epochs_train())
      .with(epoch(group, 0, epochs_train()),
            [ranks](double base, double own) { return derived_communication(base, own, ranks); });
}

MeasuredNumber LayoutFigures::bandwidth_of(const RunGroup& group) {
  double bytes = kNotMeasured;
  for (const CollectiveFigures& one : collective_figures(group))
    if (!(bytes > 0) && one.kind != CollectiveKind::kBroadcast) bytes = one.payload_bytes();
  const double ranks = static_cast<double>(group.first().ranks),
               count =
                   iterations(group) / static_cast<double>(exchange_period(*group.first().reader));
  return communication(group).with([&](double comm_s) {
    // One device has no other that it could exchange with, but a message and the time of the call.
    return layout_.bandwidth == convention_name(BandwidthConvention::kMessage)
               ? bytes / positive(comm_s)
               : bandwidth(*parse_convention(layout_.bandwidth), {bytes, ranks, count, comm_s});
  });
}

double LayoutFigures::share_of_communication(const RunGroup& group) {
  const SplitFigures split = splits_.measured(group);
  return (split[Phase::kExposed] + split[Phase::kHidden]) / split[Phase::kIteration];
}

MeasuredNumber LayoutFigures::at_epoch(const RunGroup& group,
                                       const LayoutQuantity& quantity) const {
  const AccuracyAt at = accuracy_at(group, quantity.number);
  if (!at.whole) return {};
  const bool test = layout_.accuracy == "test", loss = quantity.kind == Kind::kLoss;
  MeasuredNumber number;
  number.repeats =
      loss ? (test ? at.test_loss : at.train_loss) : (test ? at.test_percent : at.train_percent);
  for (double& one : number.repeats)
    one /= loss ? 1 : 1e2;
  number.value = mean(number.repeats);
  return number;
}

}  // namespace gradsync::report::published
