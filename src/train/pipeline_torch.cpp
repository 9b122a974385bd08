// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>

#include "record/schema.h"
#include "stats/clock.h"
#include "train/pipeline.h"

namespace gradsync {

namespace {

constexpr int kAnchorTries = 5;
/// Seconds after which both clocks are read again: a GPU's timer that is off by 0.2 ppm is 1 µs off
/// by then, one off by 20 ppm 100 µs. A reading waits for what the device has to do.
constexpr double kAnchorLife_s = 5;

}  // namespace

// The shortest of some readings: the event lies in the middle of it, off by half of it at most.
void Pipeline::anchor() {
  DeviceLane* lane = exchange_.lane();
  if (lane == nullptr) return;
  double shortest_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kAnchorTries; ++i) {
    const double before_s = now_s();
    const Mark mark = lane->ring.mark(lane->compute);
    exchange_.await(mark, Look::kSpinning);
    const double after_s = now_s();
    if (after_s - before_s >= shortest_s) continue;
    shortest_s = after_s - before_s;
    known_mark_ = mark;
    known_s_ = (before_s + after_s) / 2;
  }
  anchored_s_ = known_s_;
}

FinishedIteration Pipeline::finish_first() {
  StartedIteration& first = started_.front();
  DeviceLane* lane = exchange_.lane();
  IterationTimer& timer = first.timer;
  if (lane) exchange_.await(timer.last().mark);
  first.take_collectives();
  const double begun_s = lane ? begin_s(timer.first()) : timer.first().host_s;
  share_arrivals(exchange_, timer, begun_s + clock_offset_s_);
  if (first.previous_log) timer.set_deferred_arrivals(std::move(deferred_arrivals_s_));
  deferred_arrivals_s_ = timer.arrivals_s();
  FinishedIteration finished = first.finish(replica_);
  finished.measured.begin_s = begun_s;
  if (lane) lane->ring.release_below(timer.first().mark.ticket);
  started_.pop_front();
  if (lane && known_s_ - anchored_s_ >= kAnchorLife_s) anchor();
  return finished;
}

/// Single steps, since an event's time is a float: hours in milliseconds leave no microseconds.
/// The iterations in flight at an anchor began before it.
double Pipeline::begin_s(const Moment& first) {
  EventRing& ring = exchange_.lane()->ring;
  if (!ring.in_use(known_mark_)) return kNotMeasured;
  known_s_ += known_mark_.ticket <= first.mark.ticket ? ring.elapsed_s(known_mark_, first.mark)
                                                      : -ring.elapsed_s(first.mark, known_mark_);
  known_mark_ = first.mark;
  return known_s_;
}

namespace {

/// The largest values over the ranks, of one collective, in the order in which they are exchanged.
struct Largest {
  double arrival_s;        ///< of all ranks
  double root_or_short_s;  ///< arrival of the root; without one, the shortest duration, negative
};
constexpr std::size_t kValues = 2;

bool has_root(const CollectiveRecord& record) {
  return record.root >= 0;
}

/// The times of a collective as this rank saw it.
BucketTimes times_here(const IterationTimer& timer, const CollectiveRecord& record) {
  return timer.times_of(record, /*arrival_s=*/0);
}

Largest mine(const CollectiveRecord& record, const BucketTimes& times, int rank, double begin_s) {
  const double arrival_s = begin_s + times.start_s;
  if (!has_root(record)) return {arrival_s, times.start_s - times.end_s};
  return {arrival_s, record.root == rank ? arrival_s : -std::numeric_limits<double>::infinity()};
}

/// How far moments of two ranks can be compared.
enum class Clocks {
  kOne,      ///< the ranks of a host
  kHosts,    ///< hosts, whose clocks were compared
  kDevices,  ///< GPUs, whose timers drift apart, also on one host
};

/// Since the iteration's start.
double arrival_of(const CollectiveRecord& record, const BucketTimes& times, const Largest& largest,
                  double begin_s, Clocks clocks) {
  const double last_s = largest.arrival_s - begin_s;
  if (has_root(record)) {
    const double root_s = largest.root_or_short_s - begin_s;
    for (const double seen_s : {last_s, root_s})
      if (seen_s < times.end_s) return std::max(times.start_s, seen_s);
    return times.start_s;
  }
  const double by_shortest_s = times.end_s + largest.root_or_short_s;
  if (clocks == Clocks::kDevices) return std::max(times.start_s, by_shortest_s);
  return std::max(times.start_s,
                  std::min(last_s, clocks == Clocks::kOne ? times.end_s : by_shortest_s));
}

}  // namespace

