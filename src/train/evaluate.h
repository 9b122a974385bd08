#pragma once

#include "options/options.h"
#include "train/batch_source.h"
#include "train/step.h"

namespace gradsync {

struct Evaluation {
  double loss = kNotMeasured;      ///< mean cross-entropy over the images counted
  double accuracy = kNotMeasured;  ///< 0 to 1
  double time_s = 0;
};

enum class EvaluateHow {
  kShard,  ///< each image once over all ranks, one result for all; batch-norm buffers are rank 0's
  kEachRank,  ///< every rank its own replica on all images: replicas without exchange differ
};

/// As the options say; replicas that may differ are evaluated each, for of a shard of each the
/// result would be the accuracy of no network.
EvaluateHow evaluate_how(const TrainOptions& options, int ranks);

/// Runs the test images through the network, without augmentation. Collective.
Evaluation evaluate(StepParts& parts, const DataSource& data, std::int64_t batch,
                    std::int64_t loader_threads, EvaluateHow how);

/// Gives every replica rank 0's floating-point buffers (batch-norm statistics). Collective.
void broadcast_buffers(Exchange& exchange, Replica& replica);

}  // namespace gradsync
