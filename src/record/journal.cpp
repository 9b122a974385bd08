// SPDX-License-Identifier: BSD-3-Clause
#include "record/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "record/recorder.h"

namespace gradsync {

namespace {

// As in PNG: a byte beyond ASCII and both line ends, so a transfer in text mode is noticed.
constexpr std::array<unsigned char, 8> kMagic = {0x89, 'G', 'S', 'J', '\r', '\n', 0x1A, '\n'};
constexpr std::size_t kFrameBytes = 8;  // length and type
constexpr std::size_t kChecksumBytes = 4;

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

void append(std::vector<std::byte>& bytes, std::uint32_t number) {
  const auto more = std::as_bytes(std::span(&number, 1));
  bytes.insert(bytes.end(), more.begin(), more.end());
}

std::vector<std::byte> header() {
  const auto magic = std::as_bytes(std::span(kMagic));
  std::vector<std::byte> bytes(magic.begin(), magic.end());
  append(bytes, kJournalVersion);
  append(bytes, crc32c(bytes));
  return bytes;
}

std::vector<std::byte> framed(RecordType type, std::span<const std::byte> payload) {
  std::vector<std::byte> bytes;
  bytes.reserve(kFrameBytes + payload.size() + kChecksumBytes);
  append(bytes, static_cast<std::uint32_t>(payload.size()));
  append(bytes, static_cast<std::uint32_t>(type));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  append(bytes, crc32c(std::span(bytes).subspan(sizeof(std::uint32_t))));
  return bytes;
}

}  // namespace

bool looks_like_journal(std::span<const std::byte> front) {
  return front.size() >= kMagic.size() &&
         std::memcmp(front.data(), kMagic.data(), kMagic.size()) == 0;
}

std::filesystem::path journal_path(const std::filesystem::path& output) {
  return output.string() + ".journal";
}

std::filesystem::path journal_lock_path(const std::filesystem::path& journal) {
  return journal.string() + ".lock";
}

namespace {

// Locks the journal. Whether that shows that nobody else writes it.
bool locked_alone(int file) {
  return ::flock(file, LOCK_EX | LOCK_NB) == 0 && locks_reach_everyone(file);
}

}  // namespace

void remove_lock_of_gone(const std::filesystem::path& journal) {
  const UniqueFd file(::open(journal.c_str(), O_RDWR | O_CLOEXEC));
  if (file && locked_alone(file.get())) std::filesystem::remove(journal_lock_path(journal));
}

// A crash leaves all of it or no journal, which would be in the way of the next start.
JournalWriter::JournalWriter(std::filesystem::path path, std::span<const std::byte> info)
    : path_(std::move(path)) {
  TemporaryFile temporary(temporary_beside(path_));
  file_ = create_file(temporary.path());
  const auto bytes = header();
  write_all(file_.get(), bytes, temporary.path());
  whole_bytes_ = static_cast<std::int64_t>(bytes.size());
  // Locks the file, whatever its name. Who else makes the journal now holds that of another file.
  ::flock(file_.get(), LOCK_EX | LOCK_NB);
  lock_.emplace(journal_lock_path(path_), path_, LockFile::Others::kMayLive);
  append_at_end();
  if (!info.empty()) append(RecordType::kInfo, info);
  sync();
  rename_to_new(temporary.path(), path_, "choose another --output");
  temporary.keep();
  sync_folder(folder_of(path_));
}

JournalWriter::JournalWriter(std::filesystem::path path, UniqueFd file)
    : path_(std::move(path)), file_(std::move(file)) {
  lock();
  JournalReader reader(path_);
  if (reader.version() != kJournalVersion)
    throw Error(ExitCode::kBadData,
                fmt::format("journal '{}' has version {}, this program appends to version {}",
                            path_.string(), reader.version(), kJournalVersion),
                "resume the run with the release that started it");
  while (reader.next()) {
  }
  cut_to(reader.position());
}

JournalWriter JournalWriter::append_to(std::filesystem::path path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file)
    throw Error(errno == ENOENT ? ExitCode::kNoInput : ExitCode::kInputOutput,
                fmt::format("cannot open '{}': {}", path.string(), errno_text()));
  return JournalWriter(std::move(path), std::move(file));
}

// The lock file decides. The lock of the kernel only shows that the writer of a lock file is gone:
// whoever can read the journal can hold it.
void JournalWriter::lock() {
  const bool alone = locked_alone(file_.get());
  lock_.emplace(journal_lock_path(path_), path_,
                alone ? LockFile::Others::kGone : LockFile::Others::kMayLive);
  append_at_end();
}

