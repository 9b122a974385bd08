// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/file.h"
#include "record/reader.h"
#include "record/schema.h"

/// The journal: a file that is only ever appended to, in records that vouch for themselves.
///
///   header   8 bytes magic, u32 version, u32 CRC-32C of the 12 bytes before it
///   record   u32 length n, u32 type, n bytes payload, u32 CRC-32C of type and payload
///
/// All little-endian.
namespace gradsync {

/// What is written, and the oldest that is read.
inline constexpr std::uint32_t kJournalVersion = 6, kOldestJournalVersion = 2;
inline constexpr std::size_t kJournalHeaderBytes = 16;
/// No record is larger: a row of 4,096 ranks with 200 collectives takes 20 MiB.
inline constexpr std::uint32_t kMaxPayloadBytes = 64U << 20;

/// Whether a file begins as a journal does; `front` are its first bytes, at least 8 where it has
/// as many.
bool looks_like_journal(std::span<const std::byte> front);

/// The journal of a run file: `<output>.journal`.
std::filesystem::path journal_path(const std::filesystem::path& output);

/// In the names of the files that a sweep has set aside of a run which it started again.
inline constexpr std::string_view kSetAside = ".interrupted-";
inline bool is_set_aside(const std::filesystem::path& file) {
  return file.filename().string().find(kSetAside) != std::string::npos;
}

/// The file that names the writer of a journal, while there is one: `<journal>.lock`.
std::filesystem::path journal_lock_path(const std::filesystem::path& journal);
/// Removes the lock of a journal whose writer is gone, whatever host it names, on a file system of
/// one host, where the kernel's own lock of the journal shows that.
void remove_lock_of_gone(const std::filesystem::path& journal);

/// Appends records; no other process writes the journal meanwhile (flock and a LockFile). After
/// every failure the file ends with a whole record again, if the disk lets it; all that was
/// appended before is kept.
class JournalWriter {
 public:
  /// Makes the file (it must not exist, and a link in its place counts as existing) with the header
  /// and, if there is one, the record kInfo. It gets its name when they are on the disk. Throws
  /// Error kCannotCreate or kInputOutput.
  explicit JournalWriter(std::filesystem::path path, std::span<const std::byte> info = {});

  /// Continues an existing journal after its last sound record; what a killed writer left behind
  /// it is cut off. Throws Error kNoInput or kBadData as JournalReader does, kBadData for another
  /// version than is written now (rows of two kinds would mix), kCannotCreate while
  /// another process writes it, kInputOutput.
  static JournalWriter append_to(std::filesystem::path path);

  /// Cuts off what is behind byte `bytes`, the end of a whole record. Throws Error kInputOutput.
  void cut_to(std::int64_t bytes);

  /// Appends one record in one write. Throws Error kInputOutput if the disk does not take it, or if
  /// an earlier failure could not be undone; kInternal if it is larger than kMaxPayloadBytes.
  void append(RecordType type, std::span<const std::byte> payload);

  /// fdatasync. Throws Error kInputOutput; what was appended since the last one may then be lost.
  void sync();

  const std::filesystem::path& path() const { return path_; }
  /// Bytes of the file: header and whole records.
  std::int64_t bytes() const { return whole_bytes_; }

 private:
  JournalWriter(std::filesystem::path path, UniqueFd file);
  void lock();
  void append_at_end();
  void undo_partial_write();

  std::filesystem::path path_;
  UniqueFd file_;
  std::optional<LockFile> lock_;
  std::int64_t whole_bytes_ = 0;
  bool broken_ = false;
};

struct JournalRecord {
  RecordType type{};
  std::int64_t offset = 0;  ///< where the record begins in the file
  std::vector<std::byte> payload;
};

/// Reads records from the front. A record that is short, fails its CRC or has an absurd length ends
/// the reading, as the end of the file does: that is what a killed writer leaves.
class JournalReader {
 public:
  /// Throws Error: kNoInput if the file is missing, kBadData if it has no whole, sound header or is
  /// of a version that is not read.
  explicit JournalReader(std::filesystem::path path);

  std::uint32_t version() const { return version_; }

