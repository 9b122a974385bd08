// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/model/what_if.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/modes.h"

namespace gradsync::report {

namespace {

constexpr double kLeastBucket = 1024;
constexpr double kLadderFrom = 64.0 * 1024, kLadderTo = 256.0 * 1024 * 1024;
constexpr double kMostRanks = 1e6;

[[noreturn]] void refuse(const std::string& why) {
  throw Error(ExitCode::kUsage, why,
              "--what-if bucket-cap=4MiB,wire=bf16,bandwidth=10Gbit/s,latency=20us,ranks=16");
}

double bucket_bytes(const std::string& text) {
  const auto bytes = static_cast<double>(parse_size(text));
  if (bytes < kLeastBucket) refuse(fmt::format("a bucket of {} is below 1 KiB", text));
  return bytes;
}

double wire_value_bytes(const std::string& text) {
  if (text == "fp32") return 4;
  if (text == "bf16" || text == "fp16") return 2;
  refuse(fmt::format("wire '{}' is none of fp32, bf16, fp16{}", text,
                     did_you_mean(text, {"fp32", "bf16", "fp16"})));
}

/// "10G" of "10Gbit/s" in bytes: 8 bits each.
double bytes_of_bits(const std::string& text) {
  constexpr std::array<std::pair<char, double>, 4> kFactors = {
      {{'k', 1e3}, {'M', 1e6}, {'G', 1e9}, {'T', 1e12}}};
  for (const auto& [letter, factor] : kFactors)
    if (text.ends_with(letter))
      return factor / 8 * parse_number(trimmed(text.substr(0, text.size() - 1)));
  return parse_number(text) / 8;
}

double bandwidth_of(const std::string& text) {
  const auto before = [&](std::string_view ending) {
    return text.substr(0, text.size() - ending.size());
  };
  for (const std::string_view ending : {"b/s", "bps", "Bps"})
    if (text.ends_with(ending))
      refuse(fmt::format("bandwidth '{0}' could mean {1}bit/s or {1}B/s (8 bits)", text,
                         before(ending)));
  if (!text.ends_with("/s"))
    refuse(fmt::format("bandwidth '{}' is not like 10Gbit/s or 1.25GB/s", text));
  const double bytes = text.ends_with("bit/s") ? bytes_of_bits(before("bit/s"))
                                               : static_cast<double>(parse_size(before("/s")));
  if (!(bytes > 0)) refuse("bandwidth must be above 0");
  return bytes;
}

double count_of(const std::string& text) {
  const auto count = static_cast<double>(parse_integer(text));
  if (count < 1 || count > kMostRanks) refuse(fmt::format("{} is not from 1 to 1000000", text));
  return count;
}

struct Key {
  std::string name;
  std::function<bool(const WhatIf&)> given;
  std::function<void(const std::string&, WhatIf&)> read;
};

template <typename Value>
Key key(const char* name, std::optional<Value> WhatIf::*member, Value (*read)(const std::string&)) {
  return {name, [=](const WhatIf& change) { return (change.*member).has_value(); },
          [=](const std::string& text, WhatIf& change) { change.*member = read(text); }};
}

const std::vector<Key>& keys() {
  static const std::vector<Key> all = {
      key("bucket-cap", &WhatIf::bucket_cap_bytes, bucket_bytes),
      key("first-bucket", &WhatIf::first_bucket_bytes, bucket_bytes),
      key("wire", &WhatIf::wire_bytes, wire_value_bytes),
      key("bandwidth", &WhatIf::bandwidth_bytes_per_s, bandwidth_of),
      key<double>("latency", &WhatIf::latency_s,
                  [](const std::string& text) { return parse_duration(text); }),
      key("ranks", &WhatIf::ranks, count_of),
      key("batch", &WhatIf::batch, count_of),
      key("network", &WhatIf::network, parse_curve_file)};
  return all;
}

const Key& key_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Key& key : keys()) {
    if (key.name == name) return key;
    known.push_back(key.name);
  }
  throw no_such("key of --what-if", name, known);
}

