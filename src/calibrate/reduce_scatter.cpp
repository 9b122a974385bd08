#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

/// Each rank receives the sum of the part that all have for it.
class ReduceScatter : public MovingOperation {
 public:
  explicit ReduceScatter(const OperationShape& shape)
      : MovingOperation(CollectiveKind::kReduceScatter, shape, shape.ranks, 1) {}

 private:
  void fill_sent(OperationData& sent) const override {
    for (int to = 0; to < shape().ranks; ++to)
      sent.fill(moved_from(to), weight(shape().rank, shape().type), to, shape().ranks);
    sent.share_sums(shape().ranks, shape().rank);
  }

  std::int64_t wrong_of(const OperationData& received) const override {
    return received.wrong(moved_from(shape().rank), total_weight(shape().ranks, shape().type),
                          sum_tolerance(shape().ranks, shape().type));
  }
};

}  // namespace

std::unique_ptr<Operation> make_reduce_scatter_operation(const OperationShape& shape) {
  return std::make_unique<ReduceScatter>(shape);
}

}  // namespace gradsync::calibrate
