// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "sync/replay.h"

namespace gradsync {

namespace {

std::size_t values_in(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + sizeof(float) - 1) / sizeof(float);
}

bool moves_all(CollectiveKind kind) {
  return kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

}  // namespace

Replay::Replay(Exchange& exchange, std::vector<BucketShape> buckets, bool overlaps,
               const std::string& wire_dtype, const torch::Device& device)
    : exchange_(exchange), buckets_(std::move(buckets)), wire_(wire_type(wire_dtype)) {
  exchange_.set_overlaps(overlaps);
  make_room(device);
}

void Replay::make_room(const torch::Device& device) {
  std::size_t largest = 0, largest_of_all = 0;
  for (const BucketShape& bucket : buckets_) {
    // Halves are held as float32 until they travel.
    const std::size_t values = values_in(bucket.bytes) * (wire_ == ValueType::kFloat32 ? 1 : 2);
    largest = std::max(largest, values);
    if (moves_all(bucket.kind)) largest_of_all = std::max(largest_of_all, values);
  }
  const torch::TensorOptions options(device);
  data_ = zeros_in(exchange_.allocate(largest * sizeof(float)), static_cast<std::int64_t>(largest),
                   device)
              .fill_(1);
  const std::int64_t ranks = exchange_.session().root() ? exchange_.session().size() : 0;
  all_ = torch::ones({static_cast<std::int64_t>(largest_of_all) * ranks}, options);
}

void Replay::attach(Replica& replica) {
  gradients_.emplace(replica);
}

void Replay::synchronize() {
  for (const BucketShape& bucket : buckets_)
    repeat(bucket);
}

void Replay::repeat(const BucketShape& bucket) {
  const std::span<float> one = first(bucket.bytes);
  const std::span<float> all(
      all_.data_ptr<float>(),
      all_.numel() == 0 ? 0 : one.size() * static_cast<std::size_t>(exchange_.session().size()));
  switch (bucket.kind) {
    case CollectiveKind::kAllReduce:
      return run(mean_of(bucket.bytes));
    case CollectiveKind::kBroadcast:
      return run(Collective::broadcast(
          std::as_writable_bytes(one).first(static_cast<std::size_t>(bucket.bytes)), kRoot));
    case CollectiveKind::kReduce:
      return run(Collective::reduce(one, kRoot));
    case CollectiveKind::kGather:
      return run(Collective::gather(one, all, kRoot));
    case CollectiveKind::kScatter:
      return run(Collective::scatter(all, one, kRoot));
    case CollectiveKind::kAllGather:
    case CollectiveKind::kBarrier:
    case CollectiveKind::kReduceScatter:
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kSendReceive:
      return;  // no mode exchanges these in an iteration
  }
}

void Replay::run(const Collective& call) {
  exchange_.run(call, Traffic::kGradients);
}

/// A mean of so many bytes as they travel.
Collective Replay::mean_of(std::int64_t bytes) {
  const auto values = static_cast<std::size_t>(bytes / value_bytes(wire_));
  Collective mean = Collective::all_reduce({data_.data_ptr<float>(), values}, Scale::kAverage);
  mean.wire = wire_;
  return mean;
}

std::span<float> Replay::first(std::int64_t bytes) {
  return {data_.data_ptr<float>(), values_in(bytes)};
}

}  // namespace gradsync
