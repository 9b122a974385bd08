// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <numeric>

#include "sync/buckets.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

/// Distributed data parallel (Li et al., VLDB 2020): a full bucket of gradients is averaged during
/// the backward pass. Buckets are exchanged strictly in their order, so all ranks issue the same
/// collectives.
class Ddp : public SyncMode {
 public:
  Ddp(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange),
        wire_(wire_type(settings.wire_dtype)),
        buckets_(exchange, {settings.first_bucket_bytes, settings.bucket_cap_bytes},
                 {[] {},
                  [this, waits = settings.overlap == Overlap::kNone] {
                    if (!waits) start_full();
                  }}) {}

  void attach(Replica& replica) override { buckets_.attach(replica); }

  void before_backward(const torch::Tensor&, bool last) override {
    next_ = 0;
    buckets_.begin(last);
  }

  void synchronize() override {
    start_full();  // what did not start in the backward pass
    exchange_.finish();
    buckets_.end();
  }

  std::vector<std::int64_t> state() const override { return buckets_.state(); }
  void restore(const std::vector<std::int64_t>& state) override { buckets_.restore(state); }

 private:
  void start_full() {
    for (; next_ < buckets_.size() && buckets_.full(next_); ++next_)
      exchange_.start(buckets_.message(next_, wire_), buckets_.ready(next_));
  }

  Exchange& exchange_;
  ValueType wire_;
  std::size_t next_ = 0;  ///< bucket
  GradientBuckets buckets_;
};

/// Long enough to be worth a message, short enough that what is urgent does not wait long.
constexpr std::int64_t kLongestMessage_bytes = 2 << 20;
/// No gradient is cut into shorter ones, whatever the cap.
constexpr std::int64_t kShortestMessage_bytes = 64 << 10;
/// How often the order is planned: the first times are of a network that still warms up.
constexpr int kPlans = 3;

/// A part of a bucket's values.
struct Part {
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
                 {[this] { cut_parts(); }, [this] { launch_full(); }}) {}

  void attach(Replica& replica) override { buckets_.attach(replica); }

  void before_backward(const torch::Tensor&, bool last) override {
    next_ = 0;
    current_ = exchange_.log().current();
    buckets_.begin(last);
  }

  DeferredGradients* deferred() override { return this; }

  void await(const std::vector<std::size_t>& parameters) override {
    for (const std::size_t parameter : parameters)
      exchange_.finish(sent_as_[buckets_.bucket_of(parameter)]);
  }

  void synchronize() override {
    exchange_.finish();
    if (!buckets_.end() && plans_ < kPlans) plan();
  }

  std::vector<std::int64_t> state() const override { return buckets_.state(); }
  void restore(const std::vector<std::int64_t>& state) override { buckets_.restore(state); }

 private:
  void launch_full() {
    while (next_ < order_.size() && buckets_.full(parts_[order_[next_]].bucket))
      launch(parts_[order_[next_++]]);
  }

  void launch(const Part& part) {
    Message message = buckets_.message(part.bucket, wire_);
    message.call.receive =
        message.call.receive.subspan(part.first * sizeof(float), part.count * sizeof(float));
    message.log = current_;
    sent_as_[part.bucket] = exchange_.start(std::move(message), buckets_.ready(part.bucket));
  }

  /// From the iteration that has just been waited for.
  void plan() {
    ++plans_;
    // One part has no order, and without measurements there is none.
    if (parts_.size() < 2 || current_->records.empty()) return;
    double busy_s = 0, bytes = 0;
    for (const CollectiveRecord& record : current_->records) {
      busy_s += record.end_s - record.start_s;
      bytes += static_cast<double>(record.bytes);
    }
    std::vector<PlannedMessage> planned;
    for (const Part& part : parts_)
      planned.push_back({buckets_.ready(part.bucket).host_s - buckets_.ready(0).host_s,
                         static_cast<std::int64_t>(part.count) * value_bytes(wire_), part.bucket});
    order_ = most_urgent_first(planned, busy_s / bytes);
    exchange_.run(Collective::broadcast(std::as_writable_bytes(std::span(order_)), kRoot),
                  Traffic::kControl);
  }

  /// In the order in which the backward pass completes them.
  void cut_parts() {
    const std::size_t longest =
        static_cast<std::size_t>(std::max(message_bytes_, kShortestMessage_bytes)) / sizeof(float);
    parts_.clear();
    sent_as_.assign(buckets_.size(), 0);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      const std::size_t all = buckets_.values(b).size();
      const std::size_t parts = (all + longest - 1) / longest;
      for (std::size_t i = 0; i < parts; ++i) {
        const std::size_t begin = all * i / parts, end = all * (i + 1) / parts;
        parts_.push_back({b, begin, end - begin});
      }
    }
    order_.resize(parts_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  Exchange& exchange_;
  ValueType wire_;
  std::int64_t message_bytes_;
  std::vector<std::uint64_t> sent_as_;  ///< by bucket, the message of its last part
  std::vector<Part> parts_;
  std::vector<std::size_t> order_;  ///< of the parts
  std::size_t next_ = 0;            ///< in that order
  std::shared_ptr<IterationLog> current_;
  int plans_ = 0;
  GradientBuckets buckets_;
};

}  // namespace

std::unique_ptr<SyncMode> make_ddp(Exchange& exchange, const SyncSettings& settings) {
  if (settings.overlap == Overlap::kStep)
    return std::make_unique<DdpCrossIteration>(exchange, settings);
  return std::make_unique<Ddp>(exchange, settings);
}

}  // namespace gradsync
