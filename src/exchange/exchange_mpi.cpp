#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "comm/long_messages.h"
#include "exchange/exchange.h"
#include "machine/range.h"
#include "stats/clock.h"
#include "transport/shared_all_reduce.h"

namespace gradsync {

namespace {

constexpr std::size_t kExpectedPosted = 256;

HalfType half_type(ValueType type) {
  return type == ValueType::kBfloat16 ? HalfType::kBfloat16 : HalfType::kFloat16;
}

}  // namespace

Exchange::Exchange(const Session& session, Transport& transport, Watchdog& watchdog,
                   VerifyLevel verify, DeviceLane* lane)
    : log_(session, watchdog, verify), control_(log_), transport_(transport), lane_(lane) {
  // How many messages wait at once depends on the peers' pace: no step is to be the first to grow.
  posted_.reserve(kExpectedPosted);
  if (lane_)
    log_.before_comparing([this] {
      if (lane_->ring.in_use(last_)) await_device(lane_->ring, last_, transport_, this->session());
    });
}

Moment Exchange::now() {
  if (lane_) return {kNotMeasured, lane_->ring.mark(lane_->compute)};
  return {now_s(), {}};
}

void Exchange::join() {
  if (lane_ && lane_->ring.in_use(last_)) lane_->ring.wait(lane_->compute, last_);
}

void Exchange::all_reduce_mean(std::span<float> data, Traffic category, Moment ready,
                               IterationLog* iteration_log) {
  move(call_of(CollectiveKind::kAllReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), -1),
       {category, data, ready, iteration_log},
       [&] { transport_.run(Collective::all_reduce(data, Scale::kMean, waiting_)); });
}

void Exchange::all_reduce_sum(std::span<float> data, Traffic category, Moment ready) {
  all_reduce_by(data, category, ready,
                [&] { transport_.run(Collective::all_reduce(data, Scale::kSum, waiting_)); });
}

void Exchange::all_reduce_by(std::span<float> data, Traffic category, Moment ready,
                             FunctionRef<void()> body) {
  move(call_of(CollectiveKind::kAllReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), -1),
       {category, data, ready}, body);
}

void Exchange::all_reduce_mean_half(std::span<float> data, std::span<std::uint16_t> wire,
                                    ValueType type, Traffic category, Moment ready,
                                    IterationLog* iteration_log) {
  double convert_s = kNotMeasured;
  std::vector<CollectiveRecord>& records =
      (iteration_log ? iteration_log : log_.current().get())->records;
  const std::size_t before = records.size();
  move(call_of(CollectiveKind::kAllReduce, type, ReduceOp::kSum, data.size(), -1),
       {category, data, ready, iteration_log},
       [&] { convert_s = mean_through_half(data, wire, type); });
  if (records.size() > before && !lane_) records.back().convert_s = convert_s;
}

/// Returns the seconds spent on turning values.
double Exchange::mean_through_half(std::span<float> data, std::span<std::uint16_t> wire,
                                   ValueType type) {
  Collective call = Collective::all_reduce(data, Scale::kMean, waiting_);
  call.wire = type;
  if (transport_.supports(call)) return transport_.run(call);
  const double begin_s = now_s();
  // Scaled before it travels: half's range ends at 65,504, and a sum of many ranks may pass it.
  pack(data, wire, 1.0f / static_cast<float>(size()), type);
  const double packed_s = now_s();
  transport_.run({.type = type, .receive = std::as_writable_bytes(wire), .waiting = waiting_});
  const double summed_s = now_s();
  unpack(wire, data, type);
  return packed_s - begin_s + now_s() - summed_s;
}

void Exchange::pack(std::span<const float> data, std::span<std::uint16_t> wire, float factor,
                    ValueType type) const {
  if (lane_)
    return lane_->kernels.pack(data.data(), wire.data(), static_cast<std::int64_t>(data.size()),
                               factor, half_type(type), lane_->communication);
  const bool bf16 = type == ValueType::kBfloat16;
  for (std::size_t i = 0; i < data.size(); ++i)
    wire[i] = bf16 ? to_bf16(data[i] * factor) : to_fp16(data[i] * factor);
}

void Exchange::unpack(std::span<const std::uint16_t> wire, std::span<float> data,
                      ValueType type) const {
  if (lane_)
    return lane_->kernels.unpack(wire.data(), data.data(), static_cast<std::int64_t>(data.size()),
                                 1, half_type(type), lane_->communication);
  const bool bf16 = type == ValueType::kBfloat16;
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = bf16 ? from_bf16(wire[i]) : from_fp16(wire[i]);
}

void Exchange::post_all_reduce_mean(std::span<float> data, Traffic category, Moment ready) {
  SharedAllReduce& means = *transport_.posted();
  const auto call =
      call_of(CollectiveKind::kAllReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), -1);
  log_.begin(call, *log_.current(), [&](const CollectiveCall& named) {
    log_.enter_in_ledger(named, category);
    if (log_.timing()) {
      log_.current()->records.push_back(
          {named.kind, bytes_of(named), named.root, ready.host_s, now_s(), kNotMeasured});
      log_.count(named, category, *log_.current());
    }
    posted_.push_back(
        {means.post(data, 1.0 / size(), /*timed=*/true), log_.current()->records.size() - 1});
  });
  means.progress();
  note_done(means.finished());
}

