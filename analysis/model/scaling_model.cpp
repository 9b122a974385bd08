#include "analysis/model/scaling_model.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "stats/statistics.h"

namespace gradsync::report {

namespace {

std::set<CollectiveKind> kinds_of(const FamilyCells& cells) {
  std::set<CollectiveKind> kinds;
  for (const CellFacts* cell : cells)
    for (const BucketMessage& message : cell->profile.messages)
      kinds.insert(message.kind);
  return kinds;
}

double cost_of(const BucketProfile& profile, const CollectiveLaws& laws, double ranks) {
  double sum_s = 0;
  for (const BucketMessage& message : profile.messages)
    sum_s += collective_s(laws, message.kind, message.bytes, ranks);
  return sum_s;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values)
    total += value;
  return total;
}

CollectiveLaws plain_laws(const FamilyFit& fit) {
  CollectiveLaws laws;
  for (const auto& [kind, entry] : fit.laws)
    if (entry.fit.usable()) laws[kind] = entry.fit;
  return laws;
}

double slowdown_of(const FamilyFit& fit) {
  const bool calibrated = std::any_of(fit.laws.begin(), fit.laws.end(),
                                      [](const auto& law) { return law.second.calibrated; });
  return calibrated ? slowdown_over(fit, plain_laws(fit)) : 1;
}

std::set<double> batches_of(const std::vector<const CellPoint*>& cells) {
  std::set<double> batches;
  for (const CellPoint* cell : cells)
    batches.insert(cell->facts->batch);
  return batches;
}

std::vector<const CellPoint*> usable_cells(const FamilyFit& fit) {
  std::vector<const CellPoint*> cells;
  for (const CellPoint& cell : fit.cells)
    if (std::isfinite(cell.medians.compute_s) && cell.facts->batch > 0) cells.push_back(&cell);
  return cells;
}

std::vector<const CellPoint*> cells_for(const FamilyFit& fit, double ranks) {
  const std::vector<const CellPoint*> all = usable_cells(fit);
  std::vector<const CellPoint*> alike;
  for (const CellPoint* cell : all)
    if ((cell->facts->ranks > 1) == (ranks > 1)) alike.push_back(cell);
  const std::size_t batches = batches_of(alike).size();
  return batches > 1 || (batches == 1 && batches_of(all).size() == 1) ? alike : all;
}

ComputeLaw proportional(const std::vector<const CellPoint*>& cells) {
  ComputeLaw law{{}, true, cells.size()};
  std::vector<double> constant, per_image;
  for (const CellPoint* cell : cells) {
    const double optimizer_s =
        std::isfinite(cell->facts->optimizer_s) ? cell->facts->optimizer_s : 0;
    constant.push_back(optimizer_s);
    per_image.push_back((cell->alone_s - optimizer_s) / cell->facts->batch);
  }
  law.fit.first = median(constant);
  law.fit.second = median(per_image);
  law.fit.points = cells.size();
  for (const CellPoint* cell : cells)
    law.fit.residuals.push_back(cell->alone_s / law.at(cell->facts->batch) - 1);
  return law;
}

double median_other(const FamilyFit& fit, double ranks) {
  std::vector<double> values;
  for (const CellPoint* cell : cells_for(fit, ranks))
    values.push_back(cell->medians.other_s());
  return median(values);
}

ComputeLaw fitted_compute(const FamilyFit& fit, double ranks) {
  const std::vector<const CellPoint*> cells = cells_for(fit, ranks);
  if (batches_of(cells).size() < 2) return proportional(cells);
  std::vector<TwoTermPoint> points;
  for (const CellPoint* cell : cells)
    points.push_back({1, cell->facts->batch, cell->alone_s});
  return {fit_two_terms(points), false, cells.size()};
}

std::size_t several(double ranks) {
  return ranks > 1 ? 1 : 0;
}

/// As it was recorded: ready times hold what the exchange took.
BucketReplay recorded_replay(const FamilyFit& fit, const CellFacts& cell) {
  return replay(cell.profile, cell.overlapped(), fit.effective, cell.ranks, 0);
}

double contention_of(const FamilyFit& fit) {
  std::vector<double> rates;
  for (const CellPoint& cell : fit.cells) {
    const CellFacts& facts = *cell.facts;
    if (!facts.overlapped() || !std::isfinite(facts.contention_s)) continue;
    const double bytes = recorded_replay(fit, facts).bytes_beside_compute(facts.profile.messages);
    if (bytes > 0) rates.push_back(std::max(0.0, facts.contention_s) / bytes);
  }
  return rates.empty() ? 0 : median(rates);
}

/// Takes what the exchange took out of a cell's compute and ready times.
void leave_alone(const FamilyFit& fit, CellPoint& cell) {
  cell.alone_s = cell.medians.compute_s;
  cell.profile = cell.facts->profile;
  if (fit.contention_s_per_byte == 0 || !cell.facts->overlapped()) return;
  const std::vector<BucketMessage>& messages = cell.facts->profile.messages;
  const BucketReplay recorded = recorded_replay(fit, *cell.facts);
  const auto alone = [&](double& time_s) {
    time_s = undelayed_s(messages, recorded, fit.contention_s_per_byte, time_s);
  };
  const double before_s = cell.profile.backward_end_s;
  alone(cell.profile.backward_begin_s);
  alone(cell.profile.backward_end_s);
  for (BucketMessage& message : cell.profile.messages)
    alone(message.ready_s);
  if (std::isfinite(before_s)) cell.alone_s -= before_s - cell.profile.backward_end_s;
}

/// What follows from the cells' medians and the laws of `fit`.
void finish(FamilyFit& fit) {
  fit.slowdown = slowdown_of(fit);
  fit.effective = plain_laws(fit);
  for (auto& [kind, law] : fit.effective) {
    law.first *= fit.slowdown;
    law.second *= fit.slowdown;
  }
  fit.contention_s_per_byte = contention_of(fit);
  for (CellPoint& cell : fit.cells)
    leave_alone(fit, cell);
  for (const double ranks : {1.0, 2.0}) {
    fit.compute[several(ranks)] = fitted_compute(fit, ranks);
    fit.other_s[several(ranks)] = median_other(fit, ranks);
  }
}

double distance(double a, double b) {
  return std::abs(std::log(a / b));
}

/// The cell nearest in ranks, then in batch, among those that `counts` holds for.
template <typename Counts>
const CellPoint* nearest_cell(const FamilyFit& fit, double ranks, double batch, Counts counts) {
  const CellPoint* best = nullptr;
  const auto far = [&](const CellPoint& cell) {
    // One rank exchanges nothing: what it recorded is the last resort.
    return std::make_tuple(ranks > 1 && cell.facts->ranks == 1, distance(cell.facts->ranks, ranks),
                           distance(cell.facts->batch, batch));
  };
  for (const CellPoint& cell : fit.cells)
    if (counts(*cell.facts) && cell.facts->batch > 0 && (!best || far(cell) < far(*best)))
      best = &cell;
  return best;
}

double wait_at(const FamilyFit& fit, double ranks, double batch) {
  const CellPoint* near = nearest_cell(
      fit, ranks, batch, [](const CellFacts& facts) { return !facts.imbalance.empty(); });
  return near ? expected_wait(near->facts->imbalance, ranks) : kNotMeasured;
}

/// Adds to a prediction what the exchange exposes, and what it takes from compute.
void add_exchange(const FamilyFit& fit, double ranks, double batch, Prediction& prediction) {
  prediction.exposed_s = 0;
  if (ranks <= 1 || !fit.cells.front().facts->exchanges()) return;
  const Exchanged exchanged = exchange_at(fit, ranks, batch);
  prediction.exposed_s = kNotMeasured;
  if (!exchanged.from) return;
  const BucketReplay replayed = replay(exchanged.profile, exchanged.from->overlapped(),
                                       fit.effective, ranks, fit.contention_s_per_byte);
  prediction.exposed_s = replayed.exposed_s;
  prediction.compute_s += replayed.taken_s;
}

}  // namespace

