#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

class Gather : public Operation {
 public:
  explicit Gather(const OperationShape& shape)
      : shape_(shape),
        one_(shape.count, shape.type, shape.lane),
        all_(shape.rank == kCalibrationRoot ? shape.count * static_cast<std::size_t>(shape.ranks)
                                            : 0,
             shape.type, shape.lane) {}

  void fill() override {
    one_.fill(moved_from(shape_.rank), weight(shape_.rank, shape_.type));
    all_.spoil();
    one_.send();
    all_.send();
  }

  void run(Transport& transport) override {
    if (shape_.type == ValueType::kFloat32)
      transport.gather(one_.moved_as<float>(), all_.moved_as<float>(), kCalibrationRoot);
    else
      transport.move({.kind = CollectiveKind::kGather,
                      .type = shape_.type,
                      .send = one_.moved(),
                      .receive = all_.moved(),
                      .root = kCalibrationRoot});
  }

  std::int64_t wrong(int) const override {
    all_.fetch();
    std::int64_t count = 0;
    for (int rank = 0; !all_.empty() && rank < shape_.ranks; ++rank)
      count += all_.wrong(moved_from(rank), weight(rank, shape_.type), 0, rank, shape_.ranks);
    return count;
  }

 private:
  OperationShape shape_;
  OperationData one_, all_;
};

}  // namespace

std::unique_ptr<Operation> make_gather_operation(const OperationShape& shape) {
  return std::make_unique<Gather>(shape);
}

}  // namespace gradsync::calibrate
