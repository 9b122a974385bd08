#include <algorithm>
#include <cmath>

#include "collectives/operation.h"

namespace gradsync::calibrate {

namespace {

constexpr double kLargestGrowth_log2 = 100;  // float32 ends at 2^128
/// Sums of sums are rounded where the number of ranks is no power of two.
constexpr double kRoundingOfSums = 1e-5;

class AllReduce : public Operation {
 public:
  AllReduce(const OperationShape& shape, Waiting waiting)
      : shape_(shape), waiting_(waiting), data_(shape.count, shape.lane, shape.memory) {}

  void fill() override {
    fill_pattern(data_.host(), 0, weight(shape_.rank));
    data_.send();
  }

  void run(Transport& transport) override { transport.all_reduce_sum(data_.moved(), waiting_); }

  // In place: the first call gives the sum over the ranks, each later one that times the ranks.
  std::int64_t wrong(int calls) const override {
    const double factor = total_weight(shape_.ranks) * std::pow(shape_.ranks, calls - 1);
    data_.fetch();
    return count_wrong(data_.host(), 0, factor, calls > 1 ? kRoundingOfSums : 0);
  }

  int calls_a_fill() const override {
    return shape_.ranks == 1
               ? Operation::calls_a_fill()
               : std::max(1, static_cast<int>(kLargestGrowth_log2 / std::log2(shape_.ranks)));
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
