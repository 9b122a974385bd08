#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

/// To the next rank and from the one before, all at once.
class SendReceive : public MovingOperation {
 public:
  explicit SendReceive(const OperationShape& shape)
      : MovingOperation(CollectiveKind::kSendReceive, shape, 1, 1) {}

 private:
  void fill_sent(OperationData& sent) const override {
    sent.fill(moved_from(shape().rank), weight(shape().rank, shape().type));
  }

  std::int64_t wrong_of(const OperationData& received) const override {
    const int from = (shape().rank + shape().ranks - 1) % shape().ranks;
    return received.wrong(moved_from(from), weight(from, shape().type));
  }
};

}  // namespace

std::unique_ptr<Operation> make_sendrecv_operation(const OperationShape& shape) {
  return std::make_unique<SendReceive>(shape);
}

}  // namespace gradsync::calibrate
