// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "record/journal.h"

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

}  // namespace

JournalRun::JournalRun(const std::filesystem::path& path) : journal_(path) {
  read_info();
  bool usable = true;
  while (usable) {
    const auto record = journal_.next();
    if (!record) break;
    usable = take(*record);
    if (usable)
      read_bytes_ = journal_.position();
    else
      remarks_.push_back(fmt::format(
          "journal: the record at byte {} does not fit this run, left out with all after it; {} "
          "iterations read",
          record->offset, iterations()));
  }
  if (usable && journal_.left_out_bytes() > 0)
    remarks_.push_back(fmt::format(
        "journal: {} bytes at the end are not a whole record, left out; {} iterations read",
        journal_.left_out_bytes(), iterations()));
  use_present_names(lists_.calibration);
  index_.buckets = buckets_.empty() ? 0 : *std::ranges::max_element(buckets_);
}

std::optional<std::int64_t> JournalRun::iterations_at(std::int64_t bytes) const {
  if (bytes < first_row_at_ || bytes > read_bytes_) return std::nullopt;
  for (const auto& [first, last] : dropped_)
    if (first < bytes && bytes <= last) return std::nullopt;
  return rows_before(RecordType::kIteration, bytes);
}

std::vector<IterationRow> JournalRun::rows(std::size_t first, std::size_t count) {
  require_rows(first, count);
  std::vector<IterationRow> result;
  for (std::size_t row = first; row < first + count; ++row)
    result.push_back(row_at(row));
  return result;
}

void JournalRun::read_info() {
  const auto record = journal_.next();
  auto info =
      record && record->type == RecordType::kInfo ? decode<RunInfo>(record->payload) : std::nullopt;
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

bool JournalRun::take(const JournalRecord& record) {
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

bool JournalRun::take_iteration(const JournalRecord& record) {
  const auto row = decode<IterationRow>(record.payload);
  if (!row || !has_all_ranks(*row, ranks())) return false;
  index_.add(*row);
  buckets_.push_back(row->buckets.size());
  offsets_[record.type].push_back(record.offset);
  return true;
}

bool JournalRun::take_resume(const JournalRecord& record) {
  const auto row = decode<ResumeRow>(record.payload);
  if (!row || row->iteration != iterations_at(row->journal_bytes)) return false;
  dropped_.emplace_back(row->journal_bytes, record.offset);
  drop_from(row->journal_bytes);
  end_ = RunEnd();
  return take_row(record);
}

bool JournalRun::take_end(const JournalRecord& record) {
  const auto end = decode<RunEnd>(record.payload);
  if (end) end_ = *end;
  return end.has_value();
}

bool JournalRun::take_row(const JournalRecord& record) {
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

void JournalRun::drop_from(std::int64_t offset) {
  for_each_list(
      [&]<typename Row>(std::vector<Row>& rows) {
        rows.erase(rows.begin() + rows_before(kRowKind<Row>.record, offset), rows.end());
      },
      lists_);
  const auto iterations = static_cast<std::size_t>(rows_before(RecordType::kIteration, offset));
  index_.resize(iterations);
  buckets_.resize(iterations);
  for (auto& [type, offsets] : offsets_)
    offsets.erase(std::ranges::lower_bound(offsets, offset), offsets.end());
}

std::int64_t JournalRun::rows_before(RecordType type, std::int64_t offset) const {
  const auto found = offsets_.find(type);
  if (found == offsets_.end()) return 0;
  const auto& offsets = found->second;
  return std::ranges::lower_bound(offsets, offset) - offsets.begin();
}

IterationRow JournalRun::row_at(std::size_t row) const {
  auto decoded =
      decode<IterationRow>(journal_.at(offsets_.at(RecordType::kIteration)[row]).payload);
  if (!decoded || !has_all_ranks(*decoded, ranks()))
    throw Error(ExitCode::kBadData,
                fmt::format("journal '{}': iteration {} changed while it was read",
                            journal_.path().string(), row));
  return *std::move(decoded);
}

}  // namespace gradsync
