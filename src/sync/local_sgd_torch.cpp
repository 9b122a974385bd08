// SPDX-License-Identifier: BSD-3-Clause
// Local SGD: each rank steps by its own gradients, and parameters are averaged now and then. With
// averaged gradients at the start it is post-local SGD (Lin, Stich, Patel and Jaggi, ICLR 2020);
// with a second optimizer on the averages, DiLoCo (Douillard et al., 2023).
#include <optional>
#include <vector>

#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Settings of the outer optimizer of DiLoCo (section 3.1 there).
constexpr double kOuterRate = 0.7, kOuterMomentum = 0.9;

class LocalSgd : public SyncMode {
 public:
  LocalSgd(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings), wire_(wire_type(settings.wire_dtype)) {}

  void attach(Replica& replica) override {
    replica_ = &replica;
    GradientLayout layout = one_group(replica);
    auto memory = exchange_.allocate(layout.bytes());
    gradients_.emplace(replica, std::move(layout), std::move(memory));
    const std::int64_t count = replica.parameter_count();
    mean_ = zeros_in(exchange_.allocate(static_cast<std::size_t>(count) * sizeof(float)), count,
                     replica.parameters[0].device());
    std::vector<std::int64_t> counts;
    for (const torch::Tensor& parameter : replica.parameters)
      counts.push_back(parameter.numel());
    places_ = mean_.split_with_sizes(counts);
    if (!settings_.outer_nesterov && wire_ == ValueType::kFloat32) return;
    gather();
    anchor_ = mean_.clone();
    if (settings_.outer_nesterov) momentum_ = torch::zeros_like(mean_);
  }

  void synchronize() override {
    if (exchange_.log().current()->iteration < settings_.local_start)
      mean_over_ranks(gradients_->group(0), Traffic::kGradients, wire_);
  }

  // The iterations in which PyTorch's PeriodicModelAverager averages.
  void after_update() override {
    const std::int64_t since = exchange_.log().current()->iteration - settings_.local_start;
    const torch::NoGradGuard no_grad;
    if (since == -1 && anchor_.defined()) {  // the local steps begin here
      gather();
      anchor_.copy_(mean_);
    }
    if (since < 0 || since % settings_.local_steps != 0) return;
    average();
    if (settings_.outer_nesterov) step_outer();
    scatter(mean_);
    if (anchor_.defined()) anchor_.copy_(mean_);
  }

  std::vector<NamedTensor> carried() override {
    std::vector<NamedTensor> all;
    if (anchor_.defined()) all.push_back({"anchor", anchor_});
    if (momentum_.defined()) all.push_back({"momentum", momentum_});
    return all;
  }

  void publish() override {
    const torch::NoGradGuard no_grad;
    gather();
    own_ = mean_.clone();
    // In whole: before the local steps `anchor_` is where training began, and the way from there
    // long.
    mean_over_ranks(values_of(mean_), Traffic::kParameters, ValueType::kFloat32);
    scatter(mean_);
  }

  void withdraw() override {
    const torch::NoGradGuard no_grad;
    scatter(own_);
    own_.reset();
  }

 private:
  void gather() {
    const EncodingScope timed(exchange_);
    for (std::size_t i = 0; i < places_.size(); ++i)
      places_[i].view_as(flat(i)).copy_(flat(i));
  }

  void scatter(const torch::Tensor& from) {
    const EncodingScope timed(exchange_);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < places_.size(); at += places_[i++].numel())
      flat(i).copy_(from.narrow(0, at, places_[i].numel()));
  }

  /// The values of a parameter in the order in which they lie in memory.
  torch::Tensor flat(std::size_t parameter) const {
    const torch::Tensor values = replica_->parameters[parameter].detach();
    return values.as_strided({values.numel()}, {1});
  }

  void average() {
    gather();
    if (anchor_.defined()) mean_.sub_(anchor_);
    mean_over_ranks(values_of(mean_), Traffic::kParameters, wire_);
    if (anchor_.defined()) mean_.add_(anchor_);
  }

  void mean_over_ranks(std::span<float> values, Traffic category, ValueType wire) {
    Collective mean = Collective::all_reduce(values, Scale::kAverage);
    mean.wire = wire;
    exchange_.run(mean, category);
  }

  /// SGD with Nesterov's momentum on the way of the parameters since the last averaging.
  void step_outer() {
    const torch::Tensor way = anchor_ - mean_;
    momentum_.mul_(kOuterMomentum).add_(way);
    mean_.copy_(anchor_ - kOuterRate * (way + kOuterMomentum * momentum_));
  }

  Exchange& exchange_;
  SyncSettings settings_;
  ValueType wire_;
  Replica* replica_ = nullptr;
  std::optional<FlatGradients> gradients_;
  torch::Tensor mean_;                 ///< of the parameters, as it travels
  std::vector<torch::Tensor> places_;  ///< of the parameters in it
  /// What all ranks had after the last averaging, with the outer optimizer or 16 bits on the wire:
  /// the way from there travels, which is small. And the outer momentum.
  torch::Tensor anchor_, momentum_;
  torch::Tensor own_;  ///< what this rank had before `publish`
};

}  // namespace

std::unique_ptr<SyncMode> make_local_sgd(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<LocalSgd>(exchange, settings);
}

}  // namespace gradsync
