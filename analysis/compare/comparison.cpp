#include "analysis/compare/comparison.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/metrics/fom.h"

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

}  // namespace gradsync::report
