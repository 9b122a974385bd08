// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/epoch_figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "analysis/read/columns.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "data/sampler.h"
#include "options/epoch_plan.h"
#include "options/option_roles.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr std::int64_t kCifarImages = 50'000;

std::int64_t number(const std::string& text) {
  return std::max<std::int64_t>(0, parsed_or<std::int64_t>(parse_integer, text, 0));
}

template <typename Value>
double largest(const EpochRow& row, Value value) {
  double most = kNotMeasured;
  for (const RankEpoch& rank : row.ranks)
    most = std::fmax(most, value(rank));
  return most;
}

double mean_of(const EpochRow& row, double RankEpoch::*member) {
  return mean(each(row.ranks, member));
}

/// Mean steady iteration of an epoch, over its last whole periods (exchange_period); over the run
/// where the epoch has fewer than one and others have the same batch. `slowest_s`: of each
/// iteration.
double steady_iteration_s(const Run& run, const std::vector<double>& slowest_s,
                          std::int64_t epoch) {
  std::vector<double> of_run, of_epoch;
  for (std::size_t row = 0; row < slowest_s.size(); ++row) {
    if (!run.steady.keeps(row)) continue;
    of_run.push_back(slowest_s[row]);
    if (run.reader->index().epoch[row] == epoch) of_epoch.push_back(slowest_s[row]);
  }
  const std::size_t period = exchange_period(*run.reader);
  if (of_epoch.size() < period && batch_schedule(run).empty()) return mean(of_run);
  return mean(std::span(of_epoch).last(of_epoch.size() / period * period));
}

/// By epoch.
std::map<std::int64_t, double> samples_of(const IterationIndex& index) {
  std::map<std::int64_t, double> samples;
  for (std::size_t row = 0; row < index.epoch.size(); ++row)
    samples[index.epoch[row]] += static_cast<double>(index.samples[row]);
  return samples;
}

/// Whether the last epoch may have ended early: by --iterations, in a run that was stopped, or in
/// an experiment, which ends for all when --until is reached, and for what joined when the others
/// end.
bool may_be_cut_off(const Run& run) {
  return number(run.reader->option("iterations")) > 0 ||
         run.reader->status() != RunStatus::kComplete || !run.reader->info().experiment.empty();
}

/// From the run's own epochs: all but the last are whole, and so is that one if nothing cut it off.
std::int64_t iterations_seen(const Run& run) {
  const auto& epochs = run.reader->epochs();
  std::int64_t most = 0;
  for (std::size_t e = 0; e + (may_be_cut_off(run) ? 1 : 0) < epochs.size(); ++e)
    most = std::max(most, epochs[e].iterations);
  return most;
}

EpochFigures figures_of(const Run& run, const EpochRow& row, double samples) {
  EpochFigures figures;
  figures.epoch = row.epoch;
  figures.iterations = row.iterations;
  const std::int64_t whole = figures.whole_iterations = iterations_of_whole_epoch(run, row.epoch);
  figures.whole = !may_be_cut_off(run) || (whole > 0 && row.iterations >= whole);
  figures.samples = positive(samples);
  figures.training_s = largest(row, [](const RankEpoch& rank) { return rank.training_time_s; });
  figures.running_s = largest(row, [](const RankEpoch& rank) { return rank.running_time_s; });
  // A process of several contenders has one: it is of none of them.
  if (run.reader->info().experiment.empty())
    figures.peak_memory_bytes =
        largest(row, [](const RankEpoch& rank) { return rank.peak_memory_bytes; });
  figures.train_loss = mean_of(row, &RankEpoch::train_loss);
  figures.train_accuracy = mean_of(row, &RankEpoch::train_accuracy);
  figures.test_loss = mean_of(row, &RankEpoch::test_loss);
  figures.test_accuracy = mean_of(row, &RankEpoch::test_accuracy);
  return figures;
}

}  // namespace