// Whatever happens, no writer overwrites a record.
void JournalWriter::append_at_end() {
  if (::fcntl(file_.get(), F_SETFL, O_APPEND) != 0)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot append to '{}': {}", path_.string(), errno_text()));
}

void JournalWriter::append(RecordType type, std::span<const std::byte> payload) {
  if (payload.size() > kMaxPayloadBytes)
    throw Error(ExitCode::kInternal, fmt::format("'{}': a record of {} bytes, at most {} fit",
                                                 path_.string(), payload.size(), kMaxPayloadBytes));
  if (broken_)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot write '{}': an earlier write failed", path_.string()));
  const auto bytes = framed(type, payload);
  try {
    write_all(file_.get(), bytes, path_);
  } catch (const Error&) {
    undo_partial_write();
    throw;
  }
  whole_bytes_ += static_cast<std::int64_t>(bytes.size());
}

void JournalWriter::cut_to(std::int64_t bytes) {
  whole_bytes_ = bytes;
  undo_partial_write();
  if (broken_)
    throw Error(ExitCode::kInputOutput, fmt::format("cannot cut '{}' to its whole records: {}",
                                                    path_.string(), errno_text()));
}

void JournalWriter::undo_partial_write() {
  broken_ = ::ftruncate(file_.get(), whole_bytes_) != 0;
}

void JournalWriter::sync() {
  if (TEMP_FAILURE_RETRY(::fdatasync(file_.get())) == 0) return;
  // The kernel drops pages that it failed to write, so a later success would prove nothing.
  broken_ = true;
  throw Error(ExitCode::kInputOutput,
              fmt::format("cannot write '{}' to disk: {}", path_.string(), errno_text()),
              "free space on that disk, or write elsewhere with --output");
}

JournalReader::JournalReader(std::filesystem::path path)
    : path_(std::move(path)), file_(open_for_reading(path_)) {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot examine '{}': {}", path_.string(), errno_text()));
  file_bytes_ = status.st_size;
  std::array<std::byte, kJournalHeaderBytes> bytes{};
  if (!read_at(0, bytes) || !looks_like_journal(bytes) ||
      number_at(bytes, 12) != crc32c(std::span(bytes).first(12)))
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' is not a journal: its header is short or damaged", path_.string()));
  version_ = number_at(bytes, 8);
  if (version_ < kOldestJournalVersion || version_ > kJournalVersion)
    throw Error(ExitCode::kBadData,
                fmt::format("journal '{}' has version {}, this program reads versions {} to {}",
                            path_.string(), version_, kOldestJournalVersion, kJournalVersion),
                "use the gradsync-report of the release that wrote it");
  position_ = kJournalHeaderBytes;
}

bool JournalReader::read_at(std::int64_t offset, std::span<std::byte> buffer) const {
  if (offset < 0 || static_cast<std::int64_t>(buffer.size()) > file_bytes_ - offset) return false;
  while (!buffer.empty()) {
    const ssize_t count = ::pread(file_.get(), buffer.data(), buffer.size(), offset);
    if (count == 0) return false;
    if (count < 0 && errno != EINTR)
      throw Error(ExitCode::kInputOutput, fmt::format("cannot read '{}' at byte {}: {}",
                                                      path_.string(), offset, errno_text()));
    if (count < 0) continue;
    buffer = buffer.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return true;
}

std::optional<JournalRecord> JournalReader::sound_record(std::int64_t offset) const {
  std::array<std::byte, kFrameBytes> frame{};
  if (!read_at(offset, frame)) return std::nullopt;
  const std::size_t length = number_at(frame, 0);
  if (length > kMaxPayloadBytes ||
      static_cast<std::int64_t>(kFrameBytes + length + kChecksumBytes) > file_bytes_ - offset)
    return std::nullopt;
  std::vector<std::byte> rest(length + kChecksumBytes);
  if (!read_at(offset + static_cast<std::int64_t>(kFrameBytes), rest)) return std::nullopt;
  const std::uint32_t of_type = crc32c(std::span(frame).subspan(4));
  if (number_at(rest, length) != crc32c(std::span(rest).first(length), of_type))
    return std::nullopt;
  rest.resize(length);
  return JournalRecord{static_cast<RecordType>(number_at(frame, 4)), offset, std::move(rest)};
}

std::optional<JournalRecord> JournalReader::next() {
  auto record = sound_record(position_);
  if (record)
    position_ += static_cast<std::int64_t>(kFrameBytes + record->payload.size() + kChecksumBytes);
  return record;
}

JournalRecord JournalReader::at(std::int64_t offset) const {
  if (auto record = sound_record(offset)) return *std::move(record);
  throw Error(ExitCode::kBadData,
              fmt::format("'{}': the record at byte {} is damaged", path_.string(), offset));
}

}  // namespace gradsync
