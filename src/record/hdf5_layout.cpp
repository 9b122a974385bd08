#include "record/hdf5_layout.h"

namespace gradsync {

namespace {

using enum Dimension;

constexpr std::array<std::string_view, kPhases> kPhaseTexts = {
    "wall time of the iteration",
    "waiting for the loader",
    "forward pass and loss",
    "backward pass",
    "optimiser step",
    "union of the compute intervals, |C|",
    "union of the intervals in which data of its collectives could move, |K|",
    "communication beside compute, |C and K|",
    "communication that the iteration waits for, |K without C|",
    "in its collectives before the last rank came, beside neither compute nor communication",
    "neither compute nor communication nor wait, W - |C or K or S|",
    "in its collectives, turning gradients into what travels and back"};

constexpr std::array<std::string_view, kRowCategories> kTrafficTexts = {
    "gradients",
    "parameters",
    "buffers of the network",
    "images, outputs of the network and their gradients (data-parallel)",
    "losses and counts",
    "agreement and control"};

DatasetSpec per_rank(std::string path, std::string units, std::string long_name) {
  return {std::move(path), {kIterations, kRanks}, std::move(units), std::move(long_name)};
}

DatasetSpec per_iteration(const std::string& name, std::string long_name) {
  return {"iteration/" + name, {kIterations}, "1", std::move(long_name)};
}

std::vector<Field<double, RankIteration>> make_rank_fields() {
  std::vector<Field<double, RankIteration>> fields;
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    fields.push_back(
        {per_rank(phase_path(static_cast<Phase>(phase)), "s", std::string(kPhaseTexts[phase])),
         [phase](RankIteration& rank) -> double& { return rank.time_s[phase]; },
         /*added_later=*/static_cast<Phase>(phase) == Phase::kConvert});
  fields.push_back({per_rank("time/begin", "s",
                             "start of the iteration since the start of the run, clock of rank 0"),
                    [](RankIteration& rank) -> double& { return rank.begin_s; }});
  fields.push_back({per_rank("loss", "1", "mean loss over the samples of the rank"),
                    [](RankIteration& rank) -> double& { return rank.loss; }});
  return fields;
}

std::vector<Field<std::int64_t, RankIteration>> make_rank_counts() {
  std::vector<Field<std::int64_t, RankIteration>> fields;
  fields.push_back({per_rank("correct", "1", "samples of the rank that were classified right"),
                    [](RankIteration& rank) -> std::int64_t& { return rank.correct; }});
  for (std::size_t which = 0; which < kRowCategories; ++which)
    fields.push_back(
        {per_rank(traffic_path(static_cast<Traffic>(which)), "B",
                  "bytes through the link of the rank: " + std::string(kTrafficTexts[which])),
         [which](RankIteration& rank) -> std::int64_t& { return rank.traffic_bytes[which]; }});
  return fields;
}

DatasetSpec bucket_time(const std::string& name, std::string long_name) {
  return {"bucket/" + name,
          {kIterations, kBuckets, kRanks},
          "s",
          std::move(long_name) + ", since the start of the iteration of the rank"};
}

DatasetSpec calibration_spec(const std::string& name, std::string units, std::string long_name) {
  return {kCalibrationGroup + "/" + name, {kCalibrations}, std::move(units), std::move(long_name)};
}

DatasetSpec window_spec(const std::string& name, std::string long_name) {
  return {kWindowGroup + "/" + name, {kWindows}, "1", std::move(long_name)};
}

DatasetSpec window_time(const std::string& name, std::string long_name) {
  return {kWindowGroup + "/" + name,
          {kWindows, kRanks},
          "s",
          std::move(long_name) + ", per iteration of the window"};
}

DatasetSpec device_spec(const char* name, const char* units, const char* long_name) {
  return {kDeviceGroup + "/" + name, {kSamples}, units, long_name};
}

DatasetSpec resume_spec(const std::string& name, std::string units, std::string long_name) {
  return {kResumeGroup + "/" + name, {kResumes}, std::move(units), std::move(long_name)};
}

DatasetSpec traffic_total_spec(const std::string& name, std::string units, std::string long_name) {
  return {kTrafficTotalGroup + "/" + name,
          {kTotals, kCategories, kRanks},
          std::move(units),
          std::move(long_name) + " since it started"};
}

DatasetSpec replica_spec(const std::string& name, std::string long_name) {
  return {kReplicaGroup + "/" + name, {kRanks}, "1", std::move(long_name)};
}

DatasetSpec epoch_spec(const std::string& name, std::string units, std::string long_name) {
  return {"epoch/" + name, {kEpochs, kRanks}, std::move(units), std::move(long_name)};
}

}  // namespace

std::string phase_path(Phase phase) {
  return "time/" + std::string(phase_name(phase));
}

std::string traffic_path(Traffic category) {
  return "traffic/" + std::string(traffic_name(category));
}

const std::vector<Field<std::int64_t, IterationRow>>& iteration_fields() {
  using Row = IterationRow;
  static const std::vector<Field<std::int64_t, Row>> fields = {
      {per_iteration("number", "number of the iteration, from 0, over all epochs"),
       [](Row& row) -> std::int64_t& { return row.iteration; }},
      {per_iteration("epoch", "epoch, from 0"),
       [](Row& row) -> std::int64_t& { return row.epoch; }},
      {per_iteration("step", "iteration within the epoch, from 0"),
       [](Row& row) -> std::int64_t& { return row.step; }},
      {per_iteration("samples", "samples of the global batch"),
       [](Row& row) -> std::int64_t& { return row.samples; }}};
  return fields;
}

const std::vector<Field<double, RankIteration>>& rank_fields() {
  static const auto fields = make_rank_fields();
  return fields;
}

const std::vector<Field<std::int64_t, RankIteration>>& rank_counts() {
  static const auto fields = make_rank_counts();
  return fields;
}

const std::vector<Field<double, BucketTimes>>& bucket_fields() {
  using Times = BucketTimes;
  static const std::vector<Field<double, Times>> fields = {
      {bucket_time("ready", "the last gradient of the bucket was there"),
       [](Times& times) -> double& { return times.ready_s; }},
      {bucket_time("start", "the rank came to the collective"),
       [](Times& times) -> double& { return times.start_s; }},
      {bucket_time("end", "the result of the collective was there"),
       [](Times& times) -> double& { return times.end_s; }},
      {bucket_time("arrival", "the last rank had come, data could move"),
       [](Times& times) -> double& { return times.arrival_s; },
       /*added_later=*/true}};
  return fields;
}

const std::vector<Field<double, RankEpoch>>& epoch_fields() {
  using Rank = RankEpoch;
  static const std::vector<Field<double, Rank>> fields = {
      {epoch_spec("train_loss", "1", "mean loss over the samples of the rank"),
       [](Rank& rank) -> double& { return rank.train_loss; }},
      {epoch_spec("train_accuracy", "1", "part of its samples that was classified right"),
       [](Rank& rank) -> double& { return rank.train_accuracy; }},
      {epoch_spec("test_loss", "1", "mean loss over the test samples"),
       [](Rank& rank) -> double& { return rank.test_loss; }},
      {epoch_spec("test_accuracy", "1", "part of the test samples that was classified right"),
       [](Rank& rank) -> double& { return rank.test_accuracy; }},
      {epoch_spec("training_time", "s", "its iterations without waiting for data"),
       [](Rank& rank) -> double& { return rank.training_time_s; }},
      {epoch_spec("running_time", "s", "wall time of the epoch without evaluation"),
       [](Rank& rank) -> double& { return rank.running_time_s; }},
      {epoch_spec("evaluation_time", "s", "wall time of the evaluation"),
       [](Rank& rank) -> double& { return rank.evaluation_time_s; }},
      {epoch_spec("peak_memory", "B", "highest memory of the rank so far"),
       [](Rank& rank) -> double& { return rank.peak_memory_bytes; },
       /*added_later=*/true}};
  return fields;
}

const std::vector<Field<std::string, CalibrationRow>>& calibration_texts() {
  using Row = CalibrationRow;
  static const std::vector<Field<std::string, Row>> fields = {
      {calibration_spec("transport", "1",
                        "mpi: of MPI; ring: ours over MPI; shm; tcp-ring; two-level; nccl"),
       [](Row& row) -> std::string& { return row.transport; }},
      {calibration_spec("cadence", "1", "isolated: a barrier before each call; back-to-back"),
       [](Row& row) -> std::string& { return row.cadence; }}};
  return fields;
}

const std::vector<Field<std::int64_t, CalibrationRow>>& calibration_counts() {
  using Row = CalibrationRow;
  static const std::vector<Field<std::int64_t, Row>> fields = {
      {calibration_spec("bytes", "B", "payload of one rank"),
       [](Row& row) -> std::int64_t& { return row.bytes; }},
      {calibration_spec("repetitions", "1", "timed calls"),
       [](Row& row) -> std::int64_t& { return row.repetitions; }},
      {calibration_spec("wrong", "1", "values that were not what they must be, -1: not checked"),
       [](Row& row) -> std::int64_t& { return row.wrong; }}};
  return fields;
}

const std::vector<Field<double, CalibrationRow>>& calibration_times() {
  using Row = CalibrationRow;
  static const std::vector<Field<double, Row>> fields = {
      {calibration_spec("median", "s", "median time of a call on the slowest rank"),
       [](Row& row) -> double& { return row.median_s; }},
      {calibration_spec("mean", "s", "mean time of a call on the slowest rank"),
       [](Row& row) -> double& { return row.mean_s; }},
      {calibration_spec("minimum", "s", "shortest call on the slowest rank"),
       [](Row& row) -> double& { return row.minimum_s; }},
      {calibration_spec("maximum", "s", "longest call on the slowest rank"),
       [](Row& row) -> double& { return row.maximum_s; }}};
  return fields;
}

DatasetSpec calibration_collective_spec() {
  return calibration_spec("collective", "1", "which collective");
}

DatasetSpec calibration_of_bucket_spec() {
  return calibration_spec("of_bucket", "1", "1 for a size that training uses");
}

const std::vector<Field<std::int64_t, WindowRow>>& window_counts() {
  using Row = WindowRow;
  static const std::vector<Field<std::int64_t, Row>> fields = {
      {window_spec("round", "round of interleaved windows, from 0"),
       [](Row& row) -> std::int64_t& { return row.round; }},
      {window_spec("iterations", "iterations of the window"),
       [](Row& row) -> std::int64_t& { return row.iterations; }}};
  return fields;
}

const std::vector<Field<double, RankWindow>>& window_times() {
  using Rank = RankWindow;
  static const std::vector<Field<double, Rank>> fields = {
      {window_time("iteration", "wall time"),
       [](Rank& rank) -> double& { return rank.iteration_s; }},
      {window_time("compute", "union of the compute intervals"),
       [](Rank& rank) -> double& { return rank.compute_s; }},
      {window_time("comm_busy", "union of the intervals of its collectives"),
       [](Rank& rank) -> double& { return rank.comm_busy_s; }},
      {window_time("exposed", "communication that the iteration waits for"),
       [](Rank& rank) -> double& { return rank.exposed_s; }}};
  return fields;
}

DatasetSpec window_kind_spec() {
  return window_spec("kind",
                     "compute-only, communication-only, serial, overlapped, overlapped-unmeasured");
}

DatasetSpec clock_when_spec() {
  return {kClockGroup + "/when", {kReadings}, "1", "start, resume or end of the run"};
}

DatasetSpec clock_at_spec() {
  return {kClockGroup + "/at", {kReadings}, "s", "since the start of the run, clock of rank 0"};
}

const std::vector<Field<double, ClockReading>>& clock_fields() {
  using Reading = ClockReading;
  static const std::vector<Field<double, Reading>> fields = {
      {{kClockGroup + "/offset",
        {kReadings, kRanks},
        "s",
        "added to the clock of the rank it reads that of rank 0"},
       [](Reading& reading) -> double& { return reading.offset_s; }},
      {{kClockGroup + "/uncertainty", {kReadings, kRanks}, "s", "half of the shortest round trip"},
       [](Reading& reading) -> double& { return reading.uncertainty_s; }}};
  return fields;
}

const std::vector<Field<std::int64_t, ResumeRow>>& resume_counts() {
  static const std::vector<Field<std::int64_t, ResumeRow>> fields = {
      {resume_spec("iteration", "1", "first iteration after it"),
       [](ResumeRow& row) -> std::int64_t& { return row.iteration; }},
      {resume_spec("journal_bytes", "B", "what counted of the journal before it"),
       [](ResumeRow& row) -> std::int64_t& { return row.journal_bytes; }}};
  return fields;
}

const std::vector<Field<std::string, ResumeRow>>& resume_texts() {
  static const std::vector<Field<std::string, ResumeRow>> fields = {
      {resume_spec("time", "1", "when the run went on, ISO 8601, UTC"),
       [](ResumeRow& row) -> std::string& { return row.time; }},
      {resume_spec("hosts", "1", "hosts of the ranks from there on"),
       [](ResumeRow& row) -> std::string& { return row.hosts; }}};
  return fields;
}

const std::vector<Field<std::int64_t, DeviceSample>>& device_counts() {
  using Sample = DeviceSample;
  static const std::vector<Field<std::int64_t, Sample>> fields = {
      {device_spec("rank", "1", "whose GPU"),
       [](Sample& sample) -> std::int64_t& { return sample.rank; }},
      {device_spec("throttle_reasons", "1", "NVML's clocks event reasons, -1: not known"),
       [](Sample& sample) -> std::int64_t& { return sample.throttle_reasons; }}};
  return fields;
}

const std::vector<Field<double, DeviceSample>>& device_numbers() {
  using Sample = DeviceSample;
  static const std::vector<Field<double, Sample>> fields = {
      {device_spec("at", "s", "since the start of the run, clock of rank 0"),
       [](Sample& sample) -> double& { return sample.at_s; }},
      {device_spec("memory_used", "B", "of the whole GPU, by all processes"),
       [](Sample& sample) -> double& { return sample.memory_used_bytes; }},
      {device_spec("sm_clock", "Hz", "clock of the multiprocessors"),
       [](Sample& sample) -> double& { return sample.sm_clock_hz; }},
      {device_spec("memory_clock", "Hz", "clock of the memory"),
       [](Sample& sample) -> double& { return sample.memory_clock_hz; }},
      {device_spec("power", "W", "draw of the whole GPU"),
       [](Sample& sample) -> double& { return sample.power_w; }},
      {device_spec("temperature", "degC", "of the GPU"),
       [](Sample& sample) -> double& { return sample.temperature_c; }}};
  return fields;
}

DatasetSpec traffic_when_spec() {
  return {kTrafficTotalGroup + "/when", {kTotals}, "1", "start of the first iteration, or trained"};
}

DatasetSpec traffic_iterations_spec() {
  return {kTrafficTotalGroup + "/iterations", {kTotals}, "1", "iterations since the process began"};
}

const std::vector<Field<TrafficCounts, RankTraffic>>& traffic_total_fields() {
  using Rank = RankTraffic;
  static const std::vector<Field<TrafficCounts, Rank>> fields = {
      {traffic_total_spec("sent", "B", "bytes that the rank sent"),
       [](Rank& rank) -> TrafficCounts& { return rank.sent_bytes; }},
      {traffic_total_spec("received", "B", "bytes that the rank received"),
       [](Rank& rank) -> TrafficCounts& { return rank.received_bytes; }},
      {traffic_total_spec("calls", "1", "collectives, and messages of their own"),
       [](Rank& rank) -> TrafficCounts& { return rank.calls; }}};
  return fields;
}

const std::vector<Field<std::string, RankReplica>>& replica_texts() {
  using Rank = RankReplica;
  static const std::vector<Field<std::string, Rank>> fields = {
      {replica_spec("parameter_hash", "digest of the parameters at the end of training"),
       [](Rank& rank) -> std::string& { return rank.parameter_hash; }},
      {replica_spec("buffer_hash", "digest of the buffers at the end of training"),
       [](Rank& rank) -> std::string& { return rank.buffer_hash; }}};
  return fields;
}

const std::vector<Field<double, RankReplica>>& replica_numbers() {
  using Rank = RankReplica;
  static const std::vector<Field<double, Rank>> fields = {
      {replica_spec("parameter_distance",
                    "Euclidean distance of the parameters to those of rank "
                    "0, over their length"),
       [](Rank& rank) -> double& { return rank.parameter_distance; }},
      {replica_spec("buffer_distance",
                    "Euclidean distance of the buffers to those of rank 0, over their length"),
       [](Rank& rank) -> double& { return rank.buffer_distance; }}};
  return fields;
}

const std::vector<Field<std::int64_t, EpochRow>>& epoch_counts() {
  using Row = EpochRow;
  static const std::vector<Field<std::int64_t, Row>> fields = {
      {{"epoch/new_batches", {kEpochs}, "1", "global batches that no epoch had before"},
       [](Row& row) -> std::int64_t& { return row.new_batches; },
       /*added_later=*/true},
      {{"epoch/shared_images", {kEpochs}, "1", "images that more than one rank took"},
       [](Row& row) -> std::int64_t& { return row.shared_images; },
       /*added_later=*/true}};
  return fields;
}

DatasetSpec learning_rate_spec() {
  return per_iteration("lr", "learning rate");
}

DatasetSpec warmup_spec() {
  return per_iteration("warmup", "1 for an iteration that statistics leave out");
}

DatasetSpec bucket_bytes_spec() {
  return {"bucket/bytes", {kIterations, kBuckets}, "B", "payload of one rank"};
}

DatasetSpec bucket_kind_spec() {
  return {"bucket/kind",
          {kIterations, kBuckets},
          "1",
          "0 allreduce, 1 broadcast, 2 reduce, 3 gather, 4 scatter, 5 allgather, 6 barrier, "
          "255 none"};
}

}  // namespace gradsync
