#include "transport/staged_transport.h"

namespace gradsync {

StagedTransport::StagedTransport(MpiTransport& mpi, Device& device, StreamHandle stream)
    : mpi_(mpi),
      device_(device),
      stream_(stream),
      fetched_(device.make_event()),
      one_(device),
      all_(device) {}

StagedTransport::~StagedTransport() {
  device_.free_event(fetched_);
}

template <typename T>
std::span<T> StagedTransport::host_of(PinnedBuffer& buffer, std::span<T> data) {
  if (data.size_bytes() > buffer.bytes()) settle();
  return {static_cast<T*>(buffer.at_least(data.size_bytes())), data.size()};
}

void StagedTransport::settle() {
  device_.record(fetched_, stream_);
  device_.wait_for(fetched_);
}

// What the stream still copies out of the host's memory comes before this on the same stream.
void StagedTransport::fetch(void* host, const void* device, std::size_t bytes) {
  if (bytes > 0) device_.copy(host, device, bytes, stream_);
  settle();
}

void StagedTransport::put_back(void* device, const void* host, std::size_t bytes) {
  if (bytes > 0) device_.copy(device, host, bytes, stream_);
}

template <typename T, typename Body>
void StagedTransport::in_place(std::span<T> data, const Body& body) {
  const std::span<T> host = host_of(one_, data);
  fetch(host.data(), data.data(), data.size_bytes());
  body(host);
  put_back(data.data(), host.data(), data.size_bytes());
}

void StagedTransport::all_reduce_sum(std::span<float> data, Waiting waiting) {
  in_place(data, [&](std::span<float> host) { mpi_.all_reduce_sum(host, waiting); });
}

void StagedTransport::all_reduce_mean(std::span<float> data, Waiting waiting) {
  in_place(data, [&](std::span<float> host) { mpi_.all_reduce_mean(host, waiting); });
}

void StagedTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) {
  in_place(data, [&](std::span<std::uint16_t> host) { mpi_.all_reduce_sum_bf16(host, waiting); });
}

void StagedTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) {
  in_place(data, [&](std::span<std::uint16_t> host) { mpi_.all_reduce_sum_fp16(host, waiting); });
}

void StagedTransport::reduce_sum(std::span<float> data, int root) {
  const std::span<float> host = host_of(one_, data);
  fetch(host.data(), data.data(), data.size_bytes());
  mpi_.reduce_sum(host, root);
  if (rank() == root) put_back(data.data(), host.data(), data.size_bytes());
}

void StagedTransport::broadcast(std::span<std::byte> data, int root) {
  const std::span<std::byte> host = host_of(one_, data);
  // On the other ranks too: what the stream still reads of the host's memory has to be over.
  fetch(host.data(), data.data(), data.size_bytes());
  mpi_.broadcast(host, root);
  if (rank() != root) put_back(data.data(), host.data(), data.size_bytes());
}

void StagedTransport::gather(std::span<const float> one, std::span<float> all, int root) {
  const auto host = host_of(one_, std::span(const_cast<float*>(one.data()), one.size()));
  const std::span<float> host_all = host_of(all_, all);
  fetch(host.data(), one.data(), one.size_bytes());
  mpi_.gather(host, host_all, root);
  if (rank() == root) put_back(all.data(), host_all.data(), all.size_bytes());
}

void StagedTransport::scatter(std::span<const float> all, std::span<float> one, int root) {
  const auto host_all = host_of(all_, std::span(const_cast<float*>(all.data()), all.size()));
  const std::span<float> host = host_of(one_, one);
  fetch(host_all.data(), all.data(), all.size_bytes());
  mpi_.scatter(host_all, host, root);
  put_back(one.data(), host.data(), one.size_bytes());
}

// What the call does not write comes back as it was.
void StagedTransport::move(const TypedCall& call) {
  TypedCall of_host = call;
  const auto send =
      host_of(one_, std::span(const_cast<std::byte*>(call.send.data()), call.send.size()));
  of_host.send = send;
  of_host.receive = host_of(all_, call.receive);
  fetch(send.data(), call.send.data(), call.send.size());
  fetch(of_host.receive.data(), call.receive.data(), call.receive.size());
  mpi_.move(of_host);
  put_back(call.receive.data(), of_host.receive.data(), call.receive.size());
}

}  // namespace gradsync
