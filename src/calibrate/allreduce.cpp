#include <algorithm>
#include <cmath>

#include "calibrate/operation.h"

namespace gradsync::calibrate {

namespace {

/// Sums of sums are rounded where the number of ranks is no power of two.
constexpr double kRoundingOfSums = 1e-5;

class AllReduce : public Operation {
 public:
  AllReduce(const OperationShape& shape, Waiting waiting)
      : shape_(shape),
        waiting_(waiting),
        data_(shape.count, shape.type, shape.lane, shape.memory) {}

  void fill() override {
    data_.fill(0, weight(shape_.rank, shape_.type));
    data_.share_sums(shape_.ranks, shape_.rank);
    data_.send();
  }

  void run(Transport& transport) override {
    if (shape_.type == ValueType::kFloat32)
      transport.all_reduce_sum(data_.moved_as<float>(), waiting_);
    else if (shape_.type == ValueType::kBfloat16)
      transport.all_reduce_sum_bf16(data_.moved_as<std::uint16_t>(), waiting_);
    else if (shape_.type == ValueType::kFloat16)
      transport.all_reduce_sum_fp16(data_.moved_as<std::uint16_t>(), waiting_);
    else
      transport.move({.type = shape_.type, .receive = data_.moved(), .waiting = waiting_});
  }

  // In place: the first call gives the sum over the ranks, each later one that times the ranks.
  std::int64_t wrong(int calls) const override {
    const double factor =
        total_weight(shape_.ranks, shape_.type) * std::pow(shape_.ranks, calls - 1);
    data_.fetch();
    return data_.wrong(0, factor,
                       calls > 1 ? kRoundingOfSums : sum_tolerance(shape_.ranks, shape_.type));
  }

  int calls_a_fill() const override {
    return shape_.ranks == 1
               ? Operation::calls_a_fill()
               : std::max(1, static_cast<int>(growth_log2(shape_.type) / std::log2(shape_.ranks)));
  }

 private:
  OperationShape shape_;
  Waiting waiting_;
  OperationData data_;
};

}  // namespace

std::unique_ptr<Operation> make_allreduce_operation(const OperationShape& shape) {
  return std::make_unique<AllReduce>(shape, Waiting::kSpin);
}

std::unique_ptr<Operation> make_ring_operation(const OperationShape& shape) {
  return std::make_unique<AllReduce>(shape, Waiting::kSleep);
}

}  // namespace gradsync::calibrate
