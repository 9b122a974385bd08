#include "comm/long_messages.h"
#include "exchange/control_channel.h"

namespace gradsync {

void ControlChannel::sum(std::span<double> values) {
  const auto call = call_of(CollectiveKind::kAllReduce, ValueType::kByte, ReduceOp::kSum,
                            values.size_bytes(), -1);
  run(call, Traffic::kMetrics, [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_SUM,
                  log_.comm());
  });
}

void ControlChannel::maximum(std::span<double> values) {
  const auto call = call_of(CollectiveKind::kAllReduce, ValueType::kByte, ReduceOp::kNone,
                            values.size_bytes(), -1);
  run(call, category_, [&] {
    MPI_Allreduce(MPI_IN_PLACE, values.data(), static_cast<int>(values.size()), MPI_DOUBLE, MPI_MAX,
                  log_.comm());
  });
}

void ControlChannel::gather(std::span<const std::byte> one, std::span<std::byte> all) {
  const int bytes = static_cast<int>(one.size());
  run(call_of(CollectiveKind::kGather, ValueType::kByte, ReduceOp::kNone, one.size(), 0), category_,
      [&] {
        MPI_Gather(one.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, 0, log_.comm());
      });
}

void ControlChannel::broadcast(std::span<std::byte> bytes) {
  run(call_of(CollectiveKind::kBroadcast, ValueType::kByte, ReduceOp::kNone, bytes.size(), 0),
      category_, [&] { broadcast_bytes(bytes, 0, log_.comm()); });
}

void ControlChannel::move(std::span<std::byte> bytes, int from, int to) {
  const CollectiveScope watched(log_.session().watchdog(), CollectiveKind::kGather,
                                log_.current()->iteration);
  const int rank = log_.session().rank();
  if (rank != from && rank != to) return;
  const auto whole = static_cast<std::int64_t>(bytes.size());
  log_.session().ledger().add(category_, rank == from ? LinkBytes{whole, 0} : LinkBytes{0, whole});
  move_bytes(bytes, from, to, log_.comm());
}

void ControlChannel::run(const CollectiveCall& call, Traffic category, FunctionRef<void()> body) {
  log_.begin(call, *log_.current(), [&](const CollectiveCall& named) {
    log_.enter_in_ledger(named, category);
    body();
    if (log_.timing()) log_.count(named, category, *log_.current());
  });
}

}  // namespace gradsync
