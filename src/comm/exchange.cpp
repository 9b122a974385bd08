#include "comm/exchange.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "comm/equal_on_all.h"
#include "support/half.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

/// With VerifyLevel::kInit the first iterations are compared: the second one is the first with
/// rebuilt buckets.
constexpr std::int64_t kComparedIterations = 2;

struct NamedCall {
  CollectiveCall call;
  char mode[24] = {};
  char host[64] = {};
};

CollectiveCall call_of(CollectiveKind kind, ValueType type, ReduceOp op, std::size_t count,
                       int root) {
  CollectiveCall call;
  call.kind = kind;
  call.type = type;
  call.op = op;
  call.count = static_cast<std::int64_t>(count);
  call.root = root;
  return call;
}

void scale(std::span<float> data, float factor) {
  for (float& value : data)
    value *= factor;
}

}  // namespace

VerifyLevel verify_level(const std::string& text) {
  if (text == "off") return VerifyLevel::kOff;
  return text == "all" ? VerifyLevel::kAll : VerifyLevel::kInit;
}

Exchange::Exchange(const Session& session, Transport& transport, Watchdog& watchdog,
                   VerifyLevel verify)
    : session_(session), transport_(transport), watchdog_(watchdog), verify_(verify) {
  MPI_Comm_dup(session.world(), &comm_);
}

Exchange::~Exchange() {
  MPI_Comm_free(&comm_);
}

void Exchange::set_mode(std::uint8_t index, std::string name) {
  mode_ = index;
  mode_name_ = std::move(name);
}

void Exchange::begin_iteration(std::int64_t iteration) {
  iteration_ = iteration;
  records_.clear();
  traffic_.fill(0);
}

void Exchange::all_reduce_mean(std::span<float> data, Traffic category, double ready_s) {
  run(call_of(CollectiveKind::kAllReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), -1),
      category, ready_s, true, [&] {
        transport_.all_reduce_sum(data, waiting_);
        scale(data, 1.0f / static_cast<float>(size()));
      });
}

void Exchange::all_reduce_sum(std::span<float> data, Traffic category, double ready_s) {
  run(call_of(CollectiveKind::kAllReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), -1),
      category, ready_s, true, [&] { transport_.all_reduce_sum(data, waiting_); });
}

void Exchange::all_reduce_mean_half(std::span<float> data, std::span<std::uint16_t> wire,
                                    ValueType type, Traffic category, double ready_s) {
  const bool bf16 = type == ValueType::kBfloat16;
  // Scaled before it travels: half's range ends at 65,504, and a sum of many ranks may pass it.
  const float factor = 1.0f / static_cast<float>(size());
  run(call_of(CollectiveKind::kAllReduce, type, ReduceOp::kSum, data.size(), -1), category, ready_s,
      true, [&] {
        for (std::size_t i = 0; i < data.size(); ++i)
          wire[i] = bf16 ? to_bf16(data[i] * factor) : to_fp16(data[i] * factor);
        if (bf16)
          transport_.all_reduce_sum_bf16(wire, waiting_);
        else
          transport_.all_reduce_sum_fp16(wire, waiting_);
        for (std::size_t i = 0; i < data.size(); ++i)
          data[i] = bf16 ? from_bf16(wire[i]) : from_fp16(wire[i]);
      });
}

void Exchange::reduce_sum(std::span<float> data, int root, Traffic category) {
  run(call_of(CollectiveKind::kReduce, ValueType::kFloat32, ReduceOp::kSum, data.size(), root),
      category, kNotMeasured, true, [&] { transport_.reduce_sum(data, root); });
}

void Exchange::broadcast(std::span<std::byte> data, int root, Traffic category) {
  run(call_of(CollectiveKind::kBroadcast, ValueType::kByte, ReduceOp::kNone, data.size(), root),
      category, kNotMeasured, true, [&] { transport_.broadcast(data, root); });
}

void Exchange::broadcast(std::span<float> data, int root, Traffic category) {
  run(call_of(CollectiveKind::kBroadcast, ValueType::kFloat32, ReduceOp::kNone, data.size(), root),
      category, kNotMeasured, true,
      [&] { transport_.broadcast(std::as_writable_bytes(data), root); });
}

void Exchange::gather(std::span<const float> one, std::span<float> all, int root,
                      Traffic category) {
  run(call_of(CollectiveKind::kGather, ValueType::kFloat32, ReduceOp::kNone, one.size(), root),
      category, kNotMeasured, true, [&] { transport_.gather(one, all, root); });
}

