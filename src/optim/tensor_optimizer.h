#pragma once

#include <memory>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace gradsync {

/// What the optimizers of GPUs that have no kernel of their own share: they compute with whole
/// lists of tensors, and the host neither waits nor learns anything. Where the step count or the
/// learning rate enters, it is read from the device's memory, so a graph can capture a step. On the
/// CPU they run, too: that is how they are tested.
///
/// Without a loss scale: no step is left out.
class TensorOptimizer : public Optimizer {
 public:
  void prepare(double learning_rate, double gradient_scale) override;
  void apply() override;

 protected:
  using Tensors = std::vector<torch::Tensor>;

  /// Parameters with what a step reads and writes, in the same order, shapes and strides.
  struct Group {
    bool exempt;  ///< biases and factors of normalizations: one dimension
    Tensors parameters, gradients;
    std::vector<Tensors> moments;  ///< by moment
  };

  TensorOptimizer(Replica& replica, std::vector<std::string> moment_names);

  /// Steps the group. Its gradients come scaled; what it leaves in them is zeroed afterwards.
  virtual void update(Group& group) = 0;

  /// float32 of no dimension.
  torch::Tensor learning_rate() const { return learning_rate_view(); }
  /// Number of this step, from 1: float64 of no dimension.
  const torch::Tensor& step_number() const { return step_number_; }

 private:
  void update(const Values&, const StepFactors&) override {}
  void find_gradients();

  Replica& replica_;
  torch::Tensor step_number_;
  std::vector<Group> groups_;
  std::vector<std::vector<std::size_t>> places_;  ///< parameters of each group
};

/// Euclidean norm of each: float64 [their number].
torch::Tensor norms_of(const std::vector<torch::Tensor>& values);
/// Multiplies each by its own factor: float [their number].
void scale_each(const std::vector<torch::Tensor>& values, const torch::Tensor& factors);
/// `ratio` where both norms are positive, else 1.
torch::Tensor ratio_or_one(const torch::Tensor& ratio, const torch::Tensor& norm,
                           const torch::Tensor& other);

/// Takes the gradients into both moments of Adam and LAMB; returns m̂ / (√v̂ + ε) of each.
std::vector<torch::Tensor> adam_directions(const std::vector<torch::Tensor>& gradients,
                                           const std::vector<std::vector<torch::Tensor>>& moments,
                                           const OptimizerSettings& settings,
                                           const torch::Tensor& step_number);

/// The rules of make_lars, make_lamb and make_adam.
std::unique_ptr<Optimizer> make_lars_on_tensors(Replica&, const OptimizerSettings&);
std::unique_ptr<Optimizer> make_lamb_on_tensors(Replica&, const OptimizerSettings&);
std::unique_ptr<Optimizer> make_adam_on_tensors(Replica&, const OptimizerSettings&);

}  // namespace gradsync
