#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/read/trace_events.h"

/// The events of one rank as iterations, each with its compute and its collectives.
namespace gradsync::report {

/// A collective of one rank, in seconds since the begin of its iteration.
struct TimelineCollective {
  CollectiveFacts facts;
  double ready_s = kNotMeasured;  ///< its last gradient was there
  Interval when;                  ///< from the rank's arrival to the result
};

struct TimelineIteration {
  std::int64_t number = 0;  ///< of ProfilerStep#N; without these from 0
  double begin_s = 0;       ///< since RankTimeline::origin_ns
  double length_s = 0;
  std::vector<Interval> compute;                ///< disjoint, since the begin of the iteration
  std::vector<TimelineCollective> collectives;  ///< in the order of their calls
  std::vector<Interval> carried;                ///< where those of earlier iterations lasted
  /// From the begin to the forward pass, to the backward pass, to its end; and the optimizer step,
  /// of which no other has a part. Nothing where the trace does not hold it.
  std::optional<IntervalSet> data, forward, backward, optimizer;
};

struct RankTimeline {
  std::filesystem::path path;
  std::int64_t rank = 0, ranks = 1;
  bool ranks_known = true;  ///< false: a rank of several, or of one, the trace does not state it
  std::string backend, device;
  std::int64_t origin_ns = 0;  ///< on the clock of the host, since 1970
  bool ddp = false, data_parallel = false, has_groups = false;  ///< as of TraceEvents
  std::vector<TimelineIteration> iterations;                    ///< by number
  std::vector<std::string> remarks;                             ///< what the trace does not hold
};

/// Iterations are the spans of ProfilerStep#N, else those between the ends of optimizer steps. In a
/// trace with kernels an iteration begins with the first kernel that its span launched, and ends
/// where the next begins (the last one: with its last kernel); compute is the union of the kernels
/// but NCCL's. In others compute is the union of the operators but those that call collectives or
/// wait for them, outside of the data loader. Events whose times cannot be right are left out.
/// Throws Error kBadData for a trace without iterations, or with more such events than others.
RankTimeline rank_timeline(TraceEvents trace);

}  // namespace gradsync::report
