#pragma once

#include <string>
#include <vector>

#include "analysis/metrics/run_group.h"

namespace gradsync {

/// What a run does against the loss of accuracy at large batch, from its options: "lr 0.4 (0.1 at
/// batch 128), warmup-epochs 5"; "none" if it trains plainly. `reference` is the group whose
/// learning rate counts as plain.
std::string remedy_text(const RunGroup& group, const RunGroup& reference);

/// The group of the same model with the smallest global batch (the first of several).
const RunGroup& smallest_batch(const std::vector<RunGroup>& groups, const RunGroup& group);

}  // namespace gradsync
