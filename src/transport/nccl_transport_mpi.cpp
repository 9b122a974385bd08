#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "base/error.h"
#include "record/run.h"
#include "transport/nccl_transport.h"

namespace gradsync {

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
  const auto watched =
      session.control(CollectiveKind::kBroadcast, static_cast<std::int64_t>(id.size()));
  MPI_Bcast(id.data(), static_cast<int>(id.size()), MPI_BYTE, 0, session.world());
  return id;
}

}  // namespace

NcclTransport::NcclTransport(const Session& session, Watchdog& watchdog, NcclApi& api,
                             Device& device, StreamHandle stream)
    : session_(session),
      watchdog_(watchdog),
      api_(api),
      device_(device),
      stream_(stream),
      rank_(session.rank()),
      size_(session.size()) {
  const NcclId id = shared_id(session, api);
  const CollectiveScope watched(watchdog, CollectiveKind::kBarrier);
  try {
    communicator_ = api_.join(id, rank_, size_);
  } catch (...) {
    // The others may be waiting inside NCCL for this rank. The lowest that fails speaks for all.
    std::this_thread::sleep_for(std::min(kMostDelay, rank_ * kDelayPerRank));
    session.abort(current_error());
  }
}

NcclTransport::~NcclTransport() {
  const NcclCommunicator communicator = communicator_.exchange(nullptr);
  if (communicator == nullptr) return;
  const CollectiveScope watched(watchdog_, CollectiveKind::kBarrier);
  if (std::uncaught_exceptions() > 0)
    api_.abort(communicator);
  else
    api_.leave(communicator);
}

NcclCommunicator NcclTransport::communicator() const {
  const NcclCommunicator communicator = communicator_;
  if (communicator == nullptr) session_.wait_for_abort();
  return communicator;
}

// NCCL launches a kernel for one rank, too: its mean is a sum of products.
void NcclTransport::all_reduce(void* data, std::size_t count, ValueType type, bool mean) {
  if (size_ > 1) api_.all_reduce(data, count, type, mean, communicator(), stream_);
}

void NcclTransport::all_reduce_sum(std::span<float> data, Waiting) {
  all_reduce(data.data(), data.size(), ValueType::kFloat32, /*mean=*/false);
}

void NcclTransport::all_reduce_mean(std::span<float> data, Waiting) {
  all_reduce(data.data(), data.size(), ValueType::kFloat32, /*mean=*/true);
}

void NcclTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting) {
  all_reduce(data.data(), data.size(), ValueType::kBfloat16, /*mean=*/false);
}

void NcclTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting) {
  all_reduce(data.data(), data.size(), ValueType::kFloat16, /*mean=*/false);
}

void NcclTransport::reduce(void* data, std::size_t count, ValueType type, int root) {
  if (size_ > 1) api_.reduce(data, count, type, root, communicator(), stream_);
}

void NcclTransport::reduce_sum(std::span<float> data, int root) {
  reduce(data.data(), data.size(), ValueType::kFloat32, root);
}

void NcclTransport::broadcast(std::span<std::byte> data, int root) {
  if (size_ > 1) api_.broadcast(data.data(), data.size(), root, communicator(), stream_);
}

void NcclTransport::gather(std::span<const float> one, std::span<float> all, int root) {
  gather_bytes(std::as_bytes(one), std::as_writable_bytes(all), root);
}

void NcclTransport::scatter(std::span<const float> all, std::span<float> one, int root) {
  scatter_bytes(std::as_bytes(all), std::as_writable_bytes(one), root);
}

// The root's own part does not travel.
void NcclTransport::gather_bytes(std::span<const std::byte> one, std::span<std::byte> all,
                                 int root) {
  const NcclCommunicator communicator = this->communicator();
  api_.begin_group();
  if (rank_ != root) api_.send(one.data(), one.size(), root, communicator, stream_);
  for (int from = 0; rank_ == root && from < size_; ++from)
    if (from != root)
      api_.receive(part_of(all, one.size(), from).data(), one.size(), from, communicator, stream_);
  api_.end_group();
  if (rank_ == root)
    device_.copy(part_of(all, one.size(), root).data(), one.data(), one.size(), stream_);
}

void NcclTransport::scatter_bytes(std::span<const std::byte> all, std::span<std::byte> one,
                                  int root) {
  const NcclCommunicator communicator = this->communicator();
  api_.begin_group();
  if (rank_ != root) api_.receive(one.data(), one.size(), root, communicator, stream_);
  for (int to = 0; rank_ == root && to < size_; ++to)
    if (to != root)
      api_.send(part_of(all, one.size(), to).data(), one.size(), to, communicator, stream_);
  api_.end_group();
  if (rank_ == root)
    device_.copy(one.data(), part_of(all, one.size(), root).data(), one.size(), stream_);
}

void NcclTransport::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) {
  const NcclCommunicator communicator = this->communicator();
  const std::size_t bytes = send.size() / static_cast<std::size_t>(size_);
  api_.begin_group();
  for (int other = 0; other < size_; ++other) {
    api_.send(part_of(send, bytes, other).data(), bytes, other, communicator, stream_);
    api_.receive(part_of(receive, bytes, other).data(), bytes, other, communicator, stream_);
  }
  api_.end_group();
}

void NcclTransport::send_receive(std::span<const std::byte> send, std::span<std::byte> receive) {
  const NcclCommunicator communicator = this->communicator();
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  api_.begin_group();
  api_.send(send.data(), send.size(), next, communicator, stream_);
  api_.receive(receive.data(), receive.size(), previous, communicator, stream_);
  api_.end_group();
}

bool NcclTransport::moves(CollectiveKind kind, ValueType) const {
  return kind != CollectiveKind::kBarrier;
}

void NcclTransport::move(const TypedCall& call) {
  const std::size_t count = call.receive.size() / static_cast<std::size_t>(value_bytes(call.type));
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(call.receive.data(), count, call.type, /*mean=*/false);
    case CollectiveKind::kReduce:
      return reduce(call.receive.data(), count, call.type, call.root);
    case CollectiveKind::kBroadcast:
      return broadcast(call.receive, call.root);
    case CollectiveKind::kGather:
      return gather_bytes(call.send, call.receive, call.root);
    case CollectiveKind::kScatter:
      return scatter_bytes(call.send, call.receive, call.root);
    case CollectiveKind::kAllGather:
      return api_.all_gather(call.send.data(), call.receive.data(), call.send.size(),
                             communicator(), stream_);
    case CollectiveKind::kReduceScatter:
      return api_.reduce_scatter(call.send.data(), call.receive.data(), count, call.type,
                                 communicator(), stream_);
    case CollectiveKind::kAllToAll:
      return all_to_all(call.send, call.receive);
    case CollectiveKind::kSendReceive:
      return send_receive(call.send, call.receive);
    case CollectiveKind::kBarrier:
      return;
  }
}

std::string NcclTransport::lost() {
  const std::unique_lock lock(aborting_, std::try_to_lock);
  const NcclCommunicator communicator = lock ? communicator_.load() : nullptr;
  return communicator == nullptr ? std::string() : api_.lost(communicator);
}

// The pointer is gone before anything ends: a thread that sees a result sees that, too.
void NcclTransport::abandon() noexcept {
  const std::lock_guard lock(aborting_);
  if (const NcclCommunicator communicator = communicator_.exchange(nullptr))
    api_.abort(communicator);
}

}  // namespace gradsync
