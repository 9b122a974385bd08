// SPDX-License-Identifier: BSD-3-Clause
#include <optional>

#include "model/image_batch.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

constexpr std::int64_t kSums = 2;

/// torch.nn.DataParallel's pattern over ranks: each iteration the root scatters the inputs and
/// broadcasts parameters and buffers, gathers the outputs, computes the loss of the whole batch and
/// scatters its gradient, sums the gradients, and steps alone.
class DataParallel : public SyncMode, public RootLoss {
 public:
  explicit DataParallel(Exchange& exchange) : exchange_(exchange) {}

  void attach(Replica& replica) override {
    replica_ = &replica;
    gradients_.emplace(replica);
    // One memory, so that a broadcast of all parameters is one message.
    parameters_ = torch::empty({replica.parameter_count()}, options());
    move_parameters(replica, one_group(replica), parameters_);
  }

  torch::Tensor scatter_images(const PassInput& input) override {
    if (input.first) broadcast_model();
    std::vector<std::int64_t> sizes = input.images.sizes().vec();
    sizes[0] = input.samples;
    const auto count = static_cast<std::size_t>(c10::multiply_integers(sizes));
    images_ = at_least(images_, count);
    const std::span<const float> all =
        root() ? std::span<const float>(input.images.data_ptr<float>(), count * ranks())
               : std::span<const float>();
    exchange_.run(Collective::scatter(all, values_of(images_).first(count), kRoot),
                  Traffic::kInputs);
    return images_.as_strided(sizes, batch_strides(sizes, input.layout));
  }

  torch::Tensor gather_outputs(const torch::Tensor& outputs) override {
    outputs_shape_ = outputs.sizes().vec();
    const torch::Tensor mine = outputs.detach().to(torch::kFloat32).contiguous();
    torch::Tensor all;
    std::vector<std::int64_t> sizes = outputs_shape_;
    sizes[0] *= exchange_.session().size();
    if (root()) all = torch::empty(sizes, options());
    exchange_.run(
        Collective::gather(values_of(mine), root() ? values_of(all) : std::span<float>(), kRoot),
        Traffic::kInputs);
    return root() ? all.requires_grad_() : torch::Tensor();
  }

  LossShare scatter_gradient(const torch::Tensor& logits_gradient,
                             const torch::Tensor& sums_of_ranks) override {
    const std::int64_t values = c10::multiply_integers(outputs_shape_);
    torch::Tensor share = torch::empty({values + kSums}, options()), shares;
    if (root())
      shares = torch::cat({logits_gradient.reshape({exchange_.session().size(), values}),
                           sums_of_ranks.to(torch::kFloat32)},
                          1)
                   .contiguous();
    exchange_.run(Collective::scatter(root() ? values_of(shares) : std::span<float>(),
                                      values_of(share), kRoot),
                  Traffic::kInputs);
    return {share.narrow(0, 0, values).view(outputs_shape_),
            share.narrow(0, values, kSums).to(torch::kFloat64)};
  }

  void synchronize() override {
    exchange_.run(Collective::reduce(gradients_->group(0), kRoot), Traffic::kGradients);
    if (!root()) gradients_->zero();  // the root's are zeroed by its step
  }

  void broadcast_model() override {
    exchange_.run(Collective::broadcast(values_of(parameters_), kRoot), Traffic::kParameters);
    std::vector<torch::Tensor> floats;
    for (const torch::Tensor& buffer : replica_->buffers)
      if (buffer.is_floating_point()) floats.push_back(buffer.reshape({-1}));
    if (floats.empty()) return;
    torch::Tensor packed = torch::cat(floats);
    exchange_.run(Collective::broadcast(values_of(packed), kRoot), Traffic::kBuffers);
    std::int64_t offset = 0;
    for (torch::Tensor& buffer : replica_->buffers) {
      if (!buffer.is_floating_point()) continue;
      buffer.copy_(packed.narrow(0, offset, buffer.numel()).view(buffer.sizes()));
      offset += buffer.numel();
    }
  }

  RootLoss* root_loss() override { return this; }

 private:
  bool root() const { return exchange_.session().root(); }
  std::size_t ranks() const { return static_cast<std::size_t>(exchange_.session().size()); }

  torch::TensorOptions options() const {
    return torch::TensorOptions(replica_->parameters[0].device());
  }

  torch::Tensor at_least(const torch::Tensor& buffer, std::size_t count) const {
    const auto values = static_cast<std::int64_t>(count);
    return buffer.defined() && buffer.numel() >= values ? buffer
                                                        : torch::empty({values}, options());
  }

  Exchange& exchange_;
  Replica* replica_ = nullptr;
  std::optional<FlatGradients> gradients_;
  torch::Tensor parameters_;
  torch::Tensor images_;
  std::vector<std::int64_t> outputs_shape_;
};

}  // namespace

std::unique_ptr<SyncMode> make_data_parallel(Exchange& exchange, const SyncSettings&) {
  return std::make_unique<DataParallel>(exchange);
}

}  // namespace gradsync
