#pragma once

#include <string>
#include <vector>

namespace gradsync {

/// What an optimizer is made with; knows no LibTorch.
struct OptimizerSettings {
  std::string name = "sgd";  ///< of optimizer_names()
  double momentum = 0.9;     ///< sgd, lars
  double weight_decay = 5e-4;
  bool nesterov = false;              ///< sgd
  double beta1 = 0.9, beta2 = 0.999;  ///< adam, lamb
  double epsilon = 1e-8;              ///< adam, lamb
  bool scales_loss = false;           ///< fp16: with a loss scale (StepState)
  double trust_coefficient = 1e-3;    ///< lars
};

}  // namespace gradsync
