// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exchange/exchange.h"
#include "mpi/ranks.h"
#include "options/options.h"
#include "train/compute_settings.h"
#include "train/gradient_guard.h"
#include "train/iteration.h"

namespace gradsync::test {

/// A data set, the same on all ranks. On 1, 2, 3 and 8 of them each has as many, and passes of a
/// fifth.
struct SmallSet {
  static constexpr std::int64_t kImages = 480;

  SmallSet();
  SharedFolder folder;
  std::optional<Cifar10> data;
};

/// LeNet, four images a rank, buckets small enough that there are four.
TrainOptions short_options(const std::string& mode);

/// A graph whose capture runs the step, as its first replay would, and whose replays run nothing.
class StandInGraph : public StepGraph {
 public:
  int replays = 0;
  bool fails = false;

 protected:
  torch::Tensor record(const Work& work) override;
  void launch() override { ++replays; }
};

DataSource resident(const Cifar10& data);

/// What a short training leaves.
struct Trained {
  torch::Tensor parameters;
  std::string hash;
  std::vector<FinishedIteration> iterations;  ///< in the order in which they were finished
};

using AtStart = std::function<void(GradientGuard&, std::int64_t iteration)>;

/// Trains for `iterations` (at most an epoch) as the trainer does. `at_start` is called before
/// each. Collective.
Trained train_shortly(Exchange& exchange, const DataSource& data, const TrainOptions& options,
                      std::int64_t iterations, const torch::Device& device = torch::kCPU,
                      const AtStart& at_start = {}, StepGraph* graph = nullptr);

}  // namespace gradsync::test
