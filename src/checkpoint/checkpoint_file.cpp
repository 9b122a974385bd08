// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/checkpoint_file.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "base/json_number.h"

namespace gradsync {

namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kAlignment = 8;
constexpr std::uint64_t kMaxTensorBytes = std::uint64_t{1} << 62;
const std::string kMetadataKey = "__metadata__";

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ExitCode::kBadData, reason);
}

std::string_view header_text(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes)
    refuse(fmt::format("it has {} bytes, too few for a header", file.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  if (length > kMaxHeaderBytes || length > file.size() - kLengthBytes)
    refuse(fmt::format("its header claims {} bytes, the file has {}", length, file.size()));
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes,
          static_cast<std::size_t>(length)};
}

json parsed_header(std::string_view text) {
  json header = parse_json(text, kMaxHeaderBytes);
  if (!header.is_object()) refuse("its header is not a JSON object");
  return header;
}

TextMap read_metadata(const json& header) {
  const auto found = header.find(kMetadataKey);
  if (found == header.end() || !found->is_object())
    refuse("its header has no __metadata__, so no digest");
  TextMap texts;
  for (const auto& [name, value] : found->items()) {
    if (!value.is_string()) refuse(fmt::format("__metadata__.{} is no text", name));
    texts[name] = value.get<std::string>();
  }
  return texts;
}

std::int64_t count_of(const json& value, const std::string& name) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}))
    refuse(fmt::format("tensor '{}' has a size that is not a whole number", name));
  const auto count = value.get<std::int64_t>();
  if (count < 0) refuse(fmt::format("tensor '{}' has a negative size", name));
  return count;
}

const json& member(const json& tensor, const char* key, const std::string& name) {
  const auto found = tensor.is_object() ? tensor.find(key) : tensor.end();
  if (!tensor.is_object() || found == tensor.end())
    refuse(fmt::format("tensor '{}' has no {}", name, key));
  return *found;
}

TensorPlace read_tensor(const json& tensor, const std::string& name) {
  TensorPlace place;
  place.info.name = name;
  const json &dtype = member(tensor, "dtype", name), &shape = member(tensor, "shape", name);
  const json& offsets = member(tensor, "data_offsets", name);
  if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2)
    refuse(fmt::format("tensor '{}' is described wrongly", name));
  place.info.dtype = dtype.get<std::string>();
  for (const json& size : shape)
    place.info.shape.push_back(count_of(size, name));
  place.begin = static_cast<std::uint64_t>(count_of(offsets[0], name));
  place.end = static_cast<std::uint64_t>(count_of(offsets[1], name));
  return place;
}

/// Offsets become bytes of the file; tensors must follow each other from its data to its end.
void require_whole(std::vector<TensorPlace>& tensors, std::uint64_t data_at,
                   std::uint64_t file_bytes) {
  std::ranges::stable_sort(tensors, [](const auto& a, const auto& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t expected = 0;
  for (TensorPlace& place : tensors) {
    if (place.begin != expected || place.end < place.begin ||
        place.end - place.begin != tensor_bytes(place.info))
      refuse(fmt::format("tensor '{}' has bytes {} to {}, not {} from {} on", place.info.name,
                         place.begin, place.end, tensor_bytes(place.info), expected));
    expected = place.end;
    if (expected > file_bytes - data_at)
      refuse(fmt::format("tensor '{}' ends at byte {} of the data, there are {}", place.info.name,
                         expected, file_bytes - data_at));
    place.begin += data_at;
    place.end += data_at;
  }
  if (data_at + expected != file_bytes)
    refuse(fmt::format("its tensors take {} bytes, the file has {} for them", expected,
                       file_bytes - data_at));
}

std::uint64_t digest_place(std::string_view text, const TextMap& metadata) {
  const auto digest = metadata.find(std::string(kDigestKey));
  if (digest == metadata.end() || digest->second.size() != kDigestDigits)
    refuse("its __metadata__ has no SHA-256");
  const std::string key = fmt::format("\"{}\":\"", kDigestKey);
  const std::string entry = key + digest->second + '"';
  const std::size_t at = text.find(entry);
  if (at == std::string_view::npos || text.find(key, at + 1) != std::string_view::npos)
    refuse("the place of its SHA-256 is not clear");
  return kLengthBytes + at + key.size();
}

}  // namespace

std::uint64_t dtype_bytes(std::string_view dtype) {
  if (dtype == "I8" || dtype == "U8" || dtype == "BOOL") return 1;
  if (dtype == "I16") return 2;
  if (dtype == "F32" || dtype == "I32") return 4;
  if (dtype == "F64" || dtype == "I64") return 8;
  refuse(fmt::format("it holds values of type '{}'", dtype));
}

std::uint64_t tensor_bytes(const TensorInfo& info) {
  std::uint64_t bytes = dtype_bytes(info.dtype);
  for (const std::int64_t size : info.shape) {
    const auto factor = static_cast<std::uint64_t>(size);
    if (size < 0 || (factor > 0 && bytes > kMaxTensorBytes / factor))
      refuse(fmt::format("tensor '{}' has an impossible shape", info.name));
    bytes *= factor;
  }
  return bytes;
}

std::string safetensors_front(const std::vector<TensorInfo>& tensors, TextMap metadata) {
  metadata[std::string(kDigestKey)] = std::string(kDigestDigits, '0');
  json header = {{kMetadataKey, metadata}};
  std::uint64_t end = 0;
  for (const TensorInfo& info : tensors) {
    const std::uint64_t begin = end;
    end += tensor_bytes(info);
    header[info.name] = {
        {"dtype", info.dtype}, {"shape", info.shape}, {"data_offsets", {begin, end}}};
  }
  // What a host or path is called need not be UTF-8; a checkpoint must not fail for that.
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  std::string front(kLengthBytes, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(front.data(), &length, sizeof length);
  return front + text;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file) {
  const std::string_view text = header_text(file);
  const json header = parsed_header(text);
  SafetensorsHeader result;
  result.metadata = read_metadata(header);
  for (const auto& [name, tensor] : header.items())
    if (name != kMetadataKey) result.tensors.push_back(read_tensor(tensor, name));
  require_whole(result.tensors, kLengthBytes + text.size(), file.size());
  result.digest_at = digest_place(text, result.metadata);
  return result;
}

std::string safetensors_digest(std::span<const std::byte> file, std::uint64_t digest_at) {
  const auto at = static_cast<std::size_t>(digest_at);
  Sha256 sha;
  sha.update(file.first(at));
  sha.update(std::string(kDigestDigits, '0'));
  sha.update(file.subspan(at + kDigestDigits));
  return sha.hex();
}

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
              fmt::format("checkpoint '{}' is refused: {}", path.string(), error.what()),
              error.fix().empty() ? "name another checkpoint" : error.fix());
}

const TensorPlace* CheckpointFile::find(std::string_view name) const {
  const auto found =
      std::ranges::find_if(tensors(), [&](const auto& place) { return place.info.name == name; });
  return found == tensors().end() ? nullptr : &*found;
}

std::span<const std::byte> CheckpointFile::bytes(const TensorPlace& tensor) const {
  return file_.bytes().subspan(static_cast<std::size_t>(tensor.begin),
                               static_cast<std::size_t>(tensor.end - tensor.begin));
}

}  // namespace gradsync
