#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

/// Where the pattern begins in what goes from one rank to another.
std::size_t pair_from(int from, int to) {
  return moved_from(from) + static_cast<std::size_t>(to);
}

class AllToAll : public MovingOperation {
 public:
  explicit AllToAll(const OperationShape& shape)
      : MovingOperation(CollectiveKind::kAllToAll, shape, shape.ranks, shape.ranks) {}

 private:
  void fill_sent(OperationData& sent) const override {
    for (int to = 0; to < shape().ranks; ++to)
      sent.fill(pair_from(shape().rank, to), weight(shape().rank, shape().type), to, shape().ranks);
  }

  std::int64_t wrong_of(const OperationData& received) const override {
    std::int64_t count = 0;
    for (int from = 0; from < shape().ranks; ++from)
      count += received.wrong(pair_from(from, shape().rank), weight(from, shape().type), 0, from,
                              shape().ranks);
    return count;
  }
};

}  // namespace

std::unique_ptr<Operation> make_alltoall_operation(const OperationShape& shape) {
  return std::make_unique<AllToAll>(shape);
}

}  // namespace gradsync::calibrate
