// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD (Vogels, Karimireddy and Jaggi, NeurIPS 2019): of the gradient of each matrix travel two
// thin factors, and what they leave out is added to the next gradient.
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/Parallel.h>

#include "sync/compress.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// The gradient of one parameter as a matrix, with its factors. Rows are the first dimension of the
/// parameter, columns all others as they lie in memory.
struct Matrix {
  torch::Tensor gradient;  ///< [rows, columns]
  /// [rows, columns]: what the last iteration approximated, less pᵀ q what it left out.
  torch::Tensor matrix;
  torch::Tensor p;         ///< [rank, rows], in the first message
  torch::Tensor q;         ///< [rank, columns], in the second; the next iteration begins with it
  torch::Tensor q_before;  ///< q, while the next one is computed

  LowRank on_host() const {
    return {gradient.data_ptr<float>(),
            matrix.data_ptr<float>(),
            gradient.size(0),
            gradient.size(1),
            p.size(0),
            p.data_ptr<float>(),
            q.data_ptr<float>(),
            q_before.data_ptr<float>()};
  }
};

/// What travels together.
struct CompressedBucket {
  std::vector<Matrix> matrices;
  /// Gradients that travel whole, and their places in the first message.
  std::vector<std::pair<torch::Tensor, torch::Tensor>> whole;
  torch::Tensor first, second;  ///< the messages
};

void in_parts(std::int64_t count, const std::function<void(std::int64_t, std::int64_t)>& body) {
  at::parallel_for(0, count, 16, body);
}

class PowerSgd : public SyncMode {
 public:
  PowerSgd(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings), wire_(wire_type(settings.wire_dtype)) {}

  void attach(Replica& replica) override {
    GradientLayout layout = one_group(replica);
    auto memory = exchange_.allocate(layout.bytes());
    gradients_.emplace(replica, std::move(layout), std::move(memory));
    const auto buckets =
        buckets_of(replica, settings_.first_bucket_bytes, settings_.bucket_cap_bytes);
    make_messages(replica, buckets);
    for (const auto& bucket : buckets)
      lay_out(replica, bucket);
  }

  void synchronize() override {
    const torch::NoGradGuard no_grad;
    if (exchange_.log().current()->iteration < settings_.powersgd_start) {
      Collective mean = Collective::all_reduce(gradients_->group(0), Scale::kAverage);
      mean.wire = wire_;
      return exchange_.run(mean, Traffic::kGradients);
    }
    for (CompressedBucket& bucket : buckets_) {
      encode(bucket);
      start(bucket.first);
    }
    exchange_.finish();
    for (CompressedBucket& bucket : buckets_) {
      project(bucket);
      if (!bucket.matrices.empty()) start(bucket.second);
    }
    exchange_.finish();
    for (CompressedBucket& bucket : buckets_)
      decode(bucket);
  }

  std::vector<NamedTensor> carried() override {
    const torch::NoGradGuard no_grad;
    std::vector<NamedTensor> all;
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      for (std::size_t m = 0; m < buckets_[b].matrices.size(); ++m) {
        const std::string name = std::to_string(b) + "." + std::to_string(m);
        Matrix& matrix = buckets_[b].matrices[m];
        take_off(matrix);
        all.push_back({"error/" + name, matrix.matrix});
        all.push_back({"factor/" + name, matrix.q});
      }
    return all;
  }

 private:
  /// Values of a message begin on a cache line of their own.
  static constexpr std::int64_t kAligned = 32;

  struct Factors {
    std::int64_t rows, columns, rank;
    bool pay() const { return 2 * rank * (rows + columns) < rows * columns; }  // as PyTorch's hook
  };
  Factors factors_of(const torch::Tensor& parameter) const {
    const std::int64_t rows = parameter.dim() == 0 ? 1 : parameter.size(0);
    const std::int64_t columns = parameter.numel() / rows;
    return {rows, columns, std::min({settings_.powersgd_rank, rows, columns})};
  }

  /// Makes the memory of all messages at once: in shared memory a mode's messages lie all or none,
  /// or some would be posted while a thread moves the others.
  void make_messages(const Replica& replica, const std::vector<std::vector<std::size_t>>& buckets) {
    std::int64_t count = 0;
    for (const auto& bucket : buckets) {
      for (const std::size_t i : bucket) {
        const torch::Tensor& parameter = replica.parameters[i];
        if (parameter.numel() == 0) continue;
        const Factors factors = factors_of(parameter);
        count +=
            factors.pay() ? factors.rank * (factors.rows + factors.columns) : parameter.numel();
      }
      count += 2 * kAligned;
    }
    messages_ = zeros_in(exchange_.allocate(static_cast<std::size_t>(count) * sizeof(float)), count,
                         replica.parameters[0].device());
    used_ = 0;
  }

