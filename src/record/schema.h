// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "machine/gpus.h"
#include "machine/host.h"
#include "record/run.h"

namespace gradsync {

/// The dimensions of a run file; each has a scale of the same name in the root.
/// `iteration`, `bucket` and `epoch` are groups there, `iterations` and `epochs` options in
/// `/config`: a netCDF group sees the dimensions of the groups around it, and takes a variable of
/// the same name for their coordinate.
enum class FileAxis : std::size_t {
#define GRADSYNC_AXIS(id, name, text) id,
#include "record/rows.def"
#undef GRADSYNC_AXIS
  kNone  ///< no axis of data sets
};
struct AxisTexts {
  std::string_view name, long_name;
};
inline constexpr std::array kAxes = {
#define GRADSYNC_AXIS(id, name, text) AxisTexts{name, text},
#include "record/rows.def"
#undef GRADSYNC_AXIS
};

/// What a data set is, apart from its numbers.
struct DatasetSpec {
  std::string path;  ///< from the root, without a leading slash: "time/iteration"
  std::vector<FileAxis> dimensions;
  std::string units;  ///< "s", "B", "1"
  std::string long_name;
};

/// The length of each axis, by FileAxis.
using AxisLengths = std::array<std::size_t, kAxes.size()>;

/// The one declaration of what a run file holds: the fields of every kind of row, and the kinds.
/// The payloads of the journal, the data sets of the HDF5 file, the comparison before publishing
/// and the tables of docs/file-format.md are derived from it.
///
/// `visit_fields(row, visit)` calls, for each member of a row in the order of the binary payload,
///
///   visit(Field, value)         a number, a text, a flag, or `named(value)`
///   visit(Field, axis, values)  a list of numbers of fixed length along `axis`
///   visit(Nested, rows)         a list of rows inside the row; lists come after the values
///
/// and `for_each_list(visit, lists...)` calls visit(rows...) for each kind of row. A visitor is a
/// class with overloads for what it treats apart.
///
/// A new field is a line in its visit_fields. A new kind of row is a visit_fields and a line in
/// record/rows.def.

/// Where a run that was stopped or killed was resumed; `/resume`. Journal records from byte
/// `journal_bytes` up to this one were measured after the checkpoint of the resume, and are
/// discarded.
struct ResumeRow {
  std::int64_t iteration = 0;      ///< first iteration after it
  std::int64_t journal_bytes = 0;  ///< what counts of the journal before it
  std::string time;                ///< ISO 8601, UTC
  std::string hosts;               ///< of the ranks from here on: "node1,node2"
};

/// What the driver said of the GPU of one rank; `/gpu`. Here at_s is since the start of the run, on
/// rank 0's clock.
struct DeviceSample : GpuReading {
  std::int64_t rank = 0;
};

/// What the counters of a host said; `/host`. Here at_s is since the start of the run, on rank 0's
/// clock.
struct HostSample : HostReading {
  std::int64_t rank = 0;  ///< which read them: the first of its host
};

/// The records of a journal, in front of each payload.
enum class RecordType : std::uint32_t {
  kInfo = 1,       ///< RunInfo, JSON; the first record, once
  kIteration = 2,  ///< IterationRow, binary
  kEnd = 5,        ///< status and time, JSON; the last record of a run that has ended
#define GRADSYNC_ROWS(list, Row, id, number, ...) id = number,  ///< Row, JSON
#include "record/rows.def"
#undef GRADSYNC_ROWS
};

/// One value of a row: the data set `group/name` of an HDF5 file, an attribute of its root, or a
/// value of a JSON object in the journal.
struct Field {
  std::string_view group, name;
  std::string_view units = "1";       ///< "s", "B"
  std::string_view description = {};  ///< the attribute long_name of the data set
  /// The version of the journal that introduced it. HDF5 files may lack what came after version 1.
  int since = 1;
  std::string_view key = {};  ///< in JSON; empty: the name and, where it lacks it, the unit
};

/// "time/forward".
inline std::string path_of(const Field& field) {
  return (field.group.empty() ? "" : std::string(field.group) + "/") + std::string(field.name);
}

/// The name of a field in JSON: "median_s" of `median` in seconds.
std::string json_key(const Field& field);

/// A list of rows inside a row, under this key in JSON. In the HDF5 file it adds an axis to the
/// data sets of the row; that of the ranks is always the last.
struct Nested {
  std::string_view key;
  FileAxis axis;
  int since = 1;  ///< the version of the journal that introduced it
};

/// A value that texts hold by its name: a kind of collective, a status, a schema.
template <typename Value>
struct Named {
  Value& value;
};
template <typename Value>
Named<Value> named(Value& value) {
  return {value};
}

/// The name of such a value. from_text: false if the text is the name of none.
std::string text_of(CollectiveKind kind);
std::string text_of(RunStatus status);
std::string text_of(int schema);
bool from_text(std::string_view text, CollectiveKind& kind);
/// A status of a later release reads as kRunning: it is not known to be an end. Run files refuse
/// it.
bool from_text(std::string_view text, RunStatus& status);
/// Also false for a schema that this program does not read.
bool from_text(std::string_view text, int& schema);

/// A row of this type that is read (const) or written.
template <typename Row, typename Type>
concept RowOf = std::same_as<std::remove_const_t<Row>, Type>;

// --- what describes the run --------------------------------------------------------------------

template <RowOf<ConfigEntry> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"", "name"}, row.name);
  visit(Field{"", "value"}, row.value);
  visit(Field{"", "source"}, row.source);
}

