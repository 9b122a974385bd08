#include "record/quantization_payload.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "record/quantization_fields.h"
#include "support/error.h"

namespace gradsync {

namespace {

using nlohmann::json;

json to_json(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}
json to_json(std::int64_t value) {
  return value;
}
json to_json(const std::string& value) {
  return value;
}
json to_json(const std::vector<std::int64_t>& value) {
  return value;
}

void from_json(const json& object, double& value) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (object.is_null())
    value = std::numeric_limits<double>::quiet_NaN();
  else if (object.is_number())
    value = object.get<double>();
  else
    value = object.get<std::string>() == "inf" ? infinity : -infinity;
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
  const std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::optional<Quantization> decode_quantization(std::span<const std::byte> payload) {
  const auto* begin = reinterpret_cast<const char*>(payload.data());
  try {
    const json object = json::parse(begin, begin + payload.size());
    Quantization result{read<QuantizedTensorRow>(object.at("tensors")),
                        read<QuantizedStepRow>(object.at("steps")),
                        read<QuantizedSpeedRow>(object.at("speeds"))};
    if (!lengths_fit(result)) return std::nullopt;
    return result;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace gradsync
