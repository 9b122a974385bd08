#include "record/hdf5_lists.h"

#include <fmt/format.h>

#include "record/hdf5_layout.h"

namespace gradsync {

namespace {

std::size_t length_of(const Hdf5Input& file, const std::string& path) {
  const auto shape = file.shape(path);
  if (shape.size() != 1)
    throw Error(ExitCode::kBadData, fmt::format("/{} of '{}' is no list", path, file.path()));
  return shape[0];
}

template <typename Number, typename Row>
void read_fields(const Hdf5Input& file, const std::vector<Field<Number, Row>>& fields,
                 std::vector<Row>& rows) {
  for (const auto& field : fields) {
    const auto values = file.numbers<Number>(field.spec.path, {rows.size()});
    for (std::size_t i = 0; i < rows.size(); ++i)
      field.of(rows[i]) = values[i];
  }
}

/// Reads the first field, so that rows × ranks is known to be no more than the file holds before
/// memory is taken for the rows.
template <typename Rank>
void require_rank_rows(const Hdf5Input& file, const std::vector<Field<double, Rank>>& fields,
                       std::size_t rows, std::size_t ranks) {
  file.numbers<double>(fields.front().spec.path, {rows, ranks});
}

template <typename Row, typename Rank>
void read_rank_fields(const Hdf5Input& file, const std::vector<Field<double, Rank>>& fields,
                      std::size_t ranks, std::vector<Row>& rows) {
  for (const auto& field : fields) {
    if (field.added_later && !file.has(field.spec.path)) continue;
    const auto values = file.numbers<double>(field.spec.path, {rows.size(), ranks});
    auto value = values.begin();
    for (Row& row : rows)
      for (Rank& rank : row.ranks)
        field.of(rank) = *value++;
  }
}

}  // namespace

std::vector<EpochRow> read_epochs(const Hdf5Input& file, std::size_t ranks) {
  const std::size_t count = length_of(file, "epoch/number");
  const auto number = file.numbers<std::int64_t>("epoch/number", {count});
  const auto iterations = file.numbers<std::int64_t>("epoch/iterations", {count});
  const auto digest = file.texts("epoch/order_digest", count);
  require_rank_rows(file, epoch_fields(), count, ranks);
  std::vector<EpochRow> epochs;
  for (std::size_t e = 0; e < count; ++e)
    epochs.push_back({number[e], iterations[e], digest[e], -1, -1, std::vector<RankEpoch>(ranks)});
  for (const auto& field : epoch_counts()) {
    if (!file.has(field.spec.path)) continue;
    const auto values = file.numbers<std::int64_t>(field.spec.path, {count});
    for (std::size_t e = 0; e < count; ++e)
      field.of(epochs[e]) = values[e];
  }
  read_rank_fields(file, epoch_fields(), ranks, epochs);
  return epochs;
}

std::vector<VerificationRow> read_verification(const Hdf5Input& file) {
  const std::size_t count = length_of(file, "verification/passed");
  const auto mode = file.texts("verification/mode", count);
  const auto passed = file.numbers<std::uint8_t>("verification/passed", {count});
  const auto equal = file.numbers<std::uint8_t>("verification/ranks_equal", {count});
  const auto difference = file.numbers<double>("verification/difference", {count});
  const auto tolerance = file.numbers<double>("verification/tolerance", {count});
  const auto hash = file.texts("verification/parameter_hash", count);
  std::vector<VerificationRow> rows;
  for (std::size_t i = 0; i < count; ++i)
    rows.push_back({mode[i], passed[i] != 0, equal[i] != 0, difference[i], tolerance[i], hash[i]});
  return rows;
}

std::vector<CalibrationRow> read_calibration(const Hdf5Input& file) {
  if (!file.has(kCalibrationGroup)) return {};
  const std::string path = calibration_collective_spec().path;
  const auto names = file.texts(path, length_of(file, path));
  std::vector<CalibrationRow> rows(names.size());
  read_fields(file, calibration_counts(), rows);
  read_fields(file, calibration_times(), rows);
  const auto of_bucket =
      file.numbers<std::uint8_t>(calibration_of_bucket_spec().path, {rows.size()});
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto kind = parse_collective(names[i]);
    if (!kind)
      throw Error(ExitCode::kBadData, fmt::format("/{} of '{}' holds '{}', which is no collective",
                                                  path, file.path(), names[i]));
    rows[i].kind = *kind;
    rows[i].of_bucket = of_bucket[i] != 0;
  }
  for (const auto& field : calibration_texts()) {
    const auto texts = file.texts(field.spec.path, rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      field.of(rows[i]) = texts[i];
  }
  return rows;
}

std::vector<WindowRow> read_windows(const Hdf5Input& file, std::size_t ranks) {
  if (!file.has(kWindowGroup)) return {};
  const std::string path = window_kind_spec().path;
  const auto kinds = file.texts(path, length_of(file, path));
  require_rank_rows(file, window_times(), kinds.size(), ranks);
  std::vector<WindowRow> rows;
  for (const std::string& kind : kinds)
    rows.push_back({kind, 0, 0, std::vector<RankWindow>(ranks)});
  read_fields(file, window_counts(), rows);
  read_rank_fields(file, window_times(), ranks, rows);
  return rows;
}

std::vector<ClockRow> read_clocks(const Hdf5Input& file, std::size_t ranks) {
  if (!file.has(kClockGroup)) return {};
  const std::string path = clock_when_spec().path;
  const auto when = file.texts(path, length_of(file, path));
  const auto at_s = file.numbers<double>(clock_at_spec().path, {when.size()});
  require_rank_rows(file, clock_fields(), when.size(), ranks);
  std::vector<ClockRow> rows;
  for (std::size_t i = 0; i < when.size(); ++i)
    rows.push_back({when[i], at_s[i], std::vector<ClockReading>(ranks)});
  read_rank_fields(file, clock_fields(), ranks, rows);
  return rows;
}

std::vector<TrafficRow> read_traffic_totals(const Hdf5Input& file, std::size_t ranks) {
  if (!file.has(kTrafficTotalGroup)) return {};
  const std::string path = traffic_when_spec().path;
  const auto when = file.texts(path, length_of(file, path));
  const auto iterations = file.numbers<std::int64_t>(traffic_iterations_spec().path, {when.size()});
  std::vector<TrafficRow> rows;
  for (const auto& field : traffic_total_fields()) {
    const auto values =
        file.numbers<std::int64_t>(field.spec.path, {when.size(), kTrafficCategories, ranks});
    if (rows.empty())
      for (std::size_t i = 0; i < when.size(); ++i)
        rows.push_back({when[i], iterations[i], std::vector<RankTraffic>(ranks)});
    auto value = values.begin();
    for (TrafficRow& row : rows)
      for (std::size_t category = 0; category < kTrafficCategories; ++category)
        for (RankTraffic& rank : row.ranks)
          field.of(rank)[category] = *value++;
  }
  return rows;
}

std::vector<ReplicaRow> read_replicas(const Hdf5Input& file, std::size_t ranks) {
  if (!file.has(kReplicaGroup)) return {};
  ReplicaRow row{std::vector<RankReplica>(ranks)};
  read_fields(file, replica_numbers(), row.ranks);
  for (const auto& field : replica_texts()) {
    const auto texts = file.texts(field.spec.path, ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank)
      field.of(row.ranks[rank]) = texts[rank];
  }
  return {row};
}

std::vector<ResumeRow> read_resumes(const Hdf5Input& file) {
  if (!file.has(kResumeGroup)) return {};
  const std::string path = resume_counts().front().spec.path;
  const std::size_t count = length_of(file, path);
  file.numbers<std::int64_t>(path, {count});  // so many are there, before memory is taken for them
  std::vector<ResumeRow> rows(count);
  read_fields(file, resume_counts(), rows);
  for (const auto& field : resume_texts()) {
    const auto texts = file.texts(field.spec.path, count);
    for (std::size_t i = 0; i < count; ++i)
      field.of(rows[i]) = texts[i];
  }
  return rows;
}

std::vector<DeviceSample> read_device_samples(const Hdf5Input& file) {
  if (!file.has(kDeviceGroup)) return {};
  std::vector<DeviceSample> samples(length_of(file, device_counts().front().spec.path));
  read_fields(file, device_counts(), samples);
  read_fields(file, device_numbers(), samples);
  return samples;
}

}  // namespace gradsync