template <RowOf<NamedText> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"", "name"}, row.name);
  visit(Field{"", "value"}, row.value);
}

template <RowOf<RankPlace> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "topology";
  visit(Field{kGroup, "rank", "1", "MPI rank"}, row.rank);
  visit(Field{kGroup, "local_rank", "1", "rank among those of its host"}, row.local_rank);
  visit(Field{kGroup, "host", "1", "host name"}, row.host);
  visit(Field{kGroup, "device", "1", "processor or GPU"}, row.device);
  visit(Field{kGroup, "device_uuid", "1", "UUID of the GPU, empty on a CPU"}, row.device_uuid);
  visit(Field{kGroup, "affinity", "1", "cores it may use"}, row.affinity);
  visit(Field{kGroup, "threads", "1", "compute threads"}, row.threads);
  visit(
      Field{kGroup, "clock_offset", "s", "added to the clock of the rank it reads that of rank 0"},
      row.clock_offset_s);
  visit(Field{kGroup, "clock_uncertainty", "s", "half of the shortest round trip"},
        row.clock_uncertainty_s);
  visit(Field{kGroup, "host_processors", "1", "logical processors of the host, 0: not known", 4},
        row.host_processors);
  visit(Field{kGroup, "host_sockets", "1", "sockets of the host, 0: not known", 4},
        row.host_sockets);
  visit(Field{kGroup, "host_numa_nodes", "1", "NUMA nodes of the host, 0: not known", 4},
        row.host_numa_nodes);
  visit(Field{kGroup, "host_memory", "B", "memory of the host, 0: not known", 4},
        row.host_memory_bytes);
  visit(Field{kGroup, "host_caches", "1", "caches of a processor of the host", 4}, row.host_caches);
  visit(Field{kGroup, "host_network", "1", "active ports of the host and their rates", 4},
        row.host_network);
  visit(Field{kGroup, "device_memory", "B", "memory of the GPU, 0: not known", 4},
        row.device_memory_bytes);
  visit(Field{kGroup, "device_links", "1", "how the GPU is connected", 4}, row.device_links);
}

