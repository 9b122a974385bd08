// SPDX-License-Identifier: BSD-3-Clause
// Top-k sparsification with error feedback (Stich, Cordonnier and Jaggi, "Sparsified SGD with
// memory", NeurIPS 2018): of each bucket of gradients the largest values travel, and what stays is
// added to the next gradient.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "sync/compress.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Indices of a bucket are of 32 bits.
constexpr std::int64_t kLargestBucket_bytes = std::int64_t{4} << 30;

class TopK : public SyncMode {
 public:
  TopK(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings) {}

  void attach(Replica& replica) override {
    const auto groups =
        buckets_of(replica, std::min(settings_.first_bucket_bytes, kLargestBucket_bytes),
                   std::min(settings_.bucket_cap_bytes, kLargestBucket_bytes));
    gradients_.emplace(replica, GradientLayout(replica, groups));
    const torch::TensorOptions on_device(replica.parameters[0].device());
    for (std::size_t b = 0; b < groups.size(); ++b) {
      const std::span<float> values = gradients_->group(b);
      const auto count = static_cast<std::int64_t>(values.size());
      if (count == 0) continue;
      const auto taken = static_cast<std::int64_t>(
          std::ceil(settings_.top_k_percent / 100 * static_cast<double>(count)));
      buckets_.push_back({torch::from_blob(values.data(), {count}, on_device),
                          torch::zeros({count}, on_device), torch::empty({2, taken}, on_device),
                          torch::empty({exchange_.session().size(), 2, taken}, on_device)});
    }
  }

  void synchronize() override {
    const torch::NoGradGuard no_grad;
    for (SparseBucket& bucket : buckets_) {
      encode(bucket);
      Message message{Collective::all_gather(bytes_of(bucket.own), bytes_of(bucket.all))};
      message.memory = std::make_shared<std::vector<torch::Tensor>>(
          std::vector<torch::Tensor>{bucket.own, bucket.all});
      exchange_.start(std::move(message), exchange_.now());
    }
    exchange_.finish();
    for (SparseBucket& bucket : buckets_)
      decode(bucket);
  }

  std::vector<NamedTensor> carried() override {
    std::vector<NamedTensor> all;
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      all.push_back({"error/" + std::to_string(b), buckets_[b].error});
    return all;
  }

 private:
  struct SparseBucket {
    torch::Tensor gradient, error;  ///< [values]
    torch::Tensor own;              ///< [2, k]: the values that travel, and their indices' bits
    torch::Tensor all;              ///< [ranks, 2, k]
  };

  static std::span<std::byte> bytes_of(const torch::Tensor& values) {
    return {static_cast<std::byte*>(values.data_ptr()), values.nbytes()};
  }

  void encode(SparseBucket& bucket) {
    const EncodingScope timed(exchange_);
    bucket.error.add_(bucket.gradient);
    torch::Tensor indices = bucket.own[1].view(torch::kInt32);
    if (bucket.error.is_cpu())
      find_largest(values_of(bucket.error),
                   {indices.data_ptr<std::int32_t>(), static_cast<std::size_t>(indices.numel())});
    else
      indices.copy_(std::get<1>(bucket.error.abs().topk(indices.numel(), 0, true, false)));
    torch::Tensor values = bucket.own[0];
    torch::index_select_out(values, bucket.error, 0, indices);
    bucket.error.index_fill_(0, indices.to(torch::kInt64), 0);
  }

  /// The mean over the ranks, added in their order.
  void decode(SparseBucket& bucket) {
    const EncodingScope timed(exchange_);
    bucket.gradient.zero_();
    for (std::int64_t rank = 0; rank < bucket.all.size(0); ++rank)
      bucket.gradient.index_add_(0, bucket.all[rank][1].view(torch::kInt32), bucket.all[rank][0],
                                 1.0 / static_cast<double>(bucket.all.size(0)));
  }

  Exchange& exchange_;
  SyncSettings settings_;
  std::optional<FlatGradients> gradients_;
  std::vector<SparseBucket> buckets_;
};

}  // namespace

std::unique_ptr<SyncMode> make_top_k(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<TopK>(exchange, settings);
}

}  // namespace gradsync
