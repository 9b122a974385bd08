#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

constexpr const char* kBandwidthCheck = "bandwidth";

std::string bandwidth_where(const Row& row) {
  return setting_text(row.devices, row.batch_per_device);
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e13) return fmt::format("{:.0f} GB", bytes / 1e9);
  if (bytes >= 1e9) return fmt::format("{:.4g} GB", bytes / 1e9);
  return bytes >= 1e6 ? fmt::format("{:.4g} MB", bytes / 1e6)
                      : fmt::format("{:.4g} kB", bytes / 1e3);
}

std::string printed(const Row& row) {
  return fmt::format("{} {}", row.text, row.unit_text);
}

// --- the link ------------------------------------------------------------------------------------

void above_any_link(const ColumnAudit& column, Audit& audit) {
  const double fastest = audit.options.fastest_link_bytes_per_s;
  Tally cells;
  for (const Row* row : column.column.rows)
    if (row->usable() && row->range().low > fastest)
      cells.add(fmt::format("{}: {}", bandwidth_where(*row), printed(*row)), {row->line});
  report_tally(audit, column.column.report, Severity::kImpossible, kBandwidthCheck,
               fmt::format("more than any link of one device has ({}/s)", bytes_text(fastest)),
               cells,
               {"The unit or the formula is wrong.",
                "it is the sum of several links, or the unit is a smaller one"});
}

// --- the volume ----------------------------------------------------------------------------------

struct Volume {
  double claimed = NAN;  ///< bandwidth · communication time
  double all_links = NAN;
  double one_link = NAN;
  double iterations = NAN;
  double comm_s = NAN;
  std::vector<std::size_t> lines;
};

Volume volume_of(const Study& study, const Row& row, const ColumnAudit& column,
                 const AuditOptions& options) {
  const Found comm = study.same_setting(row, Kind::kCommTime);
  Volume volume;
  volume.lines = comm.lines;
  volume.lines.push_back(row.line);
  volume.comm_s = comm.range.value;
  if (row.devices == kNotSaid || row.batch_per_device == kNotSaid) return volume;
  const auto n = static_cast<double>(row.devices);
  volume.claimed = row.range().value * comm.range.value;
  volume.iterations = epoch_iterations(
      options.images, n * static_cast<double>(row.batch_per_device), LastBatch::kCounted);
  const double message = column.fit.choice.message.bytes;
  const EpochCommunication epoch = {message > 0 ? message : NAN, n, volume.iterations, 1};
  // More than this was not sent even if every device processed all images.
  volume.all_links = n * bandwidth(BandwidthConvention::kTotalVolume, epoch);
  volume.one_link = bandwidth(BandwidthConvention::kBusbw, epoch);
  return volume;
}

void more_than_was_sent(const Study& study, const ColumnAudit& column, Audit& audit) {
  constexpr double kSlack = 1.1;
  Tally cells;
  for (const Row* row : column.column.rows) {
    if (!row->usable()) continue;
    const Volume volume = volume_of(study, *row, column, audit.options);
    if (!(volume.claimed > kSlack * volume.all_links)) continue;
    cells.add(
        fmt::format("{}: {} for {:.4g} s are {}, of {} in an epoch; needs comm = {:.3g} s",
                    bandwidth_where(*row), printed(*row), volume.comm_s, bytes_text(volume.claimed),
                    bytes_text(volume.all_links), volume.one_link / row->range().value),
        volume.lines);
  }
  report_tally(audit, column.column.report, Severity::kImpossible, kBandwidthCheck,
               "bandwidth x communication time is more than all gradients of an epoch on all links "
               "together, 2(n-1)*S*iterations, even if every device went through all images",
               cells,
               {fmt::format("With S: {}. The unit, the time or the formula is another one.",
                            column.fit.choice.message.text),
                "communication takes as long as the cell names (busbw), or the unit is a smaller "
                "one"});
}