template <RowOf<RunInfo> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"", "schema", "1", "what the file holds, and the version of it"}, named(row.schema));
  visit(Field{"", "run_id", "1", "UUID of the run"}, row.run_id);
  visit(Field{"", "created", "1", "start of the run, ISO 8601, UTC"}, row.created);
  visit(Field{"", "command_line", "1", "command line"}, row.command_line);
  visit(Nested{"config", FileAxis::kNone}, row.config);
  visit(Nested{"provenance", FileAxis::kNone}, row.provenance);
  visit(Nested{"experiment", FileAxis::kNone, 5}, row.experiment);
  visit(Nested{"topology", FileAxis::kRanks}, row.topology);
}

template <RowOf<RunEnd> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"", "status", "1", "complete, partial or running"}, named(row.status));
  visit(Field{"", "finished", "1", "end of the run, ISO 8601, UTC"}, row.finished);
}

// --- iterations --------------------------------------------------------------------------------

template <RowOf<IterationHeader> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "iteration";
  visit(Field{kGroup, "number", "1", "number of the iteration, from 0, over all epochs"},
        row.iteration);
  visit(Field{kGroup, "epoch", "1", "epoch, from 0"}, row.epoch);
  visit(Field{kGroup, "step", "1", "iteration within the epoch, from 0"}, row.step);
  visit(Field{kGroup, "samples", "1", "samples of the global batch"}, row.samples);
  visit(Field{kGroup, "lr", "1", "learning rate"}, row.learning_rate);
  visit(Field{kGroup, "warmup", "1", "1 for an iteration that statistics leave out"}, row.warmup);
  visit(Field{kGroup, "round", "1", "round of the experiment, from 0; -1: of none", 5}, row.round);
}

template <RowOf<BucketShape> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"bucket", "bytes", "B", "payload of one rank"}, row.bytes);
  visit(Field{"bucket", "kind", "1",
              "0 allreduce, 1 broadcast, 2 reduce, 3 gather, 4 scatter, 5 allgather, 6 barrier, "
              "7 reduce-scatter, 8 alltoall, 9 sendrecv, 255 none"},
        row.kind);
}

template <RowOf<BucketTimes> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "bucket";
  visit(Field{kGroup, "ready", "s",
              "the last gradient of the bucket was there, since the start of the iteration of the "
              "rank"},
        row.ready_s);
  visit(Field{kGroup, "start", "s",
              "the rank came to the collective, since the start of the iteration of the rank"},
        row.start_s);
  visit(Field{kGroup, "end", "s",
              "the result of the collective was there, since the start of the iteration of the "
              "rank"},
        row.end_s);
  visit(Field{kGroup, "arrival", "s",
              "the last rank had come, data could move, since the start of the iteration of the "
              "rank",
              3},
        row.arrival_s);
}

/// `/time/<phase>` and `/traffic/<category>`.
inline Field phase_field(Phase phase) {
  constexpr std::array<std::string_view, kPhases> kTexts = {
      "wall time of the iteration",
      "waiting for the loader",
      "forward pass and loss",
      "backward pass",
      "optimizer step",
      "union of the compute intervals, |C|",
      "union of the intervals in which data of its collectives could move, |K|",
      "communication overlapped with compute, |C and K|",
      "communication that the iteration waits for, |K without C|",
      "in its collectives before the last rank came, beside neither compute nor communication",
      "neither compute nor communication nor wait, W - |C or K or S|",
      "turning gradients into what travels and back"};
  return {"time", phase_name(phase), "s", kTexts[static_cast<std::size_t>(phase)],
          phase == Phase::kConvert ? 2 : 1};
}
inline Field traffic_field(Traffic category) {
  constexpr std::array<std::string_view, kRowCategories> kTexts = {
      "bytes through the link of the rank: gradients",
      "bytes through the link of the rank: parameters",
      "bytes through the link of the rank: buffers of the network",
      "bytes through the link of the rank: images, outputs of the network and their gradients "
      "(data-parallel)",
      "bytes through the link of the rank: losses and counts",
      "bytes through the link of the rank: agreement and control"};
  return {"traffic", traffic_name(category), "B", kTexts[static_cast<std::size_t>(category)]};
}

