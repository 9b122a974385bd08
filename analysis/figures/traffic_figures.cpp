#include "analysis/figures/traffic_figures.h"

#include <numeric>

#include "analysis/read/columns.h"

namespace gradsync::report {

double TrafficFigures::total() const {
  return std::accumulate(bytes.begin(), bytes.end(), 0.0);
}

std::vector<TrafficFigures> traffic_figures(RunReader& run, const SteadyRows& steady) {
  std::vector<TrafficFigures> all(run.ranks());
  for (std::size_t category = 0; category < kRowCategories; ++category) {
    const auto means = rank_means(
        run, steady, [category](RunReader& reader, std::size_t first, std::size_t count) {
          return reader.traffic(static_cast<Traffic>(category), first, count);
        });
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      all[rank].bytes[category] = means[rank];
  }
  for (TrafficFigures& figures : all)
    figures.iterations = steady.kept();
  return all;
}

TrafficFigures sum_of(const std::vector<TrafficFigures>& ranks) {
  TrafficFigures sum;
  for (const TrafficFigures& rank : ranks) {
    sum.iterations = rank.iterations;
    for (std::size_t category = 0; category < kRowCategories; ++category)
      sum.bytes[category] += rank.bytes[category];
  }
  return sum;
}

}  // namespace gradsync::report
