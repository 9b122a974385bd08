// SPDX-License-Identifier: BSD-3-Clause
// Stage 3 of ZeRO (Rajbhandari et al., SC 2020), as fully sharded data parallel runs it (Zhao et
// al., VLDB 2023): between iterations a rank holds its part of the parameters only. The parameters
// of a unit, a layer or a block of layers, are gathered before a pass comes to it and go when it
// has left it; its gradients are averaged into the ranks' parts as soon as the backward pass has
// them.
#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "sync/shards.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

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
    shards_.emplace(exchange_, replica, units_of(replica, blocks_),
                    [this](std::size_t unit) { backward_completed(units_[unit]); });
    for (std::size_t group = 0; group < shards_->size(); ++group)
      shard(units_.emplace_back(group));
    shards_->drop_memory();
    gradients_.emplace(own_);
    return_freed_memory();  // of the whole replica
  }

  Replica& stepped(Replica&) override { return own_; }

  Gate gate() override {
    return [this](const auto& layer) { forward_comes_to(*shards_->groups_of(layer).begin()); };
  }
  std::vector<Span> take_waits() override { return shards_->take_waits(); }

  void before_forward(bool) override {
    end_pass();
    came_ = 0;
    if (knows_order_) gather(unit_at(0));
  }

  void before_backward(const torch::Tensor&, bool) override {
    knows_order_ = true;
    shards_->begin_backward();
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
      unit.part.copy_(shards_->own(unit.whole, unit.group));
      release(unit);
    }
    shards_->drop_memory();
  }

 private:
  struct Unit {
    explicit Unit(std::size_t of) : group(of) {}
    std::size_t group;
    c10::Storage storage;            ///< of the parameters; in `whole` while they are here
    torch::Tensor part;              ///< this rank's
    torch::Tensor whole, gradients;  ///< in the shards' memory, or undefined
    std::uint64_t travels = 0;       ///< the message of its gradients; 0: none
  };

  Unit& unit_at(std::size_t place) { return units_[order_[place]]; }

  /// Takes this rank's part of the parameters of a unit. They lie in a storage from now on that has
  /// its memory while they are here: what autograd saves of them finds them again.
  void shard(Unit& unit) {
    const std::int64_t values = shards_->values(unit.group);
    const torch::TensorOptions options = replica_->parameters[0].options();
    const torch::Tensor whole = shards_->take_memory(unit.group);
    unit.storage = c10::Storage(c10::Storage::use_byte_size_t(),
                                static_cast<std::size_t>(values) * sizeof(float),
                                at::DataPtr(nullptr, options.device()), nullptr, false);
    const torch::Tensor flat = torch::empty({0}, options).set_(unit.storage, 0, {values}, {1});
    for (const std::size_t parameter : shards_->parameters(unit.group)) {
      shards_->view(whole, parameter).copy_(replica_->parameters[parameter]);
      replica_->parameters[parameter].set_data(shards_->view(flat, parameter));
    }
    unit.part = shards_->own(whole, unit.group).clone();
    own_.parameters.push_back(unit.part);
    own_.names.push_back("part/" + std::to_string(unit.group));
    shards_->give_memory(whole);
  }

  static void put(Unit& unit) {
    unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(unit.whole.defined() ? unit.whole.data_ptr() : nullptr, unit.storage.device()));
  }
  void release(Unit& unit) {
    if (unit.whole.defined()) shards_->give_memory(std::exchange(unit.whole, torch::Tensor()));
    put(unit);
  }
  void gather(Unit& unit) {
    if (unit.whole.defined()) return;
    unit.whole = shards_->take_memory(unit.group);
    put(unit);
    const torch::NoGradGuard no_grad;
    shards_->own(unit.whole, unit.group).copy_(unit.part);
    shards_->gather(unit.whole, unit.group);
  }

  void await(Unit& unit) {
    gather(unit);
    take_in(shards_->await(unit.group));
  }

  /// Adds this rank's part of the gradients that have traveled: those of messages up to `number`. A
  /// step has left zeros there.
  void take_in(std::uint64_t number) {
    const torch::NoGradGuard no_grad;
    for (Unit& unit : units_) {
      if (unit.travels == 0 || unit.travels > number) continue;
      unit.part.mutable_grad().add_(shards_->own(unit.gradients, unit.group));
      shards_->give_memory(std::exchange(unit.gradients, torch::Tensor()));
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
      on = left_ > 0 && (!first || shards_->complete(unit.group));
    }
  }

  void make_gradients(Unit& unit) {
    if (unit.gradients.defined()) return;
    unit.gradients = shards_->take_memory(unit.group);
    unit.gradients.narrow(0, 0, shards_->values(unit.group)).zero_();
    for (const std::size_t parameter : shards_->parameters(unit.group))
      replica_->parameters[parameter].mutable_grad() = shards_->view(unit.gradients, parameter);
  }

  void backward_completed(Unit& unit) {
    const torch::NoGradGuard no_grad;
    release(unit);
    if (shards_->complete(order_[left_])) backward_comes_on();
    send(unit);
  }

  /// Behind the parameters that the backward pass needs next.
  void send(Unit& unit) {
    for (const std::size_t parameter : shards_->parameters(unit.group))
      replica_->parameters[parameter].mutable_grad() = torch::Tensor();
    unit.travels = shards_->average(unit.gradients, unit.group);
  }

  /// Also of units that no gradient of this pass came to.
  void end_pass() {
    if (!shards_->end_backward()) return;
    const torch::NoGradGuard no_grad;
    finish();
    for (Unit& unit : units_)
      if (!shards_->complete(unit.group)) {
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
  std::vector<std::size_t> order_;  ///< units, as the forward pass comes to them
  bool knows_order_ = false;
  std::size_t came_ = 0;  ///< places of `order_` that the forward pass has come to
  std::size_t left_ = 0;  ///< the place that the backward pass is at
};

}  // namespace

std::unique_ptr<SyncMode> make_fsdp(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<Fsdp>(exchange, settings);
}

}  // namespace gradsync
