#include "record/journal_run.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "record/journal.h"
#include "record/journal_payload.h"
#include "support/error.h"

namespace gradsync {

namespace {

class JournalRun : public RunReader {
 public:
  explicit JournalRun(const std::filesystem::path& path) : journal_(path) {
    read_info();
    bool usable = true;
    while (usable) {
      const auto record = journal_.next();
      if (!record) break;
      usable = take(*record);
      if (!usable) remark_unusable(record->offset);
    }
    if (usable && journal_.left_out_bytes() > 0) remark_left_out();
  }

  const RunInfo& info() const override { return info_; }
  RunStatus status() const override { return end_.status; }
  const std::string& finished() const override { return end_.finished; }
  const std::vector<std::string>& remarks() const override { return remarks_; }
  std::size_t iterations() const override { return offsets_.size(); }
  std::size_t ranks() const override { return info_.topology.size(); }
  const IterationIndex& index() const override { return index_; }
  const std::vector<EpochRow>& epochs() const override { return epochs_; }
  const std::vector<VerificationRow>& verification() const override { return verification_; }
  const std::vector<CalibrationRow>& calibration() const override { return calibration_; }
  const std::vector<WindowRow>& windows() const override { return windows_; }
  const std::vector<ClockRow>& clocks() const override { return clocks_; }

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
                  "the job ended before its first iteration: remove the journal, run it again");
    info_ = *std::move(info);
  }

  /// False for a record whose checksum holds but that makes no sense.
  bool take(const JournalRecord& record) {
    switch (record.type) {
      case RecordType::kInfo:
        return false;
      case RecordType::kIteration:
        return take_iteration(record);
      case RecordType::kEpoch:
        return append_of_all_ranks(epochs_, decode_epoch(record.payload));
      case RecordType::kVerification:
        return append(verification_, decode_verification(record.payload));
      case RecordType::kCalibration:
        return append(calibration_, decode_calibration(record.payload));
      case RecordType::kWindow:
        return append_of_all_ranks(windows_, decode_window(record.payload));
      case RecordType::kClock:
        return append_of_all_ranks(clocks_, decode_clock(record.payload));
      case RecordType::kEnd:
        return assign(end_, decode_end(record.payload));
    }
    return true;  // a kind of record that a later release added
  }

  bool take_iteration(const JournalRecord& record) {
    const auto row = decode_iteration(record.payload);
    if (!row || row->ranks.size() != ranks()) return false;
    offsets_.push_back(record.offset);
    index_.iteration.push_back(row->iteration);
    index_.epoch.push_back(row->epoch);
    index_.step.push_back(row->step);
    index_.samples.push_back(row->samples);
    index_.learning_rate.push_back(row->learning_rate);
    index_.warmup.push_back(row->warmup);
    index_.buckets = std::max(index_.buckets, row->buckets.size());
    return true;
  }

  template <typename Row>
  bool append_of_all_ranks(std::vector<Row>& rows, std::optional<Row> row) const {
    return row && row->ranks.size() == ranks() && append(rows, std::move(row));
  }

  template <typename Row>
  static bool append(std::vector<Row>& rows, std::optional<Row> row) {
    if (!row) return false;
    rows.push_back(*std::move(row));
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
    auto decoded = decode_iteration(journal_.at(offsets_[row]).payload);
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
  std::vector<std::int64_t> offsets_;
  std::vector<EpochRow> epochs_;
  std::vector<VerificationRow> verification_;
  std::vector<CalibrationRow> calibration_;
  std::vector<WindowRow> windows_;
  std::vector<ClockRow> clocks_;
  std::vector<std::string> remarks_;
};

}  // namespace

std::unique_ptr<RunReader> open_journal(const std::filesystem::path& path) {
  return std::make_unique<JournalRun>(path);
}

}  // namespace gradsync
