#include "record/quantization_payload.h"

#include "record/json_record.h"
#include "record/quantization_fields.h"
#include "support/error.h"

namespace gradsync {

namespace {

using nlohmann::json;

json to_json(double value) {
  return number_json(value);
}
template <typename Value>
json to_json(const Value& value) {
  return value;
}

void from_json(const json& object, double& value) {
  value = read_number(object);
}
template <typename Value>
void from_json(const json& object, Value& value) {
  object.get_to(value);
}

/// Visits fields by writing them into, or reading them from, an object.
struct Writing {
  json object = json::object();
  template <typename Value>
  void operator()(const char* name, Value& value, const char*, const char*) {
    object[name] = to_json(value);
  }
};
struct Reading {
  const json& object;
  template <typename Value>
  void operator()(const char* name, Value& value, const char*, const char*) {
    from_json(object.at(name), value);
  }
};

template <typename Row>
json written(std::vector<Row> rows) {
  json all = json::array();
  for (Row& row : rows) {
    Writing writing;
    visit_fields(row, writing);
    all.push_back(std::move(writing.object));
  }
  return all;
}

template <typename Row>
std::vector<Row> read(const json& objects) {
  std::vector<Row> rows;
  for (const json& object : objects) {
    Reading reading{object};
    visit_fields(rows.emplace_back(), reading);
  }
  return rows;
}

Quantization read_quantization(const json& object) {
  return {read<QuantizedTensorRow>(object.at("tensors")),
          read<QuantizedStepRow>(object.at("steps")), read<QuantizedSpeedRow>(object.at("speeds"))};
}

bool lengths_fit(const Quantization& quantization) {
  for (const QuantizedTensorRow& row : quantization.tensors)
    if (row.histogram.size() != kHistogramBins || row.integers.size() != kHistogramLevels)
      return false;
  return true;
}

}  // namespace

void require_recordable(const Quantization& quantization) {
  if (!lengths_fit(quantization)) throw Error(ExitCode::kInternal, "a histogram of another length");
}

std::vector<std::byte> encode(const Quantization& quantization) {
  const json object = {{"tensors", written(quantization.tensors)},
                       {"steps", written(quantization.steps)},
                       {"speeds", written(quantization.speeds)}};
  return record_bytes(object);
}

std::optional<Quantization> decode_quantization(std::span<const std::byte> payload) {
  const auto result = read_record(payload, read_quantization);
  return result && lengths_fit(*result) ? result : std::nullopt;
}

}  // namespace gradsync
