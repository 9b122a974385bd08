// SPDX-License-Identifier: BSD-3-Clause
// Stage 3 of ZeRO (Rajbhandari et al., SC 2020), as fully sharded data parallel runs it (Zhao et
// al., VLDB 2023): between iterations a rank holds its part of the parameters only. The parameters
// of a unit, a layer or a block of layers, are gathered before a pass comes to it and go when it
// has left; its gradients are averaged into the ranks' parts as soon as the backward pass has them.
#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "sync/flat_gradients.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

using Units = std::vector<std::vector<std::size_t>>;  ///< the parameters of each

/// The parameters of each layer, or block. A layer of vectors only, as a norm is, joins the one
/// before it: it would not be worth a message.
Units units_of(const Replica& replica, bool blocks,
               std::map<const torch::nn::Module*, std::size_t>& unit_of) {
  Units units;
  const torch::nn::Module* last = nullptr;
  for (const Network::Layer& layer : replica.network->layers()) {
    const std::vector<std::size_t> parameters = replica.parameters_of(*layer.module);
    const auto* unit = blocks ? layer.block : layer.module;
    const bool joins = unit == layer.module && std::ranges::all_of(parameters, [&](std::size_t i) {
                         return replica.parameters[i].dim() < 2;
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
    const auto fits = std::ranges::find_if(
        free_, [&](const torch::Tensor& one) { return one.numel() >= values; });
    if (fits == free_.end()) {
      if (!free_.empty()) free_.pop_back();
      const auto bytes = static_cast<std::size_t>(values) * sizeof(float);
      return zeros_in(device.is_cpu() ? own_pages(bytes) : nullptr, values, device);
    }
    torch::Tensor buffer = std::move(*fits);
    free_.erase(fits);
    return buffer;
  }
  void give(torch::Tensor buffer) {
    const auto place = std::ranges::find_if(
        free_, [&](const torch::Tensor& one) { return one.numel() >= buffer.numel(); });
    free_.insert(place, std::move(buffer));
  }
  void clear() { free_.clear(); }

 private:
  std::vector<torch::Tensor> free_;  ///< from the smallest to the largest
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
    const GradientLayout layout(replica, groups, static_cast<std::size_t>(ranks()));
    unit_of_parameter_.resize(replica.parameters.size());
    for (std::size_t u = 0; u < groups.size(); ++u)
      shard(groups[u], layout, u);
    pool_.clear();
    gradients_.emplace(own_);
    if (ranks() == 1)
      for (const Unit& unit : units_)
        set_gradients(unit, unit.part.grad());
    else
      hooks_.emplace(replica.parameters, [this](std::size_t parameter) { ready(parameter); });
    return_freed_memory();  // of the whole replica
  }

  Replica& stepped(Replica&) override { return own_; }

  Gate gate() override {
    if (ranks() == 1) return {};
    return [this](const torch::nn::Module& layer) { forward_comes_to(unit_of_.at(&layer)); };
  }
  std::vector<Span> take_waits() override { return std::exchange(waits_, {}); }

  void before_forward(bool) override {
    if (ranks() == 1) return;
    end_pass();
    came_ = 0;
    if (knows_order_) gather(unit_at(0));
  }

  void before_backward(const torch::Tensor&, bool) override {
    if (ranks() == 1) return;
    note_order();
    for (Unit& unit : units_)
      unit.missing = unit.parameters.size();
    backward_ = true;
    left_ = order_.size() - 1;
    backward_comes_to_last();
  }

  void synchronize() override {
    if (ranks() == 1) return;
    end_pass();
    passes_ = 0;
    const torch::NoGradGuard no_grad;
    gradients_->memory().mul_(1.0f / static_cast<float>(ranks()));
  }

  void assemble() override {
    for (Unit& unit : units_)
      gather(unit);
    finish();
  }
  void take_apart() override {
    if (ranks() == 1) return;
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
    std::vector<std::int64_t> offsets;  ///< of the parameters, in values
    std::int64_t values = 0;
    c10::Storage storage;                  ///< of the parameters; in `whole` while they are here
    torch::Tensor part, whole, gradients;  ///< whole, gradients: of the pool, or undefined
    std::uint64_t arrives = 0;             ///< the message that gathers it
    std::size_t missing = 0;               ///< gradients it still waits for
    bool stays = false;                    ///< from the forward to the backward pass
  };

  int ranks() const { return exchange_.session().size(); }
  Unit& unit_at(std::size_t place) { return units_[order_[place]]; }

  static std::span<float> values_of(const torch::Tensor& buffer, const Unit& unit) {
    return {buffer.data_ptr<float>(), static_cast<std::size_t>(unit.values)};
  }
  /// This rank's part of what all ranks have of a unit.
  torch::Tensor own_place(const torch::Tensor& buffer, const Unit& unit) const {
    const std::int64_t share = unit.values / ranks();
    return buffer.narrow(0, exchange_.session().rank() * share, share);
  }
  std::span<float> own_values(const torch::Tensor& buffer, const Unit& unit) const {
    const torch::Tensor own = own_place(buffer, unit);
    return {own.data_ptr<float>(), static_cast<std::size_t>(own.numel())};
  }

  torch::Tensor view(const torch::Tensor& flat, const Unit& unit, std::size_t index) const {
    const torch::Tensor& parameter = replica_->parameters[unit.parameters[index]];
    return flat.as_strided(parameter.sizes(), parameter.strides(),
                           flat.storage_offset() + unit.offsets[index]);
  }

  /// Takes this rank's part of the parameters of a unit. They lie in a storage from now on that has
  /// its memory while they are here: what autograd saves of them finds them again.
  void shard(const std::vector<std::size_t>& parameters, const GradientLayout& layout,
             std::size_t index) {
    Unit unit;
    unit.parameters = parameters;
    unit.values = static_cast<std::int64_t>(layout.group(index).count);
    const torch::TensorOptions options = replica_->parameters[0].options();
    const torch::Device device = options.device();
    torch::Tensor whole = pool_.take(unit.values, device);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      unit.offsets.push_back(static_cast<std::int64_t>(layout.gradient(parameters[i]).offset -
                                                       layout.group(index).offset));
      unit_of_parameter_[parameters[i]] = index;
      view(whole, unit, i).copy_(replica_->parameters[parameters[i]]);
    }
    unit.part = own_place(whole, unit).clone();
    own_.parameters.push_back(unit.part);
    own_.names.push_back("part/" + std::to_string(index));
    unit.storage = c10::Storage(c10::Storage::use_byte_size_t(),
                                static_cast<std::size_t>(unit.values) * sizeof(float),
                                at::DataPtr(nullptr, device), nullptr, false);
    const torch::Tensor flat = torch::empty({0}, options).set_(unit.storage, 0, {unit.values}, {1});
    for (std::size_t i = 0; i < parameters.size(); ++i)
      replica_->parameters[parameters[i]].set_data(view(flat, unit, i));
    pool_.give(std::move(whole));
    if (ranks() == 1) put(unit, unit.whole = unit.part);
    units_.push_back(std::move(unit));
  }

  static void put(Unit& unit, const torch::Tensor& whole) {
    unit.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(
        at::DataPtr(whole.defined() ? whole.data_ptr() : nullptr, unit.storage.device()));
  }

  void release(Unit& unit) {
    if (unit.whole.defined()) pool_.give(std::exchange(unit.whole, torch::Tensor()));
    put(unit, unit.whole);
  }

  void gather(Unit& unit) {
    if (unit.whole.defined()) return;
    unit.whole = pool_.take(unit.values, unit.part.device());
    put(unit, unit.whole);
    const torch::NoGradGuard no_grad;
    own_place(unit.whole, unit).copy_(unit.part);
    unit.arrives = exchange_.start(
        {.call = Collective::all_gather(std::as_bytes(own_values(unit.whole, unit)),
                                        std::as_writable_bytes(values_of(unit.whole, unit))),
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

  /// Takes this rank's part of the gradients that have traveled: those of messages up to `number`.
  void take_in(std::uint64_t number) {
    const torch::NoGradGuard no_grad;
    for (; !traveling_.empty() && traveling_.front().number <= number; traveling_.pop_front()) {
      Sent& sent = traveling_.front();
      Unit& unit = *sent.unit;
      if (sent.first)
        unit.part.mutable_grad().copy_(own_place(sent.gradients, unit));
      else
        unit.part.mutable_grad().add_(own_place(sent.gradients, unit));
      pool_.give(std::move(sent.gradients));
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
    if (leaves && !unit_at(came_ - 1).stays) release(unit_at(came_ - 1));
    await(unit_at(came_));
    if (++came_ < order_.size()) gather(unit_at(came_));
  }

  /// The first forward pass has ended.
  void note_order() {
    if (std::exchange(knows_order_, true)) return;
    for (std::size_t place = 0; place < order_.size(); ++place)
      if (!is_first_place(place)) unit_at(place).stays = true;
  }

  bool is_first_place(std::size_t place) const {
    return std::find(order_.begin(), order_.end(), order_[place]) - order_.begin() ==
           static_cast<std::ptrdiff_t>(place);
  }

  /// The backward pass begins with order_[left_]; and with the one before, if this one's gradients
  /// are complete only where the forward pass came to it first.
  void backward_comes_to_last() {
    for (;; --left_) {
      Unit& unit = unit_at(left_);
      await(unit);
      make_gradients(unit);
      if (is_first_place(left_)) break;
    }
    if (left_ > 0) gather(unit_at(left_ - 1));
  }

  void make_gradients(Unit& unit) {
    if (unit.gradients.defined()) return;
    unit.gradients = pool_.take(unit.values, unit.part.device());
    unit.gradients.narrow(0, 0, unit.values).zero_();
    set_gradients(unit, unit.gradients);
  }

  void set_gradients(const Unit& unit, const torch::Tensor& flat) {
    for (std::size_t i = 0; i < unit.parameters.size(); ++i)
      replica_->parameters[unit.parameters[i]].mutable_grad() = view(flat, unit, i);
  }

  void ready(std::size_t parameter) {
    Unit& unit = units_[unit_of_parameter_[parameter]];
    if (!backward_ || --unit.missing > 0) return;
    const torch::NoGradGuard no_grad;
    release(unit);
    while (left_ > 0 && unit_at(left_).missing == 0) {
      --left_;
      backward_comes_to_last();
    }
    send(unit);
  }

  /// Behind the parameters that the backward pass needs next.
  void send(Unit& unit) {
    for (const std::size_t parameter : unit.parameters)
      replica_->parameters[parameter].mutable_grad() = torch::Tensor();
    torch::Tensor gradients = std::exchange(unit.gradients, torch::Tensor());
    const std::uint64_t number =
        exchange_.start({.call = Collective::reduce_scatter(values_of(gradients, unit),
                                                            own_values(gradients, unit)),
                         .memory = std::make_shared<torch::Tensor>(gradients)},
                        exchange_.now());
    traveling_.push_back({&unit, std::move(gradients), number, passes_ == 0});
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
    ++passes_;
  }

  void finish() {
    exchange_.finish();
    take_in(std::numeric_limits<std::uint64_t>::max());
  }

  /// Gradients on their way.
  struct Sent {
    Unit* unit;
    torch::Tensor gradients;
    std::uint64_t number;  ///< of the message
    bool first;            ///< of the iteration's passes
  };

  Exchange& exchange_;
  bool blocks_;
  Replica* replica_ = nullptr;
  Replica own_;                             ///< this rank's parts, one a unit
  std::optional<FlatGradients> gradients_;  ///< of the parts
  std::vector<Unit> units_;
  std::map<const torch::nn::Module*, std::size_t> unit_of_;
  std::vector<std::size_t> unit_of_parameter_;
  std::vector<std::size_t> order_;  ///< units, as the forward pass comes to them
  bool knows_order_ = false, backward_ = false;
  std::size_t came_ = 0;  ///< places of `order_` that the forward pass has come to
  std::size_t left_ = 0;  ///< the place that the backward pass is at
  std::int64_t passes_ = 0;
  std::deque<Sent> traveling_;
  Pool pool_;
  std::vector<Span> waits_;
  std::optional<GradientHooks> hooks_;
};

}  // namespace

std::unique_ptr<SyncMode> make_fsdp(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<Fsdp>(exchange, settings);
}

}  // namespace gradsync
