#include "record/journal_run.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "record/journal.h"
#include "record/journal_payload.h"
#include "record/quantization_payload.h"
#include "support/error.h"

namespace gradsync {

namespace {

/// Rows in the order of their records, each with where its record begins.
template <typename Row>
struct Taken {
  std::vector<Row> rows;
  std::vector<std::int64_t> offsets;

  void add(Row row, std::int64_t offset) {
    rows.push_back(std::move(row));
    offsets.push_back(offset);
  }
  std::int64_t rows_before(std::int64_t offset) const {
    return std::lower_bound(offsets.begin(), offsets.end(), offset) - offsets.begin();
  }
  void drop_from(std::int64_t offset) {
    const auto kept = rows_before(offset);
    rows.erase(rows.begin() + kept, rows.end());
    offsets.erase(offsets.begin() + kept, offsets.end());
  }
};

/// What the index keeps of an iteration.
struct IndexRow {
  std::int64_t iteration, epoch, step, samples;
  double learning_rate;
  bool warmup;
  std::size_t buckets;
};

class JournalRun : public JournalRunReader {
 public:
  explicit JournalRun(const std::filesystem::path& path) : journal_(path) {
    read_info();
    bool usable = true;
    while (usable) {
      const auto record = journal_.next();
      if (!record) break;
      usable = take(*record);
      if (usable)
        read_bytes_ = journal_.position();
      else
        remark_unusable(record->offset);
    }
    if (usable && journal_.left_out_bytes() > 0) remark_left_out();
    fill_index();
  }

  const RunInfo& info() const override { return info_; }
  RunStatus status() const override { return end_.status; }
  const std::string& finished() const override { return end_.finished; }
  const std::vector<std::string>& remarks() const override { return remarks_; }
  std::size_t iterations() const override { return iterations_.rows.size(); }
  std::size_t ranks() const override { return info_.topology.size(); }
  const IterationIndex& index() const override { return index_; }
  const std::vector<EpochRow>& epochs() const override { return epochs_.rows; }
  const std::vector<VerificationRow>& verification() const override { return verification_.rows; }
  const std::vector<CalibrationRow>& calibration() const override { return calibration_.rows; }
  const std::vector<WindowRow>& windows() const override { return windows_.rows; }
  const std::vector<ClockRow>& clocks() const override { return clocks_.rows; }
  const std::vector<TrafficRow>& traffic_totals() const override { return traffic_.rows; }
  const std::vector<ReplicaRow>& replicas() const override { return replicas_.rows; }
  const std::vector<ResumeRow>& resumes() const override { return resumes_.rows; }
  const std::vector<DeviceSample>& device_samples() const override { return samples_.rows; }
  const Quantization& quantization() const override { return quantization_; }
  std::int64_t first_row_at() const override { return first_row_at_; }
  std::int64_t read_bytes() const override { return read_bytes_; }

  std::optional<std::int64_t> iterations_at(std::int64_t bytes) const override {
    if (bytes < first_row_at_ || bytes > read_bytes_) return std::nullopt;
    for (const auto& [first, last] : dropped_)
      if (first < bytes && bytes <= last) return std::nullopt;
    return iterations_.rows_before(bytes);
  }

  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override {
    require_rows(first, count);
    std::vector<IterationRow> result;
    for (std::size_t row = first; row < first + count; ++row)
      result.push_back(row_at(row));
    return result;
  }

 private:
  void read_info() {
    const auto record = journal_.next();
    auto info =
        record && record->type == RecordType::kInfo ? decode_info(record->payload) : std::nullopt;
    if (!info || info->topology.empty())
      throw Error(ExitCode::kBadData,
                  fmt::format("journal '{}': the record that describes the run is short or damaged",
                              journal_.path().string()),
                  "rename the journal and run it again: without that record its iterations cannot "
                  "be read");
    info_ = *std::move(info);
    first_row_at_ = read_bytes_ = journal_.position();
  }

  /// False for a record whose checksum holds but that makes no sense.
  bool take(const JournalRecord& record) {
    switch (record.type) {
      case RecordType::kInfo:
        return false;
      case RecordType::kIteration:
        return take_iteration(record);
      case RecordType::kEpoch:
        return append_of_all_ranks(epochs_, decode_epoch(record.payload), record.offset);
      case RecordType::kVerification:
        return append(verification_, decode_verification(record.payload), record.offset);
      case RecordType::kCalibration:
        return append(calibration_, decode_calibration(record.payload), record.offset);
      case RecordType::kWindow:
        return append_of_all_ranks(windows_, decode_window(record.payload), record.offset);
      case RecordType::kClock:
        return append_of_all_ranks(clocks_, decode_clock(record.payload), record.offset);
      case RecordType::kTraffic:
        return append_of_all_ranks(traffic_, decode_traffic(record.payload), record.offset);
      case RecordType::kReplica:
        return append_of_all_ranks(replicas_, decode_replica(record.payload), record.offset);
      case RecordType::kResume:
        return take_resume(decode_resume(record.payload), record.offset);
      case RecordType::kDeviceSample:
        return append(samples_, decode_device_sample(record.payload), record.offset);
      case RecordType::kQuantization:
        return assign(quantization_, decode_quantization(record.payload));
      case RecordType::kEnd:
        return assign(end_, decode_end(record.payload));
    }
    return true;  // a kind of record that a later release added
  }

