#include <cmath>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_number.h"
#include "record/journal.h"
#include "record/journal_payload.h"

namespace gradsync {

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
  return value.get<std::string>() == "inf" ? infinity : -infinity;
}

/// Writes the fields of a row into an object.
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
    for (const json& object : object_.at(std::string(nested.key))) {
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
  const auto* begin = reinterpret_cast<const char*>(payload.data());
  try {
    const json object = json::parse(begin, begin + payload.size());
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

template std::vector<std::byte> encode(const RunInfo&);
template std::vector<std::byte> encode(const RunEnd&);
template std::vector<std::byte> encode(const EpochRow&);
template std::vector<std::byte> encode(const VerificationRow&);
template std::vector<std::byte> encode(const CalibrationRow&);
template std::vector<std::byte> encode(const WindowRow&);
template std::vector<std::byte> encode(const ClockRow&);
template std::vector<std::byte> encode(const TrafficRow&);
template std::vector<std::byte> encode(const ReplicaRow&);
template std::vector<std::byte> encode(const ResumeRow&);
template std::vector<std::byte> encode(const DeviceSample&);
template std::vector<std::byte> encode(const HostSample&);
template std::vector<std::byte> encode(const LayerRow&);
template std::vector<std::byte> encode(const ProbeRow&);
template std::vector<std::byte> encode(const Quantization&);
template std::optional<RunInfo> decode(std::span<const std::byte>);
template std::optional<RunEnd> decode(std::span<const std::byte>);
template std::optional<EpochRow> decode(std::span<const std::byte>);
template std::optional<VerificationRow> decode(std::span<const std::byte>);
template std::optional<CalibrationRow> decode(std::span<const std::byte>);
template std::optional<WindowRow> decode(std::span<const std::byte>);
template std::optional<ClockRow> decode(std::span<const std::byte>);
template std::optional<TrafficRow> decode(std::span<const std::byte>);
template std::optional<ReplicaRow> decode(std::span<const std::byte>);
template std::optional<ResumeRow> decode(std::span<const std::byte>);
template std::optional<DeviceSample> decode(std::span<const std::byte>);
template std::optional<HostSample> decode(std::span<const std::byte>);
template std::optional<LayerRow> decode(std::span<const std::byte>);
template std::optional<ProbeRow> decode(std::span<const std::byte>);
template std::optional<Quantization> decode(std::span<const std::byte>);

}  // namespace gradsync
