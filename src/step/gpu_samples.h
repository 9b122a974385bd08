#pragma once

#include <memory>

#include "device/nvml.h"
#include "exchange/exchange.h"
#include "record/recorder.h"

namespace gradsync {

/// The samples of every rank's GPU on their way into the run file.
class GpuSamples {
 public:
  /// `monitor` of this rank's GPU; none where the driver reports nothing. Starts sampling.
  GpuSamples(std::unique_ptr<GpuMonitor> monitor, double interval_s = GpuSampler::kInterval_s);

  /// Brings what all ranks have sampled since the last call to rank 0, which records it. A rank's
  /// clock + `clock_offset_s` is rank 0's, whose run began at `start_s`. Outside the iterations.
  /// Collective.
  void record(Exchange& exchange, double clock_offset_s, double start_s, Recorder* recorder);

 private:
  std::unique_ptr<GpuSampler> sampler_;
};

}  // namespace gradsync
