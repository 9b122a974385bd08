#include "sync/blocking_mode.h"

namespace gradsync {

namespace {

/// Every rank's gradients are gathered on rank 0, averaged there and scattered back, as in studies
/// that build data parallelism from gather and scatter alone.
class GatherScatter : public BlockingMode {
 public:
  using BlockingMode::BlockingMode;

 protected:
  void average(std::span<float> message) override {
    const bool root = exchange_.rank() == kRoot;
    const std::size_t ranks = static_cast<std::size_t>(exchange_.size());
    const std::span<float> all = root ? room(ranks * message.size()) : std::span<float>();
    exchange_.gather(message, all, kRoot, Traffic::kGradients);
    if (root && all_.is_cpu()) average_parts(all, message.size());
    if (root && !all_.is_cpu()) average_on_device(all.size(), message.size());
    exchange_.scatter(all, message, kRoot, Traffic::kGradients);
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

std::unique_ptr<SyncMode> make_gather_scatter(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<GatherScatter>(exchange, settings);
}

}  // namespace gradsync
