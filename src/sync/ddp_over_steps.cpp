#include <algorithm>
#include <numeric>
#include <optional>

#include "comm/comm_thread.h"
#include "support/error.h"
#include "sync/buckets.h"
#include "sync/flat_gradients.h"
#include "sync/gradient_hooks.h"
#include "sync/message_order.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

constexpr int kRoot = 0;
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

/// ddp whose exchange may go on through the next forward pass (--overlap step).
///
/// Messages are short and sent by a plan that all ranks follow: of what is ready, what the next
/// forward pass needs first. The plan comes from rank 0's times of an iteration that was waited
/// for.
class DdpOverSteps : public SyncMode {
 public:
  DdpOverSteps(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange),
        wire_(wire_type(settings.wire_dtype)),
        message_bytes_(std::min(kLongestMessage_bytes, settings.bucket_cap_bytes)) {
    if (exchange.lane())
      throw Error(ExitCode::kUsage, "--overlap step is for gradients in host memory",
                  "leave it out, or give --device cpu");
    exchange_.set_waiting(Waiting::kSleep);
  }

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
    next_ = 0;
    book_ = exchange_.book();
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      missing_[b] = buckets_[b].last - buckets_[b].first;
  }

  void run_in_pass(const std::function<void()>& collective) override { thread_.run(collective); }

  bool carries() const override { return true; }

  void await_gradients(const std::vector<std::size_t>& parameters) override {
    for (const std::size_t parameter : parameters)
      thread_.wait_for(sent_as_[bucket_of_[parameter]]);
  }

  void synchronize() override {
    thread_.drain();
    exchanging_ = false;
    if (!rebuilt_)
      rebuild();
    else if (plans_ < kPlans)
      plan();
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
    if (observed_.size() < replica_->parameters.size())
      observed_.push_back(static_cast<std::int64_t>(parameter));
    const std::size_t bucket = bucket_of_[parameter];
    if (--missing_[bucket] > 0) return;
    ready_[bucket] = exchange_.now();
    while (next_ < order_.size() && missing_[messages_[order_[next_]].bucket] == 0)
      launch(messages_[order_[next_++]]);
  }

  void launch(const Message& message) {
    const Moment ready = ready_[message.bucket];
    sent_as_[message.bucket] =
        thread_.submit([this, message, ready, book = book_] { average(message, ready, *book); });
  }

  void average(const Message& message, Moment ready, IterationBook& book) {
    const Bucket& bucket = buckets_[message.bucket];
    const auto values =
        gradients_->range(bucket.first, bucket.last).subspan(message.first, message.count);
    if (wire_ == ValueType::kFloat32)
      return exchange_.all_reduce_mean(values, Traffic::kGradients, ready, &book);
    exchange_.all_reduce_mean_half(values, std::span(half_).first(values.size()), wire_,
                                   Traffic::kGradients, ready, &book);
  }

  /// Moves the gradients, with their values, into buckets cut from the order rank 0 observed.
  void rebuild() {
    exchange_.broadcast(std::as_writable_bytes(std::span(observed_)), kRoot, Traffic::kControl);
    lay_out(std::vector<std::size_t>(observed_.begin(), observed_.end()));
    rebuilt_ = true;
  }

  /// From the iteration that has just been waited for.
  void plan() {
    ++plans_;
    // One message has no order, and what was not measured tells none.
    if (messages_.size() < 2 || book_->records.empty()) return;
    double busy_s = 0, bytes = 0;
    for (const CollectiveRecord& record : book_->records) {
      busy_s += record.end_s - record.start_s;
      bytes += static_cast<double>(record.bytes);
    }
    std::vector<PlannedMessage> planned;
    for (const Message& message : messages_)
      planned.push_back({ready_[message.bucket].host_s - ready_[0].host_s,
                         static_cast<std::int64_t>(message.count) * value_bytes(wire_),
                         message.bucket});
    order_ = most_urgent_first(planned, busy_s / bytes);
    exchange_.broadcast(std::as_writable_bytes(std::span(order_)), kRoot, Traffic::kControl);
  }

  void lay_out(std::vector<std::size_t> order) {
    std::vector<std::int64_t> bytes;
    for (const std::size_t parameter : order)
      bytes.push_back(replica_->parameters[parameter].numel() * value_bytes(ValueType::kFloat32));
    buckets_ = cut_into_buckets(bytes, message_bytes_, message_bytes_);
    missing_.assign(buckets_.size(), 0);
    ready_.assign(buckets_.size(), Moment());
    sent_as_.assign(buckets_.size(), 0);
    bucket_of_.resize(order.size());
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      for (std::size_t position = buckets_[b].first; position < buckets_[b].last; ++position)
        bucket_of_[order[position]] = b;
    gradients_.emplace(*replica_, std::move(order), exchange_.allocate(gradient_bytes(*replica_)));
    cut_messages();
  }

  /// In the order in which the backward pass completes them.
  void cut_messages() {
    const std::size_t longest =
        static_cast<std::size_t>(std::max(message_bytes_, kShortestMessage_bytes)) / sizeof(float);
    messages_.clear();
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::size_t all = gradients_->range(buckets_[b].first, buckets_[b].last).size();
      const std::size_t parts = (all + longest - 1) / longest;
      for (std::size_t part = 0; part < parts; ++part) {
        const std::size_t begin = all * part / parts, end = all * (part + 1) / parts;
        messages_.push_back({b, begin, end - begin});
      }
    }
    order_.resize(messages_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (wire_ != ValueType::kFloat32) half_.resize(longest);
  }

  Exchange& exchange_;
  ValueType wire_;
  std::int64_t message_bytes_;
  Replica* replica_ = nullptr;
  std::optional<FlatGradients> gradients_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<std::size_t> missing_;    ///< gradients a bucket still waits for
  std::vector<Moment> ready_;
  std::vector<std::uint64_t> sent_as_;  ///< by bucket, the job of its last message
  std::vector<Message> messages_;
  std::vector<std::size_t> order_;  ///< of the messages
  std::size_t next_ = 0;            ///< in that order
  std::vector<std::int64_t> observed_;
  std::vector<std::uint16_t> half_;
  std::shared_ptr<IterationBook> book_;
  int plans_ = 0;
  bool exchanging_ = false, rebuilt_ = false;
  std::optional<GradientHooks> hooks_;
  CommThread thread_;  // last: joined before anything its jobs use goes
};

}  // namespace

std::unique_ptr<SyncMode> make_ddp_over_steps(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<DdpOverSteps>(exchange, settings);
}

}  // namespace gradsync
