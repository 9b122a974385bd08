#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

class AllGather : public MovingOperation {
 public:
  explicit AllGather(const OperationShape& shape)
      : MovingOperation(CollectiveKind::kAllGather, shape, 1, shape.ranks) {}

 private:
  void fill_sent(OperationData& sent) const override {
    sent.fill(moved_from(shape().rank), weight(shape().rank, shape().type));
  }

  std::int64_t wrong_of(const OperationData& received) const override {
    std::int64_t count = 0;
    for (int rank = 0; rank < shape().ranks; ++rank)
      count += received.wrong(moved_from(rank), weight(rank, shape().type), 0, rank, shape().ranks);
    return count;
  }
};

}  // namespace

std::unique_ptr<Operation> make_allgather_operation(const OperationShape& shape) {
  return std::make_unique<AllGather>(shape);
}

}  // namespace gradsync::calibrate