  /// The next sound record, or nothing. Throws Error kInputOutput if the disk fails.
  std::optional<JournalRecord> next();

  /// The record at `offset` of an earlier one. Throws Error kBadData if it is not sound (any more).
  JournalRecord at(std::int64_t offset) const;

  /// Bytes up to the end of the last record that `next` returned.
  std::int64_t position() const { return position_; }

  /// Bytes behind the last sound record, once `next` has returned nothing.
  std::int64_t left_out_bytes() const { return file_bytes_ - position_; }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::optional<JournalRecord> sound_record(std::int64_t offset) const;
  /// Fills `buffer` from `offset`; false if the file ends before.
  bool read_at(std::int64_t offset, std::span<std::byte> buffer) const;

  std::filesystem::path path_;
  UniqueFd file_;
  std::int64_t file_bytes_ = 0;  ///< when it was opened: a running job may append more
  std::int64_t position_ = 0;
  std::uint32_t version_ = 0;
};

/// What the records of a journal hold, derived from the fields of record/schema.h. Iteration rows
/// are binary, since a job writes one every few milliseconds:
///
///   the fields of IterationHeader · u32 ranks · u32 buckets · a bucket: the fields of BucketShape
///   a rank: the fields of RankIteration · a bucket: the fields of BucketTimes
///
/// Numbers have 64 bits; flags and kinds of collective are u32. The length determines the version:
/// rows of earlier versions lack what later ones added. All other records are JSON objects; in them
/// NaN is null and infinities are "inf" and "-inf".
///
/// encode: the payload of a row of RunLists, a RunInfo, a RunEnd or an IterationRow.
template <typename Row>
std::vector<std::byte> encode(const Row& row);
template <>
std::vector<std::byte> encode(const IterationRow& row);

/// The inverse; nothing if the bytes are not such a record. Never throws for what they hold.
template <typename Row>
std::optional<Row> decode(std::span<const std::byte> payload);
template <>
std::optional<IterationRow> decode(std::span<const std::byte> payload);

/// A run in its journal, with what is needed to resume it there. What is behind the last sound
/// record is left out and named in remarks(); a journal cut at any byte behind its first record
/// reads.
class JournalRun : public RunReader {
 public:
  /// Throws Error kBadData if not even the first record, which describes the run, is whole.
  explicit JournalRun(const std::filesystem::path& path);

  /// Bytes before the first record after the one that describes the run.
  std::int64_t first_row_at() const { return first_row_at_; }
  /// Bytes up to the end of the last record that was read; remarks() says why the rest was not.
  std::int64_t read_bytes() const { return read_bytes_; }
  /// Iterations in the first `bytes` of the journal. Nothing if these were not all read, or if a
  /// resume from an earlier place has dropped some of them: then `bytes` is on an abandoned branch.
  std::optional<std::int64_t> iterations_at(std::int64_t bytes) const;
  /// Whether the run has ended and can be read to its end.
  bool is_complete() const { return status() == RunStatus::kComplete && remarks().empty(); }
  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override;

 private:
  void read_info();
  /// False for a record whose checksum holds but that makes no sense.
  bool take(const JournalRecord& record);
  bool take_iteration(const JournalRecord& record);
  /// What was recorded after the place the run went back to counts no more.
  bool take_resume(const JournalRecord& record);
  bool take_end(const JournalRecord& record);
  /// A row of the list of its kind. Kinds of record that a later release added are passed over.
  bool take_row(const JournalRecord& record);
  void drop_from(std::int64_t offset);
  std::int64_t rows_before(RecordType type, std::int64_t offset) const;
  IterationRow row_at(std::size_t row) const;

  JournalReader journal_;
  std::int64_t first_row_at_ = 0, read_bytes_ = 0;
  /// [first, last]: a place behind `first`, up to `last`, where a resume record begins, is on an
  /// abandoned branch.
  std::vector<std::pair<std::int64_t, std::int64_t>> dropped_;
  std::vector<std::size_t> buckets_;  ///< of each iteration
  /// Where the records of each kind of row begin.
  std::map<RecordType, std::vector<std::int64_t>> offsets_;
};

}  // namespace gradsync
