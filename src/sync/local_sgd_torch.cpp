// SPDX-License-Identifier: BSD-3-Clause
// Local SGD: each rank steps by its own gradients, and parameters are averaged now and then. With
// averaged gradients at the start it is post-local SGD (Lin, Stich, Patel and Jaggi, ICLR 2020);
// with a second optimizer on the averages, DiLoCo (Douillard et al., 2023).
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Settings of the outer optimizer of DiLoCo (section 3.1 there).
constexpr double kOuterRate = 0.7, kOuterMomentum = 0.9;

/// Values of the way of the parameters that travel as one message on the host, so that the passes
/// over one part overlap the others on the line; a part fits into a cache of the second level.
constexpr std::int64_t kPartValues = 1 << 18;

class LocalSgd : public SyncMode {
 public:
  LocalSgd(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings), wire_(wire_type(settings.wire_dtype)) {}

  void attach(Replica& replica) override {
    const torch::NoGradGuard no_grad;
    gradients_.emplace(replica, one_group(replica), exchange_);
    parameters_ = zeros_in(exchange_, replica.parameter_count(), replica.parameters[0].device());
    move_parameters(replica, one_group(replica), parameters_);
    if (!settings_.outer_nesterov && wire_ == ValueType::kFloat32) return;
    anchor_ = parameters_.clone();
    if (settings_.outer_nesterov) momentum_ = torch::zeros_like(anchor_);
  }

  void synchronize() override {
    if (exchange_.log().current()->iteration < settings_.local_start)
      exchange_.run(gradients_->mean(0, wire_).call, Traffic::kGradients);
  }

  // The iterations in which PyTorch's PeriodicModelAverager averages.
  void after_update() override {
    const std::int64_t since = exchange_.log().current()->iteration - settings_.local_start;
    const torch::NoGradGuard no_grad;
    if (since == -1 && anchor_.defined()) anchor_.copy_(parameters_);  // the local steps begin here
    if (since < 0 || since % settings_.local_steps != 0) return;
    if (!anchor_.defined()) return exchange_.run(mean(parameters_, wire_), Traffic::kParameters);
    const std::int64_t part = exchange_.lane() ? parameters_.numel() : kPartValues;
    const auto ways = parameters_.split(part), anchors = anchor_.split(part),
               momenta = settings_.outer_nesterov ? momentum_.split(part) : anchors;
    std::vector<std::uint64_t> messages;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      {
        const EncodingScope timed(exchange_);
        ways[i].sub_(anchors[i]);
      }
      messages.push_back(exchange_.start(
          {mean(ways[i], wire_), Traffic::kParameters, std::make_shared<torch::Tensor>(ways[i])},
          exchange_.now()));
    }
    for (std::size_t i = 0; i < ways.size(); ++i) {
      exchange_.finish(messages[i]);
      const EncodingScope timed(exchange_);
      const torch::Tensor& way = ways[i];
      if (settings_.outer_nesterov)  // a step along the mean way, with Nesterov's momentum
        way.sub_(momenta[i].mul_(kOuterMomentum).sub_(way), kOuterMomentum).mul_(kOuterRate);
      way.copy_(anchors[i].add_(way));
    }
    exchange_.finish();
  }

  std::vector<NamedTensor> carried() override {
    if (!anchor_.defined()) return {};
    if (!momentum_.defined()) return {{"flat/anchor", anchor_}};
    return {{"flat/anchor", anchor_}, {"flat/momentum", momentum_}};
  }

  void publish() override {
    const torch::NoGradGuard no_grad;
    own_ = parameters_.clone();
    // In whole: before the local steps `anchor_` is where training began, a long way off.
    exchange_.run(mean(parameters_, ValueType::kFloat32), Traffic::kParameters);
  }

  void withdraw() override {
    const torch::NoGradGuard no_grad;
    parameters_.copy_(std::exchange(own_, {}));
  }

 private:
  static Collective mean(const torch::Tensor& flat, ValueType wire) {
    Collective call = Collective::all_reduce(values_of(flat), Scale::kAverage);
    call.wire = wire;
    return call;
  }

  Exchange& exchange_;
  SyncSettings settings_;
  ValueType wire_;
  std::optional<FlatGradients> gradients_;
  torch::Tensor parameters_;  ///< of the replica, which lie here
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
