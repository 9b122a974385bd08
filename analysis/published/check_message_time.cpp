#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "analysis/published/checks.h"

namespace gradsync::report::published {

namespace {

/// Communication of one epoch at one batch: so many messages of the same size.
struct Messages {
  std::int64_t batch;
  double count, total_s;
  std::vector<std::size_t> lines;

  double each_s() const { return total_s / count; }
};

using MessageSetting = std::tuple<std::string, std::string, std::int64_t, std::string>;
using MessagesOfSettings = std::map<MessageSetting, std::vector<Messages>>;

double message_count(const Row& row, const AuditOptions& options) {
  if (row.devices <= 1 || row.batch_per_device == kNotSaid) return NAN;
  return epoch_iterations(
      options.images, static_cast<double>(row.devices) * static_cast<double>(row.batch_per_device),
      LastBatch::kCounted);
}

void add_messages(const Row& row, double total_s, std::vector<std::size_t> lines,
                  const AuditOptions& options, MessagesOfSettings& settings) {
  const double count = message_count(row, options);
  if (count > 1 && total_s > 0)
    settings[{row.model, row.mode, row.devices, row.extra}].push_back(
        {row.batch_per_device, count, total_s, std::move(lines)});
}

MessagesOfSettings printed_messages(const Study& study, const std::string& report,
                                    const AuditOptions& options) {
  MessagesOfSettings settings;
  for (const Row* row : study.rows_of(report))
    if (row->usable() && row->what.kind == Kind::kCommTime)
      add_messages(*row, row->range().value, {row->line}, options, settings);
  return settings;
}

// Where no communication is printed: T(n) - T(1)/n of the first epoch times that have both.
MessagesOfSettings derived_messages(const Study& study, const std::string& report,
                                    const AuditOptions& options) {
  MessagesOfSettings settings;
  const TimeSource& source = study.time_sources(report).front();
  for (const Row* row : study.rows_of(report)) {
    if (!row->usable() || row->table != source.table || row->quantity != source.quantity) continue;
    const Found base = study.base_time_of(*row, source, {});
    if (base.devices != 1) continue;
    add_messages(*row,
                 derived_communication(base.range.value, row->range().value,
                                       static_cast<double>(row->devices)),
                 {row->line, base.lines.front()}, options, settings);
  }
  return settings;
}

// More of a message may be hidden behind a larger batch, so only growth is a contradiction: the
// shortest time of one message at a smaller batch, if this one takes 3 times as long or longer.
std::optional<double> shorter_before_s(const std::vector<Messages>& all, const Messages& one) {
  constexpr double kApart = 3;
  double shortest_s = HUGE_VAL;
  for (const Messages& other : all)
    if (other.batch < one.batch) shortest_s = std::min(shortest_s, other.each_s());
  return one.each_s() > kApart * shortest_s ? std::optional(shortest_s) : std::nullopt;
}

std::string series_text(std::int64_t devices, const std::vector<Messages>& all) {
  std::string text = fmt::format("{} devices: ", devices);
  for (const Messages& one : all)
    text += fmt::format("{}{:.3g} ms x {:.0f} at batch {}", &one == &all.front() ? "" : ", ",
                        1e3 * one.each_s(), one.count, one.batch);
  for (const Messages& one : all)
    if (const auto each_s = shorter_before_s(all, one))
      text += fmt::format("; batch {} needs {:.3g} s instead of {:.4g} s", one.batch,
                          one.count * *each_s, one.total_s);
  return text;
}

// Fewer messages of the same size that take longer in all.
bool total_grows(const std::vector<Messages>& all) {
  constexpr double kMore = 1.1;
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i].count < all[i - 1].count && all[i].total_s > kMore * all[i - 1].total_s) return true;
  return false;
}

bool times_grow(const std::vector<Messages>& all) {
  return std::any_of(all.begin(), all.end(),
                     [&](const Messages& one) { return shorter_before_s(all, one).has_value(); });
}

void report_messages(const MessagesOfSettings& settings, const std::string& report, bool derived,
                     Audit& audit) {
  Tally totals, times;
  for (const auto& [setting, found] : settings) {
    std::vector<Messages> all = found;
    std::sort(all.begin(), all.end(),
              [](const Messages& a, const Messages& b) { return a.batch < b.batch; });
    if (!times_grow(all)) continue;
    Tally& tally = !derived && total_grows(all) ? totals : times;
    std::vector<std::size_t> lines;
    for (const Messages& one : all)
      lines.insert(lines.end(), one.lines.begin(), one.lines.end());
    tally.add(series_text(std::get<std::int64_t>(setting), all), lines);
  }
  const std::string why =
      "An iteration sends the same bytes at any batch, so a message takes the same time, or less "
      "where compute hides it: waiting for a slower rank was counted as communication, or the time "
      "is of another number of "
      "iterations.";
  const std::string right_if = "each total is the one that its cell names";
  report_tally(audit, report, Severity::kContradicted, "message-time",
               "communication grows while the number of messages falls", totals, {why, right_if});
  report_tally(audit, report, Severity::kDoubtful, "message-time",
               fmt::format("the time of one message grows with the batch{}",
                           derived ? " (communication derived, T(n) - T(1)/n)" : ""),
               times, {why, right_if});
}

}  // namespace

void check_message_time(const Study& study, Audit& audit) {
  for (const std::string& report : study.reports()) {
    const MessagesOfSettings printed = printed_messages(study, report, audit.options);
    const bool derived = printed.empty();
    report_messages(derived ? derived_messages(study, report, audit.options) : printed, report,
                    derived, audit);
  }
}

}  // namespace gradsync::report::published
