#include "sync/blocking_mode.h"

namespace gradsync {

namespace {

/// Blocking all-reduce after the backward pass.
class AllReduce : public BlockingMode {
 public:
  using BlockingMode::BlockingMode;

 protected:
  void average(std::span<float> message) override {
    exchange_.all_reduce_mean(message, Traffic::kGradients);
  }
};

}  // namespace

std::unique_ptr<SyncMode> make_allreduce(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<AllReduce>(exchange, settings);
}

}  // namespace gradsync
