#include <array>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "model/batch_norm.h"
#include "model/network.h"

namespace gradsync {

namespace nn = torch::nn;

namespace {

nn::Conv2d convolution(int in, int out, int kernel, int stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// Two 3x3 convolutions and a shortcut, projected where the shape changes (He et al., 2016, option
/// B).
class BasicBlock : public nn::Module {
 public:
  static constexpr int kExpansion = 1;

  BasicBlock(int in, int out, int stride)
      : conv1_(register_module("conv1", convolution(in, out, 3, stride))),
        bn1_(register_module("bn1", BatchNorm(out))),
        conv2_(register_module("conv2", convolution(out, out, 3, 1))),
        bn2_(register_module("bn2", BatchNorm(out))) {
    if (stride == 1 && in == out) return;
    shortcut_ = register_module("shortcut",
                                nn::Sequential(convolution(in, out, 1, stride), BatchNorm(out)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor kept = shortcut_ ? shortcut_->forward(x) : x;
    torch::Tensor y = torch::relu(bn1_(conv1_(x)));
    y = bn2_(conv2_(y));
    return torch::relu(y + kept);
  }

 private:
  nn::Conv2d conv1_;
  BatchNorm bn1_;
  nn::Conv2d conv2_;
  BatchNorm bn2_;
  nn::Sequential shortcut_{nullptr};
};

/// 1x1, 3x3 and 1x1 convolutions around a quarter of the channels; the 3x3 one has the stride.
class Bottleneck : public nn::Module {
 public:
  static constexpr int kExpansion = 4;

  Bottleneck(int in, int width, int stride)
      : conv1_(register_module("conv1", convolution(in, width, 1, 1))),
        bn1_(register_module("bn1", BatchNorm(width))),
        conv2_(register_module("conv2", convolution(width, width, 3, stride))),
        bn2_(register_module("bn2", BatchNorm(width))),
        conv3_(register_module("conv3", convolution(width, kExpansion * width, 1, 1))),
        bn3_(register_module("bn3", BatchNorm(kExpansion * width))) {
    if (stride == 1 && in == kExpansion * width) return;
    shortcut_ =
        register_module("shortcut", nn::Sequential(convolution(in, kExpansion * width, 1, stride),
                                                   BatchNorm(kExpansion * width)));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor kept = shortcut_ ? shortcut_->forward(x) : x;
    torch::Tensor y = torch::relu(bn1_(conv1_(x)));
    y = torch::relu(bn2_(conv2_(y)));
    return torch::relu(bn3_(conv3_(y)) + kept);
  }

 private:
  nn::Conv2d conv1_;
  BatchNorm bn1_;
  nn::Conv2d conv2_;
  BatchNorm bn2_;
  nn::Conv2d conv3_;
  BatchNorm bn3_;
  nn::Sequential shortcut_{nullptr};
};

struct ResNetForm {
  bool imagenet_stem;  ///< 7x7 with pooling, else 3x3
  int classes;
  std::array<int, 4> blocks;  ///< of each of the four widths
};

/// Residual networks of one kind of block.
template <typename Residual>
class ResNet : public Network {
 public:
  explicit ResNet(const ResNetForm& form)
      : imagenet_stem_(form.imagenet_stem),
        conv1_(register_module(
            "conv1", form.imagenet_stem ? convolution(3, 64, 7, 2) : convolution(3, 64, 3, 1))),
        bn1_(register_module("bn1", BatchNorm(64))) {
    int channels = 64, width = 64;
    for (const int count : form.blocks) {
      for (int block = 0; block < count; ++block) {
        blocks_->push_back(Residual(channels, width, block == 0 && width > 64 ? 2 : 1));
        channels = Residual::kExpansion * width;
      }
      width *= 2;
    }
    register_module("blocks", blocks_);
    fc_ = register_module("fc", nn::Linear(channels, form.classes));
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(at(bn1_)(at(conv1_)(x)));
    if (imagenet_stem_) x = torch::max_pool2d(x, 3, 2, 1);
    return at(fc_)(through(*blocks_, std::move(x)).mean({2, 3}));
  }

 private:
  bool imagenet_stem_;
  nn::Conv2d conv1_;
  BatchNorm bn1_;
  nn::Sequential blocks_;
  nn::Linear fc_{nullptr};
};

constexpr std::array kBlocksOf18 = {2, 2, 2, 2}, kBlocksOf50 = {3, 4, 6, 3};

}  // namespace

/// 3x3 stem without pooling, 10 classes: 11,173,962 parameters.
std::shared_ptr<Network> make_resnet18(const std::string&) {
  return std::make_shared<ResNet<BasicBlock>>(ResNetForm{false, 10, kBlocksOf18});
}

/// 7x7 stem with pooling, 1,000 classes: 11,689,512 parameters.
std::shared_ptr<Network> make_resnet18_imagenet(const std::string&) {
  return std::make_shared<ResNet<BasicBlock>>(ResNetForm{true, 1000, kBlocksOf18});
}

/// The same stem and classes, the stride in the 3x3 convolutions as in torchvision: 25,557,032
/// parameters.
std::shared_ptr<Network> make_resnet50(const std::string&) {
  return std::make_shared<ResNet<Bottleneck>>(ResNetForm{true, 1000, kBlocksOf50});
}

}  // namespace gradsync
