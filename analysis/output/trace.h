// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/run_set.h"
#include "stats/interval_set.h"

namespace gradsync::report {

/// Iterations of a run, counted from 1, both ends included.
struct TraceWindow {
  std::size_t first = 1, last = 1;
};

/// "5-8" or "5"; an empty text means the first steady iterations: up to 10, fewer where
/// many ranks and collectives would make more than some 100,000 events. Throws Error kUsage for
/// anything else and for iterations that the run does not have.
TraceWindow trace_window(const std::string& text, const Run& run);

/// The window as Chrome's trace event format (the array of an object's "traceEvents"), which
/// ui.perfetto.dev and chrome://tracing open.
///
/// A process a rank, with the tracks `iteration`, `compute`, `communication` and as many `buckets`
/// as overlap. Times are in us since the start of the run on rank 0's clock; how well the clocks
/// agree is said in `otherData` and beside each process. Measured: the iterations' begin and
/// length, ready, start, arrival of the last rank and end of each collective, the lengths of the
/// phases. The run file holds no starts of phases: data begins with the iteration, the optimizer
/// ends with it, forward and backward follow data as closely as the collectives that the rank waits
/// in let them; args say of each slice whether its start was measured or derived. What was not
/// measured is left out.
std::string trace_json(const Run& run, const TraceWindow& window);

/// Writes it, compressed if the name ends in .gz, whole or not at all. Throws Error kCannotCreate.
void write_trace(const std::filesystem::path& path, const std::string& json);

/// A phase of one iteration of one rank placed in time, in seconds since the iteration's start.
struct PlacedPhase {
  Phase phase = Phase::kForward;
  std::vector<Interval> pieces;  ///< their lengths sum to what was measured
};

/// Where data, forward, backward and optimizer lay. Only their lengths are recorded, so their
/// places are derived: data begins with the iteration, the optimizer ends with it, forward and
/// backward follow data in this order. Where no collective was beside compute, the rank stood still
/// in its collectives: the phases then go around them. A phase that was not measured, or took no
/// time, is left out.
std::vector<PlacedPhase> place_phases(const RankIteration& rank);

/// `data` in gzip's format (RFC 1952), without name and time, so that the same data give the same
/// bytes.
std::string gzipped(std::string_view data);

}  // namespace gradsync::report
