#include <algorithm>

#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

class Scatter : public Operation {
 public:
  explicit Scatter(const OperationShape& shape)
      : shape_(shape),
        one_(shape.count, shape.lane),
        all_(shape.rank == kCalibrationRoot ? shape.count * static_cast<std::size_t>(shape.ranks)
                                            : 0,
             shape.lane) {}

  void fill() override {
    for (int rank = 0; !all_.empty() && rank < shape_.ranks; ++rank)
      fill_pattern(part(rank), moved_from(rank), weight(rank));
    std::ranges::fill(one_.host(), -1.0f);
    one_.send();
    all_.send();
  }

  void run(Transport& transport) override {
    transport.scatter(all_.moved(), one_.moved(), kCalibrationRoot);
  }

  std::int64_t wrong(int) const override {
    one_.fetch();
    return count_wrong(one_.host(), moved_from(shape_.rank), weight(shape_.rank));
  }

 private:
  std::span<float> part(int rank) {
    return all_.host().subspan(static_cast<std::size_t>(rank) * shape_.count, shape_.count);
  }

  OperationShape shape_;
  OperationData one_, all_;
};

}  // namespace

std::unique_ptr<Operation> make_scatter_operation(const OperationShape& shape) {
  return std::make_unique<Scatter>(shape);
}

}  // namespace gradsync::calibrate