  /// Makes the bucket of these parameters.
  void lay_out(const Replica& replica, const std::vector<std::size_t>& parameters) {
    CompressedBucket bucket;
    std::vector<std::vector<std::int64_t>> p, q;
    std::vector<torch::Tensor> whole;
    for (const std::size_t i : parameters) {
      const torch::Tensor& parameter = replica.parameters[i];
      if (parameter.numel() == 0) continue;
      const Factors factors = factors_of(parameter);
      const auto [rows, columns, rank] = factors;
      const torch::Tensor gradient = flat_view(gradients_->of(i), parameter).view({rows, columns});
      if (!factors.pay()) {
        whole.push_back(gradient.flatten());
        continue;
      }
      bucket.matrices.push_back({gradient, torch::zeros_like(gradient), {}, {}, {}});
      p.push_back({rank, rows});
      q.push_back({rank, columns});
    }
    auto in_first = message(p, whole, bucket.first);
    auto in_second = message(q, {}, bucket.second);
    for (std::size_t m = 0; m < bucket.matrices.size(); ++m) {
      bucket.matrices[m].p = in_first[m].view(p[m]);
      bucket.matrices[m].q = in_second[m].view(q[m]);
      draw_first(bucket.matrices[m].q);
      bucket.matrices[m].q_before = torch::zeros_like(bucket.matrices[m].q);
    }
    for (std::size_t i = 0; i < whole.size(); ++i)
      bucket.whole.emplace_back(whole[i], in_first[p.size() + i]);
    buckets_.push_back(std::move(bucket));
  }

  static torch::Tensor flat_view(std::span<float> values, const torch::Tensor& like) {
    return torch::from_blob(values.data(), {static_cast<std::int64_t>(values.size())},
                            torch::TensorOptions(like.device()));
  }

  /// Makes the message of what has these shapes, and of the tensors; returns their places in it.
  std::vector<torch::Tensor> message(const std::vector<std::vector<std::int64_t>>& shapes,
                                     const std::vector<torch::Tensor>& tensors,
                                     torch::Tensor& all) {
    std::vector<std::int64_t> counts;
    for (const auto& shape : shapes)
      counts.push_back(shape[0] * shape[1]);
    for (const torch::Tensor& tensor : tensors)
      counts.push_back(tensor.numel());
    const std::int64_t count = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    all = messages_.narrow(0, used_, count);
    used_ += (count + kAligned - 1) / kAligned * kAligned;
    return all.split_with_sizes(counts);
  }

  /// Fills it with values that are the same on all ranks.
  void draw_first(torch::Tensor& q) {
    torch::Tensor drawn = torch::empty(q.sizes());
    draw_normal(values_of(drawn), 1000 + drawn_++);
    q.copy_(drawn);
  }

  void start(torch::Tensor& values) {
    Message message{Collective::all_reduce(values_of(values), Scale::kAverage)};
    message.call.wire = wire_;
    message.memory = std::make_shared<torch::Tensor>(values);
    exchange_.start(std::move(message), exchange_.now());
  }

  /// Leaves the error alone in the matrix, bit for bit what the next `encode` would add to.
  static void take_off(Matrix& matrix) {
    if (matrix.q.is_cpu())
      matrix.on_host().subtract(0, matrix.matrix.size(0));
    else
      matrix.matrix.addmm_(matrix.p.t(), matrix.q, 1, -1);
    matrix.p.zero_();
  }

  void encode(CompressedBucket& bucket) {
    const EncodingScope timed(exchange_);
    for (Matrix& matrix : bucket.matrices) {
      matrix.q_before.copy_(matrix.q);
      make_orthonormal(matrix.q);
      if (!matrix.q.is_cpu()) {
        matrix.matrix.addmm_(matrix.p.t(), matrix.q_before, 1, -1).add_(matrix.gradient);
        torch::mm_out(matrix.p, matrix.q, matrix.matrix.t());
        continue;
      }
      const LowRank host = matrix.on_host();
      in_parts(host.rows, [&](auto from, auto to) { host.encode(from, to); });
    }
    for (auto& [gradient, place] : bucket.whole)
      place.copy_(gradient);
  }

  void project(CompressedBucket& bucket) {
    const EncodingScope timed(exchange_);
    for (auto& [gradient, place] : bucket.whole)
      gradient.copy_(place);
    for (Matrix& matrix : bucket.matrices) {
      make_orthonormal(matrix.p);
      if (!matrix.q.is_cpu()) {
        torch::mm_out(matrix.q, matrix.p, matrix.matrix);
        continue;
      }
      const LowRank host = matrix.on_host();
      in_parts(host.columns, [&](auto from, auto to) { host.project(from, to); });
    }
  }

  void decode(CompressedBucket& bucket) {
    const EncodingScope timed(exchange_);
    for (Matrix& matrix : bucket.matrices) {
      if (!matrix.q.is_cpu()) {
        torch::mm_out(matrix.gradient, matrix.p.t(), matrix.q);
        continue;
      }
      const LowRank host = matrix.on_host();
      in_parts(host.rows, [&](auto from, auto to) { host.decode(from, to); });
    }
  }

  static void make_orthonormal(torch::Tensor& vectors) {
    if (vectors.is_cpu())
      orthonormalize(values_of(vectors), vectors.size(0));
    else
      vectors.copy_(std::get<0>(at::linalg_qr(vectors.t())).t());
  }

  Exchange& exchange_;
  SyncSettings settings_;
  ValueType wire_;
  std::uint64_t drawn_ = 0;  ///< first factors
  std::optional<FlatGradients> gradients_;
  torch::Tensor messages_;  ///< of all buckets
  std::int64_t used_ = 0;   ///< of its values, by the buckets that have been laid out
  std::vector<CompressedBucket> buckets_;
};

}  // namespace

std::unique_ptr<SyncMode> make_powersgd(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<PowerSgd>(exchange, settings);
}

}  // namespace gradsync
