#include "record/hdf5_reader.h"

#include <fmt/format.h>

#include "record/hdf5_input.h"
#include "record/hdf5_layout.h"
#include "record/hdf5_lists.h"
#include "record/hdf5_quantization.h"
#include "record/hdf5_run_info.h"

namespace gradsync {

namespace {

using Shape = std::vector<std::size_t>;

class Hdf5Run : public RunReader {
 public:
  explicit Hdf5Run(const std::filesystem::path& path) : path_(path.string()), file_(path) {
    read_header();
    read_index();
    epochs_ = read_epochs(file_, ranks());
    verification_ = read_verification(file_);
    calibration_ = read_calibration(file_);
    windows_ = read_windows(file_, ranks());
    clocks_ = read_clocks(file_, ranks());
    traffic_totals_ = read_traffic_totals(file_, ranks());
    replicas_ = read_replicas(file_, ranks());
    resumes_ = read_resumes(file_);
    samples_ = read_device_samples(file_);
    quantization_ = read_quantization(file_);
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
  const std::vector<TrafficRow>& traffic_totals() const override { return traffic_totals_; }
  const std::vector<ReplicaRow>& replicas() const override { return replicas_; }
  const std::vector<ResumeRow>& resumes() const override { return resumes_; }
  const std::vector<DeviceSample>& device_samples() const override { return samples_; }
  const Quantization& quantization() const override { return quantization_; }

  Matrix time(Phase phase, std::size_t first, std::size_t count) override {
    if (lacks(rank_fields()[static_cast<std::size_t>(phase)]))
      return {count, ranks(), std::vector<double>(count * ranks(), kNotMeasured)};
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
  void read_index();
  template <typename Number, typename Holder>
  bool lacks(const Field<Number, Holder>& field) const {
    return field.added_later && !file_.has(field.spec.path);
  }
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
  std::vector<TrafficRow> traffic_totals_;
  std::vector<ReplicaRow> replicas_;
  std::vector<ResumeRow> resumes_;
  std::vector<DeviceSample> samples_;
  Quantization quantization_;
  std::vector<std::string> remarks_;
};

void Hdf5Run::read_header() {
  info_ = read_run_info(file_);
  finished_ = file_.text_attribute("finished");
  const std::string status = file_.text_attribute("status");
  const auto parsed = parse_status(status);
  if (!parsed)
    throw Error(ExitCode::kBadData, fmt::format("/@status of '{}' is '{}'", path_, status));
  status_ = *parsed;
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
    if (!lacks(field)) fill(field, block<double>(field.spec.path, per_rank, first, count));
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
    if (lacks(field)) continue;
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
