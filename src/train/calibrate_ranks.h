#pragma once

#include <vector>

#include "base/table.h"
#include "comm/places.h"
#include "comm/session.h"
#include "exchange/exchange.h"
#include "record/recorder.h"
#include "train/compute_settings.h"

namespace gradsync {

/// Calibrates every collective of the modes at `sizes`, and at the sizes of `buckets` of their
/// kind, on the ranks and over the transport of training; records the rows (`recorder` on rank 0,
/// or null) and prints what they add up to on rank 0. Throws Error kCheckFailed on all ranks if a
/// value is wrong, kOutOfMemory before anything is measured. Collective.
void calibrate_ranks(const Session& session, Transport& transport, Watchdog& watchdog,
                     const std::vector<std::int64_t>& sizes,
                     const std::vector<BucketShape>& buckets, Recorder* recorder,
                     DeviceLane* lane = nullptr);

/// The readings of all ranks, on rank 0 (none elsewhere). Collective.
ClockRow clock_row(const Session& session, const ClockOffset& mine, const char* when, double at_s);

/// "clocks: drift at most 0.12 us in 35.1 s (0.003 ppm), uncertainty 0.30 us": of the rank that
/// drifted most, with the uncertainties of both readings added.
std::string drift_text(const ClockRow& start, const ClockRow& end);

/// Times a matrix product in the precision of the run on all ranks at once, for at least 0.2 s and
/// five calls: the most that the network's own products can reach here. Records it and prints the
/// least and the most of the ranks. Collective.
void probe_arithmetic(const Session& session, const ComputeSettings& compute, bool tf32,
                      Recorder* recorder);

}  // namespace gradsync