/// `/usage/<name>`.
inline Field usage_field(Usage what) {
  constexpr std::array<std::string_view, kUsages> kTexts = {
      "user and system time of all threads of the rank", "context switches of the rank, to wait",
      "context switches of the rank by which a core was taken away"};
  const auto at = static_cast<std::size_t>(what);
  return {"usage", kUsageNames[at], what == Usage::kCpuTime ? "s" : "1", kTexts[at], 4};
}

template <RowOf<RankIteration> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"time", "begin", "s",
              "start of the iteration since the start of the run, clock of rank 0"},
        row.begin_s);
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    visit(phase_field(static_cast<Phase>(phase)), row.time_s[phase]);
  visit(Field{"", "loss", "1", "mean loss over the samples of the rank"}, row.loss);
  visit(Field{"", "correct", "1", "samples of the rank that were classified right"}, row.correct);
  for (std::size_t category = 0; category < kRowCategories; ++category)
    visit(traffic_field(static_cast<Traffic>(category)), row.traffic_bytes[category]);
  for (std::size_t what = 0; what < kUsages; ++what)
    visit(usage_field(static_cast<Usage>(what)), row.usage[what]);
  visit(Nested{"buckets", FileAxis::kBuckets}, row.buckets);
}

template <RowOf<IterationRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit_fields(row.header(), visit);
  visit(Nested{"buckets", FileAxis::kBuckets}, row.buckets);
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

// --- lists beside the iterations ---------------------------------------------------------------

template <RowOf<RankEpoch> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "epoch";
  visit(Field{kGroup, "train_loss", "1", "mean loss over the samples of the rank"}, row.train_loss);
  visit(Field{kGroup, "train_accuracy", "1", "part of its samples that was classified right"},
        row.train_accuracy);
  visit(Field{kGroup, "test_loss", "1", "mean loss over the test samples"}, row.test_loss);
  visit(Field{kGroup, "test_accuracy", "1", "part of the test samples that was classified right"},
        row.test_accuracy);
  visit(Field{kGroup, "training_time", "s", "its iterations without waiting for data"},
        row.training_time_s);
  visit(Field{kGroup, "running_time", "s", "wall time of the epoch without evaluation"},
        row.running_time_s);
  visit(Field{kGroup, "evaluation_time", "s", "wall time of the evaluation"},
        row.evaluation_time_s);
  visit(Field{kGroup, "peak_memory", "B", "highest memory of the rank so far", 2},
        row.peak_memory_bytes);
}

template <RowOf<EpochRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "epoch";
  visit(Field{kGroup, "number", "1", "epoch, from 0", 1, "epoch"}, row.epoch);
  visit(Field{kGroup, "iterations", "1", "iterations of the epoch"}, row.iterations);
  visit(Field{kGroup, "order_digest", "1", "digest of the order of the images"}, row.order_digest);
  visit(Field{kGroup, "new_batches", "1", "global batches that no epoch had before", 2},
        row.new_batches);
  visit(Field{kGroup, "shared_images", "1", "images that more than one rank took", 2},
        row.shared_images);
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

template <RowOf<VerificationRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "verification";
  visit(Field{kGroup, "mode", "1", "synchronization mode"}, row.mode);
  visit(Field{kGroup, "passed", "1", "1 if it agrees with the reference mode"}, row.passed);
  visit(Field{kGroup, "ranks_equal", "1", "1 if the parameters are the same on all ranks"},
        row.ranks_equal);
  visit(Field{kGroup, "difference", "1", "largest difference to the reference mode"},
        row.difference);
  visit(Field{kGroup, "tolerance", "1", "largest difference that passes"}, row.tolerance);
  visit(Field{kGroup, "parameter_hash", "1", "digest of the parameters"}, row.parameter_hash);
}

