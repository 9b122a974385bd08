// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/read/run_set.h"
#include "options/option_roles.h"
#include "stats/estimate.h"

namespace gradsync::report {

/// The options of a cell of a study with one of these roles (options/options.h), without those that
/// Run holds itself: model, sync, batch-per-rank, batch-global.
std::vector<std::string> options_of(std::initializer_list<OptionRole> roles);

/// All options of a cell, likewise.
const std::vector<std::string>& cell_options();

/// Repeats: runs of one cell of a study, equal in ranks and in all options whose role makes a cell.
struct RunGroup {
  std::vector<const Run*> repeats;  ///< at least one, by time of creation
  const Run& first() const { return *repeats.front(); }
};

/// core_shortage() of the first repeat that has one; empty where none has.
std::string_view core_shortage(const RunGroup& group);

/// The value of an option of the trainer in a run: for `auto` the choice, where it is recorded; for
/// a file older than the option, what runs did then.
std::string option_value(const Run& run, std::string_view name);

/// The trainer's settings with these options as the run had them, read as the trainer reads them.
/// An option with a text that this version does not read keeps its default.
TrainOptions settings_of(const Run& run, std::initializer_list<std::string_view> names);

/// --batch-schedule as the run was given it; empty for a run of one batch. With a schedule the
/// batches of Run are those of its first epoch: such a run is left out where a time is set against
/// a batch (scaling, the scaling model, batch sizes).
std::string batch_schedule(const Run& run);

/// Values of several options.
std::vector<std::string> option_values(const Run& run, const std::vector<std::string>& names);

/// The options of cells in which groups differ. What is between ranks is chosen by their number and
/// has no effect on one: one rank and several are set side by side separately there.
std::vector<std::string> differing_options(const std::vector<const RunGroup*>& groups);

/// "transport=shm, lr=0.4", of these options; those without a value are left out.
std::string settings_text(const Run& run, const std::vector<std::string>& options);

/// Labels of groups, each once: behind a label that several have stand the options in which those
/// differ, and where that leaves some the same, a number ("{}" of `number`).
std::vector<std::string> told_apart(std::vector<std::string> labels,
                                    const std::vector<const RunGroup*>& groups,
                                    const std::string& separator, const std::string& number);

/// Whether a run says what one iteration works on: network and batch. Runs that do not are
/// repeats of no other, and compared with none.
bool is_known_work(const Run& run);

/// "gpt2-small, sequence-length=128": the model, with the options that change its layers where
/// those of a run of the same model `among` these have other values.
std::string network_text(const Run& run, const std::vector<const Run*>& among);
/// "32 images per rank", "an unknown batch", or "batch schedule 0:32,2:128".
std::string images_text(const Run& run);
/// "batch 32 per rank", "unknown batch", or the schedule as above.
std::string batch_text(const Run& run);

/// What the time of an iteration depends on beside model, ranks and batch: the values of these
/// options, how the ranks are spread over hosts, and the device of each. Runs of as many ranks are
/// compared where it is equal.
std::vector<std::string> conditions_of(const Run& run, const std::vector<std::string>& options);
/// "NVIDIA H100", the names of its devices; empty where the run holds none. Runs of other numbers
/// of ranks are compared where they are equal.
std::string devices_of(const Run& run);

/// What makes runs repeats of one cell: equal keys.
std::vector<std::string> cell_key(const Run& run);

/// Pointers to them.
std::vector<const RunGroup*> pointers_to(const std::vector<RunGroup>& groups);

/// In the order of the set. The control of an experiment is no repeat of its reference, in whose
/// job it ran; it stands alone where the reference is not in the set. What the repeats of a group
/// must not differ in: see require_mergeable.
std::vector<RunGroup> group_runs(const RunSet& set);

/// Something in which two repeats differ and that makes their times incomparable.
struct RunDifference {
  std::string what;  ///< "ranks per host", "device", "threads", "precision", "mpi", …
  const Run* one = nullptr;
  const Run* other = nullptr;
  std::string value_of_one, value_of_other;
};

/// What two runs differ in: the options that must match, options that this version does not know,
/// how the ranks are spread over hosts, device, threads, and all of the provenance but the
/// environment. The hosts' names are no difference: a queue gives other nodes each time.
std::vector<RunDifference> differences(const Run& one, const Run& other);

/// Differences of the repeats of the set's groups from the first of each.
std::vector<RunDifference> differences(const RunSet& set);

/// Throws Error kBadData with the first difference, both files and both values, if there is one.
void require_mergeable(const RunSet& set);

/// "MERGED ACROSS mpi, threads"; empty if nothing differs.
std::string merged_across(const RunSet& set);

/// The files of a group's runs, with ", " between.
std::string sources_of(const RunGroup& group);

/// Whether the time of a run speaks for its settings: with --stamps off it is there to show what
/// recording costs.
bool is_recorded(const Run& run);

/// The values of one phase of all repeats, over their steady iterations (Run::steady): an iteration
/// counts as its slowest rank, since the ranks of a synchronous step end together. Of local-sgd
/// they are means over --local-steps iterations, of which one exchanges.
std::vector<double> steady_values(const RunGroup& group, Phase phase);
/// Likewise, an iteration being the mean over the ranks that measured the phase, NaN where none
/// did.
std::vector<double> steady_rank_means(const RunGroup& group, Phase phase);

/// Images of a steady iteration, of all ranks: the mean of /iteration/samples over the repeats. NaN
/// where the runs do not say.
double steady_images(const RunGroup& group);

/// Images in a second, with the interval of the median: those of most steady iterations over their
/// median time. Of runs with --batch-schedule, whose iterations differ in images, all images over
/// the time of all iterations, without an interval. Of an iteration the slowest rank counts.
Estimate images_per_s(const RunGroup& group);

/// The least and the most of a number.
struct CountRange {
  std::size_t least = static_cast<std::size_t>(-1), most = 0;
  void add(std::size_t count);
  std::string text() const;  ///< "12", or "3 to 12"
};

/// A figure of merit, for what greps the output of benchmarks (ReFrame, Ramble, JUBE).
struct Fom {
  std::string name;  ///< <metric>.<cell>
  double value;      ///< NaN: not measured
  std::string unit;
};

/// "FOM name value unit", the value with all its digits, or n/a.
std::string fom_line(const Fom& fom);

/// A cell in one word: "lenet.ddp.n2.b32", with the batch per rank, or with the schedule of its
/// batches, "lenet.ddp.n2.batch-schedule=0:32,2:128"; cells that differ in further settings have
/// those behind it: "lenet.ddp.n2.b32.transport=shm".
std::vector<std::string> cell_names(const std::vector<const RunGroup*>& groups);

/// Figures of each cell: iteration_median (ms), images_per_s (run_group.h),
/// exposed_median_slowest_rank (ms). Of an iteration the slowest rank counts, for each figure.
std::vector<Fom> figures_of_merit(const std::vector<RunGroup>& groups);

}  // namespace gradsync::report
