#include "record/hdf5_run_info.h"

#include <fmt/format.h>

namespace gradsync {

namespace {

void read_config(const Hdf5Input& file, RunInfo& info) {
  for (const std::string& name : file.members("config"))
    info.config.push_back({name, file.text("config/" + name), file.source_of("config/" + name)});
  for (const std::string& name : file.members("provenance"))
    info.provenance.push_back({name, file.text("provenance/" + name)});
}

void read_topology(const Hdf5Input& file, RunInfo& info) {
  const auto shape = file.shape("topology/rank");
  if (shape.size() != 1 || shape[0] == 0)
    throw Error(ExitCode::kBadData,
                fmt::format("/topology/rank of '{}' lists no ranks", file.path()));
  const auto rank = file.numbers<std::int32_t>("topology/rank", shape);
  const auto local_rank = file.numbers<std::int32_t>("topology/local_rank", shape);
  const auto threads = file.numbers<std::int32_t>("topology/threads", shape);
  const auto offset = file.numbers<double>("topology/clock_offset", shape);
  const auto uncertainty = file.numbers<double>("topology/clock_uncertainty", shape);
  const auto host = file.texts("topology/host", shape[0]);
  const auto device = file.texts("topology/device", shape[0]);
  const auto uuid = file.texts("topology/device_uuid", shape[0]);
  const auto affinity = file.texts("topology/affinity", shape[0]);
  for (std::size_t r = 0; r < shape[0]; ++r)
    info.topology.push_back({rank[r], local_rank[r], host[r], device[r], uuid[r], affinity[r],
                             threads[r], offset[r], uncertainty[r]});
}

/// The number of the file's schema.
int require_schema(const Hdf5Input& file) {
  const std::string schema = file.has_attribute("schema") ? file.text_attribute("schema") : "";
  const auto number = parse_schema(schema);
  if (!number)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' is an HDF5 file but not a run file: its attribute schema is '{}', "
                    "expected '{}'",
                    file.path(), schema, schema_text(kRunSchema)));
  if (*number < kOldestRunSchema || *number > kRunSchema)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' has the schema {}, this program reads {} to {}", file.path(),
                            schema, schema_text(kOldestRunSchema), schema_text(kRunSchema)),
                "use the gradsync-report of the release that wrote it");
  return *number;
}

}  // namespace

RunInfo read_run_info(const Hdf5Input& file) {
  RunInfo info;
  info.schema = require_schema(file);
  info.run_id = file.text_attribute("run_id");
  info.created = file.text_attribute("created");
  info.command_line = file.text_attribute("command_line");
  read_config(file, info);
  read_topology(file, info);
  return info;
}

}  // namespace gradsync
