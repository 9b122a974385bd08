// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/function_ref.h"
#include "base/numbers.h"
#include "transport/mpi_transport.h"

namespace gradsync {

namespace {

constexpr auto kPollPause = std::chrono::microseconds(50);
constexpr int kPollsBeforeSleep = 20;
constexpr int kRingTag = 7;

MPI_Datatype mpi_type(ValueType type) {
  switch (type) {
    case ValueType::kFloat32:
      return MPI_FLOAT;
    case ValueType::kBfloat16:
    case ValueType::kFloat16:
      return MPI_UINT16_T;
    case ValueType::kFloat64:
      return MPI_DOUBLE;
    case ValueType::kInt8:
      return MPI_INT8_T;
    case ValueType::kInt32:
      return MPI_INT32_T;
    case ValueType::kByte:
      break;
  }
  return MPI_BYTE;
}

/// Bytes as MPI counts them: as they are, or, where `total` bytes are too many for its int, as one
/// value of a type of that length.
class Length {
 public:
  Length(std::size_t bytes, std::size_t total, std::size_t piece_bytes) {
    if (total <= piece_bytes) {
      count_ = static_cast<int>(bytes);
      return;
    }
    const std::size_t pieces = bytes / piece_bytes, rest = bytes % piece_bytes;
    MPI_Datatype piece = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(static_cast<int>(piece_bytes), MPI_BYTE, &piece);
    const std::array<int, 2> lengths = {static_cast<int>(pieces), static_cast<int>(rest)};
    const std::array<MPI_Aint, 2> places = {0, static_cast<MPI_Aint>(pieces * piece_bytes)};
    const std::array<MPI_Datatype, 2> types = {piece, MPI_BYTE};
    MPI_Type_create_struct(2, lengths.data(), places.data(), types.data(), &type_);
    MPI_Type_commit(&type_);
    MPI_Type_free(&piece);
    count_ = 1;
  }
  ~Length() {
    if (type_ != MPI_BYTE) MPI_Type_free(&type_);
  }
  Length(const Length&) = delete;
  Length& operator=(const Length&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_ = 0;
  MPI_Datatype type_ = MPI_BYTE;
};

/// Calls `each` with pieces of `data` of whole values of `type`.
void in_pieces(std::span<std::byte> data, ValueType type, std::size_t piece_bytes,
               FunctionRef<void(std::span<std::byte>)> each) {
  const auto value = static_cast<std::size_t>(value_bytes(type));
  const std::size_t piece = std::max(piece_bytes / value, std::size_t{1}) * value;
  do {
    const auto first = data.first(std::min(piece, data.size()));
    each(first);
    data = data.subspan(first.size());
  } while (!data.empty());
}

int values_in(std::span<const std::byte> data, ValueType type) {
  return static_cast<int>(data.size() / static_cast<std::size_t>(value_bytes(type)));
}

template <std::uint16_t (*encode)(float), float (*decode)(std::uint16_t)>
void add_half(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const std::uint16_t*>(in);
  auto* b = static_cast<std::uint16_t*>(inout);
  for (int i = 0; i < *count; ++i)
    b[i] = encode(decode(a[i]) + decode(b[i]));
}

void wait_sleeping(std::array<MPI_Request, 2>& requests) {
  int done = 0;
  for (int polls = 0;; ++polls) {
    MPI_Testall(2, requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done) return;
    if (polls >= kPollsBeforeSleep) std::this_thread::sleep_for(kPollPause);
  }
}

/// Chunk `index` of `data` cut into `parts`: sizes differ by one value at most.
std::span<std::byte> chunk_of(std::span<std::byte> data, int index, int parts, ValueType type) {
  const auto value = static_cast<std::size_t>(value_bytes(type));
  const auto part = [&](int i) {
    return data.size() / value * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts) *
           value;
  };
  return data.subspan(part(index), part(index + 1) - part(index));
}

}  // namespace

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 1;
  MPI_Comm_size(comm, &size);
  return size;
}

MpiTransport::MpiTransport(MPI_Comm parent, std::size_t piece_bytes)
    : Transport("mpi", rank_in(parent), size_of(parent)), piece_bytes_(piece_bytes) {
  MPI_Comm_dup(parent, &comm_);
  MPI_Op_create(&add_half<to_bf16, from_bf16>, /*commute=*/1, &sum_bf16_);
  MPI_Op_create(&add_half<to_fp16, from_fp16>, /*commute=*/1, &sum_fp16_);
}

