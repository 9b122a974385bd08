// SPDX-License-Identifier: BSD-3-Clause
// The collectives that can be calibrated, each with its data: a class and a line of operations().
#include <algorithm>
#include <cmath>

#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

/// A collective with one buffer that this rank sends and one that it receives into, or with the
/// latter alone if it is in place.
class CollectiveOperation : public Operation {
 public:
  void run(Transport& transport) override { transport.run(call_); }

  void fill() override {
    fill_values();
    send_.send();
    receive_.send();
  }

  std::int64_t wrong(int calls) const override {
    receive_.fetch();
    return wrong_values(calls);
  }

 protected:
  /// Buffers of so many parts of `shape.count` values; the received one is in the transport's
  /// memory if there is any.
  CollectiveOperation(const Collective& call, const OperationShape& shape, int sent_parts,
                      int received_parts)
      : shape_(shape),
        send_(shape.count * static_cast<std::size_t>(sent_parts), shape.type, shape.lane),
        receive_(shape.count * static_cast<std::size_t>(received_parts), shape.type, shape.lane,
                 shape.memory),
        call_(call) {
    call_.type = shape.type;
    call_.send = send_.moved();
    call_.receive = receive_.moved();
  }

  virtual void fill_values() = 0;
  virtual std::int64_t wrong_values(int calls) const = 0;

  int rank() const { return shape_.rank; }
  int ranks() const { return shape_.ranks; }
  ValueType type() const { return shape_.type; }
  double weight_of(int rank) const { return weight(rank, shape_.type); }
  /// Where the values of rank after rank are, each as `moved_from` it.
  std::int64_t wrong_of_ranks() const {
    std::int64_t count = 0;
    for (int rank = 0; !receive_.empty() && rank < ranks(); ++rank)
      count += receive_.wrong(moved_from(rank), weight_of(rank), 0, rank, ranks());
    return count;
  }

  OperationShape shape_;
  OperationData send_, receive_;

 private:
  Collective call_;
};

/// How many parts the root holds of gather and scatter, and others do not.
int parts_on_root(const OperationShape& shape) {
  return shape.rank == kCalibrationRoot ? shape.ranks : 0;
}

class AllReduce : public CollectiveOperation {
 public:
  explicit AllReduce(const OperationShape& shape, Waiting waiting = Waiting::kSpin)
      : CollectiveOperation({.waiting = waiting}, shape, 0, 1) {}

  int calls_a_fill() const override {
    return ranks() == 1 ? Operation::calls_a_fill()
                        : std::max(1, static_cast<int>(growth_log2(type()) / std::log2(ranks())));
  }

 private:
  /// Relative: sums of sums are rounded where the number of ranks is no power of two, and a ring of
  /// equal values rounds each addition alike.
  double rounding_of_sums(int calls) const {
    constexpr double kLeast = 1e-5, kUnitRoundoff = 0x1p-24;
    return std::max(kLeast, kUnitRoundoff * calls * ranks());
  }

  void fill_values() override {
    receive_.fill(0, weight_of(rank()));
    receive_.share_sums(ranks(), rank());
  }

  // In place: the first call gives the sum over the ranks, each later one that times the ranks.
  std::int64_t wrong_values(int calls) const override {
    const double factor = total_weight(ranks(), type()) * std::pow(ranks(), calls - 1);
    return receive_.wrong(0, factor,
                          calls > 1 ? rounding_of_sums(calls) : sum_tolerance(ranks(), type()));
  }
};

/// The ring of messages that ddp and c10d wait for without taking a core.
class RingAllReduceOverMpi : public AllReduce {
 public:
  explicit RingAllReduceOverMpi(const OperationShape& shape) : AllReduce(shape, Waiting::kSleep) {}
};

class Broadcast : public CollectiveOperation {
 public:
  explicit Broadcast(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kBroadcast, .root = kCalibrationRoot}, shape,
                            0, 1) {}

 private:
  void fill_values() override {
    receive_.spoil();
    if (rank() == kCalibrationRoot)
      receive_.fill(moved_from(kCalibrationRoot), weight(kCalibrationRoot));
  }

  std::int64_t wrong_values(int) const override {
    return receive_.wrong(moved_from(kCalibrationRoot), weight(kCalibrationRoot));
  }
};

class Reduce : public CollectiveOperation {
 public:
  explicit Reduce(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kReduce, .root = kCalibrationRoot}, shape, 0,
                            1) {}

  int calls_a_fill() const override {
    return ranks() <= kExactRanks && growth_log2(type()) > 0 ? kExactCalls : 1;
  }

 private:
  /// So many sums of 256 ranks' values stay whole numbers that float32 holds.
  static constexpr int kExactCalls = 64, kExactRanks = 256;

  void fill_values() override {
    receive_.fill(0, weight_of(rank()));
    receive_.share_sums(ranks(), rank());
  }

  // In place on the root: every call adds the other ranks' data, which stays as it was.
  std::int64_t wrong_values(int calls) const override {
    const double own = weight_of(rank());
    const double others = total_weight(ranks(), type()) - weight_of(kCalibrationRoot);
    const bool here = rank() == kCalibrationRoot;
    if (!here && type() == ValueType::kInt8) return 0;
    return receive_.wrong(0, here ? own + calls * others : own,
                          here ? sum_tolerance(ranks(), type()) : 0);
  }
};

