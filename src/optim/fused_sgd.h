#pragma once

#include "machine/kernels.h"
#include "optim/optimizer.h"

namespace gradsync {

/// Sgd over all parameters in one kernel (machine/kernels.h), with its factors in the device's
/// memory; on the CPU its reference implementation. The outcome of a step stays on the device.
class FusedSgd : public Optimizer {
 public:
  FusedSgd(Replica& replica, const OptimizerSettings& settings);

  void prepare(double learning_rate, double gradient_scale) override;
  /// Sends the places of the tensors to the device first, at the first step and once gradients have
  /// moved.
  void apply() override;

 protected:
  void update(const Values&, const StepFactors&) override {}

 private:
  void find_tensors();
  void apply_on_host();
  void apply_on_device();

  SgdRule rule_;
  std::vector<SgdTensor> tensors_;
  std::int64_t part_count_ = 0;
  torch::Tensor device_tensors_, device_parts_;  ///< bytes
};

}  // namespace gradsync
