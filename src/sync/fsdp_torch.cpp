// SPDX-License-Identifier: BSD-3-Clause
// Stage 3 of ZeRO (Rajbhandari et al., SC 2020), as fully sharded data parallel runs it (Zhao et
// al., VLDB 2023): between iterations a rank holds its part of the parameters only. The parameters
// of a unit, a layer or a block of layers, are gathered before a pass comes to it and go when it
// has left it; its gradients are averaged into the ranks' parts as soon as the backward pass has
// them.
#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "sync/gradient_buckets.h"
#include "sync/shards.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Memory that units hand on to each other: as many buffers as they have needed at once, each of at
/// most the largest unit. On the host it is the system's own, since freed memory is kept
/// (tune_allocation), and buffers of different sizes would leave gaps in it.
class Pool {
 public:
  torch::Tensor take(std::int64_t values, const torch::Device& device) {
    if (const auto fits = free_.lower_bound(values); fits != free_.end())
      return std::move(free_.extract(fits).mapped());
    if (!free_.empty()) free_.erase(std::prev(free_.end()));
    const auto bytes = static_cast<std::size_t>(values) * sizeof(float);
    return zeros_in(device.is_cpu() ? own_pages(bytes) : nullptr, values, device);
  }
  /// What came last is taken first.
  void give(const torch::Tensor& buffer) {
    free_.emplace_hint(free_.lower_bound(buffer.numel()), buffer.numel(), buffer);
  }
  void clear() { free_.clear(); }

 private:
  std::multimap<std::int64_t, torch::Tensor> free_;  ///< by their length
};

/// The order of the units is that in which the first forward pass came to them. Each pass gathers
/// the next unit while it computes with one, and so does the backward pass on its way back, for
/// which the forward pass leaves the last two where they are. A unit that a pass comes to twice (an
/// embedding that also makes the logits) stays until the backward pass has completed it.
///
/// A rank holds, beside its parts: the parameters of two units, the gradients of three, and what
/// autograd has computed of a gradient before it adds it there.
class Fsdp : public SyncMode {
 public:
  Fsdp(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), blocks_(settings.fsdp_blocks) {}

  void attach(Replica& replica) override {
    const torch::NoGradGuard no_grad;
    replica_ = &replica;
    shards_.emplace(exchange_, replica, units_of(replica, blocks_));
    for (const Network::Layer& layer : replica.network->layers())
      unit_of_[layer.module] = shards_->group_of(replica.parameters_of(*layer.module).front());
    units_.resize(shards_->size());
    for (Unit& unit : units_)
      shard(unit);
    pool_.clear();
    gradients_.emplace(own_);
    hooks_.emplace(replica.parameters, [this](std::size_t parameter) { ready(parameter); });
    return_freed_memory();  // of the whole replica
  }

  Replica& stepped(Replica&) override { return own_; }

  Gate gate() override {
    return [this](const torch::nn::Module& layer) { forward_comes_to(unit_of_.at(&layer)); };
  }
  std::vector<Span> take_waits() override { return shards_->take_waits(); }

  void before_forward(bool) override {
    end_pass();
    came_ = 0;
    if (knows_order_) gather(unit_at(0));
  }

  void before_backward(const torch::Tensor&, bool) override {
    knows_order_ = backward_ = true;
    for (std::size_t u = 0; u < units_.size(); ++u)
      units_[u].missing = shards_->parameters(u).size();
    left_ = order_.size();
    backward_comes_on();
  }

  void synchronize() override { end_pass(); }

  std::vector<std::int64_t> state() const override {
    return knows_order_ ? std::vector<std::int64_t>(order_.begin(), order_.end())
                        : std::vector<std::int64_t>();
  }
  void restore(const std::vector<std::int64_t>& order) override {
    for (const std::int64_t unit : order)
      if (unit < 0 || unit >= static_cast<std::int64_t>(units_.size()))
        throw Error(ExitCode::kBadData,
                    "the checkpoint's order of units does not fit this network");
    order_.assign(order.begin(), order.end());
    knows_order_ = !order.empty();
  }

  void assemble() override {
    for (Unit& unit : units_)
      gather(unit);
    finish();
  }
  void take_apart() override {
    const torch::NoGradGuard no_grad;
    for (Unit& unit : units_) {
      unit.part.copy_(own(unit.whole, unit));
      release(unit);
    }
    pool_.clear();
  }

 private:
  struct Unit {
    c10::Storage storage;                  ///< of the parameters; in `whole` while they are here
    torch::Tensor part, whole, gradients;  ///< whole, gradients: of the pool, or undefined
    std::uint64_t travels = 0;             ///< the message of its gradients; 0: none
    std::size_t missing = 0;               ///< gradients it still waits for
  };

  /// Its number as a group of the shards.
  std::size_t group(const Unit& unit) const {
    return static_cast<std::size_t>(&unit - units_.data());
  }
  torch::Tensor own(const torch::Tensor& flat, const Unit& unit) const {
    return shards_->own(flat, group(unit));
  }
  Unit& unit_at(std::size_t place) { return units_[order_[place]]; }

