#include "record/hdf5_reader.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "record/hdf5_input.h"
#include "record/hdf5_layout.h"

namespace gradsync {

namespace {

using Shape = std::vector<std::size_t>;

/// The number behind the last '/' of a schema; nothing if `schema` is none of ours.
std::optional<int> schema_version(std::string_view schema) {
  const std::string_view name = kRunSchema.substr(0, kRunSchema.find('/') + 1);
  if (!schema.starts_with(name)) return std::nullopt;
  int version = 0;
  const char* end = schema.data() + schema.size();
  const auto [rest, error] = std::from_chars(schema.data() + name.size(), end, version);
  if (error != std::errc() || rest != end) return std::nullopt;
  return version;
}

void require_schema(const Hdf5Input& file, const std::string& path) {
  const std::string schema = file.has_attribute("schema") ? file.text_attribute("schema") : "";
  if (schema == kRunSchema) return;
  const auto version = schema_version(schema);
  if (!version)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' is an HDF5 file but not a run file: its attribute schema is '{}', "
                    "expected '{}'",
                    path, schema, kRunSchema));
  throw Error(
      ExitCode::kBadData,
      fmt::format("'{}' has the schema {}, this program reads {}", path, schema, kRunSchema),
      "use the gradsync-report of the release that wrote it");
}

class Hdf5Run : public RunReader {
 public:
  explicit Hdf5Run(const std::filesystem::path& path) : path_(path.string()), file_(path) {
    require_schema(file_, path_);
    read_header();
    read_config();
    read_topology();
    read_index();
    read_epochs();
    read_verification();
    read_calibration();
    read_windows();
    read_clocks();
  }

  const RunInfo& info() const override { return info_; }
  RunStatus status() const override { return status_; }
  const std::string& finished() const override { return finished_; }
  const std::vector<std::string>& remarks() const override { return remarks_; }
  bool has_checksums() const override { return file_.has_sum("iteration/number"); }
  std::size_t iterations() const override { return index_.iteration.size(); }
  std::size_t ranks() const override { return info_.topology.size(); }
  const IterationIndex& index() const override { return index_; }
  const std::vector<EpochRow>& epochs() const override { return epochs_; }
  const std::vector<VerificationRow>& verification() const override { return verification_; }
  const std::vector<CalibrationRow>& calibration() const override { return calibration_; }
  const std::vector<WindowRow>& windows() const override { return windows_; }
  const std::vector<ClockRow>& clocks() const override { return clocks_; }

  Matrix time(Phase phase, std::size_t first, std::size_t count) override {
    return matrix<double>(phase_path(phase), first, count);
  }
  Matrix begin(std::size_t first, std::size_t count) override {
    return matrix<double>("time/begin", first, count);
  }
  Matrix loss(std::size_t first, std::size_t count) override {
    return matrix<double>("loss", first, count);
  }
  Matrix correct(std::size_t first, std::size_t count) override {
    return matrix<std::int64_t>("correct", first, count);
  }
  Matrix traffic(Traffic category, std::size_t first, std::size_t count) override {
    return matrix<std::int64_t>(traffic_path(category), first, count);
  }
  Matrix bucket_starts(std::size_t first, std::size_t count) override;

  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override;

 private:
  void read_header();
  void read_config();
  void read_topology();
  void read_index();
  void read_epochs();
  void read_verification();
  void read_calibration();
  void read_windows();
  void read_clocks();
  std::size_t length_of(const std::string& path) const;
  template <typename Number, typename Row>
  void read_fields(const std::vector<Field<Number, Row>>& fields, std::vector<Row>& rows) const;
  /// Reads the first field, so that rows × ranks is known to be no more than the file holds before
  /// memory is taken for the rows.
  template <typename Rank>
  void require_rank_rows(const std::vector<Field<double, Rank>>& fields, std::size_t rows) const {
    file_.numbers<double>(fields.front().spec.path, {rows, ranks()});
  }
  template <typename Row, typename Rank>
  void read_rank_fields(const std::vector<Field<double, Rank>>& fields,
                        std::vector<Row>& rows) const;
  void read_buckets(std::vector<IterationRow>& rows, std::size_t first) const;

