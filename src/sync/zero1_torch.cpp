// SPDX-License-Identifier: BSD-3-Clause
// Stage 1 of ZeRO (Rajbhandari et al., SC 2020): gradients are averaged into equal parts, one a
// rank, each rank steps its part of the parameters, with the state of the optimizer for that part
// alone, and the next forward pass puts the parts together again, waiting at each layer for its
// own.
#include <optional>
#include <vector>

#include "sync/shards.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

class Zero1 : public SyncMode {
 public:
  Zero1(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings) {}

  void attach(Replica& replica) override {
    const torch::NoGradGuard no_grad;
    shards_.emplace(exchange_, replica,
                    buckets_of(replica, settings_.first_bucket_bytes, settings_.bucket_cap_bytes),
                    [this](std::size_t) { average_complete(); });
    // One memory: in shared memory both lie or none, or some messages would be posted while a
    // thread moves the others.
    const GradientLayout& layout = shards_->layout();
    const std::int64_t half = layout.values();
    const torch::Device device = replica.parameters[0].device();
    const torch::Tensor both = exchange_.posts() ? zeros_in(exchange_, 2 * half, device)
                                                 : zeros_in(nullptr, 2 * half, device);
    flat_.emplace(replica, layout, both.narrow(0, 0, half));
    move_parameters(replica, layout, both.narrow(0, half, half));
    for (std::size_t b = 0; b < shards_->size(); ++b) {
      const auto begin = static_cast<std::int64_t>(layout.group(b).offset);
      parameters_.push_back(both.narrow(0, half + begin, shards_->values(b)));
      gradients_.push_back(both.narrow(0, begin, shards_->values(b)));
      own_.parameters.push_back(shards_->own(parameters_[b], b));
      own_.parameters[b].mutable_grad() = shards_->own(gradients_[b], b);
      own_.names.push_back("part/" + std::to_string(b));
    }
  }

  Replica& stepped(Replica&) override { return own_; }

  Gate gate() override {
    if (gathered_) return {};
    return [this](const torch::nn::Module& layer) {
      for (const std::size_t bucket : shards_->groups_of(layer))
        shards_->await(bucket);
    };
  }
  std::vector<Span> take_waits() override { return shards_->take_waits(); }

  void before_forward(bool) override {
    if (!gathered_) gather();
  }

  void before_backward(const torch::Tensor&, bool last) override {
    if (!std::exchange(gathered_, true)) exchange_.finish();  // of layers that it did not come to
    next_ = 0;
    if (last) shards_->begin_backward();
  }

  void synchronize() override {
    shards_->end_backward();
    for (; next_ < shards_->size(); ++next_)
      shards_->average(gradients_[next_], next_);  // what a pass has left without gradients
    exchange_.finish();
  }

  /// The update has zeroed the gradients of this rank's parts.
  void after_update() override {
    const torch::NoGradGuard no_grad;
    for (std::size_t b = 0; b < shards_->size(); ++b) {
      const torch::Tensor &all = gradients_[b], &own = own_.parameters[b].grad();
      const std::int64_t before = own.storage_offset() - all.storage_offset();
      all.narrow(0, 0, before).zero_();
      all.narrow(0, before + own.numel(), all.numel() - before - own.numel()).zero_();
    }
    gathered_ = false;
  }

  void assemble() override {
    gather();
    exchange_.finish();
  }

 private:
  /// From the first layer to the last.
  void gather() {
    for (std::size_t b = shards_->size(); b-- > 0;)
      shards_->gather(parameters_[b], b);
  }

  void average_complete() {
    for (; next_ < shards_->size() && shards_->complete(next_); ++next_)
      shards_->average(gradients_[next_], next_);
  }

  Exchange& exchange_;
  SyncSettings settings_;
  std::optional<Shards> shards_;  ///< a bucket is a group
  std::optional<FlatGradients> flat_;
  std::vector<torch::Tensor> parameters_, gradients_;  ///< by bucket
  Replica own_;            ///< the parts that this rank steps, one a bucket
  std::size_t next_ = 0;   ///< bucket to average
  bool gathered_ = false;  ///< all parameters are those of the last update
};

}  // namespace

std::unique_ptr<SyncMode> make_zero1(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<Zero1>(exchange, settings);
}

}  // namespace gradsync
