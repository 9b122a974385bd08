#include "transport/mpi_transport.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <thread>

#include <fmt/format.h>

#include "comm/long_messages.h"
#include "support/error.h"
#include "support/half.h"

namespace gradsync {

namespace {

constexpr auto kPollPause = std::chrono::microseconds(50);
constexpr int kPollsBeforeSleep = 20;
constexpr int kRingTag = 7;

/// MPI counts are ints; a larger message is a defect of the caller, who has buckets for that.
int mpi_count(std::size_t count) {
  if (count > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw Error(ExitCode::kUsage,
                fmt::format("a message of {} values exceeds MPI's limit of 2^31-1", count),
                "use a smaller --bucket-cap, or --granularity tensor");
  return static_cast<int>(count);
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

/// Chunk `index` of `data` cut into `parts`: sizes differ by one at most.
template <typename T>
std::span<T> chunk_of(std::span<T> data, int index, int parts) {
  const auto part = [&](int i) {
    return data.size() * static_cast<std::size_t>(i) / static_cast<std::size_t>(parts);
  };
  return data.subspan(part(index), part(index + 1) - part(index));
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm parent) {
  MPI_Comm_dup(parent, &comm_);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
  MPI_Op_create(&add_half<to_bf16, from_bf16>, /*commute=*/1, &sum_bf16_);
  MPI_Op_create(&add_half<to_fp16, from_fp16>, /*commute=*/1, &sum_fp16_);
}

MpiTransport::~MpiTransport() {
  MPI_Op_free(&sum_bf16_);
  MPI_Op_free(&sum_fp16_);
  MPI_Comm_free(&comm_);
}

void MpiTransport::all_reduce_sum(std::span<float> data, Waiting waiting) {
  all_reduce(data, MPI_FLOAT, MPI_SUM, waiting);
}

void MpiTransport::all_reduce_mean(std::span<float> data, Waiting waiting) {
  all_reduce_sum(data, waiting);
  const float factor = 1.0f / static_cast<float>(size_);
  for (float& value : data)
    value *= factor;
}

void MpiTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) {
  all_reduce(data, MPI_UINT16_T, sum_bf16_, waiting);
}

void MpiTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) {
  all_reduce(data, MPI_UINT16_T, sum_fp16_, waiting);
}

template <typename T>
void MpiTransport::all_reduce(std::span<T> data, MPI_Datatype type, MPI_Op op, Waiting waiting) {
  if (size_ == 1) return;
  if (waiting == Waiting::kSleep)
    ring_all_reduce(data, type, op);
  else
    MPI_Allreduce(MPI_IN_PLACE, data.data(), mpi_count(data.size()), type, op, comm_);
}

template <typename T>
void MpiTransport::ring_all_reduce(std::span<T> data, MPI_Datatype type, MPI_Op op) {
  const int next = (rank_ + 1) % size_, previous = (rank_ + size_ - 1) % size_;
  const auto chunk = [&](int index) {
    return chunk_of(data, ((index % size_) + size_) % size_, size_);
  };
  const auto exchange = [&](std::span<T> send, std::span<T> receive) {
    std::array<MPI_Request, 2> requests;
    MPI_Irecv(receive.data(), mpi_count(receive.size()), type, previous, kRingTag, comm_,
              &requests[0]);
    MPI_Isend(send.data(), mpi_count(send.size()), type, next, kRingTag, comm_, &requests[1]);
    wait_sleeping(requests);
  };
  scratch_.resize(
      std::max(scratch_.size(), (data.size() / static_cast<std::size_t>(size_) + 1) * sizeof(T)));
  for (int step = 0; step < size_ - 1; ++step) {
    const auto mine = chunk(rank_ - step - 1);
    const std::span<T> incoming(reinterpret_cast<T*>(scratch_.data()), mine.size());
    exchange(chunk(rank_ - step), incoming);
    MPI_Reduce_local(incoming.data(), mine.data(), mpi_count(mine.size()), type, op);
  }
  for (int step = 0; step < size_ - 1; ++step)
    exchange(chunk(rank_ + 1 - step), chunk(rank_ - step));
}

void MpiTransport::reduce_sum(std::span<float> data, int root) {
  const bool here = rank_ == root;
  const void* sent = here ? MPI_IN_PLACE : data.data();
  // MPICH 4.0 to 4.2.0 reads from MPI_IN_PLACE if the root is not rank 0 (its issue 6540).
  if (here && root != 0) {
    scratch_.resize(std::max(scratch_.size(), data.size_bytes()));
    std::copy_n(std::as_bytes(data).data(), data.size_bytes(), scratch_.data());
    sent = scratch_.data();
  }
  MPI_Reduce(sent, here ? data.data() : nullptr, mpi_count(data.size()), MPI_FLOAT, MPI_SUM, root,
             comm_);
}

void MpiTransport::broadcast(std::span<std::byte> data, int root) {
  broadcast_bytes(data, root, comm_);
}

void MpiTransport::gather(std::span<const float> one, std::span<float> all, int root) {
  const int count = mpi_count(one.size());
  MPI_Gather(one.data(), count, MPI_FLOAT, all.data(), count, MPI_FLOAT, root, comm_);
}

void MpiTransport::scatter(std::span<const float> all, std::span<float> one, int root) {
  const int count = mpi_count(one.size());
  MPI_Scatter(all.data(), count, MPI_FLOAT, one.data(), count, MPI_FLOAT, root, comm_);
}

}  // namespace gradsync
