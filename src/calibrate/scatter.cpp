#include <algorithm>

#include "calibrate/operation.h"

namespace gradsync {

namespace {

class Scatter : public Operation {
 public:
  explicit Scatter(const OperationShape& shape)
      : shape_(shape),
        one_(shape.count),
        all_(shape.rank == kCalibrationRoot ? shape.count * static_cast<std::size_t>(shape.ranks)
                                            : 0) {}

  void fill() override {
    for (int rank = 0; !all_.empty() && rank < shape_.ranks; ++rank)
      fill_pattern(part(rank), moved_from(rank), weight(rank));
    std::fill(one_.begin(), one_.end(), -1.0f);
  }

  void run(Transport& transport) override { transport.scatter(all_, one_, kCalibrationRoot); }

  std::int64_t wrong(int) const override {
    return count_wrong(one_, moved_from(shape_.rank), weight(shape_.rank));
  }

 private:
  std::span<float> part(int rank) {
    return std::span(all_).subspan(static_cast<std::size_t>(rank) * shape_.count, shape_.count);
  }

  OperationShape shape_;
  std::vector<float> one_, all_;
};

}  // namespace

std::unique_ptr<Operation> make_scatter_operation(const OperationShape& shape) {
  return std::make_unique<Scatter>(shape);
}

}  // namespace gradsync
