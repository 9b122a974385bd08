#pragma once

#include <functional>
#include <string>
#include <vector>

#include "record/hdf5_output.h"
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
};

/// [iteration]: number, epoch, step, samples.
const std::vector<Field<std::int64_t, IterationRow>>& iteration_fields();
/// [iteration, rank]: time/<phase>, time/begin, loss.
const std::vector<Field<double, RankIteration>>& rank_fields();
/// [iteration, rank]: correct, traffic/<category>.
const std::vector<Field<std::int64_t, RankIteration>>& rank_counts();
/// [iteration, bucket, rank]: bucket/ready, start, end.
const std::vector<Field<double, BucketTimes>>& bucket_fields();
/// [epoch, rank].
const std::vector<Field<double, RankEpoch>>& epoch_fields();

DatasetSpec learning_rate_spec();
DatasetSpec warmup_spec();
DatasetSpec bucket_bytes_spec();
DatasetSpec bucket_kind_spec();

/// "time/<phase>" and "traffic/<category>".
std::string phase_path(Phase phase);
std::string traffic_path(Traffic category);

}  // namespace gradsync
