#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/process.h"
#include "exchange/comm_thread.h"
#include "sync/buckets.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Long enough to be worth a message, short enough that what is urgent does not wait long.
constexpr std::int64_t kLongestMessage_bytes = 2 << 20;
/// No gradient is cut into shorter ones, whatever the cap.
constexpr std::int64_t kShortestMessage_bytes = 64 << 10;
/// How often the order is planned: the first times are of a network that still warms up.
constexpr int kPlans = 3;

/// A part of a bucket's values.
struct Message {
  std::size_t bucket, first, count;
};

/// ddp whose exchange may overlap the next forward pass (--overlap step).
///
/// Messages are short and sent by a plan that all ranks follow: of what is ready, what the next
/// forward pass needs first. The plan comes from rank 0's times of an iteration that was waited
/// for.
class DdpCrossIteration : public SyncMode, public DeferredGradients {
 public:
  DdpCrossIteration(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange),
        wire_(wire_type(settings.wire_dtype)),
        message_bytes_(std::min(kLongestMessage_bytes, settings.bucket_cap_bytes)),
        buckets_(exchange, {message_bytes_, message_bytes_},
                 {[this] { cut_messages(); }, [this] { launch_full(); }}) {
    if (exchange.lane())
      throw Error(ExitCode::kUsage, "--overlap step is for gradients in host memory",
                  "leave it out, or give --device cpu");
    exchange_.set_waiting(Waiting::kSleep);
  }

  void attach(Replica& replica) override { buckets_.attach(replica); }

  void before_backward(const torch::Tensor&, bool last) override {
    next_ = 0;
    current_ = exchange_.log().current();
    buckets_.begin(last);
  }

  void run_in_pass(const std::function<void()>& collective) override { thread_.run(collective); }

  DeferredGradients* deferred() override { return this; }

  void await(const std::vector<std::size_t>& parameters) override {
    for (const std::size_t parameter : parameters)
      thread_.wait_for(sent_as_[buckets_.bucket_of(parameter)]);
  }

  void synchronize() override {
    thread_.drain();
    if (!buckets_.end() && plans_ < kPlans) plan();
  }

  std::vector<std::int64_t> state() const override { return buckets_.state(); }
  void restore(const std::vector<std::int64_t>& state) override { buckets_.restore(state); }

 private:
  void launch_full() {
    while (next_ < order_.size() && buckets_.full(messages_[order_[next_]].bucket))
      launch(messages_[order_[next_++]]);
  }

  void launch(const Message& message) {
    const auto values = buckets_.values(message.bucket).subspan(message.first, message.count);
    // Holds what it works on: after an error elsewhere it may outlive this object.
    sent_as_[message.bucket] = thread_.submit([&exchange = exchange_, values,
                                               memory = buckets_.memory(), half = half_,
                                               wire = wire_, ready = buckets_.ready(message.bucket),
                                               iteration_log = current_] {
      if (wire == ValueType::kFloat32)
        return exchange.all_reduce_mean(values, Traffic::kGradients, ready, iteration_log.get());
      exchange.all_reduce_mean_half(values, std::span(*half).first(values.size()), wire,
                                    Traffic::kGradients, ready, iteration_log.get());
    });
  }

  /// From the iteration that has just been waited for.
  void plan() {
    ++plans_;
    // One message has no order, and without measurements there is none.
    if (messages_.size() < 2 || current_->records.empty()) return;
    double busy_s = 0, bytes = 0;
    for (const CollectiveRecord& record : current_->records) {
      busy_s += record.end_s - record.start_s;
      bytes += static_cast<double>(record.bytes);
    }
    std::vector<PlannedMessage> planned;
    for (const Message& message : messages_)
      planned.push_back({buckets_.ready(message.bucket).host_s - buckets_.ready(0).host_s,
                         static_cast<std::int64_t>(message.count) * value_bytes(wire_),
                         message.bucket});
    order_ = most_urgent_first(planned, busy_s / bytes);
    exchange_.broadcast(std::as_writable_bytes(std::span(order_)), kRoot, Traffic::kControl);
  }

  /// In the order in which the backward pass completes them.
  void cut_messages() {
    const std::size_t longest =
        static_cast<std::size_t>(std::max(message_bytes_, kShortestMessage_bytes)) / sizeof(float);
    messages_.clear();
    sent_as_.assign(buckets_.size(), 0);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::size_t all = buckets_.values(b).size();
      const std::size_t parts = (all + longest - 1) / longest;
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t begin = all * part / parts, end = all * (part + 1) / parts;
        messages_.push_back({b, begin, end - begin});
      }
    }
    order_.resize(messages_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (wire_ != ValueType::kFloat32) half_ = std::make_shared<std::vector<std::uint16_t>>(longest);
  }

  Exchange& exchange_;
  ValueType wire_;
  std::int64_t message_bytes_;
  std::vector<std::uint64_t> sent_as_;  ///< by bucket, the job of its last message
  std::vector<Message> messages_;
  std::vector<std::size_t> order_;                    ///< of the messages
  std::size_t next_ = 0;                              ///< in that order
  std::shared_ptr<std::vector<std::uint16_t>> half_;  ///< of the message that travels
  std::shared_ptr<IterationLog> current_;
  int plans_ = 0;
  GradientBuckets buckets_;
  CommThread thread_;        // joined before anything its jobs use goes
  SchedBatchScope compute_;  // not `thread_`, which is there already
};

}  // namespace

std::unique_ptr<SyncMode> make_ddp_cross_iteration(Exchange& exchange,
                                                   const SyncSettings& settings) {
  return std::make_unique<DdpCrossIteration>(exchange, settings);
}

}  // namespace gradsync
