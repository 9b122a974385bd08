#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

/// To the next rank and from the one before, all at once.
class SendReceive : public Operation {
 public:
  explicit SendReceive(const OperationShape& shape)
      : shape_(shape),
        send_(shape.count, shape.type, shape.lane),
        receive_(shape.count, shape.type, shape.lane) {}

  void fill() override {
    send_.fill(moved_from(shape_.rank), weight(shape_.rank, shape_.type));
    receive_.spoil();
    send_.send();
    receive_.send();
  }

  void run(Transport& transport) override {
    transport.move({.kind = CollectiveKind::kSendReceive,
                    .type = shape_.type,
                    .send = send_.moved(),
                    .receive = receive_.moved()});
  }

  std::int64_t wrong(int) const override {
    receive_.fetch();
    const int from = (shape_.rank + shape_.ranks - 1) % shape_.ranks;
    return receive_.wrong(moved_from(from), weight(from, shape_.type));
  }

 private:
  OperationShape shape_;
  OperationData send_, receive_;
};

}  // namespace

std::unique_ptr<Operation> make_sendrecv_operation(const OperationShape& shape) {
  return std::make_unique<SendReceive>(shape);
}

}  // namespace gradsync::calibrate
