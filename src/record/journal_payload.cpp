// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "record/journal.h"

namespace gradsync {

static_assert(std::endian::native == std::endian::little,
              "the journal is little-endian and written without conversion");

namespace {

/// What stands for a value.
template <typename Value>
auto stored(Value value) {
  if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, CollectiveKind>)
    return static_cast<std::uint32_t>(value);
  else
    return value;
}

/// Appends numbers and the values of rows to a block of bytes, little-endian, without padding. The
/// lists of a row are written behind it, in an order of their own.
struct ByteFields {
  std::vector<std::byte> bytes = {};

  template <typename Number>
  void put(Number value) {
    const auto more = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  template <typename Value>
  void operator()(const Field&, const Value& value) {
    put(stored(value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}
};

/// Takes numbers and the values that a version of the journal holds from the front of a block of
/// bytes; other values stay as they are. What is not there reads as 0 and turns `complete` off for
/// good, so a decoder checks once, before it uses any count it has read.
struct FieldsOfBytes {
  std::span<const std::byte> rest;
  int version;
  bool complete = true;
  bool sound = true;  ///< all kinds of collectives are known

  template <typename Number>
  Number get() {
    Number value{};
    if (rest.size() < sizeof value) {
      complete = false;
      rest = {};
      return value;
    }
    std::memcpy(&value, rest.data(), sizeof value);
    rest = rest.subspan(sizeof value);
    return value;
  }
  template <typename Value>
  void operator()(const Field& field, Value& value) {
    if (field.since > version) return;
    const auto number = get<decltype(stored(value))>();
    if constexpr (std::is_same_v<Value, CollectiveKind>)
      sound = sound && number < kCollectiveNames.size();
    value = static_cast<Value>(number);
  }
  template <typename Row>
  void operator()(const Nested&, std::vector<Row>&) {}
};

struct FieldBytes {
  int version;
  std::size_t bytes = 0;

  template <typename Value>
  void operator()(const Field& field, const Value& value) {
    if (field.since <= version) bytes += sizeof(stored(value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}
};

template <typename Row>
std::size_t bytes_of(int version) {
  FieldBytes sum{version};
  const Row row{};
  visit_fields(row, sum);
  return sum.bytes;
}

std::size_t payload_bytes(std::size_t ranks, std::size_t buckets, int version) {
  const std::size_t rank_bytes =
      bytes_of<RankIteration>(version) + buckets * bytes_of<BucketTimes>(version);
  return bytes_of<IterationHeader>(version) + 2 * sizeof(std::uint32_t) +
         buckets * bytes_of<BucketShape>(version) + ranks * rank_bytes;
}

constexpr int kVersion = static_cast<int>(kJournalVersion);

}  // namespace

template <>
std::vector<std::byte> encode(const IterationRow& row) {
  ByteFields fields;
  fields.bytes.reserve(payload_bytes(row.ranks.size(), row.buckets.size(), kVersion));
  visit_fields(row.header(), fields);
  fields.put(static_cast<std::uint32_t>(row.ranks.size()));
  fields.put(static_cast<std::uint32_t>(row.buckets.size()));
  for (const BucketShape& shape : row.buckets)
    visit_fields(shape, fields);
  for (const RankIteration& rank : row.ranks) {
    visit_fields(rank, fields);
    for (const BucketTimes& times : rank.buckets)
      visit_fields(times, fields);
  }
  return std::move(fields.bytes);
}

namespace {

/// The row as a version of the journal has it, if the payload is just as long as that.
std::optional<IterationRow> decode_version(std::span<const std::byte> payload, int version) {
  IterationRow row;
  FieldsOfBytes fields{payload, version};
  visit_fields(row.header(), fields);
  const std::size_t ranks = fields.get<std::uint32_t>();
  const std::size_t buckets = fields.get<std::uint32_t>();
  // Before anything is allocated: the counts must be those of a payload of just this size.
  if (!fields.complete || ranks > payload.size() || buckets > payload.size() ||
      payload_bytes(ranks, buckets, version) != payload.size())
    return std::nullopt;
  row.buckets.resize(buckets);
  for (BucketShape& shape : row.buckets)
    visit_fields(shape, fields);
  if (!fields.sound) return std::nullopt;
  row.ranks.resize(ranks);
  for (RankIteration& rank : row.ranks) {
    visit_fields(rank, fields);
    rank.buckets.resize(buckets);
    for (BucketTimes& times : rank.buckets)
      visit_fields(times, fields);
  }
  return row;
}

}  // namespace

template <>
std::optional<IterationRow> decode(std::span<const std::byte> payload) {
  for (int version = kVersion; version >= static_cast<int>(kOldestJournalVersion); --version)
    if (std::optional<IterationRow> row = decode_version(payload, version)) return row;
  return std::nullopt;
}

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const Field& field) {
  throw Error(ExitCode::kBadData, "not a value of " + path_of(field));
}

json number_json(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

double read_number(const json& value) {
  if (value.is_null()) return kNotMeasured;
  if (value.is_number()) return value.get<double>();
  const double infinity = std::numeric_limits<double>::infinity();
  const auto text = value.get<std::string>();
  if (text != "inf" && text != "-inf") throw Error(ExitCode::kBadData, "not a number: " + text);
  return text == "inf" ? infinity : -infinity;
}

class JsonWriter {
 public:
  json object = json::object();

  void operator()(const Field& field, double value) {
    object[json_key(field)] = number_json(value);
  }
  template <typename Value>
  void operator()(const Field& field, Named<Value> value) {
    object[json_key(field)] = text_of(value.value);
  }
  template <typename Value>
  void operator()(const Field& field, const Value& value) {
    object[json_key(field)] = value;
  }
  template <typename Values>
  void operator()(const Field& field, FileAxis, const Values& values) {
    object[json_key(field)] = values;
  }
  template <typename Row>
  void operator()(const Nested& nested, const std::vector<Row>& rows) {
    json& list = object[std::string(nested.key)] = json::array();
    for (const Row& row : rows) {
      JsonWriter writer;
      visit_fields(row, writer);
      list.push_back(std::move(writer.object));
    }
  }
};

template <typename Value>
void read_value(const json& from, Value& value) {
  if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>)
    value = whole_number<Value>(from);
  else if constexpr (std::is_same_v<Value, std::string>)
    value = printable(from.get_ref<const std::string&>());
  else
    from.get_to(value);
}
template <typename Integer>
requires std::is_integral_v<Integer>
void read_value(const json& from, std::vector<Integer>& values) {
  values.clear();
  for (const json& one : from.get_ref<const json::array_t&>())
    read_value(one, values.emplace_back());
}

/// The inverse. Throws json::exception or Error for an object that lacks a field or holds another
/// type.
class JsonReader {
 public:
  explicit JsonReader(const json& object) : object_(object) {}

  void operator()(const Field& field, double& value) {
    if (has(field)) value = read_number(at(field));
  }
  template <typename Value>
  void operator()(const Field& field, Named<Value> value) {
    if (!from_text(at(field).template get<std::string>(), value.value)) refuse(field);
  }
  template <typename Value>
  void operator()(const Field& field, Value& value) {
    if (has(field)) read_value(at(field), value);
  }
  template <typename Values>
  void operator()(const Field& field, FileAxis axis, Values& values) {
    read_value(at(field), values);
    if (values.size() != fixed_length(axis)) refuse(field);
  }
  template <typename Row>
  void operator()(const Nested& nested, std::vector<Row>& rows) {
    const std::string key(nested.key);
    if (nested.since > static_cast<int>(kOldestJournalVersion) && !object_.contains(key)) return;
    for (const json& object : object_.at(key)) {
      JsonReader reader(object);
      visit_fields(rows.emplace_back(), reader);
    }
  }

 private:
  /// Journals may lack what came with a version after the oldest one that is read.
  bool has(const Field& field) const {
    return field.since <= static_cast<int>(kOldestJournalVersion) ||
           object_.contains(json_key(field));
  }
  const json& at(const Field& field) const { return object_.at(json_key(field)); }

  const json& object_;
};

}  // namespace

// What a host name or a variable holds need not be UTF-8: such bytes are replaced.
template <typename Row>
std::vector<std::byte> encode(const Row& row) {
  JsonWriter writer;
  visit_fields(row, writer);
  const std::string text = writer.object.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

template <typename Row>
std::optional<Row> decode(std::span<const std::byte> payload) {
  const std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  try {
    const json object = parse_json(text, kMaxPayloadBytes);
    Row row;
    JsonReader reader(object);
    visit_fields(row, reader);
    return row;
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

#define GRADSYNC_ROWS(list, Row, ...)                     \
  template std::vector<std::byte> encode(const Row& row); \
  template std::optional<Row> decode(std::span<const std::byte> payload);
#include "record/rows.def"
GRADSYNC_ROWS(, RunInfo)
GRADSYNC_ROWS(, RunEnd)
#undef GRADSYNC_ROWS

}  // namespace gradsync
