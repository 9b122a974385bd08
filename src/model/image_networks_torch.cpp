// SPDX-License-Identifier: BSD-3-Clause
#include <array>

#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "model/batch_norm.h"
#include "model/network.h"

namespace gradsync {

namespace nn = torch::nn;

namespace {

/// LeNet as int8 studies quantize it: two 5x5 convolutions (6 and 16 maps) with 2x2 max pooling,
/// then 120, 84 and 10 outputs; no biases but the last layer's (LeCun et al., 1998, with ReLU).
/// 61,780 parameters. The published quantization study begins without that bias: 61,770.
class LeNet : public Network {
 public:
  explicit LeNet(bool biased)
      : conv1_(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 6, 5).bias(false)))),
        conv2_(register_module("conv2", nn::Conv2d(nn::Conv2dOptions(6, 16, 5).bias(false)))),
        fc1_(register_module("fc1", nn::Linear(nn::LinearOptions(16 * 5 * 5, 120).bias(false)))),
        fc2_(register_module("fc2", nn::Linear(nn::LinearOptions(120, 84).bias(false)))),
        fc3_(register_module("fc3", nn::Linear(nn::LinearOptions(84, 10).bias(biased)))) {}

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::max_pool2d(torch::relu(at(conv1_)(x)), 2);
    x = torch::max_pool2d(torch::relu(at(conv2_)(x)), 2);
    x = x.flatten(1);
    x = torch::relu(at(fc1_)(x));
    x = torch::relu(at(fc2_)(x));
    return at(fc3_)(x);
  }

 private:
  nn::Conv2d conv1_, conv2_;
  nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

std::shared_ptr<Network> make_lenet(const std::string&) {
  return std::make_shared<LeNet>(true);
}

std::shared_ptr<Network> make_lenet_no_bias(const std::string&) {
  return std::make_shared<LeNet>(false);
}

namespace {

constexpr int kPool = 0;
constexpr int kPlan[] = {64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};

/// VGG11 (configuration A of Simonyan and Zisserman, 2015) with batch norm, for 32x32 images: the
/// five poolings leave 1x1, so one linear layer of 512 to 10 ends it. 9,231,114 parameters.
class Vgg11 : public Network {
 public:
  Vgg11() {
    int channels = 3;
    for (const int width : kPlan) {
      if (width == kPool) {
        features_->push_back(nn::MaxPool2d(2));
        continue;
      }
      features_->push_back(nn::Conv2d(nn::Conv2dOptions(channels, width, 3).padding(1)));
      features_->push_back(BatchNorm(width));
      features_->push_back(nn::ReLU(nn::ReLUOptions(/*inplace=*/true)));
      channels = width;
    }
    register_module("features", features_);
    classifier_ = register_module("classifier", nn::Linear(channels, 10));
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = through(*features_, std::move(x));
    return at(classifier_)(x.flatten(1));
  }

 private:
  nn::Sequential features_;
  nn::Linear classifier_{nullptr};
};

}  // namespace

std::shared_ptr<Network> make_vgg11(const std::string&) {
  return std::make_shared<Vgg11>();
}

namespace {

nn::Conv2d convolution(int in, int out, int kernel, int stride) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// Two 3x3 convolutions and a shortcut, projected where the shape changes (He et al., 2016, option
/// B).
class BasicBlock : public Gated {
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
    const torch::Tensor kept = shortcut_ ? through(*shortcut_, x) : x;
    torch::Tensor y = at(conv1_)(x);
    y = torch::relu(at(bn1_)(y));
    y = at(conv2_)(y);
    return torch::relu(at(bn2_)(y) + kept);
  }

 private:
  nn::Conv2d conv1_;
  BatchNorm bn1_;
  nn::Conv2d conv2_;
  BatchNorm bn2_;
  nn::Sequential shortcut_{nullptr};
};

/// 1x1, 3x3 and 1x1 convolutions around a quarter of the channels; the 3x3 one has the stride.
class Bottleneck : public Gated {
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
    const torch::Tensor kept = shortcut_ ? through(*shortcut_, x) : x;
    torch::Tensor y = at(conv1_)(x);
    y = torch::relu(at(bn1_)(y));
    y = at(conv2_)(y);
    y = torch::relu(at(bn2_)(y));
    y = at(conv3_)(y);
    return torch::relu(at(bn3_)(y) + kept);
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
    x = at(conv1_)(x);
    x = torch::relu(at(bn1_)(x));
    if (imagenet_stem_) x = torch::max_pool2d(x, 3, 2, 1);
    x = through(*blocks_, std::move(x));
    return at(fc_)(x.mean({2, 3}));
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