  template <typename Number>
  std::vector<Number> block(const std::string& path, const Shape& shape, std::size_t first,
                            std::size_t count) const {
    return file_.rows<Number>(path, shape, first, count);
  }

  template <typename Number>
  Matrix matrix(const std::string& path, std::size_t first, std::size_t count) const {
    require_rows(first, count);
    auto values = block<Number>(path, {stored_rows_, ranks()}, first, count);
    if constexpr (std::is_same_v<Number, double>)
      return {count, ranks(), std::move(values)};  // 328 MB for 4,096 ranks and 10,000 iterations
    else
      return {count, ranks(), std::vector<double>(values.begin(), values.end())};
  }

  std::string path_;
  Hdf5Input file_;
  RunInfo info_;
  RunStatus status_ = RunStatus::kRunning;
  std::string finished_;
  std::size_t stored_rows_ = 0;  ///< the length of the data sets, at least iterations()
  IterationIndex index_;
  std::vector<EpochRow> epochs_;
  std::vector<VerificationRow> verification_;
  std::vector<CalibrationRow> calibration_;
  std::vector<WindowRow> windows_;
  std::vector<ClockRow> clocks_;
  std::vector<std::string> remarks_;
};

void Hdf5Run::read_header() {
  info_.run_id = file_.text_attribute("run_id");
  info_.created = file_.text_attribute("created");
  info_.command_line = file_.text_attribute("command_line");
  finished_ = file_.text_attribute("finished");
  const std::string status = file_.text_attribute("status");
  const auto parsed = parse_status(status);
  if (!parsed)
    throw Error(ExitCode::kBadData, fmt::format("/@status of '{}' is '{}'", path_, status));
  status_ = *parsed;
}

void Hdf5Run::read_config() {
  for (const std::string& name : file_.members("config"))
    info_.config.push_back({name, file_.text("config/" + name), file_.source_of("config/" + name)});
  for (const std::string& name : file_.members("provenance"))
    info_.provenance.push_back({name, file_.text("provenance/" + name)});
}

void Hdf5Run::read_topology() {
  const Shape shape = file_.shape("topology/rank");
  if (shape.size() != 1 || shape[0] == 0)
    throw Error(ExitCode::kBadData, fmt::format("/topology/rank of '{}' lists no ranks", path_));
  const auto rank = file_.numbers<std::int32_t>("topology/rank", shape);
  const auto local_rank = file_.numbers<std::int32_t>("topology/local_rank", shape);
  const auto threads = file_.numbers<std::int32_t>("topology/threads", shape);
  const auto offset = file_.numbers<double>("topology/clock_offset", shape);
  const auto uncertainty = file_.numbers<double>("topology/clock_uncertainty", shape);
  const auto host = file_.texts("topology/host", shape[0]);
  const auto device = file_.texts("topology/device", shape[0]);
  const auto uuid = file_.texts("topology/device_uuid", shape[0]);
  const auto affinity = file_.texts("topology/affinity", shape[0]);
  for (std::size_t r = 0; r < shape[0]; ++r)
    info_.topology.push_back({rank[r], local_rank[r], host[r], device[r], uuid[r], affinity[r],
                              threads[r], offset[r], uncertainty[r]});
}

void Hdf5Run::read_index() {
  const Shape shape = file_.shape("iteration/number");
  const std::int64_t valid = file_.number_attribute("valid_rows");
  if (shape.size() != 1 || valid < 0 || static_cast<std::size_t>(valid) > shape[0])
    throw Error(
        ExitCode::kBadData,
        fmt::format("/@valid_rows of '{}' is {}, more than /iteration/number holds", path_, valid));
  stored_rows_ = shape[0];
  const auto count = static_cast<std::size_t>(valid);
  index_.iteration = block<std::int64_t>("iteration/number", shape, 0, count);
  index_.epoch = block<std::int64_t>("iteration/epoch", shape, 0, count);
  index_.step = block<std::int64_t>("iteration/step", shape, 0, count);
  index_.samples = block<std::int64_t>("iteration/samples", shape, 0, count);
  index_.learning_rate = block<double>("iteration/lr", shape, 0, count);
  for (const std::uint8_t flag : block<std::uint8_t>("iteration/warmup", shape, 0, count))
    index_.warmup.push_back(flag != 0);
  const Shape buckets = file_.shape("bucket/bytes");
  if (buckets.size() != 2)
    throw Error(ExitCode::kBadData, fmt::format("/bucket/bytes of '{}' is no matrix", path_));
  index_.buckets = buckets[1];
}

