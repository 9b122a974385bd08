#include "analysis/figures/bandwidth.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/collective_figures.h"
#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/link_curve.h"
#include "analysis/figures/split_figures.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/bandwidth.h"
#include "stats/estimate.h"

namespace gradsync::report {

namespace {

constexpr double kNone = kNotMeasured;

/// One kind of collective of one group, with all that the row shows.
struct Row {
  CollectiveFigures collective;
  double ranks = kNone;
  Estimate transfer_s;
  double busbw = kNone, at_size = kNone, plateau = kNone;  ///< bytes per second
  double tree_s = kNone, ring_s = kNone, fitted_s = kNone;
  double epoch_iterations = kNone;
  double measured_s = kNone, derived_s = kNone;  ///< communication of one iteration
  std::string calibration;  ///< the file that it is held against; empty: the run itself, or none
  /// "calibrated over mpi, trained over shm"; empty where calibration is of the run's transport.
  std::string other_transport;
};

void add_convention_columns(std::vector<Column>& columns, const TableOptions& options) {
  for (const BandwidthConvention convention : options.conventions) {
    const std::string formula(convention_formula(convention));
    const auto head = [&](const char* method) {
      return fmt::format("{}, {} {}", convention_name(convention), method,
                         convention_unit(convention));
    };
    columns.push_back({convention_column(convention, "measured"), head("measured"), false,
                       formula + ", time: comm busy, mean over ranks",
                       "/bucket/bytes, /time/comm_busy"});
    columns.push_back({convention_column(convention, "derived"), head("derived"), false,
                       formula + ", time: T(n) - T(1)/n", "/bucket/bytes, /time/iteration"});
  }
}

std::vector<Column> bandwidth_columns(const GroupLabels& labels, const TableOptions& options) {
  std::vector<Column> result = labels.columns();
  const std::string buckets = "/bucket/bytes, /bucket/start, /bucket/end";
  const std::string both = buckets + ", /calibration";
  const std::vector<Column> rest = {
      repeats_column(),
      {"collective", "collective", true},
      {"calls", "calls", false, "collectives of this kind in an iteration", "/bucket/kind"},
      {"message_mib", "S MiB", false, "sum of the payloads of one rank in an iteration / 2^20",
       "/bucket/bytes"},
      {"sampled_iterations", "n", false, "iterations sampled", "/bucket/start"},
      {"transfer_ms", "transfer ms", false,
       "median over iterations of the sum of the transfer times", buckets},
      {"transfer_low_ms", "low", false, "order statistics, 95 %", buckets},
      {"transfer_high_ms", "high", false, "order statistics, 95 %", buckets},
      {"algbw_gb_per_s", "algbw GB/s", false, "S / transfer (S of nccl-tests)", buckets},
      {"busbw_gb_per_s", "busbw GB/s", false,
       "algbw x 2(n-1)/n for all-reduce, (n-1)/n for "
       "gather, scatter and all-gather, 1 for broadcast and reduce",
       buckets},
      {"utilization_at_size_percent", "of calibration %", false,
       "sum of the calibrated times at the sizes of the messages / transfer", both},
      {"utilization_of_plateau_percent", "of plateau %", false,
       "busbw / busbw of the largest calibrated sizes", both},
      {"tree_ms", "(S/B) log2 n ms", false, "(S/B) * log2 n", both},
      {"ring_ms", "ring ms", false, "2(n-1)/n * S/B", both},
      {"fitted_ms", "alpha-beta ms", false, "calls * alpha + S * beta, fitted to calibration",
       both}};
  result.insert(result.end(), rest.begin(), rest.end());
  result.push_back({"epoch_iterations", "iterations/epoch", false, "iterations of a whole epoch",
                    "/provenance/train_images"});
  add_convention_columns(result, options);
  result.push_back({"remark", "remark", true, "", "", 2});
  result.push_back(group_name_column());
  keep(result, {"collective", "message_mib", "transfer_ms", "busbw_gb_per_s",
                "utilization_at_size_percent"});
  return result;
}

/// Time that calibration took for all messages of an iteration.
double calibrated_s(const LinkCurve& curve, const CollectiveFigures& collective) {
  double sum_s = curve.empty() ? kNone : 0;
  for (const std::int64_t size : collective.sizes)
    sum_s += curve.time_at(static_cast<double>(size));
  return sum_s;
}

void predict(Row& row, const LinkCurve& curve, const TableOptions& options) {
  const double bytes = row.collective.payload_bytes();
  const AlphaBeta fit = curve.fit();
  if (row.ranks > 1)
    row.fitted_s = static_cast<double>(row.collective.sizes.size()) * fit.alpha_s +
                   bytes * fit.beta_s_per_byte;
  if (row.collective.kind != CollectiveKind::kAllReduce || !(row.ranks > 1)) return;
  const double link = std::isnan(options.link_bytes_per_s) ? row.plateau : options.link_bytes_per_s;
  row.tree_s = allreduce_tree_s(bytes, link, row.ranks);
  row.ring_s = allreduce_ring_s(bytes, link, row.ranks);
}

std::string other_transport(const Run& run, const LinkCurve& curve) {
  const std::string own = option_value(run, "transport");
  const auto names = calibrated_as(own, curve.kind, false);
  if (std::find(names.begin(), names.end(), curve.transport) != names.end()) return {};
  return fmt::format("calibrated over {}, trained over {}", curve.transport, own);
}

Row make_row(const RunGroup& group, CollectiveFigures collective, GroupSplits& splits,
             const TableOptions& options) {
  Row row;
  row.collective = std::move(collective);
  row.ranks = static_cast<double>(group.first().ranks);
  row.transfer_s = median_estimate(row.collective.transfer_s);
  const CollectiveKind kind = row.collective.kind;
  const double bytes = row.collective.payload_bytes();
  const LinkCurve curve = link_curve(group, kind);
  row.busbw = busbw(kind, bytes, row.ranks, row.transfer_s.value);
  row.at_size = busbw(kind, bytes, row.ranks, calibrated_s(curve, row.collective));
  row.plateau = curve.plateau_busbw(row.ranks);
  row.calibration = curve.file;
  if (!curve.empty()) row.other_transport = other_transport(group.first(), curve);
  predict(row, curve, options);
  const std::int64_t whole = iterations_of_whole_epoch(group.first());
  if (whole > 0) row.epoch_iterations = static_cast<double>(whole);
  if (kind != CollectiveKind::kAllReduce) return row;
  row.measured_s = splits.measured(group)[Phase::kCommBusy];
  row.derived_s = splits.derived(group).communication_s;
  return row;
}

Cell convention_cell(const Row& row, BandwidthConvention convention, double iteration_s) {
  const EpochCommunication epoch{row.collective.payload_bytes(), row.ranks, row.epoch_iterations,
                                 row.epoch_iterations * iteration_s};
  return significant_cell(bandwidth(convention, epoch) / convention_unit_bytes(convention));
}

std::string bandwidth_remark(const Row& row) {
  if (!(row.ranks > 1)) return "one rank: nothing crosses a link";
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (std::isnan(row.plateau)) add("no calibration in the run");
  if (!row.calibration.empty()) add("calibrated apart, by " + row.calibration);
  if (!row.other_transport.empty()) add(row.other_transport);
  if (row.busbw > row.plateau) add("above the calibrated plateau");
  if (row.derived_s <= 0) add("derived communication is not positive");
  return text;
}

std::vector<Cell> cells_of(const GroupLabels& labels, const RunGroup& group, const Row& row,
                           const TableOptions& options) {
  const auto ms = [](double value_s) { return Cell::of(1e3 * value_s, 3); };
  const CollectiveKind kind = row.collective.kind;
  const double message = message_bytes(kind, row.collective.payload_bytes(), row.ranks);
  const double algbw_of = row.ranks > 1 ? algbw(message, row.transfer_s.value) : kNone;
  std::vector<Cell> cells = labels.cells(group);
  const std::vector<Cell> rest = {repeats_cell(group),
                                  std::string(kCollectiveNames[static_cast<std::size_t>(kind)]),
                                  Cell::count(static_cast<double>(row.collective.sizes.size())),
                                  significant_cell(row.collective.payload_bytes() / kMiB),
                                  Cell::count(static_cast<double>(row.transfer_s.count)),
                                  ms(row.transfer_s.value),
                                  ms(row.transfer_s.low),
                                  ms(row.transfer_s.high),
                                  significant_cell(algbw_of / kGB),
                                  significant_cell(row.busbw / kGB),
                                  Cell::of(1e2 * row.busbw / row.at_size, 1),
                                  Cell::of(1e2 * row.busbw / row.plateau, 1),
                                  ms(row.tree_s),
                                  ms(row.ring_s),
                                  ms(row.fitted_s),
                                  Cell::count(row.epoch_iterations)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  for (const BandwidthConvention convention : options.conventions) {
    cells.push_back(convention_cell(row, convention, row.measured_s));
    cells.push_back(convention_cell(row, convention, row.derived_s));
  }
  cells.emplace_back(bandwidth_remark(row));
  cells.push_back(group_name_cell(group));
  return cells;
}

std::vector<std::string> bandwidth_notes(const TableOptions& options, const WaitKinds& waits) {
  std::vector<std::string> result = {
      "S: payload of one rank in one iteration, all collectives of the kind; MiB = 2^20 bytes, GB "
      "= "
      "1e9 bytes, GiB = 2^30 bytes; bandwidths are n/a for one rank",
      "transfer: all-reduce and all-gather: shortest duration over the ranks (waiting left out); "
      "with a root: from the last rank's arrival to the last rank's end; summed over the "
      "iteration, median over n sampled steady iterations (at most 200 a run, evenly spaced)",
      "algbw = S/t, busbw = algbw x 2(n-1)/n (all-reduce), (n-1)/n (gather, scatter, all-gather: S "
      "is n payloads), 1 (broadcast, reduce), as nccl-tests. A busbw above the link's rate means "
      "that the ring's factor does not apply (shared memory, in-switch reduction)",
      "utilization: against the time that gradsync-train --calibrate measured on the same ranks in "
      "the same job, isolated calls, at the sizes of the messages (between sizes: interpolated), "
      "and against its plateau (large messages); n/a where the run holds no calibration and no "
      "file of gradsync-calibrate of the same ranks was given: run gradsync-train --calibrate",
      std::isnan(options.link_bytes_per_s)
          ? std::string("(S/B) log2 n and ring: predicted all-reduce times with B = the plateau of "
                        "calibration (or --link-bandwidth); alpha-beta: fitted to calibration")
          : fmt::format("(S/B) log2 n and ring: predicted all-reduce times with B = {:g} GB/s "
                        "(--link-bandwidth); alpha-beta: fitted to calibration",
                        options.link_bytes_per_s / kGB)};
  for (const BandwidthConvention convention : options.conventions)
    result.push_back(fmt::format(
        "convention {}: {}, in {}; measured: time is comm busy{}, derived: time is T(n) - T(1)/n; "
        "of all-reduce only",
        convention_name(convention), convention_formula(convention), convention_unit(convention),
        waits.within ? " (of runs of schema 1: waiting included)" : ""));
  return result;
}

void add_group(Table& table, const GroupLabels& labels, const RunGroup& group, GroupSplits& splits,
               const TableOptions& options) {
  for (CollectiveFigures& collective : collective_figures(group)) {
    const Row row = make_row(group, std::move(collective), splits, options);
    const std::string& sources = splits.derived(group).sources;
    table.add(cells_of(labels, group, row, options),
              row.calibration.empty() ? sources : sources + ", " + row.calibration);
  }
}

}  // namespace

Table make_bandwidth_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  GroupSplits splits(groups);
  Table table{"bandwidth",
              "Bandwidth of the collectives",
              bandwidth_notes(options, wait_kinds(set)),
              bandwidth_columns(labels, options),
              {}};
  for (const RunGroup& group : groups)
    add_group(table, labels, group, splits, options);
  if (table.rows.empty()) table.notes.emplace_back("no collective was recorded in these runs");
  return table;
}

}  // namespace gradsync::report
