// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "record/run.h"
#include "stats/interval_set.h"

/// Traces of torch.profiler (Kineto), which run_of_traces makes a run of: what one file holds of a
/// rank, in seconds since `origin_ns`, and then as iterations, each with its compute and its
/// collectives.
namespace gradsync::report {

/// What a collective says of itself; nothing and -1 stand for what the trace does not hold.
struct CollectiveFacts {
  std::optional<CollectiveKind> kind;  ///< nothing: of a kind that run files have no name for
  std::int64_t bytes = -1;             ///< what one rank gives
  std::int64_t elements = -1;  ///< of the payload; for calls on the CPU, of the first argument
  std::int64_t group_ranks = -1;
};

/// A call of a collective on the CPU: the operator c10d::..., or record_param_comms.
struct PostedCollective {
  CollectiveFacts facts;
  double at_s = 0;
  std::int64_t external_id = -1;  ///< ties it to the kernels that it launched
};

/// A collective at work: a kernel of NCCL, or what a thread of Gloo or MPI did.
struct TracedCollective {
  CollectiveFacts facts;
  Interval when;
  std::int64_t correlation = -1;  ///< of the launch of the kernel; -1 on the CPU
  std::int64_t external_id = -1;
};

/// A kernel, or a copy or fill of memory on a device. NCCL's kernels are TracedCollectives.
struct DeviceWork {
  Interval when;
  std::int64_t correlation = -1;
  bool computes = true;      ///< false for copies and fills
  std::int32_t stream = -1;  ///< its number among the streams of all devices; -1: not in the trace
};

/// A call on the CPU that launched work on a device.
struct DeviceLaunch {
  std::int64_t correlation = -1;
  Interval when;
  /// Its work begins when what was launched before it in its stream has ended: of CUDA, but no
  /// graph, whose branches overlap.
  bool ordered = false;
};

struct TracedStep {
  std::int64_t number = 0;  ///< of ProfilerStep#N
  Interval when;
};

/// What a trace says of its process.
struct TracedProcess {
  std::filesystem::path path;
  std::string backend;         ///< "nccl", "gloo"; empty where the trace does not name it
  std::string device;          ///< name of the first GPU
  std::int64_t origin_ns = 0;  ///< on the clock of the host, since 1970
  bool ddp = false;            ///< DistributedDataParallel ran in it
  bool data_parallel = false;  ///< DataParallel ran in it: one process, several GPUs
  bool has_groups = false;     ///< the job has process groups of some of its ranks
};

struct TraceEvents : TracedProcess {
  std::optional<std::int64_t> rank, ranks;
  double zero_s = 0;  ///< where `ts` is 0: what profilers write for a lost time
  std::vector<TracedStep> steps;
  std::vector<Interval> optimizer, forward, data;  ///< annotations of the CPU
  std::vector<Interval> device_optimizer, device_forward;
  std::vector<Interval> backward;   ///< functions of the autograd engine
  std::vector<Interval> operators;  ///< all operators of the CPU, merged a thread
  std::vector<Interval> calls;      ///< operators of the CPU that call collectives or await them
  std::vector<PostedCollective> posted;
  std::vector<TracedCollective> collectives;
  std::vector<DeviceWork> device_work;
  std::vector<DeviceLaunch> launches;
  std::size_t without_time = 0;  ///< events whose time is missing or no time, left out
};

/// Reads a trace, compressed with gzip or not, as a stream: the memory it takes grows with the
/// events that are kept (about 32 bytes each), not with the text. As browsers do, it reads names
/// with newlines or in other encodings than UTF-8. Throws Error: kNoInput if the
/// file is missing, kBadData if it is damaged, no JSON, no trace, or beyond the limits of the
/// reader (depth 100, 64 MiB for one value, 16 million events kept), kInputOutput.
TraceEvents read_trace_events(const std::filesystem::path& path);

/// Leaves out what cannot have been when its trace states it; returns how many events. These are:
/// steps out of the order of their numbers or apart from the others; of all events those that last
/// longer than all steps together, or lost their time (0 or less, long before the steps); of work
/// on a device what begins before its launch by more than the clocks differ, begins before what was
/// launched earlier in its stream, or lasts into what follows it there (collectives may, which wait
/// for other ranks).
std::size_t leave_out_implausible(TraceEvents& trace);

// --- iterations ----------------------------------------------------------------------------------

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

struct RankTimeline : TracedProcess {
  std::int64_t rank = 0, ranks = 1;
  bool ranks_known = true;  ///< false: a rank of several, or of one, the trace does not state it
  std::vector<TimelineIteration> iterations = {};  ///< by number
  std::vector<std::string> remarks = {};           ///< what the trace does not hold
};

/// Iterations are the spans of ProfilerStep#N, else those between the ends of optimizer steps. In a
/// trace with kernels an iteration begins with the first kernel that its span launched, and ends
/// where the next begins (the last one: with its last kernel); compute is the union of the kernels
/// but NCCL's. In others compute is the union of the operators but those that call collectives or
/// wait for them, outside of the data loader. Events whose times cannot be right are left out.
/// Throws Error kBadData for a trace without iterations, or with more such events than others.
RankTimeline rank_timeline(TraceEvents trace);

}  // namespace gradsync::report