MpiTransport::~MpiTransport() {
  MPI_Op_free(&sum_bf16_);
  MPI_Op_free(&sum_fp16_);
  MPI_Comm_free(&comm_);
}

MPI_Op MpiTransport::sum_of(ValueType type) const {
  if (type == ValueType::kBfloat16) return sum_bf16_;
  return type == ValueType::kFloat16 ? sum_fp16_ : MPI_SUM;
}

std::span<std::byte> in_place(const Collective& call, int rank) {
  const bool scatters = call.kind == CollectiveKind::kReduceScatter;
  const std::size_t all = scatters ? call.send.size() : call.receive.size();
  const std::size_t one = scatters ? call.receive.size() : call.send.size();
  const std::size_t before = static_cast<std::size_t>(rank) * one;
  if (call.kind == CollectiveKind::kAllGather && call.send.data() == call.receive.data() + before)
    return call.receive;
  if (scatters && call.receive.data() == call.send.data() + before)
    return {call.receive.data() - before, all};
  return {};
}

std::span<float> floats_in_place(const Collective& call, int rank, int ranks) {
  const std::span<std::byte> all = in_place(call, rank);
  const bool sums = call.kind == CollectiveKind::kReduceScatter;
  if ((sums && call.type != ValueType::kFloat32) ||
      all.size() % (static_cast<std::size_t>(ranks) * sizeof(float)) != 0)
    return {};
  return {reinterpret_cast<float*>(all.data()), all.size() / sizeof(float)};
}

/// Whether a half of an all-reduce goes round the ring whose waits sleep.
bool MpiTransport::rings(const Collective& call, std::span<const std::byte> all) const {
  return call.waiting == Waiting::kSleep && !all.empty() && all.size() <= piece_bytes_;
}

void MpiTransport::all_reduce(const Collective& call) {
  if (size() == 1) return;
  in_pieces(call.receive, call.type, piece_bytes_, [&](std::span<std::byte> piece) {
    if (call.waiting == Waiting::kSleep)
      ring(piece, call.type, rank(), Halves::kBoth);
    else
      MPI_Allreduce(MPI_IN_PLACE, piece.data(), values_in(piece, call.type), mpi_type(call.type),
                    sum_of(call.type), comm_);
  });
  scale(call);
}

/// What is left to do on the sum where the mean was asked for.
void MpiTransport::scale(const Collective& call) const {
  if (call.scale == Scale::kSum) return;
  const float factor = 1.0f / static_cast<float>(size());
  auto* values = reinterpret_cast<float*>(call.receive.data());
  for (std::size_t i = 0; i < call.receive.size() / sizeof(float); ++i)
    values[i] *= factor;
}

void MpiTransport::ring(std::span<std::byte> data, ValueType value_type, int place, Halves halves) {
  const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
  const MPI_Datatype type = mpi_type(value_type);
  const auto count = [&](std::span<std::byte> part) { return values_in(part, value_type); };
  const auto chunk = [&](int index) {
    return chunk_of(data, ((index % size()) + size()) % size(), size(), value_type);
  };
  const auto exchange = [&](std::span<std::byte> send, std::span<std::byte> receive) {
    std::array<MPI_Request, 2> requests;
    MPI_Irecv(receive.data(), count(receive), type, previous, kRingTag, comm_, &requests[0]);
    MPI_Isend(send.data(), count(send), type, next, kRingTag, comm_, &requests[1]);
    wait_sleeping(requests);
  };
  scratch_.resize(std::max(scratch_.size(), data.size() / static_cast<std::size_t>(size()) +
                                                static_cast<std::size_t>(value_bytes(value_type))));
  for (int step = 0; halves != Halves::kGathers && step < size() - 1; ++step) {
    const auto mine = chunk(place - step - 1);
    const auto incoming = std::span(scratch_).first(mine.size());
    exchange(chunk(place - step), incoming);
    MPI_Reduce_local(incoming.data(), mine.data(), count(mine), type, sum_of(value_type));
  }
  for (int step = 0; halves != Halves::kAdds && step < size() - 1; ++step)
    exchange(chunk(place + 1 - step), chunk(place - step));
}

