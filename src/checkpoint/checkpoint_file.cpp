#include "checkpoint/checkpoint_file.h"

#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

namespace {

SafetensorsHeader sound_header(std::span<const std::byte> file) {
  SafetensorsHeader header = parse_safetensors(file);
  const auto format = header.metadata.find("format");
  if (format == header.metadata.end() || format->second != kCheckpointFormat)
    throw Error(
        ExitCode::kBadData,
        fmt::format("its format is '{}', not {}",
                    format == header.metadata.end() ? "" : format->second, kCheckpointFormat));
  const std::string& stated = header.metadata.at(std::string(kDigestKey));
  if (const std::string found = safetensors_digest(file, header.digest_at); found != stated)
    throw Error(ExitCode::kBadData, fmt::format("its SHA-256 is {}…, its header says {}…",
                                                found.substr(0, 16), stated.substr(0, 16)));
  return header;
}

void write_at(int fd, std::string_view text, std::uint64_t offset,
              const std::filesystem::path& path) {
  if (::pwrite(fd, text.data(), text.size(), static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(text.size()))
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot write '{}': {}", path.string(), errno_text()));
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path target,
                                   const std::vector<TensorInfo>& tensors, TextMap metadata)
    : target_(std::move(target)), temporary_(temporary_beside(target_)) {
  metadata.emplace("format", kCheckpointFormat);
  const std::string front = safetensors_front(tensors, std::move(metadata));
  const std::string key = fmt::format("\"{}\":\"", kDigestKey);
  digest_at_ = front.find(key) + key.size();
  file_ = create_file(temporary_.path());
  write(std::as_bytes(std::span(front)));
}

void CheckpointWriter::write(std::span<const std::byte> bytes) {
  write_all(file_.get(), bytes, temporary_.path());
  digest_.update(bytes);
}

void CheckpointWriter::finish() {
  write_at(file_.get(), digest_.hex(), digest_at_, temporary_.path());
  close_file(std::move(file_), temporary_.path());
  temporary_.rename_to(target_);
  sync_folder(folder_of(target_));
}

CheckpointFile::CheckpointFile(const std::filesystem::path& path) try
    : file_(path), header_(sound_header(file_.bytes())) {
} catch (const Error& error) {
  if (error.code() != ExitCode::kBadData) throw;
  throw Error(ExitCode::kBadData,
              fmt::format("checkpoint '{}' is refused: {}", path.string(), error.what()));
}

const TensorPlace* CheckpointFile::find(std::string_view name) const {
  const auto found = std::find_if(tensors().begin(), tensors().end(),
                                  [&](const auto& place) { return place.info.name == name; });
  return found == tensors().end() ? nullptr : &*found;
}

std::span<const std::byte> CheckpointFile::bytes(const TensorPlace& tensor) const {
  return file_.bytes().subspan(static_cast<std::size_t>(tensor.begin),
                               static_cast<std::size_t>(tensor.end - tensor.begin));
}

}  // namespace gradsync
