// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include "machine/kernels.h"
#include "model/replica.h"
#include "options/options.h"

namespace gradsync {

/// How averaged gradients become new parameters: one class and one file an optimizer.
///
/// Every step reads and writes each value once (twice where a layer's norms come first), in fp32,
/// and leaves the gradients zeroed, so there is no zeroing pass. With a loss scale (fp16), a step
/// whose gradients are not all finite is left out: it only zeroes them and lowers the scale.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Requires a gradient with its parameter's strides in every parameter (Error kInternal else).
  /// Gradients are taken times `gradient_scale`: what clipping leaves of them.
  void step(double learning_rate, double gradient_scale = 1) {
    prepare(learning_rate, gradient_scale);
    apply();
  }
  /// The two halves of a step: the factors it reads from the device's memory, and the step itself,
  /// which a graph can capture.
  virtual void prepare(double learning_rate, double gradient_scale);
  virtual void apply();
  /// Call it between the two: takes gradients times `gradient_scale` instead, float32 of no
  /// dimension in the memory of the parameters, which the host does not read.
  void scale_gradients(const torch::Tensor& gradient_scale);

  /// A step in parts, in host memory and without a loss scale: begun once, then each parameter is
  /// stepped when its gradient is there, all of them before the next step begins.
  void begin_step(double learning_rate);
  void step_parameter(std::size_t i);

  /// Begins loss scaling: losses are multiplied by `loss_scale` before the backward pass, and every
  /// step divides its gradients by it (StepState).
  void begin_loss_scaling();
  bool scales_loss() const { return scales_loss_; }
  /// float32 of no dimension, on the parameters' device: what the next step will undo.
  torch::Tensor loss_scale() const;
  /// The whole state; waits for the device.
  StepState read_state() const;
  void write_state(const StepState& state);

  /// What it keeps between steps, for a checkpoint; what is put there is what the next step finds.
  /// The moments ("velocity", "first_moment", "second_moment") hold a value for each value of each
  /// parameter, in the parameter's shape and strides: a view, valid while this lives.
  /// Steps that were left out do not count, save those of FusedSgd on a GPU, which the host does
  /// not know and which need no count.
  std::int64_t& steps() { return steps_; }
  /// What it steps.
  const Replica& stepped() const { return replica_; }
  const std::vector<std::string>& moment_names() const { return moment_names_; }
  torch::Tensor moment(std::size_t which, std::size_t parameter);

 protected:
  Optimizer(Replica& replica, std::vector<std::string> moment_names);

  /// One parameter with its gradient and moments, as flat values.
  struct Values {
    std::size_t parameter_index;
    float* parameter;
    float* gradient;
    std::int64_t count;
    /// A bias or a factor of a normalization: one dimension.
    bool exempt;
  };
  struct StepFactors {
    float learning_rate, gradient_scale;
  };
  virtual void update(const Values& values, const StepFactors& factors) = 0;

  float* moment_values(std::size_t which, const Values& values) const {
    return moments_[which][values.parameter_index].data_ptr<float>();
  }
  /// Parameter i with its gradient, checked.
  Values values_of(std::size_t i) const;
  std::size_t parameter_count() const { return replica_.parameters.size(); }
  torch::Device device() const { return state_.device(); }
  /// Views of the state's fields: float32 of no dimension.
  torch::Tensor learning_rate_view() const;
  torch::Tensor clip_factor_view() const;
  /// The state in the memory of the parameters' device.
  StepState* state() const { return reinterpret_cast<StepState*>(state_.data_ptr<std::uint8_t>()); }

 private:
  void find_bad_gradients() const;
  torch::Tensor field(std::size_t offset) const;

  Replica& replica_;
  torch::Tensor state_;  ///< a StepState
  bool scales_loss_ = false;
  std::int64_t steps_ = 0;
  std::vector<std::string> moment_names_;
  std::vector<std::vector<torch::Tensor>> moments_;  ///< by moment, parameter: flat values
};

/// An optimizer that can be chosen with --optimizer.
struct OptimizerEntry {
  std::string name;
  std::unique_ptr<Optimizer> (*make)(Replica&, const OptimizerSettings&);
};

/// Every optimizer, in the order of --help: that of options/optimizers.def.
const std::vector<OptimizerEntry>& optimizers();

/// Makes the optimizer of `replica`, which must outlive it. Throws Error kUsage for an unknown
/// name.
std::unique_ptr<Optimizer> make_optimizer(Replica& replica, const OptimizerSettings& settings);

/// The optimizers; for parameters on a GPU, FusedSgd, and the others as TensorOptimizer.
#define GRADSYNC_OPTIMIZER(name) \
  std::unique_ptr<Optimizer> make_##name(Replica&, const OptimizerSettings&);
#include "options/optimizers.def"
#undef GRADSYNC_OPTIMIZER

/// What the optimizers of GPUs that have no kernel of their own share: they compute with whole
/// lists of tensors, and the host neither waits nor learns anything. Where the step count or the
/// learning rate enters, it is read from the device's memory, so a graph can capture a step. On the
/// CPU they run, too: that is how they are tested.
///
/// No loss scale is supported: no step is left out.
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

/// Values a thread takes at a time: smaller than this is not worth a second thread.
inline constexpr std::int64_t kGrain = 32768;

/// Calls update(begin, end) for ranges that cover [0, count), on this rank's threads.
template <typename Update>
void in_chunks(std::int64_t count, const Update& update) {
  at::parallel_for(0, count, kGrain, update);
}

/// Euclidean norm, summed in double over ranges of kGrain values and then over the ranges in order:
/// the same on every rank, whatever its number of threads.
double norm(const float* values, std::int64_t count);

/// Square of the Euclidean norm.
double sum_of_squares(const float* values, std::int64_t count);

/// Euclidean norm of all gradients together, which lie in host memory. After the exchange of a mode
/// that averages, every rank has the same gradients, so this is the norm of the global batch's
/// gradient; of a sharded mode it is that of the rank's part, and the norm of all ranks' norms is
/// the batch's.
double gradient_norm(const Replica& replica);
/// The norm of gradients on a device: float64 of no dimension, on the device as well.
torch::Tensor gradient_norm_on_device(const Replica& replica);

/// What gradients of this norm are to be multiplied by, so that it is at most `largest` (the rule
/// of torch.nn.utils.clip_grad_norm_: largest / (norm + 1e-6), at most 1). 0 for `largest`: no
/// limit.
double clip_factor(double norm, double largest);

/// The factor for gradients on a device, from `norm` over `loss_scale` (each of no dimension, on
/// the device as well): float32 of no dimension, computed there in double. The host does not wait.
torch::Tensor clip_factor_on_device(const torch::Tensor& norm, double largest,
                                    const torch::Tensor& loss_scale);

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