std::vector<EpochFigures> epoch_figures(const Run& run) {
  const auto extrapolated = [](const EpochFigures& one) {
    return !one.whole && one.whole_iterations > 0;
  };
  auto samples = samples_of(run.reader->index());
  std::vector<EpochFigures> all = each(run.reader->epochs(), [&](const EpochRow& row) {
    return figures_of(run, row, samples[row.epoch]);
  });
  if (std::ranges::none_of(all, extrapolated)) return all;
  const auto slowest_s = slowest_rank(*run.reader, Phase::kIteration);
  for (EpochFigures& one : all)
    if (extrapolated(one))
      one.extrapolated_s =
          static_cast<double>(one.whole_iterations) * steady_iteration_s(run, slowest_s, one.epoch);
  return all;
}

namespace {

/// Steady iteration of the last recorded epoch; without each rank's wait for data for `training`.
double last_steady_iteration_s(const Run& run, bool training) {
  const MatrixBlocks without_data = [](RunReader& reader, std::size_t first, std::size_t count) {
    Matrix times = reader.time(Phase::kIteration, first, count);
    const Matrix data = reader.time(Phase::kData, first, count);
    std::transform(times.values.begin(), times.values.end(), data.values.begin(),
                   times.values.begin(), std::minus<>());
    return times;
  };
  const auto& epochs = run.reader->epochs();
  if (epochs.empty()) return kNotMeasured;
  return steady_iteration_s(
      run, slowest_rank(*run.reader, training ? without_data : phase_blocks(Phase::kIteration)),
      epochs.back().epoch);
}

}  // namespace

double unfinished_first_epoch_s(const Run& run, bool training) {
  const auto epochs = epoch_figures(run);
  const auto whole = static_cast<double>(iterations_of_whole_epoch(run));
  if (epochs.empty() || epochs.front().epoch != 0 || epochs.front().whole || !(whole > 0))
    return kNotMeasured;
  const EpochFigures& first = epochs.front();
  const double ran_s = training ? first.training_s : first.running_s;
  return ran_s +
         (whole - static_cast<double>(first.iterations)) * last_steady_iteration_s(run, training);
}

double unfinished_later_epoch_s(const Run& run, bool training) {
  const auto whole = static_cast<double>(iterations_of_whole_epoch(run));
  for (const EpochFigures& one : epoch_figures(run))
    if (one.epoch > 0 && one.whole) return kNotMeasured;
  return whole > 0 ? whole * last_steady_iteration_s(run, training) : kNotMeasured;
}

std::int64_t training_images(const Run& run) {
  const std::int64_t recorded = number(provenance_of(*run.reader, "train_images"));
  if (recorded > 0) return recorded;
  return provenance_of(*run.reader, "data_name").find("CIFAR-10") != std::string::npos
             ? kCifarImages
             : 0;
}

std::int64_t iterations_of_whole_epoch(const Run& run) {
  if (!batch_schedule(run).empty()) return 0;
  const std::int64_t recorded = number(provenance_of(*run.reader, "epoch_iterations"));
  if (recorded > 0) return recorded;
  const std::int64_t images = training_images(run);
  if (images == 0 || run.batch_per_rank == 0) return iterations_seen(run);
  const std::int64_t accumulate =
      std::max<std::int64_t>(1, number(run.reader->option("accumulate")));
  return iterations_by_rule(images, run.ranks, run.batch_per_rank, accumulate,
                            run.reader->option("last-batch") != "drop");
}

std::int64_t iterations_of_whole_epoch(const Run& run, std::int64_t epoch) {
  if (batch_schedule(run).empty()) return iterations_of_whole_epoch(run);
  const TrainOptions settings = settings_of(run, {"batch-schedule", "accumulate", "last-batch"});
  const std::int64_t images = training_images(run);
  if (settings.batch_schedule.empty() || images == 0) return 0;
  const std::int64_t batch = batch_per_rank_in(settings, epoch, run.ranks);
  if (batch < 1) return 0;
  // A run that recorded the iterations of its first epoch had them by the plan of today.
  return number(provenance_of(*run.reader, "epoch_iterations")) > 0
             ? epoch_plan(settings, images, run.ranks, epoch).iterations()
             : iterations_by_rule(images, run.ranks, batch, settings.accumulate,
                                  settings.last_batch == LastBatch::kPad);
}

std::int64_t iterations_by_rule(std::int64_t images, std::int64_t ranks,
                                std::int64_t batch_per_rank, std::int64_t accumulate, bool pad) {
  const LastBatch last = pad ? LastBatch::kPad : LastBatch::kDrop;
  return steps_of_epoch(images, ranks, batch_per_rank, last) / accumulate;
}

