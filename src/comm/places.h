// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/session.h"
#include "machine/gpus.h"
#include "machine/host.h"
#include "record/run.h"
#include "stats/clock.h"

namespace gradsync {

/// Difference between this rank's steady clock and rank 0's.
struct ClockOffset {
  double offset_s = 0;       ///< add to this rank's clock to read rank 0's
  double uncertainty_s = 0;  ///< half the shortest round trip: the true offset is within it
};

/// Cristian's algorithm (1989) with the shortest of `round_trips` exchanges with rank 0, one rank
/// after the other. `clock` gives this rank's time in seconds. Collective.
ClockOffset measure_clock_offset(const Session& session, int round_trips = 50,
                                 const std::function<double()>& clock = now_s);

/// The cores this process may use, and the same as the kernel lists them ("0-1").
struct CoreMask {
  Cores cores;
  std::string text;
};
CoreMask core_mask();

/// The cores of each rank of this node, by local rank. Collective over the ranks of the node.
std::vector<Cores> cores_on_node(const Session& session);

/// "AMD EPYC …", as /proc/cpuinfo says; "unknown" where it does not.
std::string cpu_name();

/// Every rank's place, on rank 0 (empty elsewhere). `threads` compute on this rank, or `gpu` does,
/// if it has a name. Collective.
std::vector<RankPlace> gather_places(const Session& session, std::int64_t threads,
                                     const ClockOffset& clock, const GpuDevice& gpu = {});

/// Program, compiler, versions compiled against and loaded (MPI, HDF5, NCCL, CUDA), and the
/// environment as far as it may be recorded (record/recorded_environment.h): what every program
/// that communicates records.
std::vector<NamedText> machine_provenance(const std::string& program);

/// A random UUID (version 4).
std::string new_uuid();

/// What this rank finds, and which GPUs of its host's other ranks are hidden from it. Collective.
DeviceFacts find_devices(const Session& session, bool may_share);

/// What a rank computes on, as all ranks agreed.
struct RankGpu {
  DeviceChoice choice;
  int index = -1;         ///< among the GPUs this rank sees; -1 on the CPU
  GpuDevice description;  ///< empty on the CPU
};

/// Rank 0 chooses for all from what each rank finds. An error of choose_device ends the job with
/// one message. Collective.
RankGpu agree_on_gpus(const Session& session, const DeviceRequest& request);

/// The user namespace of this process if its MPI copies messages between ranks of a host from
/// process to process (comm/single_copy.h); 0 if it does not, or is not Open MPI 4. Call it after
/// MPI_Init.
std::uint64_t cma_namespace();

}  // namespace gradsync
