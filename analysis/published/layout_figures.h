// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "analysis/figures/rank_figures.h"
#include "analysis/figures/run_group.h"
#include "analysis/published/layout.h"
#include "analysis/published/numbers.h"
#include "base/table.h"

/// What runs give for the cells and sentences of a published report, by the report's conventions.
namespace gradsync::report::published {

/// A published setting, or one of the runs.
struct LayoutSetting {
  std::string mode;
  std::int64_t devices = 0, batch = 0;

  std::string synchronization() const { return mode.substr(0, mode.find(":rank")); }
  /// 2 of "ddp:rank2"; nothing where the mode names no rank.
  std::optional<std::size_t> rank() const;
  bool operator==(const LayoutSetting&) const = default;
};

/// single, none, serial, baseline, sequential, or nothing said.
bool is_without_exchange(const std::string& mode);

/// In base units; NaN: the runs do not give it.
struct MeasuredNumber {
  double value = kNotMeasured;
  bool extrapolated = false;  ///< from iterations to an epoch
  bool unsteady = false;      ///< from iterations of a run that never became steady
  bool several = false;       ///< groups of runs fit equally well, and it is of the first
  /// The value of each repeat, where it has one of its own.
  std::vector<double> repeats = {};
  /// "1 rank x 512 images in 4 passes": the runs that make the same step by accumulation.
  std::string stands_in = {};
  const RunGroup* group = nullptr;  ///< of which it is
  /// "precision fp32 and bf16": where it is a time in another setting than the first one asked for.
  std::string unlike = {};

  /// Another number that is made from this one.
  template <typename Make>
  MeasuredNumber with(Make&& make) const {
    MeasuredNumber made{make(value), extrapolated, unsteady, several};
    for (const double one : repeats)
      made.repeats.push_back(make(one));
    return made;
  }
  /// Another number that is made from both, the first repeat from the first of each.
  template <typename Make>
  MeasuredNumber with(const MeasuredNumber& other, Make&& make) const {
    MeasuredNumber made{make(value, other.value), extrapolated || other.extrapolated,
                        unsteady || other.unsteady, several};
    for (std::size_t i = 0; i < std::min(repeats.size(), other.repeats.size()); ++i)
      made.repeats.push_back(make(repeats[i], other.repeats[i]));
    return made;
  }
};

/// Whether the number depends on how fast the machine is.
bool is_timed(const LayoutQuantity& quantity);
/// "precision fp32 and bf16": why times of two groups are not those of one machine in one setting.
std::string settings_apart(const RunGroup& one, const RunGroup& other);

class LayoutFigures {
 public:
  /// `set` and `layout` must outlive it.
  LayoutFigures(const RunSet& set, const Layout& layout);

  const std::vector<RunGroup>& groups() const { return groups_; }

  /// The number of the runs that fit without a remedy, then with `threads` threads a rank (empty:
  /// the most), then with the most epochs. Runs that accumulate have no times of their own here;
  /// where no run has the ranks, loss and accuracy of an epoch are those of runs that accumulate to
  /// the same global batch without a remedy. With `remedy`, an option of the trainer, they are
  /// those of runs with it and the fewest others. `total`: N of "of N".
  MeasuredNumber of(const LayoutSetting& setting, const LayoutQuantity& quantity, double total,
                    const std::string& threads = {}, const std::string& remedy = {});

  /// Threads of a rank of the runs of these settings on several ranks; empty without any.
  std::string threads_of_several(const std::vector<LayoutSetting>& settings) const;

  /// Ranks of the largest run.
  std::int64_t most_ranks() const;

  /// Groups that no number was made from so far.
  std::vector<const RunGroup*> unused() const;

 private:
  using Fits = std::function<bool(const Run&)>;
  std::vector<const RunGroup*> find(const Fits& fits);
  std::vector<std::string> remedies_of(const RunGroup& group) const;
  MeasuredNumber by_accumulation(const LayoutSetting& setting, const LayoutQuantity& quantity,
                                 const std::string& remedy);
  double iterations(const RunGroup& group) const;
  double scale(const RunGroup& group) const;
  bool epochs_train() const { return layout_.clock == "training"; }
  MeasuredNumber value(const RunGroup& group, const LayoutSetting& setting,
                       const LayoutQuantity& quantity, double total);
  MeasuredNumber epoch(const RunGroup& group, std::int64_t number, bool training) const;
  MeasuredNumber base_time(const RunGroup& group, bool training);
  MeasuredNumber speedup_of(const RunGroup& group);
  MeasuredNumber phase(const RunGroup& group, Phase phase);
  MeasuredNumber compute(const RunGroup& group);
  MeasuredNumber communication(const RunGroup& group);
  MeasuredNumber bandwidth_of(const RunGroup& group);
  double share_of_communication(const RunGroup& group);
  MeasuredNumber at_epoch(const RunGroup& group, const LayoutQuantity& quantity) const;

  const Layout& layout_;
  std::vector<RunGroup> groups_;
  GroupSplits splits_;
  const RunGroup* first_ = nullptr;  ///< the group that a time was asked of first
  std::set<const RunGroup*> used_;
};

/// The sentences of the layout: what the report's numbers say of each, what the measured ones say,
/// and whether they contradict it. `published` null: no file.
Table sentences_table(const Layout& layout, const AuditedNumbers* published,
                      LayoutFigures& figures);

/// What a number of more devices than any run has would take.
std::string needs_text(const LayoutSetting& setting, const LayoutQuantity& quantity);

/// The last batch counted; NaN where the batch is not known.
double epoch_iterations(std::int64_t images, std::int64_t global_batch);

}  // namespace gradsync::report::published
