#include <algorithm>
#include <optional>

#include "comm/comm_thread.h"
#include "sync/buckets.h"
#include "sync/flat_gradients.h"
#include "sync/gradient_hooks.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

constexpr int kRoot = 0;

/// Distributed data parallel (Li et al., VLDB 2020): gradients live in flat buckets in the order in
/// which the backward pass completes them, and a full bucket is averaged while the backward pass
/// goes on: by a communication thread, on a stream beside it where the transport only enqueues, or
/// posted, and then summed between the layers of the backward pass, where memory is all it takes.
///
/// Buckets start in the reverse order of the modules. After the first iteration they are cut anew
/// from the order that rank 0 observed; buckets are exchanged strictly in their order, so all ranks
/// issue the same collectives.
class Ddp : public SyncMode {
 public:
  Ddp(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings), wire_(wire_type(settings.wire_dtype)) {}

  void attach(Replica& replica) override {
    replica_ = &replica;
    auto order = module_order(replica.parameters.size());
    std::reverse(order.begin(), order.end());
    lay_out(std::move(order));
    hooks_.emplace(replica.parameters,
                   [this](std::size_t parameter) { gradient_ready(parameter); });
  }

  void before_backward(const torch::Tensor&, bool last) override {
    exchanging_ = last;
    next_bucket_ = 0;
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      missing_[b] = buckets_[b].last - buckets_[b].first;
  }

  void run_in_pass(const std::function<void()>& collective) override {
    if (posts_ || exchange_.enqueues()) return collective();
    thread_.run(collective);
  }

  void synchronize() override {
    exchange_.finish_posted();
    thread_.drain();
    exchange_.join();
    exchanging_ = false;
    if (!rebuilt_) rebuild();
  }

  std::vector<std::int64_t> state() const override {
    return rebuilt_ ? observed_ : std::vector<std::int64_t>();
  }

  void restore(const std::vector<std::int64_t>& state) override {
    if (state.empty()) return;
    lay_out(checked_order(state, replica_->parameters.size()));
    observed_ = state;
    rebuilt_ = true;
  }

 private:
  void gradient_ready(std::size_t parameter) {
    if (!exchanging_) return;
    if (!rebuilt_) observed_.push_back(static_cast<std::int64_t>(parameter));
    const std::size_t bucket = bucket_of_[parameter];
    if (--missing_[bucket] > 0) return;
    ready_[bucket] = exchange_.now();
    while (next_bucket_ < buckets_.size() && missing_[next_bucket_] == 0)
      launch(next_bucket_++);
  }

  void launch(std::size_t bucket) {
    if (posts_)
      return exchange_.post_all_reduce_mean(message(bucket), Traffic::kGradients, ready_[bucket]);
    if (exchange_.enqueues()) return average(bucket, ready_[bucket]);
    thread_.submit([this, bucket, ready = ready_[bucket]] { average(bucket, ready); });
  }

  void average(std::size_t bucket, Moment ready) {
    const auto gradients = message(bucket);
    if (wire_ == ValueType::kFloat32)
      return exchange_.all_reduce_mean(gradients, Traffic::kGradients, ready);
    auto* wire = static_cast<std::uint16_t*>(scratch_.data_ptr());
    exchange_.all_reduce_mean_half(gradients, {wire, gradients.size()}, wire_, Traffic::kGradients,
                                   ready);
  }

  std::span<float> message(std::size_t bucket) {
    return gradients_->range(buckets_[bucket].first, buckets_[bucket].last);
  }

  /// Moves the gradients, with their values, into buckets cut from the order rank 0 observed.
  void rebuild() {
    const auto order = std::as_writable_bytes(std::span(observed_));
    if (exchange_.lane())
      exchange_.broadcast_control(order);  // host memory
    else
      exchange_.broadcast(order, kRoot, Traffic::kControl);
    lay_out(std::vector<std::size_t>(observed_.begin(), observed_.end()));
    rebuilt_ = true;
  }

  void lay_out(std::vector<std::size_t> order) {
    std::vector<std::int64_t> bytes;
    for (const std::size_t parameter : order)
      bytes.push_back(replica_->parameters[parameter].numel() * value_bytes(ValueType::kFloat32));
    buckets_ = cut_into_buckets(bytes, settings_.first_bucket_bytes, settings_.bucket_cap_bytes);
    missing_.assign(buckets_.size(), 0);
    ready_.assign(buckets_.size(), Moment());
    bucket_of_.resize(order.size());
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      for (std::size_t position = buckets_[b].first; position < buckets_[b].last; ++position)
        bucket_of_[order[position]] = b;
    auto memory = exchange_.allocate(gradient_bytes(*replica_));
    posts_ = memory && exchange_.posts() && wire_ == ValueType::kFloat32;
    exchange_.set_waiting(posts_ ? Waiting::kSpin : Waiting::kSleep);
    gradients_.emplace(*replica_, std::move(order), std::move(memory));
    if (wire_ != ValueType::kFloat32) make_scratch();
  }

  /// As many halves as the largest bucket has values, where the gradients lie.
  void make_scratch() {
    std::size_t largest = 0;
    for (const Bucket& bucket : buckets_)
      largest = std::max(largest, gradients_->range(bucket.first, bucket.last).size());
    scratch_ = torch::empty({static_cast<std::int64_t>(largest)},
                            replica_->parameters[0].options().dtype(torch::kInt16));
  }

  Exchange& exchange_;
  SyncSettings settings_;
  ValueType wire_;
  Replica* replica_ = nullptr;
  std::optional<FlatGradients> gradients_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<std::size_t> missing_;    ///< gradients a bucket still waits for
  std::vector<Moment> ready_;
  std::vector<std::int64_t> observed_;
  torch::Tensor scratch_;
  std::size_t next_bucket_ = 0;
  bool posts_ = false;  ///< buckets are posted, by the thread of the step
  bool exchanging_ = false, rebuilt_ = false;
  std::optional<GradientHooks> hooks_;
  CommThread thread_;  // last: joined before anything its jobs use goes
};

}  // namespace

std::unique_ptr<SyncMode> make_ddp(Exchange& exchange, const SyncSettings& settings) {
  if (settings.over_steps) return make_ddp_over_steps(exchange, settings);
  return std::make_unique<Ddp>(exchange, settings);
}

}  // namespace gradsync
