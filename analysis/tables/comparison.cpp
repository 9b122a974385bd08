#include "analysis/tables/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/fom.h"
#include "analysis/read/run_set.h"
#include "base/parse.h"
#include "record/calibration_curve.h"
#include "record/collective_call.h"

namespace gradsync::report {

namespace {

const RunGroup* same_cell(const RunGroup& group, const std::vector<RunGroup>& groups) {
  const auto key = cell_key(group.first());
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const RunGroup& other) {
    return cell_key(other.first()) == key;
  });
  return found == groups.end() ? nullptr : &*found;
}

ComparedCell compared(const std::string& name, const RunGroup* a, const RunGroup* b,
                      std::uint64_t seed) {
  const auto times = [](const RunGroup* group) {
    return group == nullptr ? std::vector<double>{} : steady_values(*group, Phase::kIteration);
  };
  const auto times_a = times(a), times_b = times(b);
  return {name,
          a,
          b,
          median_estimate(times_a),
          median_estimate(times_b),
          time_ratio(times_b, times_a, seed)};
}

}  // namespace

bool ComparedCell::fails(double threshold) const {
  return both() && time.word == "slower" && time.ratio.value > 1 + threshold;
}

std::string ComparedCell::verdict() const {
  if (b == nullptr) return "only in A";
  if (a == nullptr) return "only in B";
  return std::string(time.word);
}

std::vector<ComparedCell> compare_groups(const std::vector<RunGroup>& a,
                                         const std::vector<RunGroup>& b, std::uint64_t seed) {
  // Named together, so that different cells of A and B have different names.
  std::vector<const RunGroup*> all = pointers_to(a);
  for (const RunGroup& group : b)
    if (same_cell(group, a) == nullptr) all.push_back(&group);
  const auto names = cell_names(all);
  std::vector<ComparedCell> cells;
  for (std::size_t i = 0; i < all.size(); ++i)
    cells.push_back(i < a.size() ? compared(names[i], all[i], same_cell(*all[i], b), seed)
                                 : compared(names[i], nullptr, all[i], seed));
  return cells;
}

std::vector<std::string> different_circumstances(const std::vector<ComparedCell>& cells) {
  std::vector<std::string> lines;
  for (const ComparedCell& cell : cells) {
    if (!cell.both()) continue;
    for (const RunDifference& difference : differences(cell.a->first(), cell.b->first())) {
      std::string line = fmt::format("{}: '{}' in A, '{}' in B", difference.what,
                                     difference.value_of_one, difference.value_of_other);
      if (std::find(lines.begin(), lines.end(), line) == lines.end())
        lines.push_back(std::move(line));
    }
  }
  return lines;
}

namespace {

using LinkRows = std::vector<CalibrationRow>;
/// By the name of ComparedLink, with the ranks.
struct NamedRows {
  std::string name;
  double ranks = 0;
  LinkRows rows;
};

std::string link_name(const CalibrationRow& row, std::size_t ranks) {
  std::string size = format_bytes(row.bytes);
  std::erase(size, ' ');
  return fmt::format("{}.{}.{}.n{}.{}{}", collective_name(row.kind), row.transport, row.cadence,
                     ranks, size, row.type == kFloatType ? "" : "." + row.type);
}

void add_rows(const RunReader& file, std::vector<NamedRows>& all) {
  for (const CalibrationRow& row : file.calibration()) {
    if (!usable(row)) continue;
    const std::string name = link_name(row, file.ranks());
    auto known = std::ranges::find(all, name, &NamedRows::name);
    if (known == all.end())
      known = all.insert(all.end(), {name, static_cast<double>(file.ranks()), {}});
    known->rows.push_back(row);
  }
}

std::vector<NamedRows> link_rows(const RunSet& set) {
  std::vector<NamedRows> all;
  for (const Run& run : set.runs)
    if (is_calibration_file(*run.reader)) add_rows(*run.reader, all);
  for (const CalibrationFile& file : set.calibrations)
    add_rows(*file.reader, all);
  return all;
}

constexpr std::size_t kFewest = 6;
constexpr double kTwoSided = 1.96;       // of a normal distribution, 95 %
constexpr double kMedianError = 1.2533;  // √(π/2): of a median against that of a mean

std::vector<double> medians_s(const LinkRows& rows) {
  std::vector<double> values;
  for (const CalibrationRow& row : rows)
    values.push_back(row.median_s);
  return values;
}

/// Relative half-width of the median's interval; NaN without deviation or calls.
double relative_error(const LinkRows& rows, double median_s) {
  const CalibrationRow& row = rows.front();
  double calls = 0;
  for (const CalibrationRow& one : rows)
    calls += static_cast<double>(one.repetitions);
  if (calls < static_cast<double>(kFewest)) return kNotMeasured;
  return kTwoSided * kMedianError * row.deviation_s / median_s / std::sqrt(calls);
}

Estimate with_error(double value, double relative, std::size_t count) {
  return {value, value * std::exp(-relative), value * std::exp(relative), count};
}

Estimate time_of(const LinkRows& rows) {
  const Estimate median = median_estimate(medians_s(rows));
  if (median.has_interval()) return median;
  return with_error(median.value, relative_error(rows, median.value), rows.size());
}

/// Of times, as bandwidth of `factor` bytes.
Estimate inverse(const Estimate& time, double factor) {
  return {factor / time.value, factor / time.high, factor / time.low, time.count};
}

Estimate busbw_of(const NamedRows& side) {
  const CalibrationRow& row = side.rows.front();
  return inverse(time_of(side.rows),
                 busbw(row.kind, static_cast<double>(row.bytes), side.ranks, 1));
}

Estimate busbw_ratio(const LinkRows& a, const LinkRows& b, std::uint64_t seed) {
  const auto times_a = medians_s(a), times_b = medians_s(b);
  if (std::min(a.size(), b.size()) >= kFewest)
    return inverse(ratio_estimate(times_b, times_a, seed), 1);
  const double one = median_estimate(times_a).value, other = median_estimate(times_b).value;
  return with_error(one / other, std::hypot(relative_error(a, one), relative_error(b, other)),
                    std::min(a.size(), b.size()));
}

}  // namespace

bool ComparedLink::fails(double threshold) const {
  return both() && verdict() == "slower" && ratio.value < 1 - threshold;
}

std::string ComparedLink::verdict() const {
  if (busbw_b.count == 0) return "only in A";
  if (busbw_a.count == 0) return "only in B";
  return std::string(ratio_word(inverse(ratio, 1)));
}

std::vector<ComparedLink> compare_links(const RunSet& a, const RunSet& b, std::uint64_t seed) {
  const auto of_a = link_rows(a), of_b = link_rows(b);
  std::vector<ComparedLink> links;
  for (const NamedRows& one : of_a) {
    ComparedLink& link = links.emplace_back();
    link.name = one.name;
    link.busbw_a = busbw_of(one);
    const auto other = std::ranges::find(of_b, one.name, &NamedRows::name);
    if (other == of_b.end()) continue;
    link.busbw_b = busbw_of(*other);
    link.ratio = busbw_ratio(one.rows, other->rows, seed);
  }
  for (const NamedRows& other : of_b)
    if (std::ranges::find(of_a, other.name, &NamedRows::name) == of_a.end())
      links.push_back({other.name, {}, busbw_of(other), {}});
  return links;
}

}  // namespace gradsync::report
