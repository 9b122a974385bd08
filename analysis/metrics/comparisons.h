#pragma once

#include <string>
#include <vector>

#include "analysis/metrics/run_group.h"

namespace gradsync::report {

/// Strong: the global batch is the base's. Weak: the batch per rank is the base's. Told from the
/// runs themselves; at one rank both hold, and it counts as strong.
enum class Scaling { kStrong, kWeak };
std::string_view scaling_name(Scaling scaling);

/// A group and what it is compared with.
struct Comparison {
  const RunGroup* group;
  const RunGroup* base;
  Scaling scaling;
  bool itself() const { return group == base; }
};

/// For each group, for strong and for weak scaling, up to two bases: one rank without exchange
/// (mode none), and the group's own mode on its fewest ranks. A base has the group's model,
/// precision, accumulation and data set, and of several the one with the most options in common. A
/// group of one rank is compared with itself as well. In the order of the groups.
std::vector<Comparison> comparisons(const std::vector<RunGroup>& groups);

/// "1 rank none, batch 128 per rank".
std::string base_text(const RunGroup& base);

/// What group and base do not have in common though a fair comparison would, e.g. "threads 2 in
/// the base, 1 here"; empty if nothing.
std::string unfairness(const Comparison& comparison);

}  // namespace gradsync::report