void Exchange::scatter(std::span<const float> all, std::span<float> one, int root,
                       Traffic category) {
  run(call_of(CollectiveKind::kScatter, ValueType::kFloat32, ReduceOp::kNone, one.size(), root),
      category, kNotMeasured, true, [&] { transport_.scatter(all, one, root); });
}

void Exchange::sum_metrics(std::span<double> values) {
  auto call = call_of(CollectiveKind::kAllReduce, ValueType::kByte, ReduceOp::kSum,
                      values.size_bytes(), -1);
  run(call, Traffic::kMetrics, kNotMeasured, false, [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                  comm_);
  });
}

void Exchange::gather_control(std::span<const std::byte> one, std::span<std::byte> all) {
  const int bytes = static_cast<int>(one.size());
  run(call_of(CollectiveKind::kGather, ValueType::kByte, ReduceOp::kNone, one.size(), 0),
      Traffic::kControl, kNotMeasured, false,
      [&] { MPI_Gather(one.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, 0, comm_); });
}

void Exchange::broadcast_control(std::span<std::byte> verdict) {
  run(call_of(CollectiveKind::kBroadcast, ValueType::kByte, ReduceOp::kNone, verdict.size(), 0),
      Traffic::kControl, kNotMeasured, false,
      [&] { MPI_Bcast(verdict.data(), static_cast<int>(verdict.size()), MPI_BYTE, 0, comm_); });
}

void Exchange::move_control(std::span<std::byte> bytes, int from, int to) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // MPI counts in int
  constexpr int kTag = 75;
  const CollectiveScope watched(watchdog_, static_cast<std::int32_t>(CollectiveKind::kGather),
                                ++sequence_, iteration_);
  if (rank() != from && rank() != to) return;
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), kMost));
    const int count = static_cast<int>(piece.size());
    if (rank() == from)
      MPI_Send(piece.data(), count, MPI_BYTE, to, kTag, comm_);
    else
      MPI_Recv(piece.data(), count, MPI_BYTE, from, kTag, comm_, MPI_STATUS_IGNORE);
    bytes = bytes.subspan(piece.size());
  }
}

void Exchange::run(CollectiveCall call, Traffic category, double ready_s, bool timed,
                   const std::function<void()>& body) {
  call.mode = mode_;
  call.iteration = iteration_;
  if (fault_ != CollectiveFault::kNone) {
    if (fault_ == CollectiveFault::kSkip) {
      fault_ = CollectiveFault::kNone;
      return;
    }
    call = faulted(call);
  }
  const CollectiveScope watched(watchdog_, static_cast<std::int32_t>(call.kind), ++sequence_,
                                iteration_);
  if (compares_now()) compare(call);
  if (!timing_) return body();
  const double start_s = now_s();
  body();
  const double end_s = now_s();
  const std::int64_t bytes = call.count * value_bytes(call.type);
  if (timed)
    records_.push_back({call.kind, bytes, std::isnan(ready_s) ? start_s : ready_s, start_s, end_s});
  traffic_[static_cast<std::size_t>(category)] +=
      traffic_bytes(call.kind, bytes, rank(), size(), call.root);
}

bool Exchange::compares_now() const {
  if (size() == 1 || verify_ == VerifyLevel::kOff) return false;
  return verify_ == VerifyLevel::kAll || iteration_ < kComparedIterations;
}

void Exchange::compare(const CollectiveCall& call) {
  if (!equal_on_all(comm_, fingerprint(call))) report_disagreement(call);
}

void Exchange::report_disagreement(const CollectiveCall& call) {
  NamedCall mine;
  mine.call = call;
  mode_name_.copy(mine.mode, sizeof mine.mode - 1);
  session_.host().copy(mine.host, sizeof mine.host - 1);
  std::vector<NamedCall> all(static_cast<std::size_t>(size()));
  MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_);
  if (rank() != 0) session_.wait_for_abort();
  std::size_t other = 1;
  while (other + 1 < all.size() && all[other].call == all[0].call)
    ++other;
  const auto told = [&](std::size_t r) {
    return fmt::format("rank {} ({}) calls {}", r, all[r].host,
                       to_string(all[r].call, all[r].mode));
  };
  session_.abort(
      Error(ExitCode::kRanksDisagree,
            fmt::format("ranks disagree about a collective: {}; {}", told(0), told(other)),
            "start every rank with the same program, options and data"));
}

CollectiveCall Exchange::faulted(CollectiveCall call) {
  if (fault_ == CollectiveFault::kShort) call.count -= 1;
  if (fault_ == CollectiveFault::kOtherType) call.type = ValueType::kFloat16;
  if (fault_ == CollectiveFault::kOtherRoot) call.root += 1;
  fault_ = CollectiveFault::kNone;
  return call;
}

}  // namespace gradsync