class Gather : public CollectiveOperation {
 public:
  explicit Gather(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kGather, .root = kCalibrationRoot}, shape, 1,
                            parts_on_root(shape)) {}

 private:
  void fill_values() override {
    send_.fill(moved_from(rank()), weight_of(rank()));
    receive_.spoil();
  }

  std::int64_t wrong_values(int) const override { return wrong_of_ranks(); }
};

class Scatter : public CollectiveOperation {
 public:
  explicit Scatter(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kScatter, .root = kCalibrationRoot}, shape,
                            parts_on_root(shape), 1) {}

 private:
  void fill_values() override {
    for (int to = 0; !send_.empty() && to < ranks(); ++to)
      send_.fill(moved_from(to), weight_of(to), to, ranks());
    receive_.spoil();
  }

  std::int64_t wrong_values(int) const override {
    return receive_.wrong(moved_from(rank()), weight_of(rank()));
  }
};

class AllGather : public CollectiveOperation {
 public:
  explicit AllGather(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kAllGather}, shape, 1, shape.ranks) {}

 private:
  void fill_values() override {
    send_.fill(moved_from(rank()), weight_of(rank()));
    receive_.spoil();
  }

  std::int64_t wrong_values(int) const override { return wrong_of_ranks(); }
};

/// Each rank receives the sum of the part that all have for it.
class ReduceScatter : public CollectiveOperation {
 public:
  explicit ReduceScatter(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kReduceScatter}, shape, shape.ranks, 1) {}

 private:
  void fill_values() override {
    for (int to = 0; to < ranks(); ++to)
      send_.fill(moved_from(to), weight_of(rank()), to, ranks());
    send_.share_sums(ranks(), rank());
    receive_.spoil();
  }

  std::int64_t wrong_values(int) const override {
    return receive_.wrong(moved_from(rank()), total_weight(ranks(), type()),
                          sum_tolerance(ranks(), type()));
  }
};

class AllToAll : public CollectiveOperation {
 public:
  explicit AllToAll(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kAllToAll}, shape, shape.ranks, shape.ranks) {}

 private:
  /// Where the pattern begins in what goes from one rank to another.
  static std::size_t pair_from(int from, int to) {
    return moved_from(from) + static_cast<std::size_t>(to);
  }

  void fill_values() override {
    for (int to = 0; to < ranks(); ++to)
      send_.fill(pair_from(rank(), to), weight_of(rank()), to, ranks());
    receive_.spoil();
  }

  std::int64_t wrong_values(int) const override {
    std::int64_t count = 0;
    for (int from = 0; from < ranks(); ++from)
      count += receive_.wrong(pair_from(from, rank()), weight_of(from), 0, from, ranks());
    return count;
  }
};

/// To the next rank and from the one before, all at once.
class SendReceive : public CollectiveOperation {
 public:
  explicit SendReceive(const OperationShape& shape)
      : CollectiveOperation({.kind = CollectiveKind::kSendReceive}, shape, 1, 1) {}

 private:
  void fill_values() override {
    send_.fill(moved_from(rank()), weight_of(rank()));
    receive_.spoil();
  }

  std::int64_t wrong_values(int) const override {
    const int from = (rank() + ranks() - 1) % ranks();
    return receive_.wrong(moved_from(from), weight_of(from));
  }
};

template <typename Made>
std::unique_ptr<Operation> make(const OperationShape& shape) {
  return std::make_unique<Made>(shape);
}

}  // namespace

const std::vector<OperationEntry>& operations() {
  using enum CollectiveKind;
  static const std::vector<OperationEntry> entries = {
      {.name = "allreduce", .kind = kAllReduce, .sums = true, .make = make<AllReduce>},
      {.name = "allreduce-ring",
       .kind = kAllReduce,
       .transport = kMpiRing,
       .sums = true,
       .make = make<RingAllReduceOverMpi>},
      {.name = "broadcast", .kind = kBroadcast, .root = kCalibrationRoot, .make = make<Broadcast>},
      {.name = "reduce",
       .kind = kReduce,
       .sums = true,
       .root = kCalibrationRoot,
       .make = make<Reduce>},
      {.name = "gather", .kind = kGather, .root = kCalibrationRoot, .make = make<Gather>},
      {.name = "scatter", .kind = kScatter, .root = kCalibrationRoot, .make = make<Scatter>},
      {.name = "allgather", .kind = kAllGather, .in_training = false, .make = make<AllGather>},
      {.name = "reduce-scatter",
       .kind = kReduceScatter,
       .sums = true,
       .in_training = false,
       .make = make<ReduceScatter>},
      {.name = "alltoall", .kind = kAllToAll, .in_training = false, .make = make<AllToAll>},
      {.name = "sendrecv", .kind = kSendReceive, .in_training = false, .make = make<SendReceive>}};
  return entries;
}

}  // namespace gradsync::calibrate
