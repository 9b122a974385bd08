#include "record/journal_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "record/journal.h"
#include "record/journal_payload.h"

namespace gradsync {

namespace {

/// A Quantization without rows is none.
template <typename Row>
bool holds_nothing(const Row& row) {
  if constexpr (requires { row.empty(); })
    return row.empty();
  else
    return false;
}

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
    use_present_names(lists_.calibration);
    index_.buckets = buckets_.empty() ? 0 : *std::max_element(buckets_.begin(), buckets_.end());
  }

  const RunInfo& info() const override { return info_; }
  RunStatus status() const override { return end_.status; }
  const std::string& finished() const override { return end_.finished; }
  const std::vector<std::string>& remarks() const override { return remarks_; }
  std::size_t iterations() const override { return index_.iteration.size(); }
  std::size_t ranks() const override { return info_.topology.size(); }
  const IterationIndex& index() const override { return index_; }
  const RunLists& lists() const override { return lists_; }
  std::int64_t first_row_at() const override { return first_row_at_; }
  std::int64_t read_bytes() const override { return read_bytes_; }

  std::optional<std::int64_t> iterations_at(std::int64_t bytes) const override {
    if (bytes < first_row_at_ || bytes > read_bytes_) return std::nullopt;
    for (const auto& [first, last] : dropped_)
      if (first < bytes && bytes <= last) return std::nullopt;
    return rows_before(RecordType::kIteration, bytes);
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
    auto info = record && record->type == RecordType::kInfo ? decode<RunInfo>(record->payload)
                                                            : std::nullopt;
    if (!info || info->topology.empty())
      throw Error(ExitCode::kBadData,
                  fmt::format("journal '{}': the record that describes the run is short or damaged",
                              journal_.path().string()),
                  "rename the journal and run it again: without that record its iterations cannot "
                  "be read");
    info_ = *std::move(info);
    use_present_names(info_);
    first_row_at_ = read_bytes_ = journal_.position();
  }

  /// False for a record whose checksum holds but that makes no sense.
  bool take(const JournalRecord& record) {
    switch (record.type) {
      case RecordType::kInfo:
        return false;
      case RecordType::kIteration:
        return take_iteration(record);
      case RecordType::kResume:
        return take_resume(record);
      case RecordType::kEnd:
        return take_end(record);
      default:
        return take_row(record);
    }
  }

  bool take_iteration(const JournalRecord& record) {
    const auto row = decode<IterationRow>(record.payload);
    if (!row || !has_all_ranks(*row, ranks())) return false;
    index_.add(*row);
    buckets_.push_back(row->buckets.size());
    offsets_[record.type].push_back(record.offset);
    return true;
  }

  /// What was recorded after the place the run went back to counts no more.
  bool take_resume(const JournalRecord& record) {
    const auto row = decode<ResumeRow>(record.payload);
    if (!row || row->iteration != iterations_at(row->journal_bytes)) return false;
    dropped_.emplace_back(row->journal_bytes, record.offset);
    drop_from(row->journal_bytes);
    end_ = RunEnd();
    return take_row(record);
  }

  bool take_end(const JournalRecord& record) {
    const auto end = decode<RunEnd>(record.payload);
    if (end) end_ = *end;
    return end.has_value();
  }

  /// A row of the list of its kind. Kinds of record that a later release added are passed over.
  bool take_row(const JournalRecord& record) {
    bool fits = true;
    for_each_list(
        [&]<typename Row>(std::vector<Row>& rows) {
          if (kRowKind<Row>.record != record.type) return;
          auto row = decode<Row>(record.payload);
          fits = row && has_all_ranks(*row, ranks());
          if (!fits || holds_nothing(*row)) return;
          rows.push_back(*std::move(row));
          offsets_[record.type].push_back(record.offset);
        },
        lists_);
    return fits;
  }

  void drop_from(std::int64_t offset) {
    for_each_list(
        [&]<typename Row>(std::vector<Row>& rows) {
          rows.erase(rows.begin() + rows_before(kRowKind<Row>.record, offset), rows.end());
        },
        lists_);
    const auto iterations = static_cast<std::size_t>(rows_before(RecordType::kIteration, offset));
    index_.resize(iterations);
    buckets_.resize(iterations);
    for (auto& [type, offsets] : offsets_)
      offsets.erase(std::lower_bound(offsets.begin(), offsets.end(), offset), offsets.end());
  }

  std::int64_t rows_before(RecordType type, std::int64_t offset) const {
    const auto found = offsets_.find(type);
    if (found == offsets_.end()) return 0;
    const auto& offsets = found->second;
    return std::lower_bound(offsets.begin(), offsets.end(), offset) - offsets.begin();
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
    auto decoded =
        decode<IterationRow>(journal_.at(offsets_.at(RecordType::kIteration)[row]).payload);
    if (!decoded || !has_all_ranks(*decoded, ranks()))
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
  RunLists lists_;
  std::vector<std::size_t> buckets_;  ///< of each iteration
  /// Where the records of each kind of row begin.
  std::map<RecordType, std::vector<std::int64_t>> offsets_;
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