void Hdf5Run::read_epochs() {
  const Shape shape = file_.shape("epoch/number");
  if (shape.size() != 1)
    throw Error(ExitCode::kBadData, fmt::format("/epoch/number of '{}' is no list", path_));
  const auto number = file_.numbers<std::int64_t>("epoch/number", shape);
  const auto iterations_of = file_.numbers<std::int64_t>("epoch/iterations", shape);
  const auto digest = file_.texts("epoch/order_digest", shape[0]);
  require_rank_rows(epoch_fields(), shape[0]);
  for (std::size_t e = 0; e < shape[0]; ++e)
    epochs_.push_back({number[e], iterations_of[e], digest[e], std::vector<RankEpoch>(ranks())});
  read_rank_fields(epoch_fields(), epochs_);
}

void Hdf5Run::read_verification() {
  const Shape shape = file_.shape("verification/passed");
  if (shape.size() != 1)
    throw Error(ExitCode::kBadData, fmt::format("/verification/passed of '{}' is no list", path_));
  const auto mode = file_.texts("verification/mode", shape[0]);
  const auto passed = file_.numbers<std::uint8_t>("verification/passed", shape);
  const auto equal = file_.numbers<std::uint8_t>("verification/ranks_equal", shape);
  const auto difference = file_.numbers<double>("verification/difference", shape);
  const auto tolerance = file_.numbers<double>("verification/tolerance", shape);
  const auto hash = file_.texts("verification/parameter_hash", shape[0]);
  for (std::size_t i = 0; i < shape[0]; ++i)
    verification_.push_back(
        {mode[i], passed[i] != 0, equal[i] != 0, difference[i], tolerance[i], hash[i]});
}

std::size_t Hdf5Run::length_of(const std::string& path) const {
  const Shape shape = file_.shape(path);
  if (shape.size() != 1)
    throw Error(ExitCode::kBadData, fmt::format("/{} of '{}' is no list", path, path_));
  return shape[0];
}

template <typename Number, typename Row>
void Hdf5Run::read_fields(const std::vector<Field<Number, Row>>& fields,
                          std::vector<Row>& rows) const {
  for (const auto& field : fields) {
    const auto values = file_.numbers<Number>(field.spec.path, {rows.size()});
    for (std::size_t i = 0; i < rows.size(); ++i)
      field.of(rows[i]) = values[i];
  }
}

template <typename Row, typename Rank>
void Hdf5Run::read_rank_fields(const std::vector<Field<double, Rank>>& fields,
                               std::vector<Row>& rows) const {
  for (const auto& field : fields) {
    if (field.added_later && !file_.has(field.spec.path)) continue;
    const auto values = file_.numbers<double>(field.spec.path, {rows.size(), ranks()});
    auto value = values.begin();
    for (Row& row : rows)
      for (Rank& rank : row.ranks)
        field.of(rank) = *value++;
  }
}

void Hdf5Run::read_calibration() {
  if (!file_.has(kCalibrationGroup)) return;
  const std::string path = calibration_collective_spec().path;
  const auto names = file_.texts(path, length_of(path));
  calibration_.resize(names.size());
  read_fields(calibration_counts(), calibration_);
  read_fields(calibration_times(), calibration_);
  const auto of_bucket =
      file_.numbers<std::uint8_t>(calibration_of_bucket_spec().path, {calibration_.size()});
  for (std::size_t i = 0; i < calibration_.size(); ++i) {
    const auto kind = parse_collective(names[i]);
    if (!kind)
      throw Error(ExitCode::kBadData, fmt::format("/{} of '{}' holds '{}', which is no collective",
                                                  path, path_, names[i]));
    calibration_[i].kind = *kind;
    calibration_[i].of_bucket = of_bucket[i] != 0;
  }
  for (const auto& field : calibration_texts()) {
    const auto texts = file_.texts(field.spec.path, calibration_.size());
    for (std::size_t i = 0; i < calibration_.size(); ++i)
      field.of(calibration_[i]) = texts[i];
  }
}

