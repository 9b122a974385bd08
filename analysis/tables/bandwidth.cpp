// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/bandwidth.h"

#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/ranges.h"
#include "stats/bandwidth.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

struct BandwidthRow : CellRow {
  CollectiveFigures collective;
  Estimate transfer_s = {};
  double busbw = kNotMeasured, at_size = kNotMeasured,
         plateau = kNotMeasured;  ///< bytes per second
  double tree_s = kNotMeasured, ring_s = kNotMeasured, fitted_s = kNotMeasured;
  double epoch_iterations = kNotMeasured, exchange_period = 1;
  double measured_s = kNotMeasured, derived_s = kNotMeasured;  ///< communication of one iteration
  std::string calibration =
      {};  ///< the file that it is held against; empty: the run itself, or none
  /// "no calibration in the run", "no calibration of allgather"; empty where there is one.
  std::string missing_calibration = {};
  /// "calibrated over mpi, trained over shm"; empty where calibration resembles the run.
  std::string other_transport = {};
  std::string unfairness = {};  ///< of the base that `derived_s` rests on

  double algbw_Bps() const;
  std::string remark() const;
};

double BandwidthRow::algbw_Bps() const {
  if (!(ranks > 1)) return kNotMeasured;
  return algbw(
      message_bytes(collective.kind, collective.payload_bytes(), static_cast<double>(ranks)),
      transfer_s.value);
}

std::string BandwidthRow::remark() const {
  if (!(ranks > 1)) return "one rank: nothing crosses a link";
  return remark_of({missing_calibration,
                    calibration.empty() ? "" : "calibrated apart, by " + calibration,
                    other_transport, busbw > plateau ? "above the calibrated plateau" : "",
                    derived_s <= 0 ? "derived communication is not positive" : "", unfairness});
}

TableColumns<BandwidthRow> convention_columns(BandwidthConvention convention) {
  const auto column = [&](const char* method, const char* time, const char* dataset,
                          double BandwidthRow::*iteration_s) {
    return RowColumn<BandwidthRow>(
        convention_column(convention, method),
        fmt::format("{}, {} {}", convention_name(convention), method, convention_unit(convention)),
        fmt::format("{}, time: {}", convention_formula(convention), time), dataset,
        [=](const BandwidthRow& row) {
          const EpochCommunication epoch{
              row.collective.payload_bytes(), static_cast<double>(row.ranks),
              row.epoch_iterations / row.exchange_period, row.epoch_iterations * row.*iteration_s};
          return significant_cell(bandwidth(convention, epoch) / convention_unit_bytes(convention));
        });
  };
  return {column("measured", "comm busy, mean over ranks", "/bucket/bytes, /time/comm_busy",
                 &BandwidthRow::measured_s),
          column("derived", "T(n) - T(1)/n", "/bucket/bytes, /time/iteration",
                 &BandwidthRow::derived_s)};
}

