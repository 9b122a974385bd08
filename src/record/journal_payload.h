#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "record/device_sample.h"
#include "record/resume_row.h"
#include "record/run.h"

/// What the records of a journal hold. Iteration rows are binary, since a job writes one every few
/// milliseconds:
///
///   i64 iteration, epoch, step, samples · f64 learning rate · u32 warm-up (0 or 1)
///   u32 ranks · u32 buckets · a bucket: i64 bytes, u32 kind
///   a rank: f64 begin, the phases of kPhaseNames, loss · i64 correct, 6 traffic
///     a bucket: f64 ready, start, end, arrival (since version 3)
///
/// The other records are JSON objects; in them NaN is null and infinities are "inf" and "-inf".
namespace gradsync {

/// How a run ended.
struct RunEnd {
  RunStatus status = RunStatus::kRunning;
  std::string finished;  ///< ISO 8601, UTC
};

std::vector<std::byte> encode(const RunInfo& info);
std::vector<std::byte> encode(const EpochRow& row);
std::vector<std::byte> encode(const VerificationRow& row);
std::vector<std::byte> encode(const CalibrationRow& row);
std::vector<std::byte> encode(const WindowRow& row);
std::vector<std::byte> encode(const ClockRow& row);
std::vector<std::byte> encode(const TrafficRow& row);
std::vector<std::byte> encode(const ReplicaRow& row);
std::vector<std::byte> encode(const RunEnd& end);
std::vector<std::byte> encode(const ResumeRow& row);
std::vector<std::byte> encode(const DeviceSample& sample);
std::vector<std::byte> encode(const IterationRow& row);

/// The inverse; nothing if the bytes are not such a record. Never throws for what they hold.
std::optional<RunInfo> decode_info(std::span<const std::byte> payload);
std::optional<EpochRow> decode_epoch(std::span<const std::byte> payload);
std::optional<VerificationRow> decode_verification(std::span<const std::byte> payload);
std::optional<CalibrationRow> decode_calibration(std::span<const std::byte> payload);
std::optional<WindowRow> decode_window(std::span<const std::byte> payload);
std::optional<ClockRow> decode_clock(std::span<const std::byte> payload);
std::optional<TrafficRow> decode_traffic(std::span<const std::byte> payload);
std::optional<ReplicaRow> decode_replica(std::span<const std::byte> payload);
std::optional<RunEnd> decode_end(std::span<const std::byte> payload);
std::optional<ResumeRow> decode_resume(std::span<const std::byte> payload);
std::optional<DeviceSample> decode_device_sample(std::span<const std::byte> payload);
std::optional<IterationRow> decode_iteration(std::span<const std::byte> payload);

}  // namespace gradsync
