// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <limits>

#include <torch/nn/functional/activation.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "model/network.h"

namespace gradsync {

namespace nn = torch::nn;

namespace {

/// "Base" of both networks.
constexpr std::int64_t kWidth = 768, kHeads = 12, kLayers = 12;
constexpr double kDeviation = 0.02;  // of initial weights and positions

nn::LayerNorm layer_norm(double eps) {
  return nn::LayerNorm(nn::LayerNormOptions({kWidth}).eps(eps));
}

/// Attention of all positions to each other, or of each to itself and those before it. As two
/// matrix products and a softmax, which every device and counter of operations has.
class Attention : public Gated {
 public:
  explicit Attention(bool causal)
      : causal_(causal),
        in_(register_module("in_proj", nn::Linear(kWidth, 3 * kWidth))),
        out_(register_module("out_proj", nn::Linear(kWidth, kWidth))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    const std::int64_t samples = x.size(0), positions = x.size(1), depth = kWidth / kHeads;
    const torch::Tensor all =
        at(in_)(x).view({samples, positions, 3, kHeads, depth}).permute({2, 0, 3, 1, 4});
    torch::Tensor scores =
        torch::matmul(all[0], all[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(depth));
    if (causal_) {
      const auto mask =
          torch::ones({positions, positions}, x.options().dtype(torch::kBool)).triu(1);
      scores = scores.masked_fill(mask, -std::numeric_limits<double>::infinity());
    }
    const torch::Tensor mixed = torch::matmul(scores.softmax(-1), all[2]);
    return at(out_)(mixed.transpose(1, 2).reshape({samples, positions, kWidth}));
  }

  nn::Linear& out() { return out_; }

 private:
  bool causal_;
  nn::Linear in_, out_;
};
TORCH_MODULE_IMPL(AttentionHolder, Attention);

/// Attention, then two linear layers, each on normalized values and added to them (pre-norm).
class TransformerBlock : public Gated {
 public:
  TransformerBlock(bool causal, double eps, const char* gelu)
      : gelu_(gelu),
        ln_1_(register_module("ln_1", layer_norm(eps))),
        attention_(register_module("attention", AttentionHolder(causal))),
        ln_2_(register_module("ln_2", layer_norm(eps))),
        up_(register_module("up", nn::Linear(kWidth, 4 * kWidth))),
        down_(register_module("down", nn::Linear(4 * kWidth, kWidth))) {}

  torch::Tensor forward(torch::Tensor x) {
    x = x + attention_(at(ln_1_)(x));
    torch::Tensor y = at(ln_2_)(x);
    y = torch::gelu(at(up_)(y), gelu_);
    return x + at(down_)(y);
  }

  /// Where branches are added to the values.
  std::vector<nn::Linear> joins() { return {attention_->out(), down_}; }

 private:
  const char* gelu_;  ///< how it is computed: "none" (exactly) or "tanh"
  nn::LayerNorm ln_1_;
  AttentionHolder attention_;
  nn::LayerNorm ln_2_;
  nn::Linear up_, down_;
};

/// GPT-2 small (Radford et al., 2019) without dropout: tokens in, logits of the next token at each
/// position out, through the weights of the embedding. 124,439,808 parameters.
class Gpt2 : public Network {
 public:
  Gpt2() : ln_f_(layer_norm(kEpsilon)) {
    register_module("wte", wte_);
    register_module("wpe", wpe_);
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
      blocks_->push_back(TransformerBlock(/*causal=*/true, kEpsilon, "tanh"));
    register_module("blocks", blocks_);
    register_module("ln_f", ln_f_);
    initialize();
  }

  torch::Tensor forward(torch::Tensor tokens) override {
    const torch::Tensor numbers = tokens.to(torch::kInt64);
    torch::Tensor x = at(wte_)(numbers);
    x = x + at(wpe_)(torch::arange(tokens.size(1), numbers.options()));
    x = at(ln_f_)(through(*blocks_, std::move(x)));
    return torch::linear(x, at(wte_)->weight);
  }

 private:
  static constexpr std::int64_t kVocabulary = 50257, kContext = 1024;
  static constexpr double kEpsilon = 1e-5;

  /// Initialization of GPT-2: the sum of the branches keeps its scale over the layers.
  void initialize() {
    const torch::NoGradGuard no_grad;
    for (auto& item : named_parameters()) {
      if (item.value().dim() == 2) nn::init::normal_(item.value(), 0, kDeviation);
      if (item.key().ends_with("proj.bias") || item.key().ends_with("up.bias") ||
          item.key().ends_with("down.bias"))
        nn::init::zeros_(item.value());
    }
    for (const auto& block : blocks_->children())
      for (nn::Linear& join : block->as<TransformerBlock>()->joins())
        nn::init::normal_(join->weight, 0, kDeviation / std::sqrt(2.0 * kLayers));
  }

  nn::Embedding wte_{kVocabulary, kWidth}, wpe_{kContext, kWidth};
  nn::Sequential blocks_;
  nn::LayerNorm ln_f_;
};

/// ViT-B/16 (Dosovitskiy et al., 2021) for 224x224 images, as torchvision has it: patches of 16x16,
/// a class token, 1,000 classes. 86,567,656 parameters.
class VisionTransformer : public Network {
 public:
  VisionTransformer() : ln_(layer_norm(kEpsilon)) {
    register_module("class_token", class_token_);
    register_module("conv_proj", conv_proj_);
    register_module("pos_embedding", positions_);
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
      blocks_->push_back(TransformerBlock(/*causal=*/false, kEpsilon, "none"));
    register_module("blocks", blocks_);
    register_module("ln", ln_);
    register_module("head", head_);
  }

  torch::Tensor forward(torch::Tensor images) override {
    const torch::Tensor patches = at(conv_proj_)(images).flatten(2).transpose(1, 2);
    const torch::Tensor token = at(class_token_)->values.expand({images.size(0), 1, kWidth});
    torch::Tensor x = torch::cat({token.to(patches.scalar_type()), patches}, 1);
    x = through(*blocks_, x + at(positions_)->values);
    x = at(ln_)(x);
    return at(head_)(x.select(1, 0));
  }

 private:
  static constexpr std::int64_t kPatch = 16, kPatches = 14 * 14;
  static constexpr double kEpsilon = 1e-6;

  /// A single parameter.
  struct Values : nn::Module {
    explicit Values(torch::Tensor initial)
        : values(register_parameter("values", std::move(initial))) {}
    torch::Tensor values;
  };

  std::shared_ptr<Values> class_token_ = std::make_shared<Values>(torch::zeros({1, 1, kWidth}));
  nn::Conv2d conv_proj_{nn::Conv2dOptions(3, kWidth, kPatch).stride(kPatch)};
  std::shared_ptr<Values> positions_ =
      std::make_shared<Values>(torch::empty({1, kPatches + 1, kWidth}).normal_(0, kDeviation));
  nn::Sequential blocks_;
  nn::LayerNorm ln_;
  nn::Linear head_{kWidth, 1000};
};

}  // namespace

std::shared_ptr<Network> make_gpt2_small(const std::string&) {
  return std::make_shared<Gpt2>();
}

std::shared_ptr<Network> make_vit_b16(const std::string&) {
  return std::make_shared<VisionTransformer>();
}

}  // namespace gradsync