TableColumns<BandwidthRow> bandwidth_columns(const GroupLabels& labels,
                                             const TableOptions& options) {
  using Row = BandwidthRow;
  const std::string buckets = "/bucket/bytes, /bucket/start, /bucket/end";
  const std::string both = buckets + ", /calibration";
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"collective", "collective", kLabel,
        [](const Row& row) { return std::string(collective_name(row.collective.kind)); }, 0},
       {"calls", "calls", "collectives of this kind in an iteration that exchanges", "/bucket/kind",
        [](const Row& row) { return count_cell(row.collective.sizes.size()); }},
       {"message_mib", "S MiB", "sum of the payloads of one rank in such an iteration / 2^20",
        "/bucket/bytes",
        [](const Row& row) { return significant_cell(row.collective.payload_bytes() / kMiB); }, 0},
       {"sampled_iterations", "n", "iterations sampled", "/bucket/start",
        [](const Row& row) { return count_cell(row.transfer_s.count); }},
       {"transfer_ms", "transfer ms", "median over iterations of the sum of the transfer times",
        buckets, Ends{"order statistics, 95 %"},
        [](const Row& row, End end) { return ms_cell(row.transfer_s.*end); }, 0},
       {"algbw_gb_per_s", "algbw GB/s", "S / transfer (S of nccl-tests)", buckets,
        [](const Row& row) { return significant_cell(row.algbw_Bps() / kGB); }},
       {"busbw_gb_per_s", "busbw GB/s",
        "algbw x 2(n-1)/n for allreduce, (n-1)/n for gather, scatter and allgather, 1 for "
        "broadcast and reduce",
        buckets, [](const Row& row) { return significant_cell(row.busbw / kGB); }, 0},
       {"utilization_at_size_percent", "of calibration %",
        "sum of the calibrated times at the sizes of the messages / transfer", both,
        [](const Row& row) { return share_cell(row.busbw, row.at_size); }, 0},
       {"utilization_of_plateau_percent", "of plateau %",
        "busbw / busbw of the largest calibrated sizes", both,
        [](const Row& row) { return share_cell(row.busbw, row.plateau); }},
       {"tree_ms", "(S/B) log2 n ms", "(S/B) * log2 n", both,
        [](const Row& row) { return ms_cell(row.tree_s); }},
       {"ring_ms", "ring ms", "2(n-1)/n * S/B", both,
        [](const Row& row) { return ms_cell(row.ring_s); }},
       {"fitted_ms", "alpha-beta ms", "calls * alpha + S * beta, fitted to calibration", both,
        [](const Row& row) { return ms_cell(row.fitted_s); }},
       {"epoch_iterations", "iterations/epoch", "iterations of a whole epoch",
        "/provenance/train_images",
        [](const Row& row) { return Cell::count(row.epoch_iterations); }}});
  for (const BandwidthConvention convention : options.conventions)
    columns.add(convention_columns(convention));
  columns.add({{"remark", "remark", &Row::remark, 2}});
  return columns.add(name_column());
}

/// Time that calibration took for all messages of an iteration.
double calibrated_s(const LinkCurve& curve, const CollectiveFigures& collective) {
  double sum_s = curve.empty() ? kNotMeasured : 0;
  for (const std::int64_t size : collective.sizes)
    sum_s += curve.time_at(static_cast<double>(size));
  return sum_s;
}

void fill_in_predictions(BandwidthRow& row, const LinkCurve& curve, const TableOptions& options) {
  if (!(row.ranks > 1)) return;
  const double bytes = row.collective.payload_bytes();
  const auto ranks = static_cast<double>(row.ranks);
  const AlphaBeta& fit = curve.fit;
  row.fitted_s =
      static_cast<double>(row.collective.sizes.size()) * fit.alpha_s + bytes * fit.beta_s_per_byte;
  if (row.collective.kind != CollectiveKind::kAllReduce) return;
  const double link = std::isnan(options.link_bytes_per_s) ? row.plateau : options.link_bytes_per_s;
  row.tree_s = allreduce_tree_s(bytes, link, ranks);
  row.ring_s = allreduce_ring_s(bytes, link, ranks);
}

std::string missing_calibration(const RunGroup& group, CollectiveKind kind) {
  const bool of_others = std::ranges::any_of(
      group.repeats, [](const Run* run) { return !run->calibration().empty(); });
  return of_others ? fmt::format("no calibration of {}", collective_name(kind))
                   : "no calibration in the run";
}

std::string other_transport(const Run& run, const LinkCurve& curve) {
  const auto names = calibrated_as(option_value(run, "transport"), run.mode, curve.kind);
  if (contains(names, curve.transport)) return {};
  return fmt::format("calibrated over {}, trained over {}", curve.transport, names.front());
}