template <RowOf<CalibrationRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "calibration";
  visit(Field{kGroup, "collective", "1", "which collective"}, named(row.kind));
  visit(Field{kGroup, "transport", "1",
              "mpi: of MPI; mpi-ring: ours over MPI; shm; tcp-ring; two-level; nccl"},
        row.transport);
  visit(Field{kGroup, "cadence", "1", "isolated: a barrier before each call; back-to-back"},
        row.cadence);
  visit(Field{kGroup, "of_bucket", "1", "1 for a size that training uses"}, row.of_bucket);
  visit(Field{kGroup, "bytes", "B", "payload of one rank"}, row.bytes);
  visit(Field{kGroup, "repetitions", "1", "timed calls"}, row.repetitions);
  visit(Field{kGroup, "wrong", "1", "values that were not what they must be, -1: not checked"},
        row.wrong);
  visit(Field{kGroup, "median", "s", "median time of a call on the slowest rank"}, row.median_s);
  visit(Field{kGroup, "mean", "s", "mean time of a call on the slowest rank"}, row.mean_s);
  visit(Field{kGroup, "minimum", "s", "shortest call on the slowest rank"}, row.minimum_s);
  visit(Field{kGroup, "maximum", "s", "longest call on the slowest rank"}, row.maximum_s);
  visit(Field{kGroup, "type", "1", "type of the values", 3}, row.type);
  visit(Field{kGroup, "p95", "s", "95 % quantile of the calls on the slowest rank", 3}, row.p95_s);
  visit(Field{kGroup, "p99", "s", "99 % quantile of the calls on the slowest rank", 3}, row.p99_s);
  visit(Field{kGroup, "deviation", "s", "sample standard deviation of the calls", 3},
        row.deviation_s);
}

template <RowOf<RankWindow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "counterfactual";
  visit(Field{kGroup, "iteration", "s", "wall time, per iteration of the window"}, row.iteration_s);
  visit(
      Field{kGroup, "compute", "s", "union of the compute intervals, per iteration of the window"},
      row.compute_s);
  visit(Field{kGroup, "comm_busy", "s",
              "union of the intervals of its collectives, per iteration of the window"},
        row.comm_busy_s);
  visit(Field{kGroup, "exposed", "s",
              "communication that the iteration waits for, per iteration of the window"},
        row.exposed_s);
}

template <RowOf<WindowRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "counterfactual";
  visit(Field{kGroup, "kind", "1",
              "compute-only, communication-only, serial, overlapped, overlapped-unmeasured"},
        row.kind);
  visit(Field{kGroup, "round", "1", "round of interleaved windows, from 0"}, row.round);
  visit(Field{kGroup, "iterations", "1", "iterations of the window"}, row.iterations);
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

template <RowOf<ClockReading> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"clock", "offset", "s", "added to the clock of the rank it reads that of rank 0"},
        row.offset_s);
  visit(Field{"clock", "uncertainty", "s", "half of the shortest round trip"}, row.uncertainty_s);
}

template <RowOf<ClockRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"clock", "when", "1", "start, resume or end of the run"}, row.when);
  visit(Field{"clock", "at", "s", "since the start of the run, clock of rank 0"}, row.at_s);
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

template <RowOf<RankTraffic> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "traffic_total";
  visit(Field{kGroup, "sent", "B", "bytes that the rank sent since it started"},
        FileAxis::kCategories, row.sent_bytes);
  visit(Field{kGroup, "received", "B", "bytes that the rank received since it started"},
        FileAxis::kCategories, row.received_bytes);
  visit(Field{kGroup, "calls", "1", "collectives, and messages of their own since it started"},
        FileAxis::kCategories, row.calls);
}

template <RowOf<TrafficRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "traffic_total";
  visit(Field{kGroup, "when", "1", "start of the first iteration, or trained"}, row.when);
  visit(Field{kGroup, "iterations", "1", "iterations since the process began"}, row.iterations);
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

