#include <algorithm>

#include "calibrate/operation.h"

namespace gradsync {

namespace {

class Gather : public Operation {
 public:
  explicit Gather(const OperationShape& shape)
      : shape_(shape),
        one_(shape.count),
        all_(shape.rank == kCalibrationRoot ? shape.count * static_cast<std::size_t>(shape.ranks)
                                            : 0) {}

  void fill() override {
    fill_pattern(one_, moved_from(shape_.rank), weight(shape_.rank));
    std::fill(all_.begin(), all_.end(), -1.0f);
  }

  void run(Transport& transport) override { transport.gather(one_, all_, kCalibrationRoot); }

  std::int64_t wrong(int) const override {
    std::int64_t count = 0;
    for (int rank = 0; !all_.empty() && rank < shape_.ranks; ++rank)
      count += count_wrong(part(rank), moved_from(rank), weight(rank));
    return count;
  }

 private:
  std::span<const float> part(int rank) const {
    return std::span(all_).subspan(static_cast<std::size_t>(rank) * shape_.count, shape_.count);
  }

  OperationShape shape_;
  std::vector<float> one_, all_;
};

}  // namespace

std::unique_ptr<Operation> make_gather_operation(const OperationShape& shape) {
  return std::make_unique<Gather>(shape);
}

}  // namespace gradsync
