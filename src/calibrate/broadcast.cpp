#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

class Broadcast : public Operation {
 public:
  explicit Broadcast(const OperationShape& shape)
      : shape_(shape), data_(shape.count, shape.type, shape.lane) {}

  void fill() override {
    data_.spoil();
    if (shape_.rank == kCalibrationRoot)
      data_.fill(moved_from(kCalibrationRoot), weight(kCalibrationRoot));
    data_.send();
  }

  void run(Transport& transport) override { transport.broadcast(data_.moved(), kCalibrationRoot); }

  std::int64_t wrong(int) const override {
    data_.fetch();
    return data_.wrong(moved_from(kCalibrationRoot), weight(kCalibrationRoot));
  }

 private:
  OperationShape shape_;
  OperationData data_;
};

}  // namespace

std::unique_ptr<Operation> make_broadcast_operation(const OperationShape& shape) {
  return std::make_unique<Broadcast>(shape);
}

}  // namespace gradsync::calibrate
