#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/figures/run_group.h"

namespace gradsync::report {

/// What a run does against the loss of accuracy at large batch, from its options: "lr 0.4 (0.1 at
/// batch 128), warmup-epochs 5"; "none" if it trains plainly. `reference` is the group whose
/// learning rate counts as plain.
std::string remedy_text(const RunGroup& group, const RunGroup& reference);

/// Whether remedy_text, the learning rate or the batch shows the option.
bool is_remedy_option(const std::string& name);

/// The group of the same model with the smallest global batch; of several the first that trains
/// plainly, else the first.
const RunGroup& smallest_batch(const std::vector<RunGroup>& groups, const RunGroup& group);

/// The group of the same model, mode, ranks and global batch that trains plainly, at the rate of
/// `reference`; null if there is none.
const RunGroup* plain_group(const std::vector<RunGroup>& groups, const RunGroup& group,
                            const RunGroup& reference);

/// Images of a step: of a batch schedule the largest of its batches.
std::int64_t largest_batch(const Run& run);

}  // namespace gradsync::report
