#include <optional>

#include "model/image_batch.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

constexpr int kRoot = 0;

std::span<float> values_of(const torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// torch.nn.DataParallel's pattern over ranks: each iteration the root scatters the inputs and
/// broadcasts parameters and buffers, gathers the outputs, computes the loss of the whole batch and
/// scatters its gradient, sums the gradients, and steps alone.
class DataParallel : public SyncMode {
 public:
  explicit DataParallel(Exchange& exchange) : exchange_(exchange) {}

  bool root_only() const override { return true; }

  void attach(Replica& replica) override {
    replica_ = &replica;
    gradients_.emplace(replica, module_order(replica.parameters.size()));
    make_parameters_contiguous();
  }

  torch::Tensor begin_pass(const PassInput& input) override {
    if (input.first) broadcast_model();
    const std::size_t count = static_cast<std::size_t>(input.samples) * kImageBytes;
    images_.resize(std::max(images_.size(), count));
    const std::span<const float> all =
        root() ? std::span<const float>(input.images.data_ptr<float>(), count * ranks())
               : std::span<const float>();
    exchange_.scatter(all, std::span(images_).first(count), kRoot, Traffic::kInputs);
    return image_batch(images_.data(), input.samples, input.layout);
  }

  torch::Tensor gather_outputs(const torch::Tensor& outputs) override {
    outputs_shape_ = outputs.sizes().vec();
    const torch::Tensor mine = outputs.detach().to(torch::kFloat32).contiguous();
    torch::Tensor all;
    if (root()) all = torch::empty({mine.size(0) * exchange_.size(), mine.size(1)});
    exchange_.gather(values_of(mine), root() ? values_of(all) : std::span<float>(), kRoot,
                     Traffic::kInputs);
    return root() ? all.requires_grad_() : torch::Tensor();
  }

  LossShare scatter_loss_gradient(const torch::Tensor& logits_gradient,
                                  const std::vector<LossSums>& of_ranks) override {
    constexpr std::size_t kSums = 2;
    torch::Tensor mine = torch::empty(outputs_shape_);
    const auto values = static_cast<std::size_t>(mine.numel());
    std::vector<float> share(values + kSums), shares;
    if (root()) shares = pack_shares(logits_gradient, of_ranks, values, kSums);
    exchange_.scatter(shares, share, kRoot, Traffic::kInputs);
    std::copy(share.begin(), share.begin() + static_cast<std::ptrdiff_t>(values),
              mine.data_ptr<float>());
    return {mine, {share[values], share[values + 1]}};
  }

  void synchronize() override {
    exchange_.reduce_sum(gradients_->all(), kRoot, Traffic::kGradients);
    if (!root()) gradients_->zero();  // the root's are zeroed by its step
  }

  void publish() override { broadcast_model(); }

 private:
  bool root() const { return exchange_.rank() == kRoot; }
  std::size_t ranks() const { return static_cast<std::size_t>(exchange_.size()); }

  /// Gives the parameters one buffer, so that their broadcast is one message.
  void make_parameters_contiguous() {
    parameters_ = torch::empty({replica_->parameter_count()});
    std::int64_t offset = 0;
    for (torch::Tensor& parameter : replica_->parameters) {
      torch::Tensor view = parameters_.as_strided(parameter.sizes(), parameter.strides(), offset);
      view.copy_(parameter.data());
      parameter.set_data(view);
      offset += parameter.numel();
    }
  }

  void broadcast_model() {
    exchange_.broadcast(values_of(parameters_), kRoot, Traffic::kParameters);
    std::vector<torch::Tensor> floats;
    for (const torch::Tensor& buffer : replica_->buffers)
      if (buffer.is_floating_point()) floats.push_back(buffer.reshape({-1}));
    if (floats.empty()) return;
    torch::Tensor packed = torch::cat(floats);
    exchange_.broadcast(values_of(packed), kRoot, Traffic::kBuffers);
    std::int64_t offset = 0;
    for (torch::Tensor& buffer : replica_->buffers) {
      if (!buffer.is_floating_point()) continue;
      buffer.copy_(packed.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
      offset += buffer.numel();
    }
  }

  std::vector<float> pack_shares(const torch::Tensor& logits_gradient,
                                 const std::vector<LossSums>& of_ranks, std::size_t values,
                                 std::size_t sums) const {
    std::vector<float> shares(ranks() * (values + sums));
    const torch::Tensor gradient = logits_gradient.contiguous();
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      float* share = shares.data() + rank * (values + sums);
      std::copy_n(gradient.data_ptr<float>() + rank * values, values, share);
      share[values] = static_cast<float>(of_ranks[rank].loss);
      share[values + 1] = static_cast<float>(of_ranks[rank].correct);
    }
    return shares;
  }

  Exchange& exchange_;
  Replica* replica_ = nullptr;
  std::optional<FlatGradients> gradients_;
  torch::Tensor parameters_;
  std::vector<float> images_;
  std::vector<std::int64_t> outputs_shape_;
};

}  // namespace

std::unique_ptr<SyncMode> make_data_parallel(Exchange& exchange, const SyncSettings&) {
  return std::make_unique<DataParallel>(exchange);
}

}  // namespace gradsync
