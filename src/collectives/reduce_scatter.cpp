#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

/// Each rank receives the sum of the part that all have for it.
class ReduceScatter : public Operation {
 public:
  explicit ReduceScatter(const OperationShape& shape)
      : shape_(shape),
        send_(shape.count * static_cast<std::size_t>(shape.ranks), shape.type, shape.lane),
        receive_(shape.count, shape.type, shape.lane) {}

  void fill() override {
    for (int to = 0; to < shape_.ranks; ++to)
      send_.fill(moved_from(to), weight(shape_.rank, shape_.type), to, shape_.ranks);
    send_.share_sums(shape_.ranks, shape_.rank);
    receive_.spoil();
    send_.send();
    receive_.send();
  }

  void run(Transport& transport) override {
    transport.move({.kind = CollectiveKind::kReduceScatter,
                    .type = shape_.type,
                    .send = send_.moved(),
                    .receive = receive_.moved()});
  }

  std::int64_t wrong(int) const override {
    receive_.fetch();
    return receive_.wrong(moved_from(shape_.rank), total_weight(shape_.ranks, shape_.type),
                          sum_tolerance(shape_.ranks, shape_.type));
  }

 private:
  OperationShape shape_;
  OperationData send_, receive_;
};

}  // namespace

std::unique_ptr<Operation> make_reduce_scatter_operation(const OperationShape& shape) {
  return std::make_unique<ReduceScatter>(shape);
}

}  // namespace gradsync::calibrate
