#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

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

}  // namespace gradsync
