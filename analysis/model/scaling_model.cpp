// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/model/scaling_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/bandwidth.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "record/row_figures.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

LawFactors law_factors(CollectiveKind kind, double ranks) {
  if (!(ranks > 1)) return {};
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * (ranks - 1), 2 * (ranks - 1) / ranks};
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return {ranks - 1, ranks - 1};
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
      return {std::log2(ranks), std::log2(ranks)};
    case CollectiveKind::kSendReceive:
      return {1, 1};
    case CollectiveKind::kBarrier:
      return {std::log2(ranks), 0};
  }
  return {};
}

double collective_s(const CollectiveLaws& laws, CollectiveKind kind, double bytes, double ranks) {
  const LawFactors factors = law_factors(kind, ranks);
  if (factors.steps == 0) return 0;
  const auto law = laws.find(kind);
  if (law == laws.end()) return kNotMeasured;
  return law->second.at(factors.steps, factors.share * bytes);
}

namespace {

/// Below this share of its largest possible value a determinant says that the points are one
/// direction and rounding.
constexpr double kIndependent = 1e-9;

/// Sums over the points, each divided by its y.
struct Sums {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;
};

Sums sums_of(std::span<const TwoTermPoint> points) {
  Sums sums;
  for (const TwoTermPoint& point : points) {
    const double u = point.u / point.y, v = point.v / point.y;
    sums.uu += u * u;
    sums.uv += u * v;
    sums.vv += v * v;
    sums.u += u;
    sums.v += v;
  }
  return sums;
}

void solve(const Sums& sums, TwoTermFit& fit) {
  const double determinant = sums.uu * sums.vv - sums.uv * sums.uv;
  if (!(determinant > kIndependent * sums.uu * sums.vv)) return;
  fit.first = (sums.u * sums.vv - sums.v * sums.uv) / determinant;
  fit.second = (sums.v * sums.uu - sums.u * sums.uv) / determinant;
  fit.constrained = fit.first < 0 || fit.second < 0;
  if (fit.first < 0) {
    fit.first = 0;
    fit.second = sums.v / sums.vv;
  } else if (fit.second < 0) {
    fit.second = 0;
    fit.first = sums.u / sums.uu;
  }
}

}  // namespace

bool usable(const TwoTermPoint& point) {
  return std::isfinite(point.u) && std::isfinite(point.v) && std::isfinite(point.y) && point.y > 0;
}

bool TwoTermFit::usable() const {
  return std::isfinite(first) && std::isfinite(second);
}

double TwoTermFit::relative_rms() const {
  double squares = 0;
  for (const double residual : residuals) {
    const double error = 1 / (1 + residual) - 1;
    squares += error * error;
  }
  return residuals.empty() ? Statistics::kNone
                           : std::sqrt(squares / static_cast<double>(residuals.size()));
}

TwoTermFit fit_two_terms(std::span<const TwoTermPoint> points) {
  std::vector<TwoTermPoint> used;
  for (const TwoTermPoint& point : points)
    if (report::usable(point)) used.push_back(point);
  TwoTermFit fit;
  fit.points = used.size();
  solve(sums_of(used), fit);
  if (!fit.usable()) return fit;
  for (const TwoTermPoint& point : used)
    fit.residuals.push_back(point.y / fit.at(point.u, point.v) - 1);
  return fit;
}

