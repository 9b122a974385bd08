// SPDX-License-Identifier: BSD-3-Clause
#include "record/schema.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "record/run.h"

namespace gradsync {

namespace {

void require_names(const std::set<std::string>& names, std::size_t count, std::string_view what) {
  if (names.size() != count)
    throw Error(ExitCode::kInternal, fmt::format("{} is given twice under one name", what));
  for (const std::string& name : names)
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      throw Error(ExitCode::kInternal,
                  fmt::format("{} cannot be recorded under the name '{}'", what, name));
}

template <typename Entry>
std::set<std::string> names_of(const std::vector<Entry>& entries) {
  std::set<std::string> names;
  for (const Entry& entry : entries)
    names.insert(entry.name);
  return names;
}

}  // namespace

std::string schema_text(int schema) {
  return std::string(kRunSchemaName) + std::to_string(schema);
}

std::optional<int> parse_schema(std::string_view text) {
  if (!text.starts_with(kRunSchemaName)) return std::nullopt;
  int schema = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + kRunSchemaName.size(), end, schema);
  if (error != std::errc() || rest != end) return std::nullopt;
  return schema;
}

std::string_view phase_name(Phase phase) {
  return kPhaseNames[static_cast<std::size_t>(phase)];
}

bool is_traced(const RunInfo& info) {
  return std::ranges::any_of(info.provenance, [](const NamedText& entry) {
    return entry.name == "source" && entry.value == kTracesSource;
  });
}

std::string_view traffic_name(Traffic category) {
  return kTrafficNames[static_cast<std::size_t>(category)];
}

std::string_view status_name(RunStatus status) {
  return kRunStatusNames[static_cast<std::size_t>(status)];
}

std::optional<RunStatus> parse_status(std::string_view name) {
  const auto found = std::ranges::find(kRunStatusNames, name);
  if (found == kRunStatusNames.end()) return std::nullopt;
  return static_cast<RunStatus>(found - kRunStatusNames.begin());
}

void use_present_names(RunInfo& info) {
  for (ConfigEntry& entry : info.config)
    if (entry.name == "transport" && entry.value == "ring") entry.value = "tcp-ring";
}

void use_present_names(std::vector<CalibrationRow>& rows) {
  for (CalibrationRow& row : rows)
    if (row.transport == "ring") row.transport = "mpi-ring";
}

void require_recordable(const RunInfo& info) {
  require_names(names_of(info.config), info.config.size(), "an option");
  require_names(names_of(info.provenance), info.provenance.size(), "a provenance entry");
  require_names(names_of(info.experiment), info.experiment.size(), "a fact of an experiment");
  if (info.topology.empty()) throw Error(ExitCode::kInternal, "a run without ranks");
  for (std::size_t rank = 0; rank < info.topology.size(); ++rank)
    if (info.topology[rank].rank != static_cast<std::int32_t>(rank))
      throw Error(ExitCode::kInternal, fmt::format("the topology has rank {} in place {}",
                                                   info.topology[rank].rank, rank));
}

void require_recordable(const IterationRow& row, std::size_t ranks) {
  if (row.ranks.size() != ranks)
    throw Error(ExitCode::kInternal, fmt::format("iteration {} is of {} ranks, the run has {}",
                                                 row.iteration, row.ranks.size(), ranks));
  for (std::size_t rank = 0; rank < ranks; ++rank)
    if (row.ranks[rank].buckets.size() != row.buckets.size())
      throw Error(
          ExitCode::kInternal,
          fmt::format("iteration {}, rank {}: times of {} buckets, the row has {}", row.iteration,
                      rank, row.ranks[rank].buckets.size(), row.buckets.size()));
}

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
