// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <vector>

#include "base/error.h"
#include "record/run.h"
#include "transport/rank_transport.h"
#include "transport/trial_sum.h"

#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace gradsync {

StagedTransport::StagedTransport(MpiTransport& mpi, Device& device, StreamHandle stream)
    : Transport("mpi", mpi.rank(), mpi.size()),
      mpi_(mpi),
      device_(device),
      stream_(stream),
      fetched_(device.make_event()),
      send_(device),
      receive_(device) {}

StagedTransport::~StagedTransport() {
  device_.free_event(fetched_);
}

std::span<std::byte> StagedTransport::host_of(PinnedBuffer& buffer, std::size_t bytes) {
  if (bytes > buffer.bytes()) settle();
  return {static_cast<std::byte*>(buffer.at_least(bytes)), bytes};
}

void StagedTransport::settle() {
  device_.record(fetched_, stream_);
  device_.wait_for(fetched_);
}

namespace {

bool is_in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kBroadcast;
}

/// Whether `receive` of this rank is written to.
bool writes(const Collective& call, int rank) {
  if (call.kind == CollectiveKind::kReduce || call.kind == CollectiveKind::kGather)
    return rank == call.root;
  return call.kind != CollectiveKind::kBroadcast || rank != call.root;
}

}  // namespace

// The host waits even where it fetches nothing: what the stream still copies out of its memory has
// to be over before that is written to.
double StagedTransport::run(const Collective& call) {
  Collective of_host = call;
  const auto send = host_of(send_, call.send.size());
  of_host.send = send;
  of_host.receive = host_of(receive_, call.receive.size());
  if (!send.empty()) device_.copy(send.data(), call.send.data(), send.size(), stream_);
  if (is_in_place(call.kind) && !call.receive.empty())
    device_.copy(of_host.receive.data(), call.receive.data(), call.receive.size(), stream_);
  settle();
  const double convert_s = mpi_.run(of_host);
  if (writes(call, rank()) && !call.receive.empty())
    device_.copy(call.receive.data(), of_host.receive.data(), call.receive.size(), stream_);
  return convert_s;
}

namespace {

/// Enqueues what is left to do on the sum where the mean was asked for.
void scale_to_mean(const Collective& call, int ranks, ScaleOnDevice scale, StreamHandle stream) {
  if (call.scale == Scale::kAverage && ranks > 1)
    scale(reinterpret_cast<float*>(call.receive.data()),
          static_cast<std::int64_t>(call.receive.size() / sizeof(float)),
          1.0f / static_cast<float>(ranks), stream);
}

}  // namespace

double DirectTransport::run(const Collective& call) {
  const bool of_training = call.kind == CollectiveKind::kBroadcast ||
                           (call.type == ValueType::kFloat32 &&
                            (is_in_place(call.kind) || call.kind == CollectiveKind::kGather ||
                             call.kind == CollectiveKind::kScatter));
  // MpiTransport copies the data of another root on the host.
  const bool copied = call.kind == CollectiveKind::kReduce && call.root != 0;
  if (!of_training || copied) return StagedTransport::run(call);
  Collective sum = call;
  sum.scale = Scale::kSum;
  sum.waiting = Waiting::kSpin;
  settle();
  mpi().run(sum);
  scale_to_mean(call, size(), scale_, stream());
  return 0;
}