void share_arrivals(Exchange& exchange, IterationTimer& timer, double begin_s) {
  const std::vector<CollectiveRecord>& records = timer.collectives();
  if (exchange.session().size() == 1 || records.empty()) return;
  std::vector<double> values;
  for (const CollectiveRecord& record : records) {
    const Largest one = mine(record, times_here(timer, record), exchange.session().rank(), begin_s);
    values.insert(values.end(), {one.arrival_s, one.root_or_short_s});
  }
  exchange.session().max(values);
  const bool one_host = exchange.session().local_size() == exchange.session().size();
  const Clocks clocks = exchange.lane() ? Clocks::kDevices
                        : one_host      ? Clocks::kOne
                                        : Clocks::kHosts;
  std::vector<double> arrivals_s;
  for (std::size_t i = 0; i < records.size(); ++i)
    arrivals_s.push_back(arrival_of(records[i], times_here(timer, records[i]),
                                    {values[kValues * i], values[kValues * i + 1]}, begin_s,
                                    clocks));
  timer.set_arrivals(std::move(arrivals_s));
}

namespace {

// A rank's iteration as a block of doubles: a head, then the fields of RankIteration
// (record/schema.h), its buckets last. Whole numbers stay exact up to 2^53.
constexpr std::size_t kSamples = 0, kBadTensor = 1, kScaleMayFall = 2, kStop = 3, kHead = 4;

class FieldPacker {
 public:
  explicit FieldPacker(std::vector<double>& block) : block_(block) {}

  template <typename Value>
  void operator()(const Field&, const Value& value) {
    block_.push_back(static_cast<double>(value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>& rows) {
    for (const Row& row : rows)
      visit_fields(row, *this);
  }

 private:
  std::vector<double>& block_;
};

class FieldUnpacker {
 public:
  explicit FieldUnpacker(std::span<const double> block) : block_(block) {}

  template <typename Value>
  void operator()(const Field&, Value& value) {
    value = static_cast<Value>(block_[at_++]);
  }
  template <typename Row>
  void operator()(const Nested&, std::vector<Row>& rows) {
    while (at_ < block_.size())
      visit_fields(rows.emplace_back(), *this);
  }

 private:
  std::span<const double> block_;
  std::size_t at_ = kHead;
};

std::vector<double> pack(const FinishedIteration& mine, double begin_s) {
  std::vector<double> block = {
      static_cast<double>(mine.samples), static_cast<double>(mine.bad_tensor),
      static_cast<double>(mine.scale_may_fall), static_cast<double>(mine.stop)};
  RankIteration measured = mine.measured;
  measured.begin_s = begin_s;
  FieldPacker packer(block);
  visit_fields(measured, packer);
  return block;
}

RankIteration unpack(std::span<const double> block) {
  RankIteration rank;
  FieldUnpacker unpacker(block);
  visit_fields(rank, unpacker);
  return rank;
}

void want_stop(Verdict& verdict, StopReason reason, std::size_t rank) {
  if (reason == StopReason::kNone || verdict.stop_rank >= 0) return;
  verdict.stop = reason;
  verdict.stop_rank = static_cast<std::int32_t>(rank);
}

/// `root_may_fall`: scale_may_fall of rank 0, whose scale counts where it steps alone.
void judge(Verdict& verdict, std::size_t rank, const RankIteration& measured,
           std::span<const double> block, bool root_may_fall) {
  want_stop(verdict, static_cast<StopReason>(static_cast<int>(block[kStop])), rank);
  const bool overflow = block[kScaleMayFall] != 0 && root_may_fall;
  const auto bad_tensor = overflow ? -1 : static_cast<std::int64_t>(block[kBadTensor]);
  if (verdict.bad_rank >= 0 || (std::isfinite(measured.loss) && bad_tensor < 0)) return;
  verdict.bad_rank = static_cast<std::int32_t>(rank);
  verdict.bad_tensor = bad_tensor;
}

}  // namespace

Verdict gather_rows(Exchange& exchange, FinishedIteration& mine, double begin_s,
                    FunctionRef<void(const IterationRow&)> record) {
  const std::vector<double> block = pack(mine, begin_s);
  const std::vector<double> all = exchange.session().gather(std::span(block));
  Verdict verdict;
  if (exchange.session().root()) {
    IterationRow& row = mine.row;
    row.samples = 0;
    for (std::size_t at = 0; at < all.size(); at += block.size()) {
      const auto one = std::span(all).subspan(at, block.size());
      row.ranks.push_back(unpack(one));
      row.samples += static_cast<std::int64_t>(one[kSamples]);
      judge(verdict, at / block.size(), row.ranks.back(), one, mine.scale_may_fall);
    }
    record(row);
  }
  exchange.session().broadcast(verdict);
  return verdict;
}

Verdict agree_on_stop(Exchange& exchange, StopReason mine) {
  const std::vector<StopReason> all = exchange.session().gather(mine);
  Verdict verdict;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    want_stop(verdict, all[rank], rank);
  exchange.session().broadcast(verdict);
  return verdict;
}

}  // namespace gradsync
