#include "record/schema.h"

#include <fmt/format.h>

#include "base/error.h"

namespace gradsync {

namespace {

std::string_view key_ending(std::string_view units) {
  if (units == "s") return "_s";
  if (units == "B") return "_bytes";
  if (units == "Hz") return "_hz";
  if (units == "W") return "_w";
  if (units == "degC") return "_c";
  return "";
}

}  // namespace

std::string json_key(const Field& field) {
  if (!field.key.empty()) return std::string(field.key);
  const bool has_unit = field.name.ends_with("bytes");
  return std::string(field.name) + std::string(has_unit ? "" : key_ending(field.units));
}

std::string text_of(CollectiveKind kind) {
  return std::string(collective_name(kind));
}

std::string text_of(RunStatus status) {
  return std::string(status_name(status));
}

std::string text_of(int schema) {
  return schema_text(schema);
}

bool from_text(std::string_view text, CollectiveKind& kind) {
  const auto known = parse_collective(text);
  kind = known.value_or(kind);
  return known.has_value();
}

bool from_text(std::string_view text, RunStatus& status) {
  status = parse_status(text).value_or(RunStatus::kRunning);
  return true;
}

bool from_text(std::string_view text, int& schema) {
  schema = parse_schema(text).value_or(0);
  return schema >= kOldestRunSchema && schema <= kRunSchema;
}

void refuse_ranks(std::string_view title) {
  throw Error(ExitCode::kInternal, fmt::format("{}: a row of another number of ranks", title));
}

void require_recordable(const Quantization& quantization, std::size_t) {
  for (const QuantizedTensorRow& row : quantization.tensors)
    if (row.histogram.size() != kHistogramBins || row.integers.size() != kHistogramLevels)
      throw Error(ExitCode::kInternal, "a histogram of another length");
}

}  // namespace gradsync
