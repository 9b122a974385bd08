#include <torch/nn/functional/loss.h>

#include "train/loss.h"

namespace gradsync {

PassLoss cross_entropy(const torch::Tensor& logits, const torch::Tensor& labels, int ranks,
                       double parts, double label_smoothing) {
  const torch::Tensor values = logits.to(torch::kFloat32);
  torch::Tensor per_sample =
      torch::nn::functional::cross_entropy(values.flatten(0, -2), labels.flatten(),
                                           torch::nn::functional::CrossEntropyFuncOptions()
                                               .reduction(torch::kNone)
                                               .label_smoothing(label_smoothing));
  const bool tokens = labels.dim() == 2;
  if (tokens) per_sample = per_sample.view_as(labels).mean(1);
  PassLoss result;
  result.loss = per_sample.mean() / parts;
  const torch::NoGradGuard no_grad;
  const torch::Tensor losses = per_sample.to(torch::kFloat64).view({ranks, -1}).sum(1);
  const torch::Tensor answers = values.argmax(-1).eq(labels);
  const torch::Tensor right =
      (tokens ? answers.select(1, -1) : answers).reshape({ranks, -1}).sum(1).to(torch::kFloat64);
  result.sums = torch::stack({losses, right}, 1);
  return result;
}

}  // namespace gradsync
