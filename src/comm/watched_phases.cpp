// SPDX-License-Identifier: BSD-3-Clause
#include "comm/watched_phases.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace gradsync {

namespace {

constexpr std::array<PhaseEntry, 16> kWatchedPhases = {{
    {WatchedPhase::kTraining, "training", LimitRule::kTimeout,
     "every collective of an iteration and between iterations"},
    {WatchedPhase::kStartUp, "start-up", LimitRule::kStart,
     "MPI_Init and everything before the first iteration that has no phase of its own: options "
     "compared, devices, clocks, thread counts, places; between rounds, what settings that join "
     "(`--advise`) need"},
    {WatchedPhase::kData, "data check", LimitRule::kInputOutput,
     "the data set opened, read and compared"},
    {WatchedPhase::kResume, "resume", LimitRule::kInputOutput, "the checkpoint read and passed on"},
    {WatchedPhase::kTransport, "transport set-up", LimitRule::kStart,
     "connections, shared memory and communicators made"},
    {WatchedPhase::kModeCheck, "verification of the modes", LimitRule::kWork, "--verify-modes"},
    {WatchedPhase::kCalibration, "calibration", LimitRule::kWork,
     "--calibrate, and the search for bucket sizes"},
    {WatchedPhase::kChecks, "checks", LimitRule::kTimeout, "all of gradsync-check after its start"},
    {WatchedPhase::kTimedCalls, "timed calls", LimitRule::kTimeout,
     "all of gradsync-calibrate after its start"},
    {WatchedPhase::kQuantization, "quantization", LimitRule::kInputOutput,
     "gradsync-quantize: its inputs opened, read and compared"},
    {WatchedPhase::kFirstIterations, "first iterations", LimitRule::kWork,
     "the first three iterations of a process, before a median is known"},
    {WatchedPhase::kEvaluation, "evaluation", LimitRule::kWork,
     "the test images after an epoch, and the collectives that follow"},
    {WatchedPhase::kJournal, "journal", LimitRule::kInputOutput,
     "rank 0 writes rows to the journal and waits for the disk"},
    {WatchedPhase::kCheckpoint, "checkpoint", LimitRule::kInputOutput,
     "states gathered, written and synced by rank 0; all ranks wait for its end"},
    {WatchedPhase::kPublishing, "publishing", LimitRule::kInputOutput,
     "rank 0 writes the run file, reads it back and renames it; all ranks wait for its end"},
    {WatchedPhase::kShutdown, "shutdown", LimitRule::kStart,
     "communicators and windows freed, MPI_Finalize"},
}};

std::string_view rule_text(LimitRule rule) {
  switch (rule) {
    case LimitRule::kTimeout:
      return "`--timeout`";
    case LimitRule::kWork:
      return "`--timeout`; if that is automatic, the largest of it, `--start-timeout` and 20 times "
             "what this rank worked before the wait";
    case LimitRule::kStart:
      return "the larger of `--timeout` and `--start-timeout`";
    case LimitRule::kInputOutput:
      return "the larger of `--timeout` and `--io-timeout`";
  }
  return {};
}

}  // namespace

std::span<const PhaseEntry> watched_phases() {
  return kWatchedPhases;
}

const PhaseEntry& phase_entry(WatchedPhase phase) {
  return kWatchedPhases.at(static_cast<std::size_t>(phase));
}

double limit_s(WatchedPhase phase, const WatchLimits& limits, double work_s) {
  switch (phase_entry(phase).rule) {
    case LimitRule::kTimeout:
      break;
    case LimitRule::kWork:
      if (limits.automatic)
        return std::max({limits.timeout_s, limits.start_s, kLimitInWork * work_s});
      break;
    case LimitRule::kStart:
      return std::max(limits.timeout_s, limits.start_s);
    case LimitRule::kInputOutput:
      return std::max(limits.timeout_s, limits.io_s);
  }
  return limits.timeout_s;
}

std::string_view limit_option(WatchedPhase phase, const WatchLimits& limits) {
  switch (phase_entry(phase).rule) {
    case LimitRule::kStart:
      return limits.start_option;
    case LimitRule::kInputOutput:
      return limits.io_option;
    default:
      return limits.timeout_option;
  }
}

std::string phase_table() {
  std::string text = "| phase | covers | a rank waits for the others at most |\n|---|---|---|\n";
  for (const PhaseEntry& entry : kWatchedPhases)
    text += fmt::format("| {} | {} | {} |\n", entry.name, entry.covers, rule_text(entry.rule));
  return text;
}

}  // namespace gradsync
