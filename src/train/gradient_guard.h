// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <torch/types.h>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "sync/gradient_buckets.h"

namespace gradsync {

/// What a device found in one iteration, on its way to the host.
struct GuardFinding {
  torch::Tensor lowest;  ///< host memory, int64 [1]: an address, or kNoAddress's bits
  std::vector<const float*> gradients;  ///< of the iteration, by parameter
};

/// Looks at every gradient of this rank before it is exchanged: after the exchange a NaN is
/// everybody's. In every mode alike, so that it favors none. On the host each gradient is looked
/// at as the backward pass completes it; on a device each message is, on the stream that is about
/// to send it, and the finding is read when the iteration's other numbers are.
class GradientGuard {
 public:
  /// Make it before the mode attaches, so that its hook runs first. Both must outlive it.
  GradientGuard(const Replica& replica, Exchange& exchange);
  ~GradientGuard();
  GradientGuard(const GradientGuard&) = delete;
  GradientGuard& operator=(const GradientGuard&) = delete;

  /// An iteration begins. `marks_last`: `last_seen` will be asked for.
  void reset(bool marks_last = true);
  /// Notes where the gradients are: call it after the backward passes and before `synchronize`,
  /// which may move them.
  void note_places();
  /// Looks at gradients that no exchange has carried: call it after `synchronize` and before the
  /// update, which zeroes them.
  void look_at_rest();
  /// Sends what was found to the host.
  GuardFinding finding();

  /// Index of the first parameter whose gradient held a NaN or an infinity since `reset`, or −1;
  /// the number of parameters if it is not known whose it was.
  std::int64_t first_bad() const { return first_bad_; }
  /// The first bad parameter of a device's finding that has arrived.
  static std::int64_t first_bad(const GuardFinding& finding, const Replica& replica);

  /// The moment at which the last gradient completed.
  Moment last_seen() const { return last_seen_; }

  /// The next gradient that completes gets a NaN in it (a fault for tests).
  void poison_next() { poison_ = true; }

 private:
  bool on_device() const { return exchange_.lane() != nullptr; }
  void look_at(std::size_t parameter);
  void look_at_message(std::span<const float> values, StreamHandle stream);

  const Replica& replica_;
  Exchange& exchange_;
  std::int64_t first_bad_ = -1;
  Moment last_seen_;
  bool poison_ = false, marks_last_ = true, looked_ = false;
  bool at_rest_ = false;  ///< all were looked at: what travels from now on may come from others
  Exchange::GradientCheck before_;  ///< of another guard, whose turn comes again
  torch::Tensor lowest_;            ///< on the device, int64 [1]
  std::vector<const float*> places_;
  GradientHooks hooks_;
};

/// Whether all values are finite; vectorizes.
bool all_finite(std::span<const float> values);

/// A copy in host memory, which the device fills when its stream comes by: the host does not wait.
/// A tensor on the CPU is copied at once.
inline torch::Tensor to_host(const torch::Tensor& values) {
  const bool cuda = values.is_cuda();
  torch::Tensor copy =
      torch::empty(values.sizes(), values.options().device(torch::kCPU).pinned_memory(cuda));
  copy.copy_(values, /*non_blocking=*/cuda);
  return copy;
}

}  // namespace gradsync