template <RowOf<RankReplica> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "replica";
  visit(Field{kGroup, "parameter_hash", "1", "digest of the parameters at the end of training"},
        row.parameter_hash);
  visit(Field{kGroup, "buffer_hash", "1", "digest of the buffers at the end of training"},
        row.buffer_hash);
  visit(Field{kGroup, "parameter_distance", "1",
              "Euclidean distance of the parameters to those of rank 0, over their length"},
        row.parameter_distance);
  visit(Field{kGroup, "buffer_distance", "1",
              "Euclidean distance of the buffers to those of rank 0, over their length"},
        row.buffer_distance);
}

template <RowOf<ReplicaRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

template <RowOf<ResumeRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"resume", "iteration", "1", "first iteration after it"}, row.iteration);
  visit(Field{"resume", "journal_bytes", "B", "what counted of the journal before it"},
        row.journal_bytes);
  visit(Field{"resume", "time", "1", "time of the resume, ISO 8601, UTC"}, row.time);
  visit(Field{"resume", "hosts", "1", "hosts of the ranks from there on"}, row.hosts);
}

template <RowOf<DeviceSample> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"gpu", "rank", "1", "whose GPU"}, row.rank);
  visit(Field{"gpu", "throttle_reasons", "1", "NVML's clocks event reasons, -1: not known"},
        row.throttle_reasons);
  visit(Field{"gpu", "at", "s", "since the start of the run, clock of rank 0"}, row.at_s);
  visit(Field{"gpu", "memory_used", "B", "of the whole GPU, by all processes"},
        row.memory_used_bytes);
  visit(Field{"gpu", "sm_clock", "Hz", "clock of the multiprocessors"}, row.sm_clock_hz);
  visit(Field{"gpu", "memory_clock", "Hz", "clock of the memory"}, row.memory_clock_hz);
  visit(Field{"gpu", "power", "W", "draw of the whole GPU"}, row.power_w);
  visit(Field{"gpu", "temperature", "degC", "of the GPU"}, row.temperature_c);
  visit(Field{"gpu", "busy", "1", "part of the time in which a kernel ran", 4}, row.busy);
  visit(Field{"gpu", "memory_busy", "1", "part of the time in which memory was read or written", 4},
        row.memory_busy);
  visit(Field{"gpu", "energy", "J", "of the whole GPU, since the driver was loaded", 4},
        row.energy_j);
}

template <RowOf<HostSample> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"host", "rank", "1", "whose host"}, row.rank);
  visit(Field{"host", "at", "s", "since the start of the run, clock of rank 0"}, row.at_s);
  visit(Field{"host", "package_energy", "J", "RAPL: of the processors, since some moment before"},
        row.package_energy_j);
  visit(Field{"host", "memory_energy", "J", "RAPL: of the memory, since some moment before"},
        row.memory_energy_j);
  visit(Field{"host", "memory_traffic", "B",
              "resctrl: between caches and memory, since some moment before"},
        row.memory_traffic_bytes);
  visit(Field{"host", "sent", "B", "by the interfaces of the host, since some moment before"},
        row.sent_bytes);
  visit(Field{"host", "received", "B", "by the interfaces of the host, since some moment before"},
        row.received_bytes);
}

template <RowOf<NcclChoice> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"nccl", "collective", "1", "as NCCL names it"}, row.collective);
  visit(Field{"nccl", "type", "1", "of the values, as NCCL names it"}, row.type);
  visit(Field{"nccl", "bytes", "B", "payload of one rank, -1: not known"}, row.bytes);
  visit(Field{"nccl", "algorithm", "1", "that it chose"}, row.algorithm);
  visit(Field{"nccl", "protocol", "1", "that it chose"}, row.protocol);
  visit(Field{"nccl", "channels", "1", "that it chose"}, row.channels);
}

