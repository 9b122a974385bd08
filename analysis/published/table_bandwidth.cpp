#include <array>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "analysis/figures/bandwidth.h"
#include "analysis/figures/comparisons.h"
#include "analysis/published/choices.h"
#include "analysis/published/published_tables.h"
#include "analysis/published/setting_cells.h"
#include "analysis/tables/columns.h"
#include "record/collective_call.h"

namespace gradsync::report::published {

namespace {

constexpr double kBandwidthNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::array kConventions = {BandwidthConvention::kBusbw, BandwidthConvention::kMessage,
                                     BandwidthConvention::kRingEpoch,
                                     BandwidthConvention::kTotalVolume};

struct Link {
  const Row* row;
  Message message;
  double iterations = kBandwidthNone, comm_s = kBandwidthNone, derived_s = kBandwidthNone,
         printed = kBandwidthNone;
  std::vector<std::size_t> lines;
};

double bandwidth_number_of(const Study& study, Link& link, Kind kind) {
  for (const Row* other : study.setting_of(*link.row)) {
    if (other->what.kind != kind || !other->usable()) continue;
    link.lines.push_back(other->line);
    return other->range().value;
  }
  return kBandwidthNone;
}

Link link_at(const Study& study, const Row& row, const AuditOptions& options) {
  Link link;
  link.row = &row;
  link.message = messages_for(row, study, options).front();
  link.iterations = iterations_of(row, options);
  link.comm_s = bandwidth_number_of(study, link, Kind::kCommTime);
  link.printed = bandwidth_number_of(study, link, Kind::kBandwidth);
  const EpochTimes times = epoch_times(study, row);
  if (times.base.devices > 0)
    link.derived_s = derived_communication(times.base.range.value, times.time.range.value,
                                           static_cast<double>(row.devices) / times.base.devices);
  for (const Found* found : {&times.time, &times.base})
    link.lines.insert(link.lines.end(), found->lines.begin(), found->lines.end());
  return link;
}

std::vector<Column> bandwidth_columns() {
  std::vector<Column> result = setting_columns();
  result.push_back({"message_mib", "S MiB", false, "bytes of one gradient / 2^20",
                    "--message-bytes, --parameters or the model's name"});
  result.push_back({"epoch_iterations", "iterations/epoch", false,
                    "images / global batch, rounded up", "--images"});
  for (const BandwidthConvention convention : kConventions)
    for (const char* method : {"measured", "derived"})
      result.push_back({convention_column(convention, method),
                        fmt::format("{}, {} {}", convention_name(convention), method,
                                    convention_unit(convention)),
                        false, std::string(convention_formula(convention)),
                        method == std::string("measured") ? "comm_time" : "epoch_time"});
  result.push_back({"published_gb_per_s", "published GB/s", false, "as printed", "bandwidth"});
  result.push_back({"remark", "remark", true});
  return result;
}

Cell bandwidth_cell_of(const Link& link, BandwidthConvention convention, double comm_s) {
  const EpochCommunication epoch = {link.message.bytes > 0 ? link.message.bytes : kBandwidthNone,
                                    static_cast<double>(link.row->devices), link.iterations,
                                    comm_s};
  return significant_cell(bandwidth(convention, epoch) / convention_unit_bytes(convention));
}

std::string bandwidth_remark(const Link& link) {
  if (!(link.message.bytes > 0)) return "the message is not known: --parameters";
  return link.derived_s <= 0 ? "derived communication is not positive" : "";
}

std::vector<Cell> bandwidth_row_of(const Link& link) {
  std::vector<Cell> cells = setting_cells(*link.row);
  cells.push_back(
      significant_cell(link.message.bytes > 0 ? link.message.bytes / kMiB : kBandwidthNone));
  cells.push_back(Cell::count(link.iterations));
  for (const BandwidthConvention convention : kConventions)
    for (const double comm_s : {link.comm_s, link.derived_s})
      cells.push_back(bandwidth_cell_of(link, convention, comm_s));
  cells.push_back(significant_cell(link.printed / kGB));
  cells.emplace_back(bandwidth_remark(link));
  return cells;
}

}  // namespace

Table make_published_bandwidth_table(const Study& study, const Audit& audit) {
  Table table{"published-bandwidth",
              "Bandwidth by each convention, published numbers of " + study.file().name,
              {"measured: with the published communication time; derived: with T(n) - T(1)/n; "
               "waiting is in both",
               "S: by --message-bytes, --parameters or the model's name, 4 bytes a parameter; GB = "
               "1e9 bytes, GiB = 2^30"},
              bandwidth_columns(),
              {}};
  for (const Row* row : settings_of(study)) {
    if (row->devices == kNotSaid || row->devices < 2) continue;
    const Link link = link_at(study, *row, audit.options);
    if (link.lines.empty()) continue;
    table.add(bandwidth_row_of(link), source_text(study, link.lines));
  }
  return table;
}

}  // namespace gradsync::report::published