void MpiTransport::reduce(const Collective& call) {
  const bool here = rank() == call.root;
  in_pieces(call.receive, call.type, piece_bytes_, [&](std::span<std::byte> piece) {
    const void* sent = here ? MPI_IN_PLACE : piece.data();
    // MPICH 4.0 to 4.2.0 reads from MPI_IN_PLACE if the root is not rank 0 (its issue 6540).
    if (here && call.root != 0) {
      scratch_.resize(std::max(scratch_.size(), piece.size()));
      std::copy_n(piece.data(), piece.size(), scratch_.data());
      sent = scratch_.data();
    }
    MPI_Reduce(sent, here ? piece.data() : nullptr, values_in(piece, call.type),
               mpi_type(call.type), sum_of(call.type), call.root, comm_);
  });
}

double MpiTransport::run(const Collective& call) {
  move(call);
  return 0;
}

void MpiTransport::move(const Collective& call) {
  const auto ranks = static_cast<std::size_t>(size());
  const auto length = [&](std::size_t bytes) { return Length(bytes, ranks * bytes, piece_bytes_); };
  const void* send = call.send.data();
  void* receive = call.receive.data();
  switch (call.kind) {
    case CollectiveKind::kAllReduce:
      return all_reduce(call);
    case CollectiveKind::kReduce:
      return reduce(call);
    case CollectiveKind::kBroadcast:
      return broadcast_bytes(call.receive, call.root, comm_, piece_bytes_);
    case CollectiveKind::kReduceScatter:
      reduce_scatter(call);
      return scale(call);
    case CollectiveKind::kSendReceive:
      return send_receive(call);
    case CollectiveKind::kGather: {
      const auto one = length(call.send.size());
      MPI_Gather(send, one.count(), one.type(), receive, one.count(), one.type(), call.root, comm_);
      return;
    }
    case CollectiveKind::kScatter: {
      const auto one = length(call.receive.size());
      MPI_Scatter(send, one.count(), one.type(), receive, one.count(), one.type(), call.root,
                  comm_);
      return;
    }
    case CollectiveKind::kAllGather: {
      const auto one = length(call.send.size());
      const std::span<std::byte> all = in_place(call, rank());
      if (rings(call, all)) return ring(all, call.type, rank() - 1, Halves::kGathers);
      MPI_Allgather(all.empty() ? send : MPI_IN_PLACE, one.count(), one.type(), receive,
                    one.count(), one.type(), comm_);
      return;
    }
    case CollectiveKind::kAllToAll: {
      const auto one = length(call.send.size() / ranks);
      MPI_Alltoall(send, one.count(), one.type(), receive, one.count(), one.type(), comm_);
      return;
    }
    case CollectiveKind::kBarrier:
      return;
  }
}

// Beyond one piece MPI's reduce-scatter has no count for it: a reduction to each rank instead.
void MpiTransport::reduce_scatter(const Collective& call) {
  if (const std::span<std::byte> all = in_place(call, rank()); !all.empty()) {
    if (rings(call, all)) return ring(all, call.type, rank() - 1, Halves::kAdds);
    Collective apart = call;
    scratch_.resize(std::max(scratch_.size(), call.receive.size()));
    apart.receive = std::span(scratch_).first(call.receive.size());
    reduce_scatter(apart);
    std::copy(apart.receive.begin(), apart.receive.end(), call.receive.begin());
    return;
  }
  const MPI_Datatype type = mpi_type(call.type);
  const MPI_Op sum = sum_of(call.type);
  if (call.send.size() <= piece_bytes_) {
    MPI_Reduce_scatter_block(call.send.data(), call.receive.data(),
                             values_in(call.receive, call.type), type, sum, comm_);
    return;
  }
  for (int rank = 0; rank < size(); ++rank) {
    std::size_t from = static_cast<std::size_t>(rank) * call.receive.size();
    in_pieces(call.receive, call.type, piece_bytes_, [&](std::span<std::byte> piece) {
      MPI_Reduce(call.send.data() + from, piece.data(), values_in(piece, call.type), type, sum,
                 rank, comm_);
      from += piece.size();
    });
  }
}

void MpiTransport::send_receive(const Collective& call) {
  const Length one(call.send.size(), call.send.size(), piece_bytes_);
  MPI_Sendrecv(call.send.data(), one.count(), one.type(), (rank() + 1) % size(), kRingTag,
               call.receive.data(), one.count(), one.type(), (rank() + size() - 1) % size(),
               kRingTag, comm_, MPI_STATUS_IGNORE);
}

}  // namespace gradsync