void take(const std::string& entry, WhatIf& change) {
  const std::size_t sign = entry.find('=');
  if (sign == std::string::npos) refuse(fmt::format("'{}' is not key=value", entry));
  const Key& key = key_named(std::string(trimmed(entry.substr(0, sign))));
  if (key.given(change)) refuse(fmt::format("{} is given twice", key.name));
  try {
    key.read(std::string(trimmed(entry.substr(sign + 1))), change);
  } catch (const Error& error) {
    refuse(fmt::format("{}: {}", key.name, error.what()));
  }
}

double recorded_wire_bytes(const StudyCell& cell) {
  const bool narrow = mode_named(cell.mode).casts && (cell.wire == "bf16" || cell.wire == "fp16");
  return narrow ? 2 : 4;
}

double largest_bytes(const BucketProfile& profile) {
  double largest = 0;
  for (const BucketMessage& message : profile.messages)
    largest = std::max(largest, message.bytes);
  return largest;
}

double or_else(double value, double otherwise) {
  return std::isfinite(value) ? value : otherwise;
}

/// Caps count the gradients before they are narrowed, as the trainer's do: `narrowed` is the part
/// of their bytes that travels.
void cut_anew(const StudyCell& cell, const WhatIf& change, double narrowed,
              BucketProfile& profile) {
  const double cap = change.bucket_cap_bytes.value_or(
      or_else(cell.bucket_cap_bytes, largest_bytes(profile) / narrowed));
  const double first =
      change.first_bucket_bytes.value_or(std::fmin(or_else(cell.first_bucket_bytes, cap), cap));
  profile.messages = rebucket(profile.messages, profile.backward_begin_s,
                              std::max(1.0, first * narrowed), std::max(1.0, cap * narrowed));
}

BucketProfile changed_profile(const CellPoint& point, const WhatIf& change, double stretch) {
  const StudyCell& cell = *point.cell;
  BucketProfile profile = point.profile;
  profile.backward_begin_s *= stretch;
  profile.backward_end_s *= stretch;
  const double wire_bytes = change.wire_bytes.value_or(recorded_wire_bytes(cell));
  for (BucketMessage& message : profile.messages) {
    message.ready_s *= stretch;
    message.bytes *= wire_bytes / recorded_wire_bytes(cell);
  }
  if (cell.overlapped() && (change.bucket_cap_bytes || change.first_bucket_bytes))
    cut_anew(cell, change, wire_bytes / 4, profile);
  return profile;
}

TwoTermFit slowed_network_law(const WhatIf& change, CollectiveKind kind) {
  const auto found = change.network_laws.find(kind);
  if (found == change.network_laws.end()) return {};
  TwoTermFit law = found->second.fit;
  law.first *= change.network_slowdown;
  law.second *= change.network_slowdown;
  return law;
}

CollectiveLaws changed_laws(const FamilyFit& fit, const StudyCell& cell, const WhatIf& change) {
  CollectiveLaws laws = fit.effective;
  for (const BucketMessage& message : cell.profile.messages) {
    TwoTermFit& law = laws[message.kind];
    if (change.network) law = slowed_network_law(change, message.kind);
    if (change.latency_s) law.first = *change.latency_s;
    if (change.bandwidth_bytes_per_s) law.second = 1 / *change.bandwidth_bytes_per_s;
  }
  return laws;
}

const CellPoint& point_of(const FamilyFit& fit, const StudyCell& cell) {
  for (const CellPoint& point : fit.cells)
    if (point.cell == &cell) return point;
  throw Error(ExitCode::kInternal, "what-if: a cell that the fit was not made from");
}

double stretch_of(const FamilyFit& fit, const StudyCell& cell, const WhatIf& change) {
  if (!change.batch || *change.batch == cell.batch) return 1;
  const ComputeLaw& law = compute_law(fit, cell.ranks);
  return law.at(*change.batch) / law.at(cell.batch);
}

}  // namespace

WhatIf parse_what_if(const std::string& text) {
  WhatIf change;
  change.text = text;
  if (!text.empty())
    for (const std::string& entry : split_list(text, ','))
      take(entry, change);
  return change;
}