namespace {

std::set<CollectiveKind> kinds_of(const Cells& cells) {
  std::set<CollectiveKind> kinds;
  for (const StudyCell* cell : cells)
    for (const BucketMessage& message : cell->profile.messages)
      kinds.insert(message.kind);
  return kinds;
}

CollectiveLaws plain_laws(const FamilyFit& fit) {
  CollectiveLaws laws;
  for (const auto& [kind, entry] : fit.laws)
    if (entry.fit.usable()) laws[kind] = entry.fit;
  return laws;
}

double slowdown_of(const FamilyFit& fit) {
  CollectiveLaws calibrated;
  for (const auto& [kind, entry] : fit.laws)
    if (entry.calibrated && entry.fit.usable()) calibrated[kind] = entry.fit;
  return slowdown_over(fit, calibrated);
}

std::set<double> batches_of(const std::vector<const CellPoint*>& cells) {
  std::set<double> batches;
  for (const CellPoint* point : cells)
    batches.insert(point->cell->batch);
  return batches;
}

std::vector<const CellPoint*> usable_cells(const FamilyFit& fit) {
  std::vector<const CellPoint*> cells;
  for (const CellPoint& cell : fit.cells)
    if (std::isfinite(cell.medians.compute_s) && cell.cell->batch > 0) cells.push_back(&cell);
  return cells;
}

std::vector<const CellPoint*> cells_for(const FamilyFit& fit, double ranks) {
  const std::vector<const CellPoint*> all = usable_cells(fit);
  std::vector<const CellPoint*> alike;
  for (const CellPoint* point : all)
    if ((point->cell->ranks > 1) == (ranks > 1)) alike.push_back(point);
  const std::size_t batches = batches_of(alike).size();
  return batches > 1 || (batches == 1 && batches_of(all).size() == 1) ? alike : all;
}

ComputeLaw proportional(const std::vector<const CellPoint*>& cells) {
  ComputeLaw law{{}, true, cells.size()};
  std::vector<double> constant, per_image;
  for (const CellPoint* point : cells) {
    const double optimizer_s =
        std::isfinite(point->cell->optimizer_s) ? point->cell->optimizer_s : 0;
    constant.push_back(optimizer_s);
    per_image.push_back((point->alone_s - optimizer_s) / point->cell->batch);
  }
  law.fit.first = median(constant);
  law.fit.second = median(per_image);
  law.fit.points = cells.size();
  for (const CellPoint* point : cells)
    law.fit.residuals.push_back(point->alone_s / law.at(point->cell->batch) - 1);
  return law;
}

double median_other(const FamilyFit& fit, double ranks) {
  std::vector<double> values =
      each(cells_for(fit, ranks), [](const CellPoint* point) { return point->medians.other_s(); });
  return median(values);
}

ComputeLaw fitted_compute(const FamilyFit& fit, double ranks) {
  const std::vector<const CellPoint*> cells = cells_for(fit, ranks);
  if (batches_of(cells).size() < 2) return proportional(cells);
  std::vector<TwoTermPoint> points;
  for (const CellPoint* point : cells)
    points.push_back({1, point->cell->batch, point->alone_s});
  return {fit_two_terms(points), false, cells.size()};
}

std::size_t several(double ranks) {
  return ranks > 1 ? 1 : 0;
}

/// Replay as recorded: ready times hold what the exchange took.
BucketReplay recorded_replay(const FamilyFit& fit, const StudyCell& cell) {
  return replay(cell.profile, cell.overlapped(), fit.effective, cell.ranks, 0);
}

double contention_of(const FamilyFit& fit) {
  std::vector<double> rates;
  for (const CellPoint& point : fit.cells) {
    const StudyCell& cell = *point.cell;
    if (!cell.overlapped() || !std::isfinite(cell.contention_s)) continue;
    const double bytes = recorded_replay(fit, cell).bytes_beside_compute(cell.profile.messages);
    if (bytes > 0) rates.push_back(std::max(0.0, cell.contention_s) / bytes);
  }
  return rates.empty() ? 0 : median(rates);
}

/// Takes what the exchange took out of a cell's compute and ready times.
void leave_alone(const FamilyFit& fit, CellPoint& cell) {
  cell.alone_s = cell.medians.compute_s;
  cell.profile = cell.cell->profile;
  if (fit.contention_s_per_byte == 0 || !cell.cell->overlapped()) return;
  const std::vector<BucketMessage>& messages = cell.cell->profile.messages;
  const BucketReplay recorded = recorded_replay(fit, *cell.cell);
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

void finish(FamilyFit& fit) {
  fit.slowdown = slowdown_of(fit);
  fit.effective = plain_laws(fit);
  for (auto& [kind, law] : fit.effective) {
    if (!fit.laws.at(kind).calibrated) continue;
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
    return std::make_tuple(ranks > 1 && cell.cell->ranks == 1, distance(cell.cell->ranks, ranks),
                           distance(cell.cell->batch, batch));
  };
  for (const CellPoint& cell : fit.cells)
    if (counts(*cell.cell) && cell.cell->batch > 0 && (!best || far(cell) < far(*best)))
      best = &cell;
  return best;
}

double wait_at(const FamilyFit& fit, double ranks, double batch) {
  const CellPoint* near = nearest_cell(
      fit, ranks, batch, [](const StudyCell& cell) { return !cell.imbalance.empty(); });
  return near ? expected_wait(near->cell->imbalance, ranks) : kNotMeasured;
}

/// Adds to a prediction what the exchange exposes, and what it takes from compute.
void add_exchange(const FamilyFit& fit, double ranks, double batch, Prediction& prediction) {
  prediction.exposed_s = 0;
  if (ranks <= 1 || !fit.cells.front().cell->exchanges()) return;
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
  for (const CellPoint& cell : fit.cells) {
    const BucketProfile& profile = cell.cell->profile;
    double measured_s = 0, predicted_s = 0;
    for (std::size_t i = 0; i < profile.messages.size(); ++i) {
      const BucketMessage& message = profile.messages[i];
      if (!laws.contains(message.kind)) continue;
      measured_s += profile.transfer_s[i];
      predicted_s += collective_s(laws, message.kind, message.bytes, cell.cell->ranks);
    }
    if (predicted_s > 0) ratios.push_back(measured_s / predicted_s);
  }
  const double ratio = median(ratios);
  return std::isfinite(ratio) && ratio > 0 ? ratio : 1;
}

FamilyFit fit_family(const Cells& cells, const std::vector<CalibrationPoint>& calibration) {
  FamilyFit fit;
  for (const StudyCell* cell : cells)
    fit.cells.push_back({cell, cell->medians});
  for (const CollectiveKind kind : kinds_of(cells)) {
    LawEntry& law = fit.laws[kind];
    law = choose_law(kind, cells, calibration);
    if (law.fit.usable()) continue;
    law = borrowed_law(kind, law, cells, calibration);
    if (law.fit.usable())
      fit.borrowed +=
          fmt::format("{}{} has too few sizes for a law of its own: {}",
                      fit.borrowed.empty() ? "" : "; ", collective_name(kind), law.source);
    else
      fit.missing = fmt::format(
          "the cost of {} cannot be fitted: no calibration, and the messages in training do not "
          "differ enough in size or ranks; run gradsync-train --calibrate",
          collective_name(kind));
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
      fit, ranks, batch, [](const StudyCell& cell) { return !cell.profile.messages.empty(); });
  if (!near) return {};
  Exchanged exchanged{near->cell, near->profile};
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
      fit.cells.front().cell->exchanges() ? prediction.compute_s * wait_at(fit, ranks, batch) : 0;
  add_exchange(fit, ranks, batch, prediction);
  prediction.other_s = fit.other_s[several(ranks)];
  return prediction;
}

namespace {

constexpr std::array<const char*, 2> kCadencesTried = {"isolated", "back-to-back"};

TwoTermPoint point_of(CollectiveKind kind, double ranks, double bytes, double time_s) {
  const LawFactors factors = law_factors(kind, ranks);
  return {factors.steps, factors.share * bytes, time_s};
}

LawEntry fitted(std::vector<TwoTermPoint> points, std::string source, bool calibrated) {
  std::erase_if(points, [](const TwoTermPoint& point) { return !usable(point); });
  LawEntry entry{fit_two_terms(points), {}, std::move(source), calibrated};
  entry.points = std::move(points);
  return entry;
}

LawEntry from_calibration(CollectiveKind kind, const std::vector<CalibrationPoint>& calibration,
                          const std::string& transport, const std::string& cadence) {
  std::vector<TwoTermPoint> points;
  std::set<std::string> files;
  for (const CalibrationPoint& one : calibration) {
    if (one.kind != kind || one.transport != transport || one.cadence != cadence ||
        !(one.ranks > 1) || !(one.bytes > 0))
      continue;
    points.push_back(point_of(kind, one.ranks, one.bytes, one.time_s));
    if (!one.file.empty()) files.insert(one.file);
  }
  return fitted(std::move(points),
                fmt::format("calibration ({}, {}{}{})", transport, cadence,
                            files.empty() ? "" : "; ", fmt::join(files, "; ")),
                true);
}

/// Law of the first cadence that determines it.
LawEntry from_transport(CollectiveKind kind, const std::vector<CalibrationPoint>& calibration,
                        const std::string& transport) {
  LawEntry entry;
  for (const char* cadence : kCadencesTried) {
    entry = from_calibration(kind, calibration, transport, cadence);
    if (entry.fit.usable()) break;
  }
  return entry;
}

/// Without the files that no cell of the family is held against, and without other machines.
std::vector<CalibrationPoint> calibration_for(const Cells& cells,
                                              const std::vector<CalibrationPoint>& calibration) {
  std::vector<CalibrationPoint> kept;
  const auto applies = [&](const CalibrationPoint& point) {
    return std::ranges::any_of(cells, [&](const StudyCell* cell) {
      return point.file.empty() ? point.machine.empty() || machine_of(cell->run()) == point.machine
                                : point.file == cell->calibration_file;
    });
  };
  std::ranges::copy_if(calibration, std::back_inserter(kept), applies);
  return kept;
}

/// Transport of the cells on several ranks, which are of one family; on one rank it has no effect.
const std::string& transport_of(const Cells& cells) {
  const auto several =
      std::ranges::find_if(cells, [](const StudyCell* cell) { return cell->ranks > 1; });
  return (several == cells.end() ? cells.front() : *several)->transport;
}

std::vector<std::string> names_in_calibration(const Cells& cells, CollectiveKind kind) {
  return calibrated_as(transport_of(cells), cells.front()->mode, kind);
}

/// Calibration of this kind that was passed over is of other transports: the source names them.
LawEntry from_training(CollectiveKind kind, const Cells& cells,
                       const std::vector<CalibrationPoint>& calibration) {
  std::set<std::string> others;
  for (const CalibrationPoint& one : calibration)
    if (one.kind == kind && one.ranks > 1) others.insert(one.transport);
  for (const std::string& own : names_in_calibration(cells, kind))
    others.erase(own);
  std::vector<TwoTermPoint> points;
  for (const StudyCell* cell : cells)
    for (std::size_t i = 0; i < cell->profile.messages.size(); ++i) {
      const BucketMessage& message = cell->profile.messages[i];
      if (message.kind == kind && cell->ranks > 1)
        points.push_back(point_of(kind, cell->ranks, message.bytes, cell->profile.transfer_s[i]));
    }
  std::string source = "measured in training";
  if (!others.empty())
    source += fmt::format(" (over {}; the calibration is of {})", transport_of(cells),
                          fmt::join(others, ", "));
  return fitted(std::move(points), std::move(source), false);
}

}  // namespace

LawEntry law_of_curves(CollectiveKind kind, const Cells& cells, const std::vector<Curves>& curves,
                       const std::string& file) {
  std::vector<CalibrationPoint> points;
  std::vector<std::string> transports = names_in_calibration(cells, kind);
  for (const Curves& of_ranks : curves)
    for (const CalibrationRow& row : of_ranks.rows) {
      if (row.kind != kind || row.type != kFloatType || !usable(row)) continue;
      points.push_back({row.kind, row.transport, row.cadence, static_cast<double>(of_ranks.ranks),
                        static_cast<double>(row.bytes), row.median_s, file});
      add_once(transports, row.transport);
    }
  for (const std::string& name : transports)
    if (LawEntry entry = from_transport(kind, points, name); entry.fit.usable()) return entry;
  return {};
}

LawEntry choose_law(CollectiveKind kind, const Cells& cells,
                    const std::vector<CalibrationPoint>& calibration) {
  const std::vector<CalibrationPoint> of_family = calibration_for(cells, calibration);
  for (const std::string& name : names_in_calibration(cells, kind))
    if (LawEntry entry = from_transport(kind, of_family, name); entry.fit.usable()) return entry;
  return from_training(kind, cells, of_family);
}

LawEntry borrowed_law(CollectiveKind kind, const LawEntry& own, const Cells& cells,
                      const std::vector<CalibrationPoint>& calibration) {
  constexpr double kAnyRanks = 3;
  const auto alike = [&](CollectiveKind other) {
    const LawFactors one = law_factors(kind, kAnyRanks), two = law_factors(other, kAnyRanks);
    return one.steps == two.steps && one.share == two.share;
  };
  std::vector<CollectiveKind> lenders;
  for (std::size_t i = 0; i < kCollectiveNames.size(); ++i)
    if (const auto other = static_cast<CollectiveKind>(i);
        other != kind && law_factors(other, kAnyRanks).share > 0)
      lenders.push_back(other);
  std::ranges::stable_sort(lenders, [&](CollectiveKind a, CollectiveKind b) {
    const auto far = [&](CollectiveKind one) {
      return alike(one) ? 0 : one == CollectiveKind::kAllReduce ? 1 : 2;
    };
    return far(a) < far(b);
  });
  for (const CollectiveKind lender : lenders) {
    LawEntry law = choose_law(lender, cells, calibration);
    if (!law.fit.usable()) continue;
    std::vector<double> factors = each(own.points, [&](const TwoTermPoint& point) {
      return point.y / law.fit.at(point.u, point.v);
    });
    law.borrowed = true;
    law.source = fmt::format("that of {}, {}", collective_name(lender), law.source);
    law.points = own.points;
    law.fit.points = own.points.size();
    law.fit.residuals.clear();
    const double factor = median(factors);
    if (!(factor > 0)) return law;
    // What training measured runs beside compute already.
    law.calibrated = false;
    law.source += fmt::format(", times {:.3g} to fit {} in training", factor,
                              count_text(factors.size(), "point"));
    law.fit.first *= factor;
    law.fit.second *= factor;
    for (const double one : factors)
      law.fit.residuals.push_back(one / factor - 1);
    return law;
  }
  return own;
}

double borrowed_share(const FamilyFit& fit, double ranks, double batch) {
  double borrowed_s = 0;
  if (fit.borrowed.empty() || ranks <= 1) return borrowed_s;
  for (const BucketMessage& message : exchange_at(fit, ranks, batch).profile.messages)
    if (fit.laws.at(message.kind).borrowed)
      borrowed_s += collective_s(fit.effective, message.kind, message.bytes, ranks);
  return borrowed_s / predict(fit, ranks, batch).total_s();
}

}  // namespace gradsync::report