bool is_full_batch(std::int64_t batch_global, std::int64_t images) {
  return images > 0 && batch_global >= images;
}

AccuracyAt accuracy_at(const RunGroup& group, std::int64_t epoch) {
  AccuracyAt at;
  for (const Run* run : group.repeats)
    for (const EpochFigures& one : epoch_figures(*run)) {
      if (one.epoch + 1 != epoch) continue;
      at.epoch = epoch;
      at.whole &= one.whole;
      at.train_loss.push_back(one.train_loss);
      at.train_percent.push_back(1e2 * one.train_accuracy);
      at.test_loss.push_back(one.test_loss);
      at.test_percent.push_back(1e2 * one.test_accuracy);
    }
  return at;
}

std::int64_t last_common_epoch(const RunGroup& group) {
  std::int64_t last = 0;
  for (const Run* run : group.repeats) {
    const auto epochs = epoch_figures(*run);
    if (epochs.empty()) continue;
    const std::int64_t own = epochs.back().epoch + 1;
    last = last == 0 ? own : std::min(last, own);
  }
  return last;
}

namespace {

/// The options that are remedies, in the order of the tables; each is off at its default.
constexpr std::array kRemedies = {"lr-scaling",      "warmup-epochs",  "lr-schedule",
                                  "optimizer",       "clip-norm",      "nesterov",
                                  "label-smoothing", "batch-schedule", "batch-norm"};

bool is_on(const RunGroup& group, const char* remedy) {
  const std::string value = option_value(group.first(), remedy);
  return !value.empty() && value != value_before(*declared_train_option(remedy));
}

std::string rate_text(const RunGroup& group, const RunGroup& reference) {
  const std::string here = option_value(group.first(), "lr"),
                    plain = option_value(reference.first(), "lr");
  if (here == plain || here.empty() || plain.empty()) return {};
  return fmt::format("lr {} ({} at batch {})", here, plain, reference.first().batch_global);
}

bool is_plain(const RunGroup& group) {
  return std::ranges::none_of(kRemedies, [&](const char* remedy) { return is_on(group, remedy); });
}

}  // namespace

std::string remedy_text(const RunGroup& group, const RunGroup& reference) {
  std::string text = rate_text(group, reference);
  for (const char* remedy : kRemedies)
    if (is_on(group, remedy))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", remedy,
                          option_value(group.first(), remedy));
  return text.empty() ? "none" : text;
}

bool is_remedy_option(const std::string& name) {
  return name == "lr" || name == "accumulate" || contains(kRemedies, name);
}

const RunGroup& smallest_batch(const std::vector<RunGroup>& groups, const RunGroup& group) {
  const RunGroup* best = nullptr;
  for (const RunGroup& one : groups) {
    const Run& run = one.first();
    if (run.model != group.first().model || run.batch_global <= 0) continue;
    const auto rank = [](const RunGroup& each) {
      return std::pair(largest_batch(each.first()), !is_plain(each));
    };
    if (best == nullptr || rank(one) < rank(*best)) best = &one;
  }
  return best == nullptr ? group : *best;
}

const RunGroup* plain_group(const std::vector<RunGroup>& groups, const RunGroup& group,
                            const RunGroup& reference) {
  for (const RunGroup& one : groups) {
    const Run &run = one.first(), &wanted = group.first();
    const bool same = is_known_work(run) && run.model == wanted.model && run.mode == wanted.mode &&
                      run.ranks == wanted.ranks && largest_batch(run) == largest_batch(wanted);
    if (same && remedy_text(one, reference) == "none") return &one;
  }
  return nullptr;
}

std::int64_t largest_batch(const Run& run) {
  std::int64_t largest = run.batch_global;
  for (const std::string& phase : split_list(run.reader->option("batch-schedule"), ',')) {
    const std::size_t colon = phase.find(':');
    if (colon == std::string::npos) continue;
    // A run of another version: what it says of its batch stands.
    largest = std::max(largest, parsed_or(parse_integer, phase.substr(colon + 1), largest));
  }
  return largest;
}

}  // namespace gradsync::report
