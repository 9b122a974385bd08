// SPDX-License-Identifier: BSD-3-Clause
// The modes that do not communicate beside compute: none, allreduce and gather-scatter.
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// No exchange: every rank trains on its own slice alone. The compute-only baseline.
class None : public SyncMode {
 public:
  void attach(Replica& replica) override { gradients_.emplace(replica); }
  void synchronize() override {}

 private:
  std::optional<FlatGradients> gradients_;
};

/// What the modes share that exchange after the backward pass, in the thread of the step: gradients
/// in the order of the modules, averaged message by message (one a parameter, or all as one).
class BlockingMode : public SyncMode {
 public:
  BlockingMode(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), tensor_by_tensor_(settings.granularity == "tensor") {}

  void attach(Replica& replica) override {
    device_ = replica.parameters[0].device();
    parameters_ = replica.parameters.size();
    gradients_.emplace(replica, one_group(replica), exchange_);
  }

  void synchronize() override {
    if (!tensor_by_tensor_) return average(gradients_->group(0));
    for (std::size_t parameter = 0; parameter < parameters_; ++parameter)
      if (const auto values = gradients_->of(parameter); !values.empty()) average(values);
  }

 protected:
  /// Averages one message over the ranks, in place.
  virtual void average(std::span<float> message) = 0;

  Exchange& exchange_;
  torch::Device device_ = torch::kCPU;  ///< where the gradients lie

 private:
  bool tensor_by_tensor_;
  std::size_t parameters_ = 0;
  std::optional<FlatGradients> gradients_;
};

/// Blocking all-reduce after the backward pass.
class AllReduce : public BlockingMode {
 public:
  AllReduce(Exchange& exchange, const SyncSettings& settings)
      : BlockingMode(exchange, settings), wire_(wire_type(settings.wire_dtype)) {}

 protected:
  void average(std::span<float> message) override {
    Collective mean = Collective::all_reduce(message, Scale::kAverage);
    mean.wire = wire_;
    exchange_.run(mean, Traffic::kGradients);
  }

 private:
  ValueType wire_;
};

/// Every rank's gradients are gathered on rank 0, averaged there and scattered back, as in studies
/// that build data parallelism from gather and scatter alone.
class GatherScatter : public BlockingMode {
 public:
  using BlockingMode::BlockingMode;

 protected:
  void average(std::span<float> message) override {
    const bool root = exchange_.session().root();
    const std::size_t ranks = static_cast<std::size_t>(exchange_.session().size());
    if (ranks == 1) return;  // as in the other modes, one rank pays for no exchange
    const std::span<float> all = root ? room(ranks * message.size()) : std::span<float>();
    exchange_.run(Collective::gather(message, all, kRoot), Traffic::kGradients);
    if (root && all_.is_cpu()) average_parts(all, message.size());
    if (root && !all_.is_cpu()) average_on_device(all.size(), message.size());
    exchange_.run(Collective::scatter(all, message, kRoot), Traffic::kGradients);
  }

 private:
  /// Memory for `count` values where the gradients lie.
  std::span<float> room(std::size_t count) {
    const auto values = static_cast<std::int64_t>(count);
    if (!all_.defined() || all_.numel() < values)
      all_ = torch::empty({values}, torch::TensorOptions(device_));
    return {all_.data_ptr<float>(), count};
  }

  /// The same sums as on the host, in the same order.
  void average_on_device(std::size_t all, std::size_t one) {
    const auto ranks = static_cast<std::int64_t>(all / one);
    const torch::Tensor parts = all_.narrow(0, 0, static_cast<std::int64_t>(all)).view({ranks, -1});
    torch::Tensor sum = parts[0];
    for (std::int64_t rank = 1; rank < ranks; ++rank)
      sum.add_(parts[rank]);
    sum.mul_(1.0f / static_cast<float>(ranks));
    if (ranks > 1) parts.narrow(0, 1, ranks - 1).copy_(sum.expand({ranks - 1, -1}));
  }

  /// Replaces each rank's part by the average of all parts.
  static void average_parts(std::span<float> all, std::size_t count) {
    const std::size_t ranks = all.size() / count;
    const float factor = 1.0f / static_cast<float>(ranks);
    const std::span<float> sum = all.first(count);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      const float* part = all.data() + rank * count;
      for (std::size_t i = 0; i < count; ++i)
        sum[i] += part[i];
    }
    for (float& value : sum)
      value *= factor;
    for (std::size_t rank = 1; rank < ranks; ++rank)
      std::copy(sum.begin(), sum.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * count));
  }

  torch::Tensor all_;  ///< on the root: the parts of all ranks
};

}  // namespace

std::unique_ptr<SyncMode> make_none(Exchange&, const SyncSettings&) {
  return std::make_unique<None>();
}

std::unique_ptr<SyncMode> make_allreduce(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<AllReduce>(exchange, settings);
}

std::unique_ptr<SyncMode> make_gather_scatter(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<GatherScatter>(exchange, settings);
}

}  // namespace gradsync
