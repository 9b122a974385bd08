// SPDX-License-Identifier: BSD-3-Clause
#include "stats/bandwidth.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

std::string_view collective_name(CollectiveKind kind) {
  return kCollectiveNames[static_cast<std::size_t>(kind)];
}

std::optional<CollectiveKind> parse_collective(std::string_view name) {
  const auto found = std::ranges::find(kCollectiveNames, name);
  if (found == kCollectiveNames.end()) return std::nullopt;
  return static_cast<CollectiveKind>(found - kCollectiveNames.begin());
}

std::int64_t traffic_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root) {
  const LinkBytes link = link_bytes(kind, bytes, rank, ranks, root);
  return std::max(link.sent, link.received);
}

namespace {

/// n, where something crosses a link.
double several(double ranks) {
  return ranks > 1 ? ranks : kNotMeasured;
}

}  // namespace

double message_bytes(CollectiveKind kind, double payload_bytes, double ranks) {
  const bool total_over_ranks =
      kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter ||
      kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter ||
      kind == CollectiveKind::kAllToAll;
  return total_over_ranks ? ranks * payload_bytes : payload_bytes;
}

double algbw(double bytes, double time_s) {
  return bytes / positive(time_s);
}

double busbw_factor(CollectiveKind kind, double ranks) {
  const double n = several(ranks);
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return 2 * (n - 1) / n;
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return (n - 1) / n;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kReduce:
    case CollectiveKind::kSendReceive:
      return n / n;  // 1, NaN for one rank
    case CollectiveKind::kBarrier:
      break;
  }
  return kNotMeasured;
}

double busbw(CollectiveKind kind, double payload_bytes, double ranks, double time_s) {
  return algbw(message_bytes(kind, payload_bytes, ranks), time_s) * busbw_factor(kind, ranks);
}

LinkBytes link_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks, int root) {
  if (ranks == 1) return {};
  const std::int64_t others = (ranks - 1) * bytes;
  const bool here = rank == root;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return {2 * others / ranks, 2 * others / ranks};
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return here ? LinkBytes{others, 0} : LinkBytes{0, bytes};
    case CollectiveKind::kReduce:
    case CollectiveKind::kGather:
      return here ? LinkBytes{0, others} : LinkBytes{bytes, 0};
    case CollectiveKind::kAllGather:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
      return {others, others};
    case CollectiveKind::kSendReceive:
      return {bytes, bytes};
    case CollectiveKind::kBarrier:
      return {};
  }
  return {};
}

namespace {

constexpr std::size_t kPlateauSizes = 3;

void require_pairs(std::size_t sizes, std::size_t values) {
  if (sizes != values)
    throw Error(ExitCode::kInternal, fmt::format("{} sizes with {} values", sizes, values));
}

bool counts(double bytes, double value) {
  return std::isfinite(bytes) && std::isfinite(value) && bytes >= 0 && value > 0;
}

std::vector<std::pair<double, double>> sorted_pairs(std::span<const double> bytes,
                                                    std::span<const double> values) {
  require_pairs(bytes.size(), values.size());
  std::vector<std::pair<double, double>> pairs;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (counts(bytes[i], values[i])) pairs.emplace_back(bytes[i], values[i]);
  std::ranges::sort(pairs);
  return pairs;
}

/// Sums of the normal equations of Σ (α·u + β·v − 1)² with u = 1/t and v = s/t; sizes in units of
/// the largest one, so that both unknowns are of one magnitude.
struct NormalEquations {
  double uu = 0, uv = 0, vv = 0, u = 0, v = 0;

  void add(double size, double time_s) {
    const double a = 1 / time_s, b = size / time_s;
    uu += a * a;
    uv += a * b;
    vv += b * b;
    u += a;
    v += b;
  }
};

void fill_in_residuals(AlphaBeta& fit, std::span<const double> bytes,
                       std::span<const double> times_s) {
  double squares = 0;
  fit.residual_largest = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (!counts(bytes[i], times_s[i])) continue;
    const double residual = (fit.time_s(bytes[i]) - times_s[i]) / times_s[i];
    fit.residuals[i] = residual;
    squares += residual * residual;
    fit.residual_largest = std::max(fit.residual_largest, std::abs(residual));
  }
  fit.residual_rms = std::sqrt(squares / static_cast<double>(fit.count));
}

}  // namespace

AlphaBeta fit_alpha_beta(std::span<const double> bytes, std::span<const double> times_s) {
  const auto pairs = sorted_pairs(bytes, times_s);
  AlphaBeta fit;
  fit.count = pairs.size();
  fit.residuals.assign(bytes.size(), Statistics::kNone);
  if (pairs.empty() || pairs.front().first == pairs.back().first) return fit;
  const double unit = pairs.back().first;
  NormalEquations sums;
  for (const auto& [size, time_s] : pairs)
    sums.add(size / unit, time_s);
  const double determinant = sums.uu * sums.vv - sums.uv * sums.uv;
  fit.alpha_s = (sums.u * sums.vv - sums.v * sums.uv) / determinant;
  fit.beta_s_per_byte = (sums.v * sums.uu - sums.u * sums.uv) / determinant / unit;
  fill_in_residuals(fit, bytes, times_s);
  return fit;
}

double plateau(std::span<const double> bytes, std::span<const double> bandwidths) {
  const auto pairs = sorted_pairs(bytes, bandwidths);
  std::vector<double> largest;
  for (std::size_t i = pairs.size() - std::min(pairs.size(), kPlateauSizes); i < pairs.size(); ++i)
    largest.push_back(pairs[i].second);
  return median(largest);
}

double half_bandwidth_bytes(std::span<const double> bytes, std::span<const double> bandwidths) {
  const auto pairs = sorted_pairs(bytes, bandwidths);
  const double half = plateau(bytes, bandwidths) / 2;
  for (std::size_t i = 1; i < pairs.size(); ++i) {
    const auto [below, slow] = pairs[i - 1];
    const auto [above, fast] = pairs[i];
    if (slow >= half) break;
    if (fast < half) continue;
    const double part = (half - slow) / (fast - slow);
    return below > 0 ? below * std::pow(above / below, part) : above * part;
  }
  return Statistics::kNone;
}

}  // namespace gradsync
