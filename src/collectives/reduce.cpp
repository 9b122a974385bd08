#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

/// So many sums of 256 ranks' values stay whole numbers that float32 holds.
constexpr int kExactCalls = 64;
constexpr int kExactRanks = 256;

class Reduce : public Operation {
 public:
  explicit Reduce(const OperationShape& shape) : shape_(shape), data_(shape.count, shape.lane) {}

  void fill() override {
    fill_pattern(data_.host(), 0, weight(shape_.rank));
    data_.send();
  }

  void run(Transport& transport) override { transport.reduce_sum(data_.moved(), kCalibrationRoot); }

  // In place on the root: every call adds the other ranks' data, which stays as it was.
  std::int64_t wrong(int calls) const override {
    const double own = weight(shape_.rank);
    const double others = total_weight(shape_.ranks) - weight(kCalibrationRoot);
    const double factor = shape_.rank == kCalibrationRoot ? own + calls * others : own;
    data_.fetch();
    return count_wrong(data_.host(), 0, factor);
  }

  int calls_a_fill() const override { return shape_.ranks <= kExactRanks ? kExactCalls : 1; }

 private:
  OperationShape shape_;
  OperationData data_;
};

}  // namespace

std::unique_ptr<Operation> make_reduce_operation(const OperationShape& shape) {
  return std::make_unique<Reduce>(shape);
}

}  // namespace gradsync::calibrate
