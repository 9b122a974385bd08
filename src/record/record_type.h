#pragma once

#include <cstdint>

namespace gradsync {

/// The records of a journal, in front of each payload.
enum class RecordType : std::uint32_t {
  kInfo = 1,           ///< RunInfo, JSON; the first record, once
  kIteration = 2,      ///< IterationRow, binary
  kEpoch = 3,          ///< EpochRow, JSON
  kVerification = 4,   ///< VerificationRow, JSON
  kEnd = 5,            ///< status and time, JSON; the last record of a run that has ended
  kCalibration = 6,    ///< CalibrationRow, JSON
  kWindow = 7,         ///< WindowRow, JSON
  kClock = 8,          ///< ClockRow, JSON
  kResume = 9,         ///< ResumeRow, JSON: some of what came before counts no more
  kDeviceSample = 10,  ///< DeviceSample, JSON
  kTraffic = 11,       ///< TrafficRow, JSON
  kReplica = 12,       ///< ReplicaRow, JSON
  kQuantization = 13   ///< Quantization, JSON; at most once
};

}  // namespace gradsync