template <RowOf<LayerRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"layer", "name", "1", "of its parameters"}, row.name);
  visit(Field{"layer", "operation", "1", "convolution or matmul"}, row.operation);
  visit(Field{"layer", "parameters", "1", "numbers in its parameters"}, row.parameters);
  visit(Field{"layer", "forward", "1", "operations of the forward pass of one image", 1,
              "forward_flop"},
        row.forward_flop);
  visit(Field{"layer", "backward", "1", "operations of the backward pass of one image", 1,
              "backward_flop"},
        row.backward_flop);
}

template <RowOf<RankProbe> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"probe", "flop_per_s", "1/s", "floating-point operations per second"},
        row.flop_per_s);
}

template <RowOf<ProbeRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Field{"probe", "operation", "1", "what was timed, on all ranks at once"}, row.operation);
  visit(Field{"probe", "precision", "1", "fp32, tf32, bf16 or fp16"}, row.precision);
  visit(Field{"probe", "repetitions", "1", "timed calls"}, row.repetitions);
  visit(Nested{"ranks", FileAxis::kRanks}, row.ranks);
}

template <RowOf<QuantizedTensorRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "quantize/tensor";
  visit(Field{kGroup, "layer", "1", "layer, or input for the images"}, row.layer);
  visit(
      Field{kGroup, "role", "1",
            "weight, bias, activation (what the layer gives), pooled (that after its maximum), or "
            "pixels as 2*pixel/255 - 1"},
      row.role);
  visit(Field{kGroup, "count", "1", "numbers in it"}, row.count);
  visit(Field{kGroup, "minimum", "1", "smallest number"}, row.minimum);
  visit(Field{kGroup, "maximum", "1", "largest number"}, row.maximum);
  visit(Field{kGroup, "mean", "1", "mean"}, row.mean);
  visit(Field{kGroup, "deviation", "1", "standard deviation"}, row.deviation);
  visit(Field{kGroup, "sigma_low", "1", "mean - 3 deviations"}, row.sigma_low);
  visit(Field{kGroup, "sigma_high", "1", "mean + 3 deviations"}, row.sigma_high);
  visit(Field{kGroup, "scales", "1", "scales: 1, or one per output channel"}, row.scales);
  visit(Field{kGroup, "scale_least", "1", "smallest scale"}, row.scale_least);
  visit(Field{kGroup, "scale_largest", "1", "largest scale"}, row.scale_largest);
  visit(Field{kGroup, "zero_point", "1", "integer that represents 0"}, row.zero_point);
  visit(Field{kGroup, "sqnr", "dB", "signal to quantization noise"}, row.sqnr_db);
  visit(Field{kGroup, "largest_error", "1", "largest error of a number"}, row.largest_error);
  visit(Field{kGroup, "clipped", "1", "part of the numbers beyond the clamped range"}, row.clipped);
  visit(Field{kGroup, "histogram", "1", "numbers in 60 bins from the smallest to the largest"},
        FileAxis::kBins, row.histogram);
  visit(Field{kGroup, "integers", "1", "how often each of the integers -128 to 127 stands"},
        FileAxis::kLevels, row.integers);
}

template <RowOf<QuantizedStepRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "quantize/step";
  visit(Field{kGroup, "kind", "1", "step or ablation"}, row.kind);
  visit(Field{kGroup, "name", "1", "what is quantized"}, row.name);
  visit(Field{kGroup, "weights", "1", "how weights are quantized"}, row.weights);
  visit(Field{kGroup, "activations", "1", "how activations are quantized"}, row.activations);
  visit(Field{kGroup, "bias", "1", "how biases are quantized"}, row.bias);
  visit(Field{kGroup, "images", "1", "test images"}, row.images);
  visit(Field{kGroup, "correct", "1", "test images that were classified right"}, row.correct);
  visit(Field{kGroup, "agreeing", "1", "test images whose logits are those of the other path"},
        row.agreeing);
  visit(Field{kGroup, "model_bytes", "B", "bytes of the parameters"}, row.model_bytes);
}

