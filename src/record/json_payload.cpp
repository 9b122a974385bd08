#include "record/journal_payload.h"
#include "record/json_record.h"

namespace gradsync {

namespace {

using nlohmann::json;

json place_json(const RankPlace& place) {
  return {{"rank", place.rank},
          {"local_rank", place.local_rank},
          {"host", place.host},
          {"device", place.device},
          {"device_uuid", place.device_uuid},
          {"affinity", place.affinity},
          {"threads", place.threads},
          {"clock_offset_s", number_json(place.clock_offset_s)},
          {"clock_uncertainty_s", number_json(place.clock_uncertainty_s)}};
}

RankPlace read_place(const json& object) {
  RankPlace place;
  object.at("rank").get_to(place.rank);
  object.at("local_rank").get_to(place.local_rank);
  object.at("host").get_to(place.host);
  object.at("device").get_to(place.device);
  object.at("device_uuid").get_to(place.device_uuid);
  object.at("affinity").get_to(place.affinity);
  object.at("threads").get_to(place.threads);
  place.clock_offset_s = read_number(object.at("clock_offset_s"));
  place.clock_uncertainty_s = read_number(object.at("clock_uncertainty_s"));
  return place;
}

RunInfo read_info(const json& object) {
  RunInfo info;
  info.schema = parse_schema(object.at("schema").get<std::string>()).value_or(0);
  object.at("run_id").get_to(info.run_id);
  object.at("created").get_to(info.created);
  object.at("command_line").get_to(info.command_line);
  for (const json& entry : object.at("config"))
    info.config.push_back({entry.at("name").get<std::string>(),
                           entry.at("value").get<std::string>(),
                           entry.at("source").get<std::string>()});
  for (const json& entry : object.at("provenance"))
    info.provenance.push_back(
        {entry.at("name").get<std::string>(), entry.at("value").get<std::string>()});
  for (const json& entry : object.at("topology"))
    info.topology.push_back(read_place(entry));
  return info;
}

json rank_json(const RankEpoch& rank) {
  return {{"train_loss", number_json(rank.train_loss)},
          {"train_accuracy", number_json(rank.train_accuracy)},
          {"test_loss", number_json(rank.test_loss)},
          {"test_accuracy", number_json(rank.test_accuracy)},
          {"training_time_s", number_json(rank.training_time_s)},
          {"running_time_s", number_json(rank.running_time_s)},
          {"evaluation_time_s", number_json(rank.evaluation_time_s)},
          {"peak_memory_bytes", number_json(rank.peak_memory_bytes)}};
}

RankEpoch read_rank(const json& object) {
  RankEpoch rank;
  rank.train_loss = read_number(object.at("train_loss"));
  rank.train_accuracy = read_number(object.at("train_accuracy"));
  rank.test_loss = read_number(object.at("test_loss"));
  rank.test_accuracy = read_number(object.at("test_accuracy"));
  rank.training_time_s = read_number(object.at("training_time_s"));
  rank.running_time_s = read_number(object.at("running_time_s"));
  rank.evaluation_time_s = read_number(object.at("evaluation_time_s"));
  rank.peak_memory_bytes = read_number(object.at("peak_memory_bytes"));
  return rank;
}

EpochRow read_epoch(const json& object) {
  EpochRow row;
  object.at("epoch").get_to(row.epoch);
  object.at("iterations").get_to(row.iterations);
  object.at("order_digest").get_to(row.order_digest);
  object.at("new_batches").get_to(row.new_batches);
  object.at("shared_images").get_to(row.shared_images);
  for (const json& rank : object.at("ranks"))
    row.ranks.push_back(read_rank(rank));
  return row;
}

VerificationRow read_verification(const json& object) {
  VerificationRow row;
  object.at("mode").get_to(row.mode);
  object.at("passed").get_to(row.passed);
  object.at("ranks_equal").get_to(row.ranks_equal);
  row.difference = read_number(object.at("difference"));
  row.tolerance = read_number(object.at("tolerance"));
  object.at("parameter_hash").get_to(row.parameter_hash);
  return row;
}

CalibrationRow read_calibration(const json& object) {
  CalibrationRow row;
  // An unknown collective gets a number that no collective has; decode_calibration refuses it.
  row.kind = parse_collective(object.at("collective").get<std::string>())
                 .value_or(static_cast<CollectiveKind>(kCollectiveNames.size()));
  object.at("transport").get_to(row.transport);
  object.at("cadence").get_to(row.cadence);
  object.at("bytes").get_to(row.bytes);
  object.at("of_bucket").get_to(row.of_bucket);
  object.at("repetitions").get_to(row.repetitions);
  row.median_s = read_number(object.at("median_s"));
  row.mean_s = read_number(object.at("mean_s"));
  row.minimum_s = read_number(object.at("minimum_s"));
  row.maximum_s = read_number(object.at("maximum_s"));
  object.at("wrong").get_to(row.wrong);
  return row;
}

WindowRow read_window(const json& object) {
  WindowRow row;
  object.at("kind").get_to(row.kind);
  object.at("round").get_to(row.round);
  object.at("iterations").get_to(row.iterations);
  for (const json& rank : object.at("ranks"))
    row.ranks.push_back({read_number(rank.at("iteration_s")), read_number(rank.at("compute_s")),
                         read_number(rank.at("comm_busy_s")), read_number(rank.at("exposed_s"))});
  return row;
}

ClockRow read_clock(const json& object) {
  ClockRow row;
  object.at("when").get_to(row.when);
  row.at_s = read_number(object.at("at_s"));
  for (const json& rank : object.at("ranks"))
    row.ranks.push_back({read_number(rank.at("offset_s")), read_number(rank.at("uncertainty_s"))});
  return row;
}

TrafficRow read_traffic(const json& object) {
  TrafficRow row;
  object.at("when").get_to(row.when);
  object.at("iterations").get_to(row.iterations);
  for (const json& one : object.at("ranks")) {
    RankTraffic& rank = row.ranks.emplace_back();
    one.at("sent_bytes").get_to(rank.sent_bytes);
    one.at("received_bytes").get_to(rank.received_bytes);
    one.at("calls").get_to(rank.calls);
  }
  return row;
}

ReplicaRow read_replica(const json& object) {
  ReplicaRow row;
  for (const json& rank : object.at("ranks"))
    row.ranks.push_back(
        {rank.at("parameter_hash").get<std::string>(), rank.at("buffer_hash").get<std::string>(),
         read_number(rank.at("parameter_distance")), read_number(rank.at("buffer_distance"))});
  return row;
}

ResumeRow read_resume(const json& object) {
  ResumeRow row;
  object.at("iteration").get_to(row.iteration);
  object.at("journal_bytes").get_to(row.journal_bytes);
  object.at("time").get_to(row.time);
  object.at("hosts").get_to(row.hosts);
  return row;
}

DeviceSample read_device_sample(const json& object) {
  DeviceSample sample;
  object.at("rank").get_to(sample.rank);
  sample.at_s = read_number(object.at("at_s"));
  sample.memory_used_bytes = read_number(object.at("memory_used_bytes"));
  sample.sm_clock_hz = read_number(object.at("sm_clock_hz"));
  sample.memory_clock_hz = read_number(object.at("memory_clock_hz"));
  sample.power_w = read_number(object.at("power_w"));
  sample.temperature_c = read_number(object.at("temperature_c"));
  object.at("throttle_reasons").get_to(sample.throttle_reasons);
  return sample;
}

RunEnd read_end(const json& object) {
  return {parse_status(object.at("status").get<std::string>()).value_or(RunStatus::kRunning),
          object.at("finished").get<std::string>()};
}

}  // namespace

std::vector<std::byte> encode(const RunInfo& info) {
  json config = json::array();
  for (const ConfigEntry& entry : info.config)
    config.push_back({{"name", entry.name}, {"value", entry.value}, {"source", entry.source}});
  json provenance = json::array();
  for (const NamedText& entry : info.provenance)
    provenance.push_back({{"name", entry.name}, {"value", entry.value}});
  json topology = json::array();
  for (const RankPlace& place : info.topology)
    topology.push_back(place_json(place));
  return record_bytes({{"schema", schema_text(info.schema)},
                       {"run_id", info.run_id},
                       {"created", info.created},
                       {"command_line", info.command_line},
                       {"config", config},
                       {"provenance", provenance},
                       {"topology", topology}});
}

std::vector<std::byte> encode(const EpochRow& row) {
  json ranks = json::array();
  for (const RankEpoch& rank : row.ranks)
    ranks.push_back(rank_json(rank));
  return record_bytes({{"epoch", row.epoch},
                       {"iterations", row.iterations},
                       {"order_digest", row.order_digest},
                       {"new_batches", row.new_batches},
                       {"shared_images", row.shared_images},
                       {"ranks", ranks}});
}

std::vector<std::byte> encode(const VerificationRow& row) {
  return record_bytes({{"mode", row.mode},
                       {"passed", row.passed},
                       {"ranks_equal", row.ranks_equal},
                       {"difference", number_json(row.difference)},
                       {"tolerance", number_json(row.tolerance)},
                       {"parameter_hash", row.parameter_hash}});
}

std::vector<std::byte> encode(const CalibrationRow& row) {
  return record_bytes({{"collective", collective_name(row.kind)},
                       {"transport", row.transport},
                       {"cadence", row.cadence},
                       {"bytes", row.bytes},
                       {"of_bucket", row.of_bucket},
                       {"repetitions", row.repetitions},
                       {"median_s", number_json(row.median_s)},
                       {"mean_s", number_json(row.mean_s)},
                       {"minimum_s", number_json(row.minimum_s)},
                       {"maximum_s", number_json(row.maximum_s)},
                       {"wrong", row.wrong}});
}

std::vector<std::byte> encode(const WindowRow& row) {
  json ranks = json::array();
  for (const RankWindow& rank : row.ranks)
    ranks.push_back({{"iteration_s", number_json(rank.iteration_s)},
                     {"compute_s", number_json(rank.compute_s)},
                     {"comm_busy_s", number_json(rank.comm_busy_s)},
                     {"exposed_s", number_json(rank.exposed_s)}});
  return record_bytes(
      {{"kind", row.kind}, {"round", row.round}, {"iterations", row.iterations}, {"ranks", ranks}});
}

std::vector<std::byte> encode(const ClockRow& row) {
  json ranks = json::array();
  for (const ClockReading& rank : row.ranks)
    ranks.push_back({{"offset_s", number_json(rank.offset_s)},
                     {"uncertainty_s", number_json(rank.uncertainty_s)}});
  return record_bytes({{"when", row.when}, {"at_s", number_json(row.at_s)}, {"ranks", ranks}});
}

std::vector<std::byte> encode(const TrafficRow& row) {
  json ranks = json::array();
  for (const RankTraffic& rank : row.ranks)
    ranks.push_back({{"sent_bytes", rank.sent_bytes},
                     {"received_bytes", rank.received_bytes},
                     {"calls", rank.calls}});
  return record_bytes({{"when", row.when}, {"iterations", row.iterations}, {"ranks", ranks}});
}

std::vector<std::byte> encode(const ReplicaRow& row) {
  json ranks = json::array();
  for (const RankReplica& rank : row.ranks)
    ranks.push_back({{"parameter_hash", rank.parameter_hash},
                     {"buffer_hash", rank.buffer_hash},
                     {"parameter_distance", number_json(rank.parameter_distance)},
                     {"buffer_distance", number_json(rank.buffer_distance)}});
  return record_bytes({{"ranks", ranks}});
}

std::vector<std::byte> encode(const RunEnd& end) {
  return record_bytes({{"status", status_name(end.status)}, {"finished", end.finished}});
}

std::vector<std::byte> encode(const ResumeRow& row) {
  return record_bytes({{"iteration", row.iteration},
                       {"journal_bytes", row.journal_bytes},
                       {"time", row.time},
                       {"hosts", row.hosts}});
}

std::vector<std::byte> encode(const DeviceSample& sample) {
  return record_bytes({{"rank", sample.rank},
                       {"at_s", number_json(sample.at_s)},
                       {"memory_used_bytes", number_json(sample.memory_used_bytes)},
                       {"sm_clock_hz", number_json(sample.sm_clock_hz)},
                       {"memory_clock_hz", number_json(sample.memory_clock_hz)},
                       {"power_w", number_json(sample.power_w)},
                       {"temperature_c", number_json(sample.temperature_c)},
                       {"throttle_reasons", sample.throttle_reasons}});
}

std::optional<RunInfo> decode_info(std::span<const std::byte> payload) {
  const auto info = read_record(payload, read_info);
  const bool known = info && info->schema >= kOldestRunSchema && info->schema <= kRunSchema;
  return known ? info : std::nullopt;
}

std::optional<EpochRow> decode_epoch(std::span<const std::byte> payload) {
  return read_record(payload, read_epoch);
}

std::optional<VerificationRow> decode_verification(std::span<const std::byte> payload) {
  return read_record(payload, read_verification);
}

std::optional<CalibrationRow> decode_calibration(std::span<const std::byte> payload) {
  const auto row = read_record(payload, read_calibration);
  const bool known = row && static_cast<std::size_t>(row->kind) < kCollectiveNames.size();
  return known ? row : std::nullopt;
}

std::optional<WindowRow> decode_window(std::span<const std::byte> payload) {
  return read_record(payload, read_window);
}

std::optional<ClockRow> decode_clock(std::span<const std::byte> payload) {
  return read_record(payload, read_clock);
}

std::optional<TrafficRow> decode_traffic(std::span<const std::byte> payload) {
  return read_record(payload, read_traffic);
}

std::optional<ReplicaRow> decode_replica(std::span<const std::byte> payload) {
  return read_record(payload, read_replica);
}

std::optional<RunEnd> decode_end(std::span<const std::byte> payload) {
  return read_record(payload, read_end);
}

std::optional<DeviceSample> decode_device_sample(std::span<const std::byte> payload) {
  return read_record(payload, read_device_sample);
}

std::optional<ResumeRow> decode_resume(std::span<const std::byte> payload) {
  return read_record(payload, read_resume);
}

}  // namespace gradsync