double slowdown_over(const FamilyFit& fit, const CollectiveLaws& laws) {
  std::vector<double> ratios;
  for (const CellPoint& cell : fit.cells)
    if (cell.facts->ranks > 1 && !cell.facts->profile.messages.empty())
      ratios.push_back(sum(cell.facts->profile.transfer_s) /
                       cost_of(cell.facts->profile, laws, cell.facts->ranks));
  const double ratio = median(ratios);
  return std::isfinite(ratio) && ratio > 0 ? ratio : 1;
}

FamilyFit fit_family(const FamilyCells& cells, const std::vector<CalibrationPoint>& calibration) {
  FamilyFit fit;
  for (const CellFacts* cell : cells)
    fit.cells.push_back({cell, cell->medians});
  for (const CollectiveKind kind : kinds_of(cells)) {
    fit.laws[kind] = choose_law(kind, cells, calibration);
    if (fit.laws[kind].fit.usable()) continue;
    fit.missing = fmt::format(
        "the cost of {} cannot be fitted: no calibration, and the messages in training do not "
        "differ enough in size or ranks; run gradsync-train --calibrate",
        kCollectiveNames[static_cast<std::size_t>(kind)]);
  }
  finish(fit);
  return fit;
}

const ComputeLaw& compute_law(const FamilyFit& fit, double ranks) {
  return fit.compute[several(ranks)];
}