template <RowOf<QuantizedSpeedRow> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  constexpr auto kGroup = "quantize/speed";
  visit(Field{kGroup, "path", "1", "what computes"}, row.path);
  visit(Field{kGroup, "batch", "1", "images at once"}, row.batch);
  visit(Field{kGroup, "threads", "1", "threads"}, row.threads);
  visit(Field{kGroup, "rounds", "1", "rounds, all paths in turn in each"}, row.rounds);
  visit(Field{kGroup, "images_per_second", "1/s", "median over the rounds"}, row.images_per_s);
  visit(Field{kGroup, "ratio", "1", "to the best fp32 path, median over the rounds"}, row.ratio);
  visit(Field{kGroup, "ratio_low", "1", "lower end of its 95 % interval"}, row.ratio_low);
  visit(Field{kGroup, "ratio_high", "1", "upper end of its 95 % interval"}, row.ratio_high);
}

template <RowOf<Quantization> Row, typename Visit>
void visit_fields(Row& row, Visit& visit) {
  visit(Nested{"tensors", FileAxis::kQuantizedTensors}, row.tensors);
  visit(Nested{"steps", FileAxis::kQuantizedSteps}, row.steps);
  visit(Nested{"speeds", FileAxis::kQuantizedSpeeds}, row.speeds);
}

// --- the kinds ---------------------------------------------------------------------------------

/// What the formats have to know of a kind of row.
struct RowKind {
  RecordType record;       ///< of the journal
  FileAxis axis;           ///< the first axis of its data sets
  std::string_view group;  ///< of these data sets
  std::string_view title;  ///< "its epochs", for messages
  bool always = false;     ///< HDF5 files without such rows hold the data sets, too
  int since = 1;           ///< the version of the journal that introduced it
};

template <typename Row>
extern const RowKind kRowKind;
#define GRADSYNC_ROWS(list, Row, id, number, ...) \
  template <>                                     \
  inline constexpr RowKind kRowKind<Row> = {RecordType::id, __VA_ARGS__};
#include "record/rows.def"
#undef GRADSYNC_ROWS

/// All rows of a run but its iterations. Of replicas and quantization at most one row counts: the
/// last.
struct RunLists {
#define GRADSYNC_ROWS(list, Row, ...) std::vector<Row> list;
#include "record/rows.def"
#undef GRADSYNC_ROWS
};

/// Visits the same list of each of `lists`, list after list in the order of the HDF5 file.
template <typename Visit, typename... Lists>
void for_each_list(Visit&& visit, Lists&... lists) {
#define GRADSYNC_ROWS(list, ...) visit(lists.list...);
#include "record/rows.def"
#undef GRADSYNC_ROWS
}

/// The length of an axis that is the same in all files; 0 of all others.
constexpr std::size_t fixed_length(FileAxis axis) {
  if (axis == FileAxis::kCategories) return kTrafficCategories;
  if (axis == FileAxis::kBins) return kHistogramBins;
  return axis == FileAxis::kLevels ? kHistogramLevels : 0;
}

/// Throws Error kInternal: a row of these does not hold the ranks of the run.
[[noreturn]] void refuse_ranks(std::string_view title);

/// Whether a row that holds a list of the ranks holds all of them.
template <typename Row>
bool has_all_ranks(const Row& row, std::size_t ranks) {
  if constexpr (requires { row.ranks; })
    return row.ranks.size() == ranks;
  else
    return true;
}

/// Throws Error kInternal for a row that no file of a run of so many ranks can hold.
template <typename Row>
void require_recordable(const Row& row, std::size_t ranks) {
  if (!has_all_ranks(row, ranks)) refuse_ranks(kRowKind<Row>.title);
}

}  // namespace gradsync
