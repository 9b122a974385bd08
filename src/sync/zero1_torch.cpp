// SPDX-License-Identifier: BSD-3-Clause
// Stage 1 of ZeRO (Rajbhandari et al., SC 2020): gradients are averaged into equal parts, one a
// rank, each rank steps its part of the parameters, with the state of the optimizer for that part
// alone, and the next forward pass puts the parts together again, waiting at each layer for its
// own.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "sync/flat_gradients.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

class Zero1 : public SyncMode {
 public:
  Zero1(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings) {}

  void attach(Replica& replica) override {
    const torch::NoGradGuard no_grad;
    const auto groups =
        buckets_of(replica, settings_.first_bucket_bytes, settings_.bucket_cap_bytes);
    bucket_of_.resize(replica.parameters.size());
    for (std::size_t b = 0; b < groups.size(); ++b) {
      sizes_.push_back(groups[b].size());
      for (const std::size_t parameter : groups[b])
        bucket_of_[parameter] = b;
    }
    for (const Network::Layer& layer : replica.network->layers())
      parameters_of_[layer.module] = replica.parameters_of(*layer.module);
    GradientLayout layout(replica, groups, static_cast<std::size_t>(ranks()));
    // One memory: in shared memory both lie or none, or some messages would be posted while a
    // thread moves the others.
    constexpr std::size_t kBegin = GradientLayout::kGroupBytes;
    const std::size_t half_bytes = (layout.bytes() + kBegin - 1) / kBegin * kBegin;
    const auto memory = exchange_.posts() ? exchange_.allocate(2 * half_bytes) : nullptr;
    gradients_.emplace(replica, layout, memory);
    parameters_ =
        zeros_in(memory ? std::shared_ptr<std::byte>(memory, memory.get() + half_bytes) : nullptr,
                 static_cast<std::int64_t>(layout.values()), gradients_->memory().device());
    for (std::size_t i = 0; i < replica.parameters.size(); ++i) {
      torch::Tensor& parameter = replica.parameters[i];
      const torch::Tensor place =
          parameters_.as_strided(parameter.sizes(), parameter.strides(),
                                 static_cast<std::int64_t>(layout.gradient(i).offset));
      place.copy_(parameter);
      parameter.set_data(place);
    }
    for (std::size_t b = 0; b < layout.groups(); ++b) {
      const auto begin = static_cast<std::int64_t>(layout.group(b).offset);
      const auto all = static_cast<std::int64_t>(layout.group(b).count);
      const std::int64_t own = begin + exchange_.session().rank() * (all / ranks());
      torch::Tensor part = parameters_.narrow(0, own, all / ranks());
      part.mutable_grad() = gradients_->memory().narrow(0, own, all / ranks());
      own_.parameters.push_back(part);
      own_.names.push_back("part/" + std::to_string(b));
      buckets_.push_back(
          {parameters_.narrow(0, begin, all), gradients_->memory().narrow(0, begin, all)});
    }
    hooks_.emplace(replica.parameters, [this](std::size_t parameter) { ready(parameter); });
  }

  Replica& stepped(Replica&) override { return own_; }

  Gate gate() override {
    if (gathered_) return {};
    return [this](const torch::nn::Module& layer) { await(parameters_of_.at(&layer)); };
  }
  std::vector<Span> take_waits() override { return std::exchange(waits_, {}); }

  void before_forward(bool) override {
    if (!gathered_) gather();
  }

  void before_backward(const torch::Tensor&, bool last) override {
    if (!std::exchange(gathered_, true)) exchange_.finish();  // of layers that it did not come to
    exchanging_ = last;
    next_ = 0;
    missing_ = sizes_;
  }

  void synchronize() override {
    exchanging_ = false;
    for (; next_ < buckets_.size(); ++next_)
      start(next_);  // what a pass without some gradient has left
    exchange_.finish();
  }

  /// The update has zeroed the gradients of this rank's parts.
  void after_update() override {
    const torch::NoGradGuard no_grad;
    for (const Group& bucket : buckets_) {
      const std::int64_t all = bucket.gradients.numel(), own = all / ranks();
      const std::int64_t before = exchange_.session().rank() * own;
      bucket.gradients.narrow(0, 0, before).zero_();
      bucket.gradients.narrow(0, before + own, all - before - own).zero_();
    }
    gathered_ = false;
  }

  void assemble() override {
    gather();
    exchange_.finish();
  }

 private:
  /// A bucket in the memory of the whole.
  struct Group {
    torch::Tensor parameters, gradients;
    std::uint64_t arrives = 0;  ///< the message that puts the parameters together
  };

  int ranks() const { return exchange_.session().size(); }

  /// From the first layer to the last.
  void gather() {
    for (std::size_t b = buckets_.size(); b-- > 0;)
      buckets_[b].arrives =
          exchange_.start({.call = Collective::all_gather(
                               std::as_bytes(values_of(own_.parameters[b])),
                               std::as_writable_bytes(values_of(buckets_[b].parameters))),
                           .category = Traffic::kParameters,
                           .memory = std::make_shared<torch::Tensor>(parameters_)},
                          exchange_.now());
  }

  void await(const std::vector<std::size_t>& parameters) {
    const Moment begin = exchange_.now();
    for (const std::size_t parameter : parameters)
      exchange_.finish(buckets_[bucket_of_[parameter]].arrives);
    waits_.push_back({begin, exchange_.now()});
  }

  void ready(std::size_t parameter) {
    if (!exchanging_) return;
    --missing_[bucket_of_[parameter]];
    for (; next_ < buckets_.size() && missing_[next_] == 0; ++next_)
      start(next_);
  }

  void start(std::size_t bucket) {
    exchange_.start({.call = Collective::reduce_scatter(values_of(buckets_[bucket].gradients),
                                                        values_of(own_.parameters[bucket].grad()),
                                                        Scale::kAverage),
                     .memory = std::make_shared<torch::Tensor>(gradients_->memory())},
                    exchange_.now());
  }

  Exchange& exchange_;
  SyncSettings settings_;
  std::optional<FlatGradients> gradients_;
  torch::Tensor parameters_;  ///< laid out as the gradients
  std::vector<Group> buckets_;
  Replica own_;                                 ///< the parts that this rank steps, one a bucket
  std::vector<std::size_t> bucket_of_, sizes_;  ///< by parameter; parameters of a bucket
  std::vector<std::size_t> missing_;            ///< gradients a bucket still waits for
  std::size_t next_ = 0;
  bool exchanging_ = false;
  bool gathered_ = false;  ///< all parameters are those of the last update
  std::map<const torch::nn::Module*, std::vector<std::size_t>> parameters_of_;
  std::vector<Span> waits_;
  std::optional<GradientHooks> hooks_;
};

}  // namespace

std::unique_ptr<SyncMode> make_zero1(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<Zero1>(exchange, settings);
}

}  // namespace gradsync
