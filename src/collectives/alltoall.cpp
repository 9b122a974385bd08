#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

/// Where the pattern begins in what goes from one rank to another.
std::size_t pair_from(int from, int to) {
  return moved_from(from) + static_cast<std::size_t>(to);
}

class AllToAll : public Operation {
 public:
  explicit AllToAll(const OperationShape& shape)
      : shape_(shape),
        send_(shape.count * static_cast<std::size_t>(shape.ranks), shape.type, shape.lane),
        receive_(shape.count * static_cast<std::size_t>(shape.ranks), shape.type, shape.lane) {}

  void fill() override {
    for (int to = 0; to < shape_.ranks; ++to)
      send_.fill(pair_from(shape_.rank, to), weight(shape_.rank, shape_.type), to, shape_.ranks);
    receive_.spoil();
    send_.send();
    receive_.send();
  }

  void run(Transport& transport) override {
    transport.move({.kind = CollectiveKind::kAllToAll,
                    .type = shape_.type,
                    .send = send_.moved(),
                    .receive = receive_.moved()});
  }

  std::int64_t wrong(int) const override {
    receive_.fetch();
    std::int64_t count = 0;
    for (int from = 0; from < shape_.ranks; ++from)
      count += receive_.wrong(pair_from(from, shape_.rank), weight(from, shape_.type), 0, from,
                              shape_.ranks);
    return count;
  }

 private:
  OperationShape shape_;
  OperationData send_, receive_;
};

}  // namespace

std::unique_ptr<Operation> make_alltoall_operation(const OperationShape& shape) {
  return std::make_unique<AllToAll>(shape);
}

}  // namespace gradsync::calibrate