BandwidthRow bandwidth_row(const CellRow& label, const RunGroup& group,
                           CollectiveFigures collective, GroupSplits& splits,
                           const TableOptions& options) {
  BandwidthRow row{label, std::move(collective)};
  row.transfer_s = median_estimate(row.collective.transfer_s);
  const CollectiveKind kind = row.collective.kind;
  const double bytes = row.collective.payload_bytes();
  const auto ranks = static_cast<double>(row.ranks);
  const LinkCurve curve = link_curve(group, kind);
  row.busbw = busbw(kind, bytes, ranks, row.transfer_s.value);
  row.at_size = busbw(kind, bytes, ranks, calibrated_s(curve, row.collective));
  row.plateau = curve.plateau_busbw;
  row.calibration = curve.file;
  if (std::isnan(row.plateau)) row.missing_calibration = missing_calibration(group, kind);
  if (!curve.empty()) row.other_transport = other_transport(group.first(), curve);
  fill_in_predictions(row, curve, options);
  const std::int64_t whole = iterations_of_whole_epoch(group.first());
  if (whole > 0) row.epoch_iterations = static_cast<double>(whole);
  row.exchange_period = static_cast<double>(exchange_period(*group.first().reader));
  if (kind != CollectiveKind::kAllReduce) return row;
  row.measured_s = splits.measured(group)[Phase::kCommBusy];
  const DerivedSplit derived = splits.derived(group);
  row.derived_s = derived.communication_s;
  row.unfairness = derived.unfairness;
  return row;
}

std::vector<std::string> bandwidth_notes(const TableOptions& options, const WaitKinds& waits) {
  std::vector<std::string> result = {
      "S: payload of one rank in one iteration that exchanges, all collectives of the kind; MiB = "
      "2^20 bytes, GB "
      "= 1e9 bytes, GiB = 2^30 bytes; bandwidths are n/a for one rank",
      "transfer: allreduce, allgather and reduce-scatter: shortest duration over the ranks "
      "(waiting left out); with a root: from the last rank's arrival to the last rank's end; "
      "summed over the iteration, median over n sampled steady iterations (at most 200 a run, "
      "evenly spaced)",
      "algbw = S/t, busbw = algbw x 2(n-1)/n (allreduce), (n-1)/n (gather, scatter, allgather, "
      "reduce-scatter: S is n payloads), 1 (broadcast, reduce), as nccl-tests. A busbw above the "
      "link's rate means that the ring's factor does not apply (shared memory, in-switch "
      "reduction)",
      "utilization: against the time that gradsync-train --calibrate measured on the same ranks in "
      "the same job, isolated calls, at the sizes of the messages (between sizes: interpolated), "
      "and against its plateau (large messages); n/a where the run holds no calibration and no "
      "file of gradsync-calibrate of the same ranks was given: run gradsync-train --calibrate",
      std::isnan(options.link_bytes_per_s)
          ? std::string("(S/B) log2 n and ring: predicted allreduce times with B = the plateau of "
                        "calibration (or --link-bandwidth); alpha-beta: fitted to calibration")
          : fmt::format("(S/B) log2 n and ring: predicted allreduce times with B = {:g} GB/s "
                        "(--link-bandwidth); alpha-beta: fitted to calibration",
                        options.link_bytes_per_s / kGB)};
  for (const BandwidthConvention convention : options.conventions)
    result.push_back(fmt::format(
        "convention {}: {}, in {}; measured: time is comm busy{}, derived: time is T(n) - T(1)/n; "
        "of allreduce only",
        convention_name(convention), convention_formula(convention), convention_unit(convention),
        waits.within ? " (of runs of schema 1: waiting included)" : ""));
  return result;
}

}  // namespace

Table make_bandwidth_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  GroupSplits splits(groups);
  const auto columns = bandwidth_columns(labels, options);
  Table table = columns.table("bandwidth", "Bandwidth of the collectives",
                              bandwidth_notes(options, wait_kinds(set)));
  for (const RunGroup& group : groups)
    for (CollectiveFigures& collective : collective_figures(group)) {
      const BandwidthRow row =
          bandwidth_row(labels.row(group), group, std::move(collective), splits, options);
      const std::string& sources = splits.derived(group).sources;
      table.add(columns.cells(row),
                row.calibration.empty() ? sources : sources + ", " + row.calibration);
    }
  if (table.rows.empty()) table.notes.emplace_back("no collective was recorded in these runs");
  return table;
}

}  // namespace gradsync::report
