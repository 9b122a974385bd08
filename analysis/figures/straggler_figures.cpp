#include "analysis/figures/straggler_figures.h"

#include <cmath>
#include <span>

#include "analysis/read/columns.h"

namespace gradsync::report {

namespace {

/// Adds up collectives, one at a time.
class ArrivalCounter {
 public:
  explicit ArrivalCounter(const RunReader& run) : caused_s_(run.ranks()), last_(run.ranks()) {
    for (const RankPlace& place : run.info().topology)
      uncertainty_s_.push_back(std::isfinite(place.clock_uncertainty_s) ? place.clock_uncertainty_s
                                                                        : 0);
  }

  /// `begin_s` and `start_s` have one value a rank.
  void add(std::span<const double> begin_s, std::span<const double> start_s) {
    std::size_t count = 0, latest = 0, second = 0;
    double sum_s = 0, base_s = 0;
    const auto arrival = [&](std::size_t rank) { return begin_s[rank] + start_s[rank]; };
    for (std::size_t rank = 0; rank < begin_s.size(); ++rank) {
      if (!std::isfinite(arrival(rank))) continue;
      if (count == 0) base_s = arrival(rank);
      sum_s += arrival(rank) - base_s;  // small numbers: the sum keeps its digits
      if (count == 0 || arrival(rank) > arrival(latest)) {
        second = count == 0 ? rank : latest;
        latest = rank;
      } else if (second == latest || arrival(rank) > arrival(second)) {
        second = rank;
      }
      ++count;
    }
    if (count < 2) return;
    ++collectives_;
    ++last_[latest];
    caused_s_[latest] += static_cast<double>(count) * (arrival(latest) - base_s) - sum_s;
    const double lead_s = arrival(latest) - arrival(second);
    if (lead_s < uncertainty_s_[latest] + uncertainty_s_[second]) ++undecided_;
  }

  void fill_in(Stragglers& result) const {
    result.collectives = collectives_;
    if (collectives_ == 0 || result.iterations == 0) return;
    const auto all = static_cast<double>(collectives_);
    double caused_by_all_s = 0;
    for (const double one_s : caused_s_)
      caused_by_all_s += one_s;
    result.undecided_percent = 1e2 * static_cast<double>(undecided_) / all;
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
      StragglerFigures& figures = result.ranks[rank];
      figures.caused_s = caused_s_[rank] / static_cast<double>(result.iterations);
      figures.caused_percent =
          caused_by_all_s > 0 ? 1e2 * caused_s_[rank] / caused_by_all_s : kNotMeasured;
      figures.last_percent = 1e2 * static_cast<double>(last_[rank]) / all;
    }
  }

 private:
  std::vector<double> caused_s_, uncertainty_s_;
  std::vector<std::size_t> last_;
  std::size_t collectives_ = 0, undecided_ = 0;
};

}  // namespace

Stragglers stragglers(RunReader& run, const SteadyRows& steady) {
  const std::size_t ranks = run.ranks();
  const std::size_t buckets = run.index().buckets;
  Stragglers result;
  result.ranks.resize(ranks);
  result.iterations = steady.kept();
  const auto waits = rank_means(run, steady, phase_blocks(Phase::kWait));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    result.ranks[rank].suffered_s = waits[rank];
  if (buckets == 0 || ranks < 2) return result;
  ArrivalCounter counter(run);
  for_each_block(run, ranks * (buckets + 1), [&](std::size_t first, std::size_t count) {
    const Matrix begin = run.begin(first, count);
    const Matrix start = run.bucket_starts(first, count);
    for (std::size_t row = 0; row < count; ++row)
      for (std::size_t b = 0; steady.keeps(first + row) && b < buckets; ++b)
        counter.add(begin.row(row), start.row(row).subspan(b * ranks, ranks));
  });
  counter.fill_in(result);
  return result;
}

}  // namespace gradsync::report
