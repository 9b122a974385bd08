#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

/// What the modes share that exchange after the backward pass, in the thread of the step: gradients
/// in the order of the modules, averaged message by message (one a parameter, or all as one).
class BlockingMode : public SyncMode {
 public:
  BlockingMode(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), tensor_by_tensor_(settings.granularity == "tensor") {}

  void attach(Replica& replica) override {
    device_ = replica.parameters[0].device();
    parameters_ = replica.parameters.size();
    GradientLayout layout = one_group(replica);
    auto memory = exchange_.allocate(layout.bytes());
    gradients_.emplace(replica, std::move(layout), std::move(memory));
  }

  void synchronize() override {
    if (!tensor_by_tensor_) return average(gradients_->group(0));
    for (std::size_t parameter = 0; parameter < parameters_; ++parameter)
      if (const auto values = gradients_->of(parameter); !values.empty()) average(values);
  }

 protected:
  /// Averages one message over the ranks, in place.
  virtual void average(std::span<float> message) = 0;

  Exchange& exchange_;
  torch::Device device_ = torch::kCPU;  ///< where the gradients lie

 private:
  bool tensor_by_tensor_;
  std::size_t parameters_ = 0;
  std::optional<FlatGradients> gradients_;
};

}  // namespace gradsync
