#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "record/device_sample.h"
#include "record/hdf5_output.h"
#include "record/resume_row.h"
#include "record/run.h"

/// The data sets of a run file that come in families, each with the field it holds: writer and
/// reader walk the same lists.
namespace gradsync {

/// kind[iteration, bucket] where an iteration has fewer collectives than the largest one.
inline constexpr std::uint8_t kNoCollective = 255;

/// One number of each row or of each rank of a row.
template <typename Number, typename Holder>
struct Field {
  DatasetSpec spec;
  std::function<Number&(Holder&)> of;
  bool added_later = false;  ///< files of the first releases lack it
};

/// [iteration]: number, epoch, step, samples.
const std::vector<Field<std::int64_t, IterationRow>>& iteration_fields();
/// [iteration, rank]: time/<phase>, in the order of the phases, time/begin, loss.
const std::vector<Field<double, RankIteration>>& rank_fields();
/// [iteration, rank]: correct, traffic/<category>.
const std::vector<Field<std::int64_t, RankIteration>>& rank_counts();
/// [iteration, bucket, rank]: bucket/ready, start, end, arrival.
const std::vector<Field<double, BucketTimes>>& bucket_fields();
/// [epoch, rank].
const std::vector<Field<double, RankEpoch>>& epoch_fields();

/// The groups that a file holds only where there is something in them.
inline const std::string kCalibrationGroup = "calibration";
inline const std::string kWindowGroup = "counterfactual";
inline const std::string kClockGroup = "clock";
inline const std::string kResumeGroup = "resume";
inline const std::string kDeviceGroup = "gpu";
inline const std::string kTrafficTotalGroup = "traffic_total";
inline const std::string kReplicaGroup = "replica";

/// [calibration]: texts (transport, cadence), counts and times.
const std::vector<Field<std::string, CalibrationRow>>& calibration_texts();
const std::vector<Field<std::int64_t, CalibrationRow>>& calibration_counts();
const std::vector<Field<double, CalibrationRow>>& calibration_times();
DatasetSpec calibration_collective_spec();
DatasetSpec calibration_of_bucket_spec();
/// [window] and [window, rank].
const std::vector<Field<std::int64_t, WindowRow>>& window_counts();
const std::vector<Field<double, RankWindow>>& window_times();
DatasetSpec window_kind_spec();
/// [reading] and [reading, rank].
DatasetSpec clock_when_spec();
DatasetSpec clock_at_spec();
const std::vector<Field<double, ClockReading>>& clock_fields();
/// [resume].
const std::vector<Field<std::int64_t, ResumeRow>>& resume_counts();
const std::vector<Field<std::string, ResumeRow>>& resume_texts();
/// [sample].
const std::vector<Field<std::int64_t, DeviceSample>>& device_counts();
const std::vector<Field<double, DeviceSample>>& device_numbers();

/// [total] and [total, category, rank].
DatasetSpec traffic_when_spec();
DatasetSpec traffic_iterations_spec();
using TrafficCounts = std::array<std::int64_t, kTrafficCategories>;
const std::vector<Field<TrafficCounts, RankTraffic>>& traffic_total_fields();
/// [rank].
const std::vector<Field<std::string, RankReplica>>& replica_texts();
const std::vector<Field<double, RankReplica>>& replica_numbers();
/// [epoch]; files of the first releases lack both.
const std::vector<Field<std::int64_t, EpochRow>>& epoch_counts();

DatasetSpec learning_rate_spec();
DatasetSpec warmup_spec();
DatasetSpec bucket_bytes_spec();
DatasetSpec bucket_kind_spec();

/// "time/<phase>" and "traffic/<category>".
std::string phase_path(Phase phase);
std::string traffic_path(Traffic category);

}  // namespace gradsync
