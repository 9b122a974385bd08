// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iostream>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "stats/statistics.h"
#include "train/run_summary.h"

namespace gradsync {

namespace {
constexpr double kRedraw_s = 0.2, kLog_s = 60;
}

ProgressLog::ProgressLog(bool shown, std::int64_t log_every, std::int64_t iterations_in_all)
    : shown_(shown),
      on_terminal_(isatty(STDERR_FILENO) != 0),
      log_every_(log_every),
      total_(iterations_in_all) {}

std::string ProgressLog::line(std::int64_t epoch, std::int64_t iterations_done, double loss,
                              double images_per_second) const {
  const double left_s = since_start_.elapsed_s() / static_cast<double>(iterations_done - before_) *
                        static_cast<double>(total_ - iterations_done);
  return fmt::format("epoch {} iteration {} of {} loss {:.4f}, {:.0f} images/s, {} left", epoch + 1,
                     iterations_done, total_, loss, images_per_second, format_duration(left_s));
}

void ProgressLog::update(std::int64_t epoch, std::int64_t iterations_done, double loss,
                         double images_per_second, bool warmup) {
  if (!shown_) return;
  if (log_every_ > 0 && iterations_done % log_every_ == 0) {
    clear();
    std::cout << fmt::format("epoch {} iteration {} loss {:.4f}\n", epoch + 1, iterations_done,
                             loss)
              << std::flush;
    return;
  }
  const bool first = first_ && !warmup;
  if (!first && since_drawn_.elapsed_s() < (on_terminal_ ? kRedraw_s : kLog_s)) return;
  first_ = first_ && warmup;
  since_drawn_.restart_s();
  const std::string text = line(epoch, iterations_done, loss, images_per_second);
  if (on_terminal_)
    std::cerr << "\r\033[K" << text << std::flush;
  else
    std::cout << text << std::endl;
  drawn_ = on_terminal_;
}

void ProgressLog::clear() {
  if (drawn_) std::cerr << "\r\033[K" << std::flush;
  drawn_ = false;
}

namespace {

double divided(double sum, std::int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : kNotMeasured;
}

/// A column after `rank` and `host`.
struct Figure {
  const char *name, *head;
  int decimals, detail;  ///< Cell::decimals, Column::detail
};

/// The figures in the order of RankSummary::block().
constexpr std::array<Figure, 11> kFigures = {{
    {"loss_mean", "loss", 4, 1},
    {"train_accuracy_percent", "train %", 2, 2},
    {"test_accuracy_percent", "test %", 2, 1},
    {"iteration_mean_ms", "mean ms", 2, 3},
    {"iteration_median_ms", "median ms", 2, 0},
    {"iteration_p95_ms", "p95 ms", 2, 2},
    {"compute_ms", "compute", 2, 1},
    {"hidden_ms", "hidden", 2, 1},
    {"exposed_ms", "exposed", 2, 0},
    {"wait_ms", "wait", 2, 1},
    {"other_ms", "other", 2, 3},
}};
constexpr std::size_t kMedian = 4, kCompute = 6, kExposed = 8, kWait = 9, kOther = 10;

/// What an iteration takes, of the slowest rank; `all` has the figures of each rank.
std::string iteration_text(const std::vector<double>& all, std::int64_t timed) {
  std::size_t slowest = 0;
  for (std::size_t at = 0; at < all.size(); at += kFigures.size())
    if (all[at + kMedian] > all[slowest + kMedian]) slowest = at;
  const double* of = &all[slowest];
  const double mean = of[kCompute] + of[kExposed] + of[kWait] + of[kOther];
  if (timed == 0) return "no iteration after the warm-up";
  if (std::isnan(mean))
    return fmt::format("{:.2f} ms an iteration (slowest rank, n = {})", of[kMedian], timed);
  return fmt::format(
      "{:.2f} ms an iteration, {:.1f} % of it exposed communication, {:.1f} % wait (slowest rank, "
      "n = {})",
      of[kMedian], 1e2 * of[kExposed] / mean, 1e2 * of[kWait] / mean, timed);
}

}  // namespace

void RankSummary::add(const RankIteration& measured, std::int64_t samples, bool warmup) {
  loss_sum_ += measured.loss * static_cast<double>(samples);
  correct_ += measured.correct;
  samples_ += samples;
  if (iterations_++ > 0) all_but_first_s_ += measured[Phase::kIteration];
  if (warmup) return;
  ++timed_;
  iteration_s_.push_back(measured[Phase::kIteration]);
  compute_s_ += measured[Phase::kCompute];
  hidden_s_ += measured[Phase::kHidden];
  exposed_s_ += measured[Phase::kExposed];
  wait_s_ += measured[Phase::kWait];
  other_s_ += measured[Phase::kOther];
}

std::vector<double> RankSummary::state() const {
  std::vector<double> state = {first_s_,
                               compute_s_,
                               hidden_s_,
                               exposed_s_,
                               wait_s_,
                               other_s_,
                               loss_sum_,
                               static_cast<double>(correct_),
                               static_cast<double>(samples_),
                               static_cast<double>(timed_),
                               all_but_first_s_,
                               static_cast<double>(iterations_),
                               test_accuracy_};
  state.insert(state.end(), iteration_s_.begin(), iteration_s_.end());
  return state;
}

void RankSummary::restore(std::span<const double> state) {
  constexpr std::size_t kFixed = 13;
  if (state.size() < kFixed)
    throw Error(ExitCode::kBadData, "the checkpoint's summary of the run is too short");
  first_s_ = state[0];
  compute_s_ = state[1];
  hidden_s_ = state[2];
  exposed_s_ = state[3];
  wait_s_ = state[4];
  other_s_ = state[5];
  loss_sum_ = state[6];
  correct_ = static_cast<std::int64_t>(state[7]);
  samples_ = static_cast<std::int64_t>(state[8]);
  timed_ = static_cast<std::int64_t>(state[9]);
  all_but_first_s_ = state[10];
  iterations_ = static_cast<std::int64_t>(state[11]);
  test_accuracy_ = state[12];
  iteration_s_.assign(state.begin() + kFixed, state.end());
}

double RankSummary::mean_exposed_s() const {
  return divided(exposed_s_, timed_);
}

double RankSummary::accuracy() const {
  return divided(static_cast<double>(correct_), samples_);
}

std::vector<double> RankSummary::block() const {
  const Statistics times = statistics(iteration_s_);
  return {mean_loss(),
          1e2 * accuracy(),
          1e2 * test_accuracy_,
          1e3 * divided(all_but_first_s_, iterations_ - 1),
          1e3 * times.median,
          1e3 * times.p95,
          1e3 * divided(compute_s_, timed_),
          1e3 * divided(hidden_s_, timed_),
          1e3 * mean_exposed_s(),
          1e3 * divided(wait_s_, timed_),
          1e3 * divided(other_s_, timed_)};
}

Table RankSummary::gather(Exchange& exchange, const std::vector<RankPlace>& places,
                          std::int64_t warmup) const {
  const std::vector<double> mine = block();
  const std::vector<double> all = exchange.session().gather(std::span(mine));
  Table table{"ranks", "", {}, {{"rank", "rank", false, "", "", 0}, {"host", "host", true}}, {}};
  for (const Figure& figure : kFigures)
    table.columns.push_back({figure.name, figure.head, false, "", "", figure.detail});
  table.notes = {
      "compute + exposed + wait + other = iteration (ms, means); hidden communication "
      "overlaps with compute, wait is for the last rank of a collective",
      fmt::format("the first {} iterations are warm-up and left out; the mean leaves out "
                  "the first one only",
                  warmup)};
  if (!all.empty()) table.title = iteration_text(all, timed_);
  for (std::size_t rank = 0; rank < places.size(); ++rank) {
    std::vector<Cell> row = {Cell::count(static_cast<double>(rank)), places[rank].host};
    for (std::size_t c = 0; c < mine.size(); ++c)
      row.push_back(Cell::of(all[rank * mine.size() + c], kFigures[c].decimals));
    table.add(std::move(row));
  }
  return table;
}

namespace {

constexpr std::size_t kLabels = 2;  ///< columns before the figures
constexpr std::size_t kMostRows = 8, kMostHosts = 5;

double median_ms(const std::vector<Cell>& row) {
  const double value = row[kLabels + kMedian].number;
  return std::isnan(value) ? 0 : value;
}

/// The slowest first.
void sort_rows(std::vector<std::vector<Cell>>& rows) {
  std::ranges::stable_sort(rows, std::ranges::greater(), median_ms);
}

std::vector<Cell> mean_of(const std::vector<const std::vector<Cell>*>& rows) {
  std::vector<Cell> mean = *rows.front();
  mean[0] = "mean of " + count_text(static_cast<std::int64_t>(rows.size()), "rank");
  for (std::size_t column = kLabels; column < mean.size(); ++column) {
    double sum = 0;
    for (const auto* row : rows)
      sum += (*row)[column].number;
    mean[column] = Cell::of(sum / static_cast<double>(rows.size()), mean[column].decimals);
  }
  return mean;
}

}  // namespace

Table closing_table(const Table& ranks) {
  if (ranks.rows.size() <= kMostRows) return ranks;
  Table table = ranks;
  table.rows.clear();
  auto sorted = ranks.rows;
  sort_rows(sorted);
  const auto add = [&](std::vector<Cell> row, const char* which) {
    row[0] = fmt::format("{} ({})", row[0].shown(), which);
    table.add(std::move(row));
  };
  add(sorted.front(), "slowest");
  add(sorted[sorted.size() / 2], "median");
  add(sorted.back(), "fastest");
  std::map<std::string, std::vector<const std::vector<Cell>*>> rows_of;
  for (const auto& row : ranks.rows)
    rows_of[row[1].text].push_back(&row);
  std::vector<std::vector<Cell>> hosts;
  for (const auto& [host, rows] : rows_of)
    hosts.push_back(mean_of(rows));
  if (hosts.size() > kMostHosts) sort_rows(hosts);
  for (std::size_t i = 0; i < std::min(hosts.size(), kMostHosts); ++i)
    table.add(std::move(hosts[i]));
  table.notes.insert(
      table.notes.begin(),
      fmt::format("all {} ranks on {}{}, by their median iteration; --json FILE has "
                  "every rank",
                  ranks.rows.size(), count_text(static_cast<std::int64_t>(hosts.size()), "host"),
                  hosts.size() > kMostHosts ? ", of which the 5 slowest" : ""));
  return table;
}

}  // namespace gradsync
