#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "analysis/read/columns.h"
#include "record/reader.h"

namespace gradsync::report {

/// What travels through the link of one rank in an iteration: the mean over the steady iterations
/// in bytes, by Traffic. NaN where there is no such iteration.
struct TrafficFigures {
  std::size_t iterations = 0;
  std::array<double, kRowCategories> bytes{};

  double total() const;
};

/// One entry a rank. One block of one category is in memory at a time.
std::vector<TrafficFigures> traffic_figures(RunReader& run, const SteadyRows& steady);

TrafficFigures sum_of(const std::vector<TrafficFigures>& ranks);

}  // namespace gradsync::report
