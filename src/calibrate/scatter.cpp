#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

class Scatter : public Operation {
 public:
  explicit Scatter(const OperationShape& shape)
      : shape_(shape),
        one_(shape.count, shape.type, shape.lane),
        all_(shape.rank == kCalibrationRoot ? shape.count * static_cast<std::size_t>(shape.ranks)
                                            : 0,
             shape.type, shape.lane) {}

  void fill() override {
    for (int rank = 0; !all_.empty() && rank < shape_.ranks; ++rank)
      all_.fill(moved_from(rank), weight(rank, shape_.type), rank, shape_.ranks);
    one_.spoil();
    one_.send();
    all_.send();
  }

  void run(Transport& transport) override {
    if (shape_.type == ValueType::kFloat32)
      transport.scatter(all_.moved_as<float>(), one_.moved_as<float>(), kCalibrationRoot);
    else
      transport.move({.kind = CollectiveKind::kScatter,
                      .type = shape_.type,
                      .send = all_.moved(),
                      .receive = one_.moved(),
                      .root = kCalibrationRoot});
  }

  std::int64_t wrong(int) const override {
    one_.fetch();
    return one_.wrong(moved_from(shape_.rank), weight(shape_.rank, shape_.type));
  }

 private:
  OperationShape shape_;
  OperationData one_, all_;
};

}  // namespace

std::unique_ptr<Operation> make_scatter_operation(const OperationShape& shape) {
  return std::make_unique<Scatter>(shape);
}

}  // namespace gradsync::calibrate