void Exchange::finish_posted() {
  // Counted even if nothing is left: the rank that posts last has seen all of it done already.
  const CollectiveScope watched(watchdog(), CollectiveKind::kAllReduce, log_.current()->iteration);
  while (!posted_.empty()) {
    const std::uint32_t number = posted_.front().number;
    transport_.posted()->finish(number, waiting_);
    note_done(number);
  }
}

/// Numbers wrap: the sign of the difference shows which is later.
void Exchange::note_done(std::uint32_t number) {
  const auto is_done = [&](const Posted& posted) {
    return static_cast<std::int32_t>(number - posted.number) >= 0;
  };
  for (; !posted_.empty() && is_done(posted_.front()); posted_.erase(posted_.begin())) {
    if (!log_.timing()) continue;
    CollectiveRecord& record = log_.current()->records[posted_.front().record];
    record.posted = transport_.posted()->times(posted_.front().number);
    record.end_s = record.posted->last.end_s;
  }
}

void Exchange::reduce_sum(std::span<float> data, int root, Traffic category) {
  move(call_of(CollectiveKind::kReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), root),
       {category, data}, [&] { transport_.run(Collective::reduce(data, root)); });
}

void Exchange::broadcast(std::span<std::byte> data, int root, Traffic category) {
  move(call_of(CollectiveKind::kBroadcast, ValueType::kByte, ReduceOp::kNone, data.size(), root),
       {category}, [&] { transport_.run(Collective::broadcast(data, root)); });
}

void Exchange::broadcast(std::span<float> data, int root, Traffic category) {
  move(call_of(CollectiveKind::kBroadcast, ValueType::kFloat32, ReduceOp::kNone, data.size(), root),
       {category}, [&] { transport_.run(Collective::broadcast(data, root)); });
}

void Exchange::gather(std::span<const float> one, std::span<float> all, int root,
                      Traffic category) {
  move(call_of(CollectiveKind::kGather, ValueType::kFloat32, ReduceOp::kNone, one.size(), root),
       {category, one}, [&] { transport_.run(Collective::gather(one, all, root)); });
}

void Exchange::scatter(std::span<const float> all, std::span<float> one, int root,
                       Traffic category) {
  move(call_of(CollectiveKind::kScatter, ValueType::kFloat32, ReduceOp::kNone, one.size(), root),
       {category}, [&] { transport_.run(Collective::scatter(all, one, root)); });
}

void Exchange::move(const CollectiveCall& call, const Tensors& tensors, Body body) {
  if (lane_) lane_->device.use_in_this_thread();
  IterationLog& iteration_log = tensors.iteration_log ? *tensors.iteration_log : *log_.current();
  log_.begin(call, iteration_log, [&](const CollectiveCall& named) {
    log_.enter_in_ledger(named, tensors.category);
    if (lane_)
      enqueue(named, tensors, body);
    else
      run_here(named, tensors, iteration_log, body);
  });
}

void Exchange::run_here(const CollectiveCall& call, const Tensors& tensors,
                        IterationLog& iteration_log, Body body) {
  if (!log_.timing()) return body();
  const double start_s = now_s();
  body();
  const double end_s = now_s();
  const double ready_s = tensors.ready.known() ? tensors.ready.host_s : start_s;
  iteration_log.records.push_back({call.kind, bytes_of(call), call.root, ready_s, start_s, end_s});
  log_.count(call, tensors.category, iteration_log);
}

void Exchange::enqueue(const CollectiveCall& call, const Tensors& tensors, Body body) {
  const ProfilerRange range(lane_, collective_name(call.kind), bytes_of(call));
  EventRing& ring = lane_->ring;
  const StreamHandle stream = lane_->communication;
  const bool overlapped = tensors.ready.known();
  const Mark ready = overlapped ? tensors.ready.mark : now().mark;
  ring.wait(stream, ready);
  if (gradient_check_ && tensors.category == Traffic::kGradients && !tensors.gradients.empty())
    gradient_check_(tensors.gradients, stream);
  const Mark start = log_.timing() ? ring.mark(stream) : Mark();
  body();
  last_ = ring.mark(stream);
  if (!overlapped) join();
  if (!log_.timing()) return;
  log_.current()->records.push_back({call.kind, bytes_of(call), call.root, kNotMeasured,
                                     kNotMeasured, kNotMeasured, ready, start, last_});
  log_.count(call, tensors.category, *log_.current());
}

void Exchange::await(Mark mark, Look look) {
  if (lane_->ring.happened(mark) && !transport_.abandoned()) return;
  // Not counted as a collective: the ranks that need not wait continue with the next one.
  const CollectiveScope watched(watchdog(), CollectiveKind::kBarrier, log_.current()->iteration,
                                CollectiveScope::Counts::kNo);
  await_device(lane_->ring, mark, transport_, session(), look);
}

void Exchange::settle() {
  if (lane_) await(now().mark);
}

}  // namespace gradsync
