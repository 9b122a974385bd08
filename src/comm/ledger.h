// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <utility>

#include "record/run.h"
#include "stats/bandwidth.h"

namespace gradsync {

/// Counts what a rank sends and receives from its start to its end, by what it is for. Not
/// thread-safe: used by the thread that talks to MPI.
class Ledger {
 public:
  void add(Traffic category, LinkBytes bytes) {
    const auto at = static_cast<std::size_t>(category);
    total_.sent_bytes[at] += bytes.sent;
    total_.received_bytes[at] += bytes.received;
    ++total_.calls[at];
  }
  void add(const RankTraffic& moved) { add(moved, 1); }
  /// What was moved between two totals of another ledger.
  void add(const RankTraffic& after, const RankTraffic& before) {
    add(after, 1);
    add(before, -1);
  }
  const RankTraffic& total() const { return total_; }
  /// Forgets what was counted since the total was `before`; returns it.
  RankTraffic take_back(const RankTraffic& before) {
    Ledger since;
    since.total_ = std::exchange(total_, before);
    since.add(before, -1);
    return since.total_;
  }

 private:
  void add(const RankTraffic& moved, std::int64_t times) {
    for (std::size_t at = 0; at < kTrafficCategories; ++at) {
      total_.sent_bytes[at] += times * moved.sent_bytes[at];
      total_.received_bytes[at] += times * moved.received_bytes[at];
      total_.calls[at] += times * moved.calls[at];
    }
  }

  RankTraffic total_;
};

}  // namespace gradsync
