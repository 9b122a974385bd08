#include "analysis/model/collective_law.h"

#include <cmath>

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

}  // namespace gradsync::report
