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

/// The two forms of ResNet-18 differ in the stem and in the number of classes only.
class ResNet18 : public Network {
 public:
  ResNet18(bool imagenet_stem, int classes)
      : imagenet_stem_(imagenet_stem),
        conv1_(register_module(
            "conv1", imagenet_stem ? convolution(3, 64, 7, 2) : convolution(3, 64, 3, 1))),
        bn1_(register_module("bn1", BatchNorm(64))) {
    int channels = 64;
    for (const int width : {64, 128, 256, 512}) {
      blocks_->push_back(BasicBlock(channels, width, width == 64 ? 1 : 2));
      blocks_->push_back(BasicBlock(width, width, 1));
      channels = width;
    }
    register_module("blocks", blocks_);
    fc_ = register_module("fc", nn::Linear(channels, classes));
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = torch::relu(at(bn1_)(at(conv1_)(x)));
    if (imagenet_stem_) x = torch::max_pool2d(x, 3, 2, 1);
    for (nn::AnyModule& block : *blocks_) {
      const auto part = block.ptr();
      at(part);
      x = block.forward(x);
    }
    return at(fc_)(x.mean({2, 3}));
  }

 private:
  bool imagenet_stem_;
  nn::Conv2d conv1_;
  BatchNorm bn1_;
  nn::Sequential blocks_;
  nn::Linear fc_{nullptr};
};

}  // namespace

/// 3x3 stem without pooling, 10 classes: 11,173,962 parameters.
std::shared_ptr<Network> make_resnet18() {
  return std::make_shared<ResNet18>(false, 10);
}

/// 7x7 stem with pooling, 1,000 classes: 11,689,512 parameters.
std::shared_ptr<Network> make_resnet18_imagenet() {
  return std::make_shared<ResNet18>(true, 1000);
}

}  // namespace gradsync
