#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

/// What all JSON records of the journal have in common: NaN is null, infinities are "inf" and
/// "-inf".
namespace gradsync {

nlohmann::json number_json(double value);

/// The inverse. Throws nlohmann::json::exception for what is no number.
double read_number(const nlohmann::json& value);

/// The record's text. What a host name or a variable holds need not be UTF-8: such bytes are
/// replaced.
std::vector<std::byte> record_bytes(const nlohmann::json& object);

/// `read` of the parsed object; nothing if the bytes are not JSON or lack something.
template <typename Result>
std::optional<Result> read_record(std::span<const std::byte> bytes,
                                  Result (*read)(const nlohmann::json&)) {
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  try {
    return read(nlohmann::json::parse(begin, begin + bytes.size()));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace gradsync