  /// Takes this rank's part of the parameters of a unit. They lie in a storage from now on that has
  /// its memory while they are here: what autograd saves of them finds them again.
  void shard(Unit& unit) {
    const std::int64_t values = shards_->values(group(unit));
    const torch::TensorOptions options = replica_->parameters[0].options();
    const torch::Tensor whole = pool_.take(values, options.device());
    unit.storage = c10::Storage(c10::Storage::use_byte_size_t(),
                                static_cast<std::size_t>(values) * sizeof(float),
                                at::DataPtr(nullptr, options.device()), nullptr, false);
    const torch::Tensor flat = torch::empty({0}, options).set_(unit.storage, 0, {values}, {1});
    for (const std::size_t parameter : shards_->parameters(group(unit))) {
      shards_->view(whole, parameter).copy_(replica_->parameters[parameter]);
      replica_->parameters[parameter].set_data(shards_->view(flat, parameter));
    }
    unit.part = own(whole, unit).clone();
    own_.parameters.push_back(unit.part);
    own_.names.push_back("part/" + std::to_string(group(unit)));
    pool_.give(whole);
  }

  static void put(Unit& unit) {
    unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(unit.whole.defined() ? unit.whole.data_ptr() : nullptr, unit.storage.device()));
  }
  void release(Unit& unit) {
    if (unit.whole.defined()) pool_.give(std::exchange(unit.whole, torch::Tensor()));
    put(unit);
  }
  void gather(Unit& unit) {
    if (unit.whole.defined()) return;
    unit.whole = pool_.take(shards_->values(group(unit)), unit.part.device());
    put(unit);
    const torch::NoGradGuard no_grad;
    own(unit.whole, unit).copy_(unit.part);
    shards_->gather(unit.whole, group(unit));
  }

  void await(Unit& unit) {
    gather(unit);
    take_in(shards_->await(group(unit)));
  }

  /// Adds this rank's part of the gradients that have traveled: those of messages up to `number`. A
  /// step has left zeros there.
  void take_in(std::uint64_t number) {
    const torch::NoGradGuard no_grad;
    for (Unit& unit : units_) {
      if (unit.travels == 0 || unit.travels > number) continue;
      unit.part.mutable_grad().add_(own(unit.gradients, unit));
      pool_.give(std::exchange(unit.gradients, torch::Tensor()));
      unit.travels = 0;
    }
  }

  void forward_comes_to(std::size_t index) {
    if (came_ > 0 && order_[came_ - 1] == index) return;
    if (!knows_order_) order_.push_back(index);
    if (came_ == order_.size() || order_[came_] != index)
      throw Error(ExitCode::kInternal,
                  "the forward pass took its layers in another order than in the first iteration",
                  "give a --sync that does not shard parameters");
    const bool leaves = came_ > 0 && (!knows_order_ || came_ + 1 < order_.size());
    if (leaves && std::ranges::count(order_, order_[came_ - 1]) == 1) release(unit_at(came_ - 1));
    await(unit_at(came_));
    if (++came_ < order_.size()) gather(unit_at(came_));
  }

  /// The backward pass comes to the unit before `left_`, where all behind it is complete; and on to
  /// one that is complete when the pass has left that place, which is where the forward pass came
  /// to it first.
  void backward_comes_on() {
    bool on = left_ > 0;
    while (on) {
      Unit& unit = unit_at(--left_);
      await(unit);
      make_gradients(unit);
      const bool first = std::ranges::find(order_, order_[left_]) - order_.begin() ==
                         static_cast<std::ptrdiff_t>(left_);
      if (left_ > 0) gather(unit_at(left_ - 1));
      on = left_ > 0 && (!first || unit.missing == 0);
    }
  }

  void make_gradients(Unit& unit) {
    if (unit.gradients.defined()) return;
    const std::int64_t values = shards_->values(group(unit));
    unit.gradients = pool_.take(values, unit.part.device());
    unit.gradients.narrow(0, 0, values).zero_();
    for (const std::size_t parameter : shards_->parameters(group(unit)))
      replica_->parameters[parameter].mutable_grad() = shards_->view(unit.gradients, parameter);
  }

  void ready(std::size_t parameter) {
    Unit& unit = units_[shards_->group_of(parameter)];
    if (!backward_ || --unit.missing > 0) return;
    const torch::NoGradGuard no_grad;
    release(unit);
    if (unit_at(left_).missing == 0) backward_comes_on();
    send(unit);
  }

  /// Behind the parameters that the backward pass needs next.
  void send(Unit& unit) {
    for (const std::size_t parameter : shards_->parameters(group(unit)))
      replica_->parameters[parameter].mutable_grad() = torch::Tensor();
    unit.travels = shards_->average(unit.gradients, group(unit));
  }

  /// Also of units that no gradient of this pass came to.
  void end_pass() {
    if (!std::exchange(backward_, false)) return;
    const torch::NoGradGuard no_grad;
    finish();
    for (Unit& unit : units_)
      if (unit.missing > 0) {
        release(unit);
        make_gradients(unit);
        send(unit);
      }
    finish();
  }

  void finish() {
    exchange_.finish();
    take_in(std::numeric_limits<std::uint64_t>::max());
  }

  Exchange& exchange_;
  bool blocks_;
  Replica* replica_ = nullptr;
  std::optional<Shards> shards_;            ///< a unit is a group
  Replica own_;                             ///< this rank's parts, one a unit
  std::optional<FlatGradients> gradients_;  ///< of the parts
  std::vector<Unit> units_;
  std::map<const torch::nn::Module*, std::size_t> unit_of_;
  std::vector<std::size_t> order_;  ///< units, as the forward pass comes to them
  bool knows_order_ = false, backward_ = false;
  std::size_t came_ = 0;  ///< places of `order_` that the forward pass has come to
  std::size_t left_ = 0;  ///< the place that the backward pass is at
  Pool pool_;
  std::optional<GradientHooks> hooks_;
};

}  // namespace

std::unique_ptr<SyncMode> make_fsdp(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<Fsdp>(exchange, settings);
}

}  // namespace gradsync
