#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

/// So many sums of 256 ranks' values stay whole numbers that float32 holds.
constexpr int kExactCalls = 64;
constexpr int kExactRanks = 256;

class Reduce : public Operation {
 public:
  explicit Reduce(const OperationShape& shape)
      : shape_(shape), data_(shape.count, shape.type, shape.lane) {}

  void fill() override {
    data_.fill(0, weight(shape_.rank, shape_.type));
    data_.share_sums(shape_.ranks, shape_.rank);
    data_.send();
  }

  void run(Transport& transport) override {
    if (shape_.type == ValueType::kFloat32)
      transport.reduce_sum(data_.moved_as<float>(), kCalibrationRoot);
    else
      transport.move({.kind = CollectiveKind::kReduce,
                      .type = shape_.type,
                      .receive = data_.moved(),
                      .root = kCalibrationRoot});
  }

  // In place on the root: every call adds the other ranks' data, which stays as it was.
  std::int64_t wrong(int calls) const override {
    const double own = weight(shape_.rank, shape_.type);
    const double others =
        total_weight(shape_.ranks, shape_.type) - weight(kCalibrationRoot, shape_.type);
    const bool here = shape_.rank == kCalibrationRoot;
    if (!here && shape_.type == ValueType::kInt8) return 0;
    data_.fetch();
    return data_.wrong(0, here ? own + calls * others : own,
                       here ? sum_tolerance(shape_.ranks, shape_.type) : 0);
  }

  int calls_a_fill() const override {
    return shape_.ranks <= kExactRanks && growth_log2(shape_.type) > 0 ? kExactCalls : 1;
  }

 private:
  OperationShape shape_;
  OperationData data_;
};

}  // namespace

std::unique_ptr<Operation> make_reduce_operation(const OperationShape& shape) {
  return std::make_unique<Reduce>(shape);
}

}  // namespace gradsync::calibrate