double expected_wait(const std::vector<double>& imbalance, double ranks) {
  if (ranks <= 1) return 0;
  if (imbalance.empty()) return kNotMeasured;
  const double position = std::pow(0.5, 1 / ranks) * static_cast<double>(imbalance.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, imbalance.size() - 1);
  const double part = position - static_cast<double>(below);
  return imbalance[below] + part * (imbalance[above] - imbalance[below]) - 1;
}

Exchanged exchange_at(const FamilyFit& fit, double ranks, double batch) {
  const CellPoint* near = nearest_cell(
      fit, ranks, batch, [](const CellFacts& facts) { return !facts.profile.messages.empty(); });
  if (!near) return {};
  Exchanged exchanged{near->facts, near->profile};
  const double stretch = compute_law(fit, ranks).at(batch) / near->alone_s;
  for (BucketMessage& message : exchanged.profile.messages)
    message.ready_s *= stretch;
  exchanged.profile.backward_begin_s *= stretch;
  exchanged.profile.backward_end_s *= stretch;
  return exchanged;
}

BucketReplay replay(const BucketProfile& profile, bool overlapped, const CollectiveLaws& laws,
                    double ranks, double contention_s_per_byte) {
  const auto cost = [&](const BucketMessage& message) {
    return collective_s(laws, message.kind, message.bytes, ranks);
  };
  return overlapped ? replay_overlapped(profile.messages, cost, profile.backward_end_s,
                                        contention_s_per_byte)
                    : replay_blocking(profile.messages, cost, profile.backward_end_s);
}

Prediction predict(const FamilyFit& fit, double ranks, double batch) {
  Prediction prediction;
  if (fit.cells.empty() || !(ranks >= 1) || !(batch > 0)) return prediction;
  prediction.compute_s = compute_law(fit, ranks).at(batch);
  prediction.wait_s =
      fit.cells.front().facts->exchanges() ? prediction.compute_s * wait_at(fit, ranks, batch) : 0;
  add_exchange(fit, ranks, batch, prediction);
  prediction.other_s = fit.other_s[several(ranks)];
  return prediction;
}

std::vector<FamilyCells> families(const StudyFacts& study) {
  std::vector<FamilyCells> result;
  for (const CellFacts& cell : study.cells) {
    if (cell.scheduled) continue;
    const auto known = std::find_if(result.begin(), result.end(), [&](const FamilyCells& family) {
      return family.front()->family == cell.family;
    });
    if (known == result.end())
      result.push_back({&cell});
    else
      known->push_back(&cell);
  }
  return result;
}

std::vector<CalibrationPoint> calibration_without(const StudyFacts& study,
                                                  const FamilyCells& without) {
  std::vector<CalibrationPoint> kept;
  for (const CalibrationPoint& point : study.calibration)
    if (std::none_of(without.begin(), without.end(), [&](const CellFacts* cell) {
          return point.cell == static_cast<std::size_t>(cell - study.cells.data());
        }))
      kept.push_back(point);
  return kept;
}

}  // namespace gradsync::report
