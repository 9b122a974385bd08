// SPDX-License-Identifier: BSD-3-Clause
// Networks whose sizes --model states.
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "model/network.h"
#include "stats/clock.h"

namespace gradsync {

namespace nn = torch::nn;

namespace {

/// Hidden linear layers of one width with ReLU, and a last one to ten classes.
class Mlp : public Network {
 public:
  explicit Mlp(const MlpShape& shape) {
    std::int64_t width = NetworkInput().values();
    for (std::int64_t layer = 0; layer < shape.depth; ++layer) {
      layers_->push_back(nn::Linear(width, shape.width));
      width = shape.width;
    }
    register_module("layers", layers_);
    classifier_ = register_module("classifier", nn::Linear(width, NetworkInput().classes));
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = x.flatten(1);
    for (nn::AnyModule& layer : *layers_) {
      const auto part = layer.ptr();
      at(part);
      x = torch::relu(layer.forward(x));
    }
    return at(classifier_)(x);
  }

 private:
  nn::Sequential layers_;
  nn::Linear classifier_{nullptr};
};

/// A third of the time is the forward pass's, as in networks of products.
constexpr double kForwardPart = 1.0 / 3;

/// Times at which the parts of a pass are to end: evenly over its time, since its first part began.
class Pace {
 public:
  Pace(double pass_s, std::int64_t parts) : part_s_(pass_s / static_cast<double>(parts)) {}

  void begin() {
    begin_s_ = now_s();
    done_ = 0;
  }
  /// Keeps the core busy until the next part's end, as computing does.
  void fill() {
    const double until_s = begin_s_ + static_cast<double>(++done_) * part_s_;
    while (now_s() < until_s) {
    }
  }

 private:
  double part_s_, begin_s_ = 0;
  std::int64_t done_ = 0;
};

struct Paces {
  Pace forward, backward;
};

/// Passes values on. The gradient of the tensor is one number, which depends on the samples.
class Stage : public torch::autograd::Function<Stage> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               const torch::Tensor& tensor, std::int64_t paces, bool last) {
    context->saved_data["paces"] = paces;
    context->saved_data["last"] = last;
    context->saved_data["values"] = tensor.numel();
    reinterpret_cast<Paces*>(paces)->forward.fill();
    return x.clone();
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    Pace& pace = reinterpret_cast<Paces*>(context->saved_data["paces"].toInt())->backward;
    if (context->saved_data["last"].toBool()) pace.begin();
    pace.fill();
    const torch::Tensor one = gradients[0].select(1, 0).sum();
    return {gradients[0], one.expand({context->saved_data["values"].toInt()}), torch::Tensor(),
            torch::Tensor()};
  }
};

/// Tensors of as equal a size as possible, with the gradients of no arithmetic: a pass takes its
/// time, and gives the gradients one by one over it. For tests of links with the messages of
/// networks that this machine cannot compute.
class Synthetic : public Network {
 public:
  explicit Synthetic(const SyntheticShape& shape)
      : paces_{Pace(kForwardPart * shape.compute_s, shape.tensors),
               Pace((1 - kForwardPart) * shape.compute_s, shape.tensors)} {
    for (std::int64_t i = 0; i < shape.tensors; ++i) {
      const std::int64_t values =
          shape.parameters * (i + 1) / shape.tensors - shape.parameters * i / shape.tensors;
      auto part = register_module(std::to_string(i), std::make_shared<nn::Module>());
      tensors_.push_back(part->register_parameter("values", torch::zeros({values})));
      parts_.push_back(std::move(part));
    }
  }

  torch::Tensor forward(torch::Tensor samples) override {
    torch::Tensor x = samples.flatten(1).expand({samples.size(0), NetworkInput().classes});
    paces_.forward.begin();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      at(parts_[i]);
      x = Stage::apply(x, tensors_[i], reinterpret_cast<std::int64_t>(&paces_),
                       i + 1 == parts_.size());
    }
    return x;
  }

 private:
  Paces paces_;
  std::vector<std::shared_ptr<nn::Module>> parts_;
  std::vector<torch::Tensor> tensors_;
};

}  // namespace

std::shared_ptr<Network> make_mlp(const std::string& model) {
  return std::make_shared<Mlp>(mlp_shape(model));
}

std::shared_ptr<Network> make_synthetic(const std::string& model) {
  return std::make_shared<Synthetic>(synthetic_shape(model));
}

}  // namespace gradsync
