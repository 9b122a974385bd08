#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

class AllGather : public Operation {
 public:
  explicit AllGather(const OperationShape& shape)
      : shape_(shape),
        send_(shape.count, shape.type, shape.lane),
        receive_(shape.count * static_cast<std::size_t>(shape.ranks), shape.type, shape.lane) {}

  void fill() override {
    send_.fill(moved_from(shape_.rank), weight(shape_.rank, shape_.type));
    receive_.spoil();
    send_.send();
    receive_.send();
  }

  void run(Transport& transport) override {
    transport.move({.kind = CollectiveKind::kAllGather,
                    .type = shape_.type,
                    .send = send_.moved(),
                    .receive = receive_.moved()});
  }

  std::int64_t wrong(int) const override {
    receive_.fetch();
    std::int64_t count = 0;
    for (int rank = 0; rank < shape_.ranks; ++rank)
      count += receive_.wrong(moved_from(rank), weight(rank, shape_.type), 0, rank, shape_.ranks);
    return count;
  }

 private:
  OperationShape shape_;
  OperationData send_, receive_;
};

}  // namespace

std::unique_ptr<Operation> make_allgather_operation(const OperationShape& shape) {
  return std::make_unique<AllGather>(shape);
}

}  // namespace gradsync::calibrate