void Hdf5Run::read_windows() {
  if (!file_.has(kWindowGroup)) return;
  const auto kinds = file_.texts(window_kind_spec().path, length_of(window_kind_spec().path));
  require_rank_rows(window_times(), kinds.size());
  for (const std::string& kind : kinds)
    windows_.push_back({kind, 0, 0, std::vector<RankWindow>(ranks())});
  read_fields(window_counts(), windows_);
  read_rank_fields(window_times(), windows_);
}

void Hdf5Run::read_clocks() {
  if (!file_.has(kClockGroup)) return;
  const auto when = file_.texts(clock_when_spec().path, length_of(clock_when_spec().path));
  const auto at_s = file_.numbers<double>(clock_at_spec().path, {when.size()});
  require_rank_rows(clock_fields(), when.size());
  for (std::size_t i = 0; i < when.size(); ++i)
    clocks_.push_back({when[i], at_s[i], std::vector<ClockReading>(ranks())});
  read_rank_fields(clock_fields(), clocks_);
}

Matrix Hdf5Run::bucket_starts(std::size_t first, std::size_t count) {
  require_rows(first, count);
  const Shape shape = {stored_rows_, index_.buckets, ranks()};
  return {count, index_.buckets * ranks(), block<double>("bucket/start", shape, first, count)};
}

std::vector<IterationRow> Hdf5Run::rows(std::size_t first, std::size_t count) {
  require_rows(first, count);
  std::vector<IterationRow> rows(count);
  for (std::size_t i = 0; i < count; ++i) {
    rows[i].learning_rate = index_.learning_rate[first + i];
    rows[i].warmup = index_.warmup[first + i];
    rows[i].ranks.resize(ranks());
  }
  for (const auto& field : iteration_fields()) {
    const auto values = block<std::int64_t>(field.spec.path, {stored_rows_}, first, count);
    for (std::size_t i = 0; i < count; ++i)
      field.of(rows[i]) = values[i];
  }
  const auto fill = [&](const auto& field, const auto& values) {
    auto value = values.begin();
    for (IterationRow& row : rows)
      for (RankIteration& rank : row.ranks)
        field.of(rank) = *value++;
  };
  const Shape per_rank = {stored_rows_, ranks()};
  for (const auto& field : rank_fields())
    fill(field, block<double>(field.spec.path, per_rank, first, count));
  for (const auto& field : rank_counts())
    fill(field, block<std::int64_t>(field.spec.path, per_rank, first, count));
  read_buckets(rows, first);
  return rows;
}

void Hdf5Run::read_buckets(std::vector<IterationRow>& rows, std::size_t first) const {
  const Shape shape = {stored_rows_, index_.buckets};
  const auto bytes = block<std::int64_t>(bucket_bytes_spec().path, shape, first, rows.size());
  const auto kinds = block<std::uint8_t>(bucket_kind_spec().path, shape, first, rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t b = 0; b < index_.buckets; ++b) {
      const std::uint8_t kind = kinds[i * index_.buckets + b];
      if (kind == kNoCollective) break;
      if (kind >= kCollectiveNames.size())
        throw Error(ExitCode::kBadData,
                    fmt::format("/bucket/kind of '{}' holds {} in row {}", path_, kind, first + i));
      rows[i].buckets.push_back({bytes[i * index_.buckets + b], static_cast<CollectiveKind>(kind)});
    }
  for (IterationRow& row : rows)
    for (RankIteration& rank : row.ranks)
      rank.buckets.resize(row.buckets.size());
  for (const auto& field : bucket_fields()) {
    const auto values =
        block<double>(field.spec.path, {stored_rows_, index_.buckets, ranks()}, first, rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t r = 0; r < ranks(); ++r)
        for (std::size_t b = 0; b < rows[i].buckets.size(); ++b)
          field.of(rows[i].ranks[r].buckets[b]) = values[(i * index_.buckets + b) * ranks() + r];
  }
}

}  // namespace

std::unique_ptr<RunReader> open_hdf5(const std::filesystem::path& path) {
  return std::make_unique<Hdf5Run>(path);
}

}  // namespace gradsync
