#include <algorithm>
#include <span>

#include "calibrate/operation.h"

namespace gradsync {

namespace {

class Broadcast : public Operation {
 public:
  explicit Broadcast(const OperationShape& shape) : shape_(shape), data_(shape.count) {}

  void fill() override {
    std::fill(data_.begin(), data_.end(), -1.0f);
    if (shape_.rank == kCalibrationRoot)
      fill_pattern(data_, moved_from(kCalibrationRoot), weight(kCalibrationRoot));
  }

  void run(Transport& transport) override {
    transport.broadcast(std::as_writable_bytes(std::span(data_)), kCalibrationRoot);
  }

  std::int64_t wrong(int) const override {
    return count_wrong(data_, moved_from(kCalibrationRoot), weight(kCalibrationRoot));
  }

 private:
  OperationShape shape_;
  std::vector<float> data_;
};

}  // namespace

std::unique_ptr<Operation> make_broadcast_operation(const OperationShape& shape) {
  return std::make_unique<Broadcast>(shape);
}

}  // namespace gradsync