  bool take_iteration(const JournalRecord& record) {
    const auto row = decode_iteration(record.payload);
    if (!row || row->ranks.size() != ranks()) return false;
    iterations_.add({row->iteration, row->epoch, row->step, row->samples, row->learning_rate,
                     row->warmup, row->buckets.size()},
                    record.offset);
    return true;
  }

  /// What was recorded after the place the run went back to counts no more.
  bool take_resume(std::optional<ResumeRow> row, std::int64_t offset) {
    if (!row || row->iteration != iterations_at(row->journal_bytes)) return false;
    dropped_.emplace_back(row->journal_bytes, offset);
    for_each_kind([&](auto& taken) { taken.drop_from(row->journal_bytes); });
    end_ = RunEnd();
    resumes_.add(*std::move(row), offset);
    return true;
  }

  template <typename Action>
  void for_each_kind(Action action) {
    action(iterations_);
    action(epochs_);
    action(verification_);
    action(calibration_);
    action(windows_);
    action(clocks_);
    action(traffic_);
    action(replicas_);
    action(resumes_);
    action(samples_);
  }

  void fill_index() {
    for (const IndexRow& row : iterations_.rows) {
      index_.iteration.push_back(row.iteration);
      index_.epoch.push_back(row.epoch);
      index_.step.push_back(row.step);
      index_.samples.push_back(row.samples);
      index_.learning_rate.push_back(row.learning_rate);
      index_.warmup.push_back(row.warmup);
      index_.buckets = std::max(index_.buckets, row.buckets);
    }
  }

  template <typename Row>
  bool append_of_all_ranks(Taken<Row>& taken, std::optional<Row> row, std::int64_t offset) const {
    return row && row->ranks.size() == ranks() && append(taken, std::move(row), offset);
  }

  template <typename Row>
  static bool append(Taken<Row>& taken, std::optional<Row> row, std::int64_t offset) {
    if (!row) return false;
    taken.add(*std::move(row), offset);
    return true;
  }

  template <typename Value>
  static bool assign(Value& target, std::optional<Value> value) {
    if (!value) return false;
    target = *std::move(value);
    return true;
  }

  void remark_left_out() {
    remarks_.push_back(fmt::format(
        "journal: {} bytes at the end are not a whole record, left out; {} iterations read",
        journal_.left_out_bytes(), iterations()));
  }

  void remark_unusable(std::int64_t offset) {
    remarks_.push_back(fmt::format(
        "journal: the record at byte {} does not fit this run, left out with all after it; {} "
        "iterations read",
        offset, iterations()));
  }

  IterationRow row_at(std::size_t row) const {
    auto decoded = decode_iteration(journal_.at(iterations_.offsets[row]).payload);
    if (!decoded || decoded->ranks.size() != ranks())
      throw Error(ExitCode::kBadData,
                  fmt::format("journal '{}': iteration {} changed while it was read",
                              journal_.path().string(), row));
    return *std::move(decoded);
  }

  JournalReader journal_;
  RunInfo info_;
  RunEnd end_;
  IterationIndex index_;
  std::int64_t first_row_at_ = 0, read_bytes_ = 0;
  /// [first, last]: a place behind `first`, up to `last`, where a resume record begins, is on an
  /// abandoned branch.
  std::vector<std::pair<std::int64_t, std::int64_t>> dropped_;
  Taken<IndexRow> iterations_;
  Taken<EpochRow> epochs_;
  Taken<VerificationRow> verification_;
  Taken<CalibrationRow> calibration_;
  Taken<WindowRow> windows_;
  Taken<ClockRow> clocks_;
  Taken<TrafficRow> traffic_;
  Taken<ReplicaRow> replicas_;
  Taken<ResumeRow> resumes_;
  Taken<DeviceSample> samples_;
  Quantization quantization_;
  std::vector<std::string> remarks_;
};

}  // namespace

std::unique_ptr<JournalRunReader> open_journal(const std::filesystem::path& path) {
  return std::make_unique<JournalRun>(path);
}

bool holds_complete_run(const JournalRunReader& journal) {
  return journal.status() == RunStatus::kComplete && journal.remarks().empty();
}

}  // namespace gradsync
