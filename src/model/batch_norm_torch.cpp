// SPDX-License-Identifier: BSD-3-Clause
#include <torch/csrc/autograd/custom_function.h>

#include "model/batch_norm.h"

namespace gradsync {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr at::IntArrayRef::value_type kAllButChannels[] = {0, 2, 3};

/// Mean over images and pixels: [C].
Tensor channel_mean(const Tensor& images) {
  return images.mean(kAllButChannels);
}

double values_per_channel(const Tensor& images) {
  return static_cast<double>(images.numel()) / static_cast<double>(images.size(1));
}

/// [C] as a factor of [N, C, H, W].
Tensor per_channel(const Tensor& values) {
  return values.view({1, -1, 1, 1});
}

/// The two [C] tensors averaged over the ranks in one exchange.
std::pair<Tensor, Tensor> mean_of(const RanksOfNorm& ranks, const Tensor& one,
                                  const Tensor& other) {
  Tensor both = torch::cat({one, other});
  ranks.mean({both.data_ptr<float>(), static_cast<std::size_t>(both.numel())});
  return {both.narrow(0, 0, one.numel()), both.narrow(0, one.numel(), other.numel())};
}

/// Normalization by statistics of all ranks' images.
///
/// With x̂ = (x − mean) · invstd, y = weight · x̂ + bias and means over the images and pixels of all
/// ranks: dx = weight · invstd · (dy − mean(dy) − x̂ · mean(dy · x̂)) (Ioffe and Szegedy, 2015,
/// section 3). The gradients of weight and bias are this rank's share; the mode averages them.
class SharedNorm : public torch::autograd::Function<SharedNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& images, const Tensor& weight,
                        const Tensor& bias, const Tensor& mean, const Tensor& invstd,
                        std::int64_t ranks) {
    context->save_for_backward({images, weight, mean, invstd});
    context->saved_data["ranks"] = ranks;
    const Tensor factor = weight * invstd;
    return images * per_channel(factor) + per_channel(bias - mean * factor);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &images = saved[0], &weight = saved[1], &mean = saved[2], &invstd = saved[3];
    const auto* ranks = reinterpret_cast<const RanksOfNorm*>(context->saved_data["ranks"].toInt());
    const Tensor& dy = gradients[0];
    const Tensor normalized = (images - per_channel(mean)) * per_channel(invstd);
    const Tensor dy_mean = channel_mean(dy), dy_x_mean = channel_mean(dy * normalized);
    const auto [all_dy, all_dy_x] = mean_of(*ranks, dy_mean, dy_x_mean);
    const Tensor dx = per_channel(weight * invstd) *
                      (dy - per_channel(all_dy) - normalized * per_channel(all_dy_x));
    const double values = values_per_channel(dy);
    return {dx, dy_x_mean * values, dy_mean * values, Tensor(), Tensor(), Tensor()};
  }
};

struct BatchStatistics {
  Tensor mean, variance;  ///< [C], of all ranks' images; variance without Bessel's correction
};

/// Moments about `origin`, which all ranks hold alike, so that their average over ranks loses no
/// digits to means far from zero.
BatchStatistics statistics_of_all(const Tensor& images, const Tensor& origin,
                                  const RanksOfNorm& ranks) {
  auto [variance, local_mean] = torch::var_mean(images, kAllButChannels, /*unbiased=*/false);
  const Tensor shift = local_mean - origin;
  const auto [first, second] = mean_of(ranks, shift, variance + shift * shift);
  // Rounding may leave less than nothing where all images are alike.
  return {origin + first, (second - first * first).clamp_min(0)};
}

}  // namespace

Tensor BatchNormImpl::forward(const Tensor& images) {
  if (!ranks_.mean || !is_training()) return torch::nn::BatchNorm2dImpl::forward(images);
  const Tensor values = images.to(torch::kFloat32);
  BatchStatistics all;
  {
    const torch::NoGradGuard no_grad;
    all = statistics_of_all(values, running_mean, ranks_);
    const double count = values_per_channel(values) * static_cast<double>(ranks_.count);
    num_batches_tracked.add_(1);
    running_mean.lerp_(all.mean, *options.momentum());
    running_var.lerp_(all.variance * (count / (count - 1)), *options.momentum());
  }
  const Tensor invstd = (all.variance + options.eps()).rsqrt();
  return SharedNorm::apply(values, weight, bias, all.mean, invstd,
                           reinterpret_cast<std::int64_t>(&ranks_))
      .to(images.scalar_type());
}

void share_statistics(torch::nn::Module& network, const RanksOfNorm& ranks) {
  for (const auto& module : network.modules())
    if (auto* norm = module->as<BatchNormImpl>()) norm->share_statistics(ranks);
}

}  // namespace gradsync