bool is_of_one_message(const Fit& fit) {
  return fit.convention && fit.convention->kind == Kind::kBandwidth &&
         !fit.convention->needs_input(Input::kIterations) &&
         (fit.reproduces || fit.median_distance < std::log(kNear));
}

void one_message_an_epoch(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (!is_of_one_message(column.fit)) return;
  Tally cells;
  for (const Row* row : column.column.rows) {
    if (!row->usable()) continue;
    const Volume volume = volume_of(study, *row, column, audit.options);
    if (!(volume.iterations > 1) || !(volume.one_link > 0) || !(volume.comm_s > 0)) continue;
    cells.add(fmt::format("{}: {} instead of a busbw of {}/s over {:.0f} iterations",
                          bandwidth_where(*row), printed(*row),
                          bytes_text(volume.one_link / volume.comm_s), volume.iterations),
              volume.lines);
  }
  report_tally(
      audit, column.column.report, Severity::kContradicted, kBandwidthCheck,
      "one message against the communication time of a whole epoch, so too small by the number of "
      "iterations",
      cells, {"Every iteration sends its gradients.", "an epoch is one iteration"});
}

// --- the batch -----------------------------------------------------------------------------------

struct Ends {
  const Row* small = nullptr;
  const Row* large = nullptr;
};

void extend(Ends& ends, const Row* row) {
  if (!ends.small || row->batch_per_device < ends.small->batch_per_device) ends.small = row;
  if (!ends.large || row->batch_per_device > ends.large->batch_per_device) ends.large = row;
}

void follows_the_batch(const ColumnAudit& column, Audit& audit) {
  constexpr double kGrows = 3;
  std::map<std::pair<std::string, std::int64_t>, Ends> by_devices;
  for (const Row* row : column.column.rows)
    if (row->usable() && row->batch_per_device != kNotSaid && row->value > 0)
      extend(by_devices[{row->mode + row->extra, row->devices}], row);
  Tally cells;
  for (const auto& [setting, ends] : by_devices) {
    if (!ends.small) continue;
    const double growth = ends.large->range().value / ends.small->range().value;
    if (!(growth > kGrows)) continue;
    cells.add(fmt::format("{} devices: {:.3g} times from batch {} to {}", setting.second, growth,
                          ends.small->batch_per_device, ends.large->batch_per_device),
              {ends.small->line, ends.large->line});
  }
  report_tally(audit, column.column.report, Severity::kDoubtful, kBandwidthCheck,
               "bandwidth follows the batch size", cells,
               {"A gradient has as many bytes at any batch, so the rate of a link does not: fewer "
                "iterations an epoch were taken for a faster link, or waiting was counted as "
                "communication.",
                "a larger batch was sent in larger messages"});
}

// --- the message ---------------------------------------------------------------------------------

void other_message(const Study& study, const ColumnAudit& column, Audit& audit) {
  if (column.fit.reproduces) return;
  for (const Convention* convention : conventions_of(Kind::kBandwidth)) {
    const Range bytes = implied_message(study, column.column, *convention, audit.options);
    if (!bytes.known()) continue;
    report_column(audit, column.column, Severity::kDoubtful, kBandwidthCheck,
                  fmt::format("no known message gives the column by {} ({})", convention->name,
                              convention->formula),
                  {"", fmt::format("a message has {} ({} to {} parameters of 4 B)",
                                   bytes_text(bytes.value), with_commas(std::ceil(bytes.low / 4)),
                                   with_commas(std::floor(bytes.high / 4)))});
    return;
  }
}

}  // namespace

void check_bandwidth(const Study& study, Audit& audit) {
  for (std::size_t i = 0; i < audit.columns.size(); ++i) {
    const ColumnAudit& column = audit.columns[i];
    if (column.column.kind != Kind::kBandwidth) continue;
    above_any_link(column, audit);
    more_than_was_sent(study, column, audit);
    one_message_an_epoch(study, column, audit);
    follows_the_batch(column, audit);
    other_message(study, column, audit);
  }
}

}  // namespace gradsync::report::published
