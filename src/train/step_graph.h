#pragma once

#include <functional>
#include <memory>
#include <string>

#include <torch/types.h>

#include "exchange/exchange.h"

namespace gradsync {

/// All that the device does in one iteration, NCCL's part included, captured once and replayed:
/// one launch instead of hundreds. What changes from step to step (place in the epoch, learning
/// rate, loss scale) lies in the device's memory.
///
/// The first iterations (kStepsBeforeCapture) run kernel by kernel, on the very stream that is
/// captured later, and so do those of another size. Inside a replayed iteration nothing is timed:
/// it has its length only. The tests have one that records nothing.
class StepGraph {
 public:
  /// Enqueues an iteration; returns its sums (PassLoss).
  using Work = std::function<torch::Tensor()>;

  StepGraph();
  virtual ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Whether iterations of so many samples in so many passes are to be captured or replayed from
  /// now on.
  bool serves(std::int64_t samples, std::int64_t passes) const;
  /// Notes an iteration that was launched: what it moved is what a replay moves.
  void note(std::int64_t samples, std::int64_t passes, const TrafficBytes& traffic);

  bool captured() const { return captured_; }
  /// False if it could not be captured; `why_not` says why. Nothing of the work has run, or moved.
  /// `ledger` is where the work counts what it moves.
  bool capture(const Work& work, Ledger& ledger);
  /// Ends its use: it serves no iteration any more.
  void give_up(const std::string& why);
  /// Counts in the ledger what it moves.
  void replay(Ledger& ledger);

  /// The sums of the iteration replayed last, on the device; the next replay overwrites them.
  const torch::Tensor& sums() const { return sums_; }
  const TrafficBytes& traffic() const { return traffic_; }
  const std::string& why_not() const { return why_not_; }

 protected:
  /// Throws what the capture or the work does.
  virtual torch::Tensor record(const Work& work);
  virtual void launch();

 private:
  struct Graph;

  std::unique_ptr<Graph> graph_;
  bool captured_ = false;
  std::string why_not_;
  std::int64_t samples_ = 0, passes_ = 0, launched_ = 0;
  torch::Tensor sums_;
  TrafficBytes traffic_{};
  RankTraffic moved_;  ///< by one replay
};

}  // namespace gradsync
