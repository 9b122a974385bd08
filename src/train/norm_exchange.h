#pragma once

#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "sync/sync_mode.h"
#include "train/iteration_timer.h"

namespace gradsync {

/// What the ranks exchange for batch norm (--batch-norm): nothing (`local`), rank 0's buffers
/// before each step (`broadcast`, as DistributedDataParallel does), or the statistics of all ranks'
/// images in each forward and backward pass (`sync`).
class NormExchange {
 public:
  /// All must outlive it, and it the passes of the network.
  NormExchange(const std::string& how, Exchange& exchange, SyncMode& mode, Replica& replica);
  ~NormExchange();
  NormExchange(const NormExchange&) = delete;
  NormExchange& operator=(const NormExchange&) = delete;

  /// Before the first forward pass of an iteration. Collective.
  void begin_iteration();

  /// When the passes of this iteration waited for statistics: no compute, though it lies in forward
  /// and backward.
  const std::vector<Span>& waits() const { return waits_; }

 private:
  void mean(std::span<float> values);

  Exchange& exchange_;
  Replica& replica_;
  bool broadcasts_;
  std::vector<Span> waits_;
};

}  // namespace gradsync