namespace {

constexpr std::size_t kTrialCount = 1 << 16;  // beyond what MPI sends eagerly
constexpr int kTrialTag = 76;

bool mpi_says_so() {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

std::vector<float> trial_values_of(int rank) {
  return trial_sum::values(trial_sum::factor_of(rank), kTrialCount);
}

/// Float memory of a device with blocking copies, for the trial.
class TrialMemory {
 public:
  TrialMemory(Device& device, StreamHandle stream)
      : device_(device),
        stream_(stream),
        event_(device.make_event()),
        memory_(static_cast<float*>(device.make_memory(kTrialCount * sizeof(float)))) {}
  ~TrialMemory() {
    device_.free_memory(memory_);
    device_.free_event(event_);
  }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;

  float* get() { return memory_; }
  void put(const std::vector<float>& values) { copy(memory_, values.data()); }
  std::vector<float> values() {
    std::vector<float> host(kTrialCount);
    copy(host.data(), memory_);
    return host;
  }

 private:
  void copy(void* to, const void* from) {
    device_.copy(to, from, kTrialCount * sizeof(float), stream_);
    device_.record(event_, stream_);
    device_.wait_for(event_);
  }

  Device& device_;
  StreamHandle stream_;
  EventHandle event_;
  float* memory_;
};

bool on_all(const Session& session, bool mine) {
  int here = mine ? 1 : 0, everywhere = 0;
  MPI_Allreduce(&here, &everywhere, 1, MPI_INT, MPI_MIN, session.world());
  return everywhere == 1;
}

}  // namespace

bool device_memory_arrives(const Session& session, Device& device, StreamHandle stream) {
  if (session.root())
    print_warning(
        "gradsync",
        "tries whether MPI reads the memory of GPUs, as it says; a job that ends here by a "
        "signal needs an MPI that does, or --transport nccl");
  const int rank = session.rank(), ranks = session.size();
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const int count = static_cast<int>(kTrialCount);
  TrialMemory mine(device, stream), other(device, stream);
  mine.put(trial_values_of(rank));
  other.put(std::vector<float>(kTrialCount, -1));
  MPI_Sendrecv(mine.get(), count, MPI_FLOAT, next, kTrialTag, other.get(), count, MPI_FLOAT,
               previous, kTrialTag, session.world(), MPI_STATUS_IGNORE);
  MPI_Allreduce(MPI_IN_PLACE, mine.get(), count, MPI_FLOAT, MPI_SUM, session.world());
  const auto sum = trial_sum::values(trial_sum::factor_of_all(ranks), kTrialCount);
  return on_all(session, other.values() == trial_values_of(previous) && mine.values() == sum);
}

bool mpi_takes_device_memory(const Session& session, Device& device, StreamHandle stream) {
  return on_all(session, mpi_says_so()) && device_memory_arrives(session, device, stream);
}

namespace {

constexpr auto kDelayPerRank = std::chrono::milliseconds(200);
constexpr auto kMostDelay = std::chrono::milliseconds(2000);

/// What `all` holds of a rank, of `bytes` each.
template <typename Byte>
std::span<Byte> part_of(std::span<Byte> all, std::size_t bytes, int rank) {
  return all.subspan(static_cast<std::size_t>(rank) * bytes, bytes);
}

NcclId shared_id(const Session& session, NcclApi& api) {
  NcclId id{};
  session.together([&] {
    if (session.root()) id = api.make_id();
  });
  session.broadcast(std::as_writable_bytes(std::span(id)));
  return id;
}

}  // namespace

NcclTransport::NcclTransport(const Session& session, Watchdog& watchdog, NcclApi& api,
                             Device& device, StreamHandle stream, ScaleOnDevice scale)
    : Transport("nccl", session.rank(), session.size(), /*enqueues=*/true),
      session_(session),
      watchdog_(watchdog),
      api_(api),
      device_(device),
      stream_(stream),
      scale_(scale) {
  const NcclId id = shared_id(session, api);
  const CollectiveScope watched(watchdog, CollectiveKind::kBarrier);
  try {
    communicator_ = api_.join(id, rank(), size());
  } catch (...) {
    // The others may be waiting inside NCCL for this rank. The lowest that fails speaks for all.
    std::this_thread::sleep_for(std::min(kMostDelay, rank() * kDelayPerRank));
    session.abort(current_error());
  }
}

NcclTransport::~NcclTransport() {
  const NcclCommunicator communicator = communicator_.exchange(nullptr);
  if (communicator == nullptr) return;
  const CollectiveScope watched(watchdog_, CollectiveKind::kBarrier);
  try {
    if (std::uncaught_exceptions() > 0)
      api_.abort(communicator);
    else
      api_.leave(communicator);
  } catch (...) {
    session_.abort(current_error());
  }
}

NcclCommunicator NcclTransport::communicator() const {
  const NcclCommunicator communicator = communicator_;
  if (communicator == nullptr) session_.wait_for_abort();
  return communicator;
}

// The root's own part does not travel.
void NcclTransport::gather(const Collective& call) {
  const NcclCommunicator communicator = this->communicator();
  const std::span<const std::byte> one = call.send;
  api_.begin_group();
  if (rank() != call.root) api_.send(one.data(), one.size(), call.root, communicator, stream_);
  for (int from = 0; rank() == call.root && from < size(); ++from)
    if (from != call.root)
      api_.receive(part_of(call.receive, one.size(), from).data(), one.size(), from, communicator,
                   stream_);
  api_.end_group();
  if (rank() == call.root)
    device_.copy(part_of(call.receive, one.size(), call.root).data(), one.data(), one.size(),
                 stream_);
}

void NcclTransport::scatter(const Collective& call) {
  const NcclCommunicator communicator = this->communicator();
  const std::span<std::byte> one = call.receive;
  api_.begin_group();
  if (rank() != call.root) api_.receive(one.data(), one.size(), call.root, communicator, stream_);
  for (int to = 0; rank() == call.root && to < size(); ++to)
    if (to != call.root)
      api_.send(part_of(call.send, one.size(), to).data(), one.size(), to, communicator, stream_);
  api_.end_group();
  if (rank() == call.root)
    device_.copy(one.data(), part_of(call.send, one.size(), call.root).data(), one.size(), stream_);
}

void NcclTransport::all_to_all(const Collective& call) {
  const NcclCommunicator communicator = this->communicator();
  const std::size_t bytes = call.send.size() / static_cast<std::size_t>(size());
  api_.begin_group();
  for (int other = 0; other < size(); ++other) {
    api_.send(part_of(call.send, bytes, other).data(), bytes, other, communicator, stream_);
    api_.receive(part_of(call.receive, bytes, other).data(), bytes, other, communicator, stream_);
  }
  api_.end_group();
}

void NcclTransport::send_receive(const Collective& call) {
  const NcclCommunicator communicator = this->communicator();
  const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
  api_.begin_group();
  api_.send(call.send.data(), call.send.size(), next, communicator, stream_);
  api_.receive(call.receive.data(), call.receive.size(), previous, communicator, stream_);
  api_.end_group();
}

double NcclTransport::run(const Collective& call) {
  move(call);
  return 0;
}

// NCCL would launch a kernel for one rank, too.
void NcclTransport::move(const Collective& call) {
  const std::size_t count = call.receive.size() / static_cast<std::size_t>(value_bytes(call.type));
  std::byte* data = call.receive.data();
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      if (size() > 1) api_.all_reduce(data, count, call.type, communicator(), stream_);
      return scale_to_mean(call, size(), scale_, stream_);
    case CollectiveKind::kReduce:
      if (size() > 1) api_.reduce(data, count, call.type, call.root, communicator(), stream_);
      return;
    case CollectiveKind::kBroadcast:
      if (size() > 1) api_.broadcast(data, call.receive.size(), call.root, communicator(), stream_);
      return;
    case CollectiveKind::kGather:
      return gather(call);
    case CollectiveKind::kScatter:
      return scatter(call);
    case CollectiveKind::kAllGather:
      return api_.all_gather(call.send.data(), data, call.send.size(), communicator(), stream_);
    case CollectiveKind::kReduceScatter:
      api_.reduce_scatter(call.send.data(), data, count, call.type, communicator(), stream_);
      return scale_to_mean(call, size(), scale_, stream_);
    case CollectiveKind::kAllToAll:
      return all_to_all(call);
    case CollectiveKind::kSendReceive:
      return send_receive(call);
    case CollectiveKind::kBarrier:
      return;
  }
}

std::string NcclTransport::lost() {
  const std::unique_lock lock(aborting_, std::try_to_lock);
  const NcclCommunicator communicator = lock ? communicator_.load() : nullptr;
  return communicator == nullptr ? std::string() : api_.lost(communicator);
}

void NcclTransport::abandon() noexcept {
  abandoned_ = true;
  const std::lock_guard lock(aborting_);
  if (const NcclCommunicator communicator = communicator_.exchange(nullptr))
    api_.abort(communicator);
}

}  // namespace gradsync