WhatIfResult what_if(const FamilyFit& fit, const StudyCell& cell, const WhatIf& change) {
  WhatIfResult result;
  const double ranks = change.ranks.value_or(cell.ranks);
  const double stretch = stretch_of(fit, cell, change);
  const CellPoint& point = point_of(fit, cell);
  const BucketProfile profile = changed_profile(point, change, stretch);
  const CollectiveLaws laws = changed_laws(fit, cell, change);
  result.messages = profile.messages.size();
  for (const BucketMessage& message : profile.messages)
    result.bytes += message.bytes;
  result.parts.compute_s = point.alone_s * stretch;
  result.parts.wait_s = result.parts.compute_s * expected_wait(cell.imbalance, ranks);
  if (!profile.messages.empty()) {
    const BucketReplay replayed =
        replay(profile, cell.overlapped(), laws, ranks, fit.contention_s_per_byte);
    result.parts.exposed_s = replayed.exposed_s;
    result.parts.compute_s += replayed.taken_s;
  }
  result.parts.other_s = cell.medians.other_s();
  return result;
}

std::vector<std::string> read_network(WhatIf& change) {
  if (!change.network) return {};
  CurveFileContent content = read_curve_file(*change.network);
  change.network_curves = std::move(content.curves);
  return std::move(content.remarks);
}

namespace {

constexpr double kNearSizes = 4;  // times smaller or larger than the family's messages
constexpr std::size_t kFewestNear = 3;

/// The law fitted to the points near the sizes of the family's messages, where there are enough:
/// protocols change with the size, and what small messages cost says nothing of large ones.
LawEntry near_messages(const FamilyFit& fit, CollectiveKind kind, LawEntry law) {
  double least = kNotMeasured, most = kNotMeasured;
  for (const CellPoint& point : fit.cells)
    for (const BucketMessage& message : point.cell->profile.messages) {
      if (message.kind != kind || point.cell->ranks < 2) continue;
      const double bytes = law_factors(kind, point.cell->ranks).share * message.bytes;
      least = std::fmin(least, bytes);
      most = std::fmax(most, bytes);
    }
  LawEntry near = law;
  std::erase_if(near.points, [&](const TwoTermPoint& point) {
    return !(point.v >= least / kNearSizes && point.v <= most * kNearSizes);
  });
  if (near.points.size() < kFewestNear) return law;
  near.fit = fit_two_terms(near.points);
  return near.fit.usable() ? near : law;
}

/// Training over the family's own calibration, both at the sizes of its messages; 1 without one.
double slowdown_near_messages(const FamilyFit& fit) {
  CollectiveLaws laws;
  for (const auto& [kind, law] : fit.laws) {
    if (!law.calibrated) return 1;
    laws[kind] = near_messages(fit, kind, law).fit;
  }
  return slowdown_over(fit, laws);
}

}  // namespace

WhatIf with_network_laws(const FamilyFit& fit, WhatIf change) {
  if (!change.network) return change;
  const std::vector<Curves> curves = std::exchange(change.network_curves, {});
  Cells cells;
  for (const CellPoint& point : fit.cells)
    cells.push_back(point.cell);
  for (const auto& [kind, law] : fit.laws)
    change.network_laws[kind] =
        near_messages(fit, kind, law_of_curves(kind, cells, curves, change.network->path.string()));
  change.network_slowdown = slowdown_near_messages(fit);
  return change;
}

double gradient_bytes(const FamilyFit& fit, const StudyCell& cell) {
  return what_if(fit, cell, {}).bytes * 4 / recorded_wire_bytes(cell);
}

std::vector<double> cap_ladder(double total_bytes) {
  std::vector<double> caps;
  for (double cap = kLadderFrom; cap <= kLadderTo; cap *= 2) {
    caps.push_back(cap);
    if (cap >= total_bytes) break;
  }
  return caps;
}

std::optional<double> best_cap(const FamilyFit& fit, const StudyCell& cell, WhatIf change) {
  constexpr double kAsGood = 0.005;
  std::map<double, double> times_s;  // by cap
  double least_s = kNotMeasured;
  for (const double cap : cap_ladder(gradient_bytes(fit, cell))) {
    change.bucket_cap_bytes = cap;
    times_s[cap] = what_if(fit, cell, change).parts.total_s();
    least_s = std::fmin(least_s, times_s[cap]);
  }
  std::optional<double> best;
  for (const auto& [cap, time_s] : times_s)
    if (time_s <= least_s * (1 + kAsGood)) best = cap;
  return best;
}

}  // namespace gradsync::report
