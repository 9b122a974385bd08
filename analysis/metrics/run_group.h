#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/run_set.h"

namespace gradsync::report {

/// Options that make two runs different cells of a study, beside what Run itself holds.
inline constexpr std::array<std::string_view, 37> kCellOptions = {"granularity",
                                                                  "first-bucket",
                                                                  "bucket-cap",
                                                                  "wire-dtype",
                                                                  "overlap",
                                                                  "accumulate",
                                                                  "layout",
                                                                  "lr",
                                                                  "momentum",
                                                                  "weight-decay",
                                                                  "optimizer",
                                                                  "lr-scaling",
                                                                  "base-batch",
                                                                  "lr-schedule",
                                                                  "lr-min",
                                                                  "lr-decay",
                                                                  "lr-step-epochs",
                                                                  "lr-milestones",
                                                                  "lr-power",
                                                                  "lr-cycle-epochs",
                                                                  "warmup-epochs",
                                                                  "warmup-rate",
                                                                  "warmup-from",
                                                                  "clip-norm",
                                                                  "nesterov",
                                                                  "trust-coefficient",
                                                                  "beta1",
                                                                  "beta2",
                                                                  "epsilon",
                                                                  "batch-norm",
                                                                  "label-smoothing",
                                                                  "batch-schedule",
                                                                  "augment",
                                                                  "set-epoch",
                                                                  "last-batch",
                                                                  "sync-only",
                                                                  "init"};

/// Repeats: runs of one cell of a study, equal in model, mode with its own settings (granularity,
/// bucket sizes, wire type), ranks, batch, accumulation, learning rate and remedy.
struct RunGroup {
  std::vector<const Run*> repeats;  ///< at least one, by time of creation
  const Run& first() const { return *repeats.front(); }
};

/// What a run did about one of kCellOptions. A file from before `init` and `sync-only` were options
/// says nothing of them; they were "equal" and "all" then, as they are by default.
std::string cell_option(const Run& run, std::string_view name);

/// What makes runs repeats of one cell: equal keys.
std::vector<std::string> cell_key(const Run& run);

/// In the order of the set. What the repeats of a group must not differ in: see require_mergeable.
std::vector<RunGroup> group_runs(const RunSet& set);

/// Something in which two repeats differ and that makes their times incomparable.
struct RunDifference {
  std::string what;  ///< "ranks per host", "device", "threads", "precision", "mpi", …
  const Run* one = nullptr;
  const Run* other = nullptr;
  std::string value_of_one, value_of_other;
};

/// What two runs differ in: how the ranks are spread over hosts, device, threads, precision, and
/// all of the provenance but the environment. The hosts' names are no difference: a queue gives
/// other nodes each time.
std::vector<RunDifference> differences(const Run& one, const Run& other);

/// That of the repeats of the set's groups, against the first of each.
std::vector<RunDifference> differences(const RunSet& set);

/// Throws Error kBadData with the first difference, both files and both values, if there is one.
void require_mergeable(const RunSet& set);

/// "MERGED ACROSS mpi, threads"; empty if nothing differs.
std::string merged_across(const RunSet& set);

/// The files of a group's runs, with ", " between.
std::string sources_of(const RunGroup& group);

/// The values of one phase of all repeats, over their steady iterations (Run::steady): an iteration
/// counts as its slowest rank, since the ranks of a synchronous step end together.
std::vector<double> steady_values(const RunGroup& group, Phase phase);

}  // namespace gradsync::report
