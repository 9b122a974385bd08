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
    return at(classifier_)(through(*features_, std::move(x)).flatten(1));
  }

 private:
  nn::Sequential features_;
  nn::Linear classifier_{nullptr};
};

}  // namespace

std::shared_ptr<Network> make_vgg11(const std::string&) {
  return std::make_shared<Vgg11>();
}

}  // namespace gradsync
