#include <algorithm>

#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

class Gather : public Operation {
 public:
  explicit Gather(const OperationShape& shape)
      : shape_(shape),
        one_(shape.count, shape.lane),
        all_(shape.rank == kCalibrationRoot ? shape.count * static_cast<std::size_t>(shape.ranks)
                                            : 0,
             shape.lane) {}

  void fill() override {
    fill_pattern(one_.host(), moved_from(shape_.rank), weight(shape_.rank));
    std::ranges::fill(all_.host(), -1.0f);
    one_.send();
    all_.send();
  }

  void run(Transport& transport) override {
    transport.gather(one_.moved(), all_.moved(), kCalibrationRoot);
  }

  std::int64_t wrong(int) const override {
    all_.fetch();
    std::int64_t count = 0;
    for (int rank = 0; !all_.empty() && rank < shape_.ranks; ++rank)
      count += count_wrong(part(rank), moved_from(rank), weight(rank));
    return count;
  }

 private:
  std::span<const float> part(int rank) const {
    return all_.host().subspan(static_cast<std::size_t>(rank) * shape_.count, shape_.count);
  }

  OperationShape shape_;
  OperationData one_, all_;
};

}  // namespace

std::unique_ptr<Operation> make_gather_operation(const OperationShape& shape) {
  return std::make_unique<Gather>(shape);
}

}  // namespace gradsync::calibrate
