#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "machine/stream_handle.h"
#include "record/collective_call.h"

namespace gradsync {

/// What names a communicator before it exists: rank 0 makes it, all ranks need it.
using NcclId = std::array<char, 128>;

/// A communicator of NCCL's as it crosses between files that know no NCCL header.
using NcclCommunicator = void*;

/// The calls of NCCL that gradsync makes; the tests have their own. Collectives are enqueued on the
/// stream and return at once. Counts are values of `type`. Everything throws Error kEnvironment,
/// with NCCL's own words, where NCCL refuses a call.
class NcclApi {
 public:
  virtual ~NcclApi() = default;

  virtual NcclId make_id() = 0;
  /// Collective over `ranks` processes: returns when all have joined. On the current device.
  virtual NcclCommunicator join(const NcclId& id, int rank, int ranks) = 0;
  /// After the last collective, on all ranks.
  virtual void leave(NcclCommunicator communicator) = 0;
  /// Ends what is under way without the other ranks. May be called beside a blocked call.
  virtual void abort(NcclCommunicator communicator) noexcept = 0;
  /// What went wrong with a collective after it was enqueued; empty while nothing did.
  virtual std::string lost(NcclCommunicator communicator) = 0;

  /// In place: the sum over the ranks, or their mean.
  virtual void all_reduce(void* data, std::size_t count, ValueType type, bool mean,
                          NcclCommunicator communicator, StreamHandle stream) = 0;
  /// In place on `root`; the other ranks' data is left as it was.
  virtual void reduce(void* data, std::size_t count, ValueType type, int root,
                      NcclCommunicator communicator, StreamHandle stream) = 0;
  virtual void broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                         StreamHandle stream) = 0;
  /// `bytes` of each rank, in the order of the ranks in `all`.
  virtual void all_gather(const void* one, void* all, std::size_t bytes,
                          NcclCommunicator communicator, StreamHandle stream) = 0;
  /// `all` holds `count` values for each rank, which gets the sum of those for it.
  virtual void reduce_scatter(const void* all, void* one, std::size_t count, ValueType type,
                              NcclCommunicator communicator, StreamHandle stream) = 0;
  virtual void send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
                    StreamHandle stream) = 0;
  virtual void receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                       StreamHandle stream) = 0;
  /// Sends and receives between these two run together.
  virtual void begin_group() = 0;
  virtual void end_group() = 0;
};

/// NCCL itself. Throws Error kEnvironment in a build without it.
std::unique_ptr<NcclApi> make_nccl();

}  // namespace gradsync
