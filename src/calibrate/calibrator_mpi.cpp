// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parse.h"
#include "calibrate/calibrator.h"
#include "exchange/exchange.h"
#include "stats/clock.h"
#include "stats/statistics.h"

namespace gradsync::calibrate {

namespace {

constexpr std::int64_t kNotChecked = -1;
/// Isolated calls from one call of `meanwhile` to the next.
constexpr int kCallsBetween = 100;
/// Calls of a stream between two, of which the first after each finds no other under way.
constexpr int kCallsInARow = 10'000;
/// Calls that a device is ahead of the host: it never idles, and their events stay few.
constexpr std::size_t kMostInFlight = 64;

std::size_t count_of(const PlannedCell& cell) {
  return static_cast<std::size_t>(cell.size.bytes / value_bytes(cell.type));
}

/// The cell that takes most memory over the ranks of one host.
const PlannedCell* largest_of(const std::vector<PlannedCell>& cells, int ranks) {
  const auto need = [ranks](const PlannedCell& cell) {
    return operation_memory_bytes(cell.operation->kind, cell.size.bytes, kCalibrationRoot, ranks);
  };
  const auto largest = std::max_element(
      cells.begin(), cells.end(), [&](const auto& a, const auto& b) { return need(a) < need(b); });
  return largest == cells.end() ? nullptr : &*largest;
}

CalibrationRow row_of(const PlannedCell& cell, Transport& transport, const Statistics& times) {
  CalibrationRow row;
  row.kind = cell.operation->kind;
  row.transport = way_of(cell, transport);
  row.cadence = cell.cadence;
  row.type = name_of(cell.type);
  row.bytes = cell.size.bytes;
  row.of_bucket = cell.size.of_bucket;
  row.repetitions = static_cast<std::int64_t>(times.count);
  row.median_s = times.median;
  row.mean_s = times.mean;
  row.minimum_s = times.minimum;
  row.maximum_s = times.maximum;
  row.p95_s = times.p95;
  row.p99_s = times.p99;
  row.deviation_s = times.deviation;
  return row;
}

}  // namespace

std::string way_of(const PlannedCell& cell, Transport& transport) {
  const bool own = transport.enqueues() || (transport.name() != "mpi" && moved_by_transport(cell));
  return own ? std::string(transport.name()) : cell.operation->transport;
}

void require_memory(const Session& session, const std::vector<PlannedCell>& cells) {
  const auto why = lacking_memory(session, cells);
  session.together([&] {
    if (why) throw *why;
  });
}

std::optional<Error> lacking_memory(const Session& session, const std::vector<PlannedCell>& cells) {
  const PlannedCell* cell = largest_of(cells, session.size());
  if (cell == nullptr) return std::nullopt;
  const std::int64_t mine = operation_memory_bytes(cell->operation->kind, cell->size.bytes,
                                                   session.rank(), session.size());
  const auto needed = static_cast<std::int64_t>(session.sum_on_node(static_cast<double>(mine)));
  const auto available = available_memory_bytes();
  if (!available || needed <= *available) return std::nullopt;
  return Error(
      ExitCode::kOutOfMemory,
      fmt::format("{} of {} a rank needs {} on the {} ranks of {}, which has {} left",
                  cell->operation->name, format_bytes(cell->size.bytes), format_bytes(needed),
                  session.local_size(), session.host(), format_bytes(*available)),
      "give a smaller largest size, or fewer ranks a host");
}

/// The calls of one cell.
struct Calibrator::Timing {
  std::vector<double> calls_s;  ///< of this rank
  std::int64_t wrong = 0;       ///< on this rank
};

Calibrator::Calibrator(const Session& session, Transport& transport, Watchdog& watchdog,
                       DeviceLane* lane)
    : session_(session), transport_(transport), watchdog_(watchdog), lane_(lane) {}

CalibrationRow Calibrator::measure(const PlannedCell& cell, const CallCounts& counts,
                                   const std::function<void()>& meanwhile) {
  kind_ = cell.operation->kind;
  meanwhile_ = meanwhile;
  std::shared_ptr<std::byte> memory;
  if (kind_ == CollectiveKind::kAllReduce) {
    const CollectiveScope watched(watchdog_, kind_);
    memory = transport_.allocate(static_cast<std::size_t>(cell.size.bytes));
  }
  std::unique_ptr<Operation> operation;
  session_.together([&] {
    operation = cell.operation->make(
        {transport_.rank(), transport_.size(), count_of(cell), cell.type, lane_, memory});
  });
  const bool alone = cell.cadence == kCadences[0];
  const Timing warmup = calls(*operation, alone, counts.warmup, 0);
  const double slowest_s = warmup.calls_s.empty() ? 0 : slowest(warmup.calls_s.back());
  Timing timing = calls(*operation, alone, settled_calls(counts, slowest_s), counts.checked);
  double stream_mean_s = mean(timing.calls_s);
  combine({&stream_mean_s, 1}, counts.over_ranks);
  join(timing, counts.over_ranks);
  CalibrationRow row = row_of(cell, transport_, statistics(timing.calls_s));
  if (!alone) row.mean_s = stream_mean_s;
  row.wrong = counts.checked > 0 ? timing.wrong : kNotChecked;
  return row;
}

int Calibrator::settled_calls(const CallCounts& counts, double slowest_s) const {
  const double affordable = slowest_s > 0 ? counts.budget_s / slowest_s : counts.timed;
  if (affordable >= counts.timed) return counts.timed;
  return std::min(counts.timed, std::max(kFewestCalls, static_cast<int>(affordable)));
}

/// The times that count and all ranks' errors, on all ranks.
void Calibrator::join(Timing& timing, OverRanks over_ranks) const {
  combine(timing.calls_s, over_ranks);
  timing.wrong = static_cast<std::int64_t>(session_.sum(static_cast<double>(timing.wrong)));
}

void Calibrator::combine(std::span<double> times_s, OverRanks over_ranks) const {
  const auto scale = [&](double factor) {
    for (double& time_s : times_s)
      time_s *= factor;
  };
  switch (over_ranks) {
    case OverRanks::kRoot:
      return session_.broadcast(std::as_writable_bytes(times_s));
    case OverRanks::kMean:
      session_.sum(times_s);
      for (double& time_s : times_s)
        time_s /= session_.size();
      return;
    case OverRanks::kFastest:
      scale(-1);
      session_.max(times_s);
      return scale(-1);
    case OverRanks::kSlowest:
      return session_.max(times_s);
  }
}

double Calibrator::slowest(double time_s) const {
  combine({&time_s, 1}, OverRanks::kSlowest);
  return time_s;
}

Calibrator::Call Calibrator::call(Operation& operation) {
  const CollectiveScope watched(watchdog_, kind_);
  if (lane_) {
    const Mark begin = lane_->ring.mark(lane_->communication);
    operation.run(transport_);
    return {0, begin, lane_->ring.mark(lane_->communication)};
  }
  const double begin_s = now_s();
  operation.run(transport_);
  return {now_s() - begin_s};
}

void Calibrator::settle(Call& call) {
  if (!lane_) return;
  const CollectiveScope watched(watchdog_, kind_, -1, CollectiveScope::Counts::kNo);
  await_device(lane_->ring, call.end, transport_, session_);
  call.time_s = lane_->ring.elapsed_s(call.begin, call.end);
  lane_->ring.release_below(call.end.ticket);
}

Calibrator::Timing Calibrator::calls(Operation& operation, bool alone, int count, int checked) {
  return alone ? isolated(operation, count, checked) : back_to_back(operation, count, checked);
}

Calibrator::Timing Calibrator::isolated(Operation& operation, int count, int checked) {
  Timing timing;
  for (int i = 0; i < count; ++i) {
    if (i % kCallsBetween == kCallsBetween - 1) meanwhile_();
    operation.fill();
    session_.meet();
    Call one = call(operation);
    settle(one);
    timing.calls_s.push_back(one.time_s);
    if (i < checked) timing.wrong += operation.wrong(1);
  }
  return timing;
}

std::int64_t Calibrator::wrong_apart(Operation& operation) {
  operation.fill();
  session_.meet();
  Call one = call(operation);
  settle(one);
  return operation.wrong(1);
}

Calibrator::Timing Calibrator::back_to_back(Operation& operation, int count, int checked) {
  Timing timing;
  int since_fill = 0;
  std::deque<Call> started;
  const auto settle_first = [&] {
    settle(started.front());
    timing.calls_s.push_back(started.front().time_s);
    started.pop_front();
  };
  const bool leaves_range = operation.calls_a_fill() == 1;
  operation.fill();
  session_.meet();
  for (int i = 0; i < count; ++i) {
    const bool fills = !leaves_range && since_fill == operation.calls_a_fill();
    if (fills || i % kCallsInARow == kCallsInARow - 1) {
      // No call waits for a rank that comes later, nor the host for calls that are under way.
      while (!started.empty())
        settle_first();
      meanwhile_();
      if (fills) operation.fill();
      session_.meet();
    }
    if (fills) since_fill = 0;
    started.push_back(call(operation));
    if (started.size() > kMostInFlight) settle_first();
    ++since_fill;
  }
  while (!started.empty())
    settle_first();
  if (checked > 0)
    timing.wrong = leaves_range ? wrong_apart(operation) : operation.wrong(since_fill);
  return timing;
}

}  // namespace gradsync::calibrate
