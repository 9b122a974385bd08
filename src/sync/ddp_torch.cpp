#include "exchange/comm_thread.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Distributed data parallel (Li et al., VLDB 2020): a full bucket of gradients is averaged
/// during the backward pass: by a communication thread, on a stream beside it where the transport
/// only enqueues, or posted, and then summed between the layers of the backward pass, where memory
/// is all it takes. Buckets are exchanged strictly in their order, so all ranks issue the same
/// collectives.
class Ddp : public SyncMode {
 public:
  Ddp(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange),
        wire_(wire_type(settings.wire_dtype)),
        buckets_(exchange, {settings.first_bucket_bytes, settings.bucket_cap_bytes},
                 {[this] { choose_way(); }, [this] { launch_full(); }}) {}

  void attach(Replica& replica) override {
    options_ = replica.parameters[0].options();
    buckets_.attach(replica);
  }

  void before_backward(const torch::Tensor&, bool last) override {
    next_bucket_ = 0;
    buckets_.begin(last);
  }

  void run_in_pass(const std::function<void()>& collective) override {
    if (posts_ || exchange_.enqueues()) return collective();
    thread_.run(collective);
  }

  void synchronize() override {
    exchange_.finish_posted();
    thread_.drain();
    exchange_.join();
    buckets_.end();
  }

  std::vector<std::int64_t> state() const override { return buckets_.state(); }
  void restore(const std::vector<std::int64_t>& state) override { buckets_.restore(state); }

 private:
  /// How buckets of this layout travel.
  void choose_way() {
    posts_ = buckets_.in_exchange_memory() && exchange_.posts() && wire_ == ValueType::kFloat32;
    exchange_.set_waiting(posts_ ? Waiting::kSpin : Waiting::kSleep);
    if (wire_ != ValueType::kFloat32)
      scratch_ = torch::empty({static_cast<std::int64_t>(buckets_.largest())},
                              options_.dtype(torch::kInt16));
  }

  void launch_full() {
    while (next_bucket_ < buckets_.size() && buckets_.full(next_bucket_))
      launch(next_bucket_++);
  }

  void launch(std::size_t bucket) {
    const Moment ready = buckets_.ready(bucket);
    if (posts_)
      return exchange_.post_all_reduce_mean(buckets_.values(bucket), Traffic::kGradients, ready);
    if (exchange_.enqueues()) return average(exchange_, message(bucket), ready);
    // Holds what it works on: after an error elsewhere it may outlive this object.
    thread_.submit([&exchange = exchange_, message = message(bucket), ready] {
      average(exchange, message, ready);
    });
  }

  struct Message {
    std::span<float> gradients;
    torch::Tensor memory, scratch;  ///< that of the gradients; undefined for float32 on the wire
    ValueType wire;
  };

  Message message(std::size_t bucket) {
    return {buckets_.values(bucket), buckets_.memory(), scratch_, wire_};
  }

  static void average(Exchange& exchange, const Message& message, Moment ready) {
    if (message.wire == ValueType::kFloat32)
      return exchange.all_reduce_mean(message.gradients, Traffic::kGradients, ready);
    auto* wire = static_cast<std::uint16_t*>(message.scratch.data_ptr());
    exchange.all_reduce_mean_half(message.gradients, {wire, message.gradients.size()}, message.wire,
                                  Traffic::kGradients, ready);
  }

  Exchange& exchange_;
  ValueType wire_;
  torch::TensorOptions options_;  ///< of the parameters
  torch::Tensor scratch_;         ///< a half for each value of the largest bucket, where those lie
  std::size_t next_bucket_ = 0;
  bool posts_ = false;  ///< buckets are posted, by the thread of the step
  GradientBuckets buckets_;
  CommThread thread_;  // last: joined before anything its jobs use goes
};

}  // namespace

std::unique_ptr<SyncMode> make_ddp(Exchange& exchange, const SyncSettings& settings) {
  if (settings.cross_iteration) return make_ddp_cross_iteration(exchange, settings);
  return std::make_unique<Ddp>(exchange, settings);
}

}  // namespace gradsync
