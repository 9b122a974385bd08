// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/device_ranks.h"

#include <limits>
#include <span>

namespace gradsync::test {

namespace {

std::size_t count_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

std::size_t bytes_of(std::size_t count, ValueType type) {
  return count * static_cast<std::size_t>(value_bytes(type));
}

using Use = FakeDevice::Use;

template <typename T>
void launch(StreamHandle stream, const T* values, std::int64_t count, Use use) {
  FakeDevice::launch(stream, values, count_of(count) * sizeof(T), use);
}

/// The reference implementations of the kernels, for a device whose memory is the host's.
DeviceKernels reference_kernels() {
  return {
      [](const float* values, std::uint16_t* wire, std::int64_t count, float factor, HalfType type,
         StreamHandle stream) {
        launch(stream, values, count, Use::kRead);
        launch(stream, wire, count, Use::kWrite);
        pack_on_host({values, count_of(count)}, {wire, count_of(count)}, factor, type);
      },
      [](const std::uint16_t* wire, float* values, std::int64_t count, float factor, HalfType type,
         StreamHandle stream) {
        launch(stream, wire, count, Use::kRead);
        launch(stream, values, count, Use::kWrite);
        unpack_on_host({wire, count_of(count)}, {values, count_of(count)}, factor, type);
      },
      [](const float* values, std::int64_t count, unsigned long long* lowest, StreamHandle stream) {
        launch(stream, values, count, Use::kRead);
        launch(stream, lowest, 1, Use::kWrite);
        lowest_bad_on_host({values, count_of(count)}, *lowest);
      }};
}

}  // namespace

void scale_on_stand_in(float* values, std::int64_t count, float factor, StreamHandle stream) {
  launch(stream, values, count, Use::kWrite);
  scale_on_host({values, count_of(count)}, factor);
}

NcclId FakeNccl::make_id() {
  NcclId id{};
  for (std::size_t i = 0; i < id.size(); ++i)
    id[i] = static_cast<char>(100 * session().rank() + static_cast<int>(i));
  return id;
}

NcclCommunicator FakeNccl::join(const NcclId& id, int, int) {
  joined = id;
  return this;
}

void FakeNccl::enqueue(NcclCommunicator communicator, StreamHandle stream, const void* data,
                       std::size_t bytes, FakeDevice::Use use) {
  if (communicator != this) throw Error(ExitCode::kEnvironment, "NCCL: invalid argument");
  ++calls;
  misaligned += reinterpret_cast<std::uintptr_t>(data) % 16 != 0;
  FakeDevice::touch(stream, data, bytes, use);
  device_.work(stream, stuck ? std::numeric_limits<double>::infinity() : call_s_ + waits_s);
}

void FakeNccl::move(const Collective& what) {
  if (!stuck) mpi_.run(what);
}

void FakeNccl::all_reduce(void* data, std::size_t count, ValueType type,
                          NcclCommunicator communicator, StreamHandle stream) {
  const std::size_t bytes = bytes_of(count, type);
  enqueue(communicator, stream, data, bytes);
  move({.type = type, .receive = {static_cast<std::byte*>(data), bytes}});
}

void FakeNccl::reduce(void* data, std::size_t count, ValueType type, int root,
                      NcclCommunicator communicator, StreamHandle stream) {
  const std::size_t bytes = bytes_of(count, type);
  enqueue(communicator, stream, data, bytes);
  move({.kind = CollectiveKind::kReduce,
        .type = type,
        .receive = {static_cast<std::byte*>(data), bytes},
        .root = root});
}

void FakeNccl::broadcast(void* data, std::size_t bytes, int root, NcclCommunicator communicator,
                         StreamHandle stream) {
  enqueue(communicator, stream, data, bytes);
  move(Collective::broadcast(std::span(static_cast<std::byte*>(data), bytes), root));
}

void FakeNccl::move_apart(CollectiveKind kind, ValueType type, std::span<const std::byte> send,
                          std::span<std::byte> receive, NcclCommunicator communicator,
                          StreamHandle stream) {
  enqueue(communicator, stream, send.data(), send.size(), Use::kRead);
  FakeDevice::touch(stream, receive.data(), receive.size(), Use::kWrite);
  move({.kind = kind, .type = type, .send = send, .receive = receive});
}

void FakeNccl::all_gather(const void* one, void* all, std::size_t bytes,
                          NcclCommunicator communicator, StreamHandle stream) {
  const auto ranks = static_cast<std::size_t>(session().size());
  move_apart(CollectiveKind::kAllGather, ValueType::kByte,
             {static_cast<const std::byte*>(one), bytes},
             {static_cast<std::byte*>(all), ranks * bytes}, communicator, stream);
}

void FakeNccl::reduce_scatter(const void* all, void* one, std::size_t count, ValueType type,
                              NcclCommunicator communicator, StreamHandle stream) {
  const auto ranks = static_cast<std::size_t>(session().size());
  const std::size_t bytes = bytes_of(count, type);
  move_apart(CollectiveKind::kReduceScatter, type,
             {static_cast<const std::byte*>(all), ranks * bytes},
             {static_cast<std::byte*>(one), bytes}, communicator, stream);
}

void FakeNccl::send(const void* data, std::size_t bytes, int to, NcclCommunicator communicator,
                    StreamHandle stream) {
  REQUIRE(in_group_);
  enqueue(communicator, stream, data, bytes, Use::kRead);
  requests_.emplace_back();
  MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, 5, session().world(), &requests_.back());
}

void FakeNccl::receive(void* data, std::size_t bytes, int from, NcclCommunicator communicator,
                       StreamHandle stream) {
  REQUIRE(in_group_);
  enqueue(communicator, stream, data, bytes);
  requests_.emplace_back();
  MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, 5, session().world(), &requests_.back());
}

void FakeNccl::begin_group() {
  REQUIRE_FALSE(in_group_);
  in_group_ = true;
}

void FakeNccl::end_group() {
  REQUIRE(in_group_);
  in_group_ = false;
  MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE);
  requests_.clear();
}

DeviceRanks::DeviceRanks(bool nccl, VerifyLevel verify)
    : lane{device, ring, device.make_stream(), device.make_stream(), reference_kernels()},
      transport(nccl ? std::unique_ptr<Transport>(std::make_unique<NcclTransport>(
                           session(), watchdog, api, device, lane.communication, scale_on_stand_in))
                     : std::make_unique<StagedTransport>(mpi, device, lane.communication)),
      exchange(session(), *transport, verify, &lane) {}

}  // namespace gradsync::test
