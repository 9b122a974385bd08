#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "optim/optimizer.h"
#include "sync/sync_mode.h"

namespace gradsync {

/// The updates of an iteration that ended while its gradients still traveled: each parameter is
/// stepped in the next forward pass, when that comes to its layer. What is computed is what a mode
/// that waits computes.
class DeferredUpdates {
 public:
  /// Every so many iterations one is completed, and the rows of those before it are gathered.
  static constexpr std::int64_t kSpan = 16;

  /// All must outlive it.
  DeferredUpdates(Replica& replica, DeferredGradients& gradients, Optimizer& optimizer);

  /// Whether the iteration is to be waited for after which `done` of the run have been: the first
  /// ones, from which the mode learns, and the last of each span.
  static bool completes_after(std::int64_t done) { return done <= 3 || done % kSpan == 0; }

  /// An iteration ends; its gradients will be applied.
  void carry(double learning_rate);

  /// Runs the forward pass. Calls `before` with the parameters of a part that are still to be
  /// stepped, before the pass reads them, and at the end with those it never came to: the caller
  /// waits for their gradients and steps them.
  using Parameters = std::vector<std::size_t>;
  torch::Tensor forward(const torch::Tensor& images,
                        const std::function<void(const Parameters&)>& before);
  void wait(const Parameters& parameters) { gradients_.await(parameters); }
  void step(const Parameters& parameters);

  /// The collectives of the iteration that was begun before the last one.
  std::shared_ptr<IterationLog> swap_log(std::shared_ptr<IterationLog> iteration_log) {
    return std::exchange(last_log_, std::move(iteration_log));
  }

 private:
  Parameters pending_of(const torch::nn::Module& part) const;
  Parameters all_pending() const;

  Replica& replica_;
  DeferredGradients& gradients_;
  Optimizer& optimizer_;
  std::unordered_map<const torch::nn::Module*, Parameters> parameters_of_;
  std::vector<bool> pending_;
  std::shared_ptr<IterationLog> last_log_;
};

/// One for a mode that carries, else none.
std::unique_ptr<DeferredUpdates> deferred_updates(Replica& replica, SyncMode& mode,
                                                  Optimizer& optimizer);

}  // namespace gradsync
