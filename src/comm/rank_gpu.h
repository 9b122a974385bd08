#pragma once

#include "comm/session.h"
#include "device/choice.h"

namespace gradsync {

/// What a rank computes on, as all ranks agreed.
struct RankGpu {
  DeviceChoice choice;
  int index = -1;         ///< among the GPUs this rank sees; -1 on the CPU
  GpuDevice description;  ///< empty on the CPU
};

/// Rank 0 chooses for all from what each rank finds. An error of choose_device ends the job with
/// one message. Collective.
RankGpu agree_on_gpus(const Session& session, const DeviceRequest& request);

}  // namespace gradsync
