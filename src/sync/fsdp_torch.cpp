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
#include "sync/flat_gradients.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

using Units = std::vector<std::vector<std::size_t>>;  ///< the parameters of each

/// A layer of vectors with no more values than that, as a norm is, is not worth a message.
constexpr std::int64_t kFewValues = 16 << 10;

/// The parameters of each layer, or block. Those of a layer of few values join the one before it.
Units units_of(const Replica& replica, bool blocks,
               std::map<const torch::nn::Module*, std::size_t>& unit_of) {
  Units units;
  const torch::nn::Module* last = nullptr;
  for (const Network::Layer& layer : replica.network->layers()) {
    const std::vector<std::size_t> parameters = replica.parameters_of(*layer.module);
    const auto* unit = blocks ? layer.block : layer.module;
    const bool joins =
        unit == layer.module && std::ranges::all_of(parameters, [&](std::size_t i) {
          return replica.parameters[i].dim() < 2 && replica.parameters[i].numel() <= kFewValues;
        });
    if (units.empty() || (unit != last && !joins)) {
      units.emplace_back();
      last = unit;
    }
    units.back().insert(units.back().end(), parameters.begin(), parameters.end());
    unit_of[layer.module] = units.size() - 1;
  }
  return units;
}

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
    const Units groups = units_of(replica, blocks_, unit_of_);
    layout_.emplace(replica, groups, static_cast<std::size_t>(ranks()));
    unit_of_parameter_.resize(replica.parameters.size());
    for (const std::vector<std::size_t>& group : groups)
      shard(group);
    pool_.clear();
    gradients_.emplace(own_);
    hooks_.emplace(replica.parameters, [this](std::size_t parameter) { ready(parameter); });
    return_freed_memory();  // of the whole replica
  }

  Replica& stepped(Replica&) override { return own_; }

  Gate gate() override {
    return [this](const torch::nn::Module& layer) { forward_comes_to(unit_of_.at(&layer)); };
  }
  std::vector<Span> take_waits() override { return std::exchange(waits_, {}); }

  void before_forward(bool) override {
    end_pass();
    came_ = 0;
    if (knows_order_) gather(unit_at(0));
  }

  void before_backward(const torch::Tensor&, bool) override {
    knows_order_ = backward_ = true;
    for (Unit& unit : units_)
      unit.missing = unit.parameters.size();
    left_ = order_.size();
    backward_comes_on();
  }

  void synchronize() override { end_pass(); }

  void assemble() override {
    for (Unit& unit : units_)
      gather(unit);
    finish();
  }
  void take_apart() override {
    const torch::NoGradGuard no_grad;
    for (Unit& unit : units_) {
      unit.part.copy_(own_place(unit.whole, unit));
      release(unit);
    }
    pool_.clear();
  }

 private:
  struct Unit {
    std::vector<std::size_t> parameters;
    std::int64_t values = 0;
    c10::Storage storage;                    ///< of the parameters; in `whole` while they are here
    torch::Tensor part, whole, gradients;    ///< whole, gradients: of the pool, or undefined
    std::uint64_t arrives = 0, travels = 0;  ///< messages: its parameters; its gradients, 0: none
    std::size_t missing = 0;                 ///< gradients it still waits for
  };

  int ranks() const { return exchange_.session().size(); }
  Unit& unit_at(std::size_t place) { return units_[order_[place]]; }

  static std::span<float> all_values(const torch::Tensor& buffer, const Unit& unit) {
    return {buffer.data_ptr<float>(), static_cast<std::size_t>(unit.values)};
  }
  /// This rank's part of what all ranks have of a unit.
  torch::Tensor own_place(const torch::Tensor& buffer, const Unit& unit) const {
    const std::int64_t share = unit.values / ranks();
    return buffer.narrow(0, exchange_.session().rank() * share, share);
  }
  std::span<float> own_values(const torch::Tensor& buffer, const Unit& unit) const {
    const auto share = static_cast<std::size_t>(unit.values / ranks());
    return all_values(buffer, unit)
        .subspan(share * static_cast<std::size_t>(exchange_.session().rank()), share);
  }

  /// A parameter, or its gradient, in what all ranks have of its unit.
  torch::Tensor view(const torch::Tensor& flat, std::size_t parameter) const {
    const torch::Tensor& like = replica_->parameters[parameter];
    const std::size_t begin = layout_->group(unit_of_parameter_[parameter]).offset;
    return flat.as_strided(like.sizes(), like.strides(),
                           static_cast<std::int64_t>(layout_->gradient(parameter).offset - begin));
  }

  /// Takes this rank's part of the parameters of a unit. They lie in a storage from now on that has
  /// its memory while they are here: what autograd saves of them finds them again.
  void shard(const std::vector<std::size_t>& parameters) {
    Unit unit;
    unit.parameters = parameters;
    unit.values = static_cast<std::int64_t>(layout_->group(units_.size()).count);
    const torch::TensorOptions options = replica_->parameters[0].options();
    const torch::Tensor whole = pool_.take(unit.values, options.device());
    for (const std::size_t parameter : parameters) {
      unit_of_parameter_[parameter] = units_.size();
      view(whole, parameter).copy_(replica_->parameters[parameter]);
    }
    unit.part = own_place(whole, unit).clone();
    own_.parameters.push_back(unit.part);
    own_.names.push_back("part/" + std::to_string(units_.size()));
    unit.storage = c10::Storage(c10::Storage::use_byte_size_t(),
                                static_cast<std::size_t>(unit.values) * sizeof(float),
                                at::DataPtr(nullptr, options.device()), nullptr, false);
    const torch::Tensor flat = torch::empty({0}, options).set_(unit.storage, 0, {unit.values}, {1});
    for (const std::size_t parameter : parameters)
      replica_->parameters[parameter].set_data(view(flat, parameter));
    pool_.give(whole);
    units_.push_back(std::move(unit));
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
    unit.whole = pool_.take(unit.values, unit.part.device());
    put(unit);
    const torch::NoGradGuard no_grad;
    own_place(unit.whole, unit).copy_(unit.part);
    unit.arrives = exchange_.start(
        {.call = Collective::all_gather(std::as_bytes(own_values(unit.whole, unit)),
                                        std::as_writable_bytes(all_values(unit.whole, unit))),
         .category = Traffic::kParameters,
         .memory = std::make_shared<torch::Tensor>(unit.whole)},
        exchange_.now());
  }

  void await(Unit& unit) {
    gather(unit);
    const Moment begin = exchange_.now();
    exchange_.finish(unit.arrives);
    waits_.push_back({begin, exchange_.now()});
    take_in(unit.arrives);
  }

  /// Adds this rank's part of the gradients that have traveled: those of messages up to `number`. A
  /// step has left zeros there.
  void take_in(std::uint64_t number) {
    const torch::NoGradGuard no_grad;
    for (Unit& unit : units_) {
      if (unit.travels == 0 || unit.travels > number) continue;
      unit.part.mutable_grad().add_(own_place(unit.gradients, unit));
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
    unit.gradients = pool_.take(unit.values, unit.part.device());
    unit.gradients.narrow(0, 0, unit.values).zero_();
    for (const std::size_t parameter : unit.parameters)
      replica_->parameters[parameter].mutable_grad() = view(unit.gradients, parameter);
  }

  void ready(std::size_t parameter) {
    Unit& unit = units_[unit_of_parameter_[parameter]];
    if (!backward_ || --unit.missing > 0) return;
    const torch::NoGradGuard no_grad;
    release(unit);
    if (unit_at(left_).missing == 0) backward_comes_on();
    send(unit);
  }

  /// Behind the parameters that the backward pass needs next.
  void send(Unit& unit) {
    for (const std::size_t parameter : unit.parameters)
      replica_->parameters[parameter].mutable_grad() = torch::Tensor();
    unit.travels = exchange_.start(
        {.call = Collective::reduce_scatter(all_values(unit.gradients, unit),
                                            own_values(unit.gradients, unit), Scale::kAverage),
         .memory = std::make_shared<torch::Tensor>(unit.gradients)},
        exchange_.now());
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
  std::optional<GradientLayout> layout_;
  Replica own_;                             ///< this rank's parts, one a unit
  std::optional<FlatGradients> gradients_;  ///< of the parts
  std::vector<Unit> units_;
  std::map<const torch::nn::Module*, std::size_t> unit_of_;
  std::vector<std::size_t> unit_of_parameter_;
  std::vector<std::size_t> order_;  ///< units, as the forward pass comes to them
  bool knows_order_ = false, backward_ = false;
  std::size_t came_ = 0;  ///< places of `order_` that the forward pass has come to
  std::size_t left_ = 0;  ///< the place that the backward pass is at
  Pool pool_;
  std::vector<Span> waits_;
  std::optional<GradientHooks> hooks_;
};

}  // namespace

std::unique_ptr<SyncMode> make_fsdp(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<Fsdp>(exchange, settings);
}

}  // namespace gradsync
