// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/figures/comparisons.h"
#include "analysis/published/layout_figures.h"
#include "analysis/tables/columns.h"
#include "base/ranges.h"
#include "stats/estimate.h"
#include "stats/statistics.h"

namespace gradsync::report::published {

namespace {

/// A number of a sentence, published and measured.
struct SaidNumber {
  double published = kNotMeasured;
  LayoutSetting setting = {};
  LayoutQuantity quantity = {};
  MeasuredNumber measured = {};
};

struct SentenceRow {
  const LayoutSentence* sentence;
  double published = kNotMeasured;  ///< left / right
  TimeRatio measured = {};
  std::string judgement = {}, remark = {};
};

/// Why times of two numbers are not those of one machine in one setting.
std::string apart(const SaidNumber& left, const SaidNumber& right) {
  const RunGroup *one = left.measured.group, *other = right.measured.group;
  const bool known = one != nullptr && other != nullptr && is_timed(left.quantity);
  return known ? settings_apart(*one, *other) : "";
}

class Sentences {
 public:
  Sentences(const Layout& layout, const AuditedNumbers* published, LayoutFigures& figures)
      : figures_(figures) {
    if (published == nullptr) return;
    for (const AuditedNumber& one : published->numbers)
      if (one.report == layout.report) published_.push_back(&one);
  }

  SentenceRow row(const LayoutSentence& sentence) const {
    const std::string threads = figures_.threads_of_several(
        {{"", sentence.left.devices, 0}, {"", sentence.right.devices, 0}});
    const SaidNumber left = number(sentence.left, threads), right = number(sentence.right, threads);
    SentenceRow row{&sentence, left.published / right.published};
    const std::string differ = apart(left, right);
    if (differ.empty()) row.measured = ratio(left, right);
    row.judgement = judgement(sentence, row.measured);
    row.remark = remark(row, left, right);
    if (!differ.empty())
      row.remark += fmt::format("{}not compared: {}", row.remark.empty() ? "" : "; ", differ);
    return row;
  }

 private:
  /// The mean of ranks that the report prints apart; without a mode, of the first one that has it.
  SaidNumber number(const LayoutOperand& operand, const std::string& threads) const {
    if (std::isfinite(operand.constant))
      return {operand.constant, {}, {}, MeasuredNumber{operand.constant}};
    std::vector<double> values;
    LayoutSetting setting{operand.mode, operand.devices, operand.batch};
    std::string table;
    for (const AuditedNumber* one : published_) {
      const LayoutSetting at{one->mode, one->devices, one->batch_per_device};
      const bool wanted = at.devices == operand.devices && at.batch == operand.batch &&
                          (operand.mode.empty() || at.synchronization() == operand.mode);
      if (!wanted || one->quantity != operand.quantity.name) continue;
      if (table.empty()) {
        table = one->table;
        setting.mode = at.synchronization();
      }
      if (one->table == table && at.synchronization() == setting.mode)
        values.push_back(one->base_value);
    }
    return {operand.remedy.empty() ? mean(values) : kNotMeasured, setting, operand.quantity,
            figures_.of(setting, operand.quantity, 1, threads, operand.remedy)};
  }

  /// The ratio of iterations as time_ratio has it, so within the rounds of a job where both are its
  /// contenders; else over the repeats, of two cells by ratio_over_starts.
  static TimeRatio ratio(const SaidNumber& left, const SaidNumber& right) {
    if (left.quantity.kind == Kind::kIterationTime && left.measured.group != nullptr &&
        right.quantity.kind == Kind::kIterationTime && right.measured.group != nullptr)
      return time_ratio(*left.measured.group, *right.measured.group);
    TimeRatio ratio;
    ratio.value = left.measured.value / right.measured.value;
    const std::vector<double>&above = left.measured.repeats, &below = right.measured.repeats;
    if (above.size() < kFewestStarts || (right.setting.devices > 0 && below.size() < kFewestStarts))
      return ratio;
    const bool constant = right.setting.devices <= 0;
    // Two numbers of the same runs differ within each of them.
    const bool paired = !constant && left.measured.group != nullptr &&
                        left.measured.group == right.measured.group && above.size() == below.size();
    if (!constant && !paired) return ratio_over_starts({{}, above}, {{}, below});
    std::vector<double> logarithms;
    for (std::size_t i = 0; i < above.size(); ++i)
      logarithms.push_back(std::log(above[i] / (paired ? below[i] : right.measured.value)));
    static_cast<Estimate&>(ratio) = exponential(mean_estimate(logarithms));
    return ratio;
  }

  static std::string judgement(const LayoutSentence& sentence, const TimeRatio& ratio) {
    if (!std::isfinite(ratio.value)) return "n/a";
    if (ratio.holds(1)) return "open: the interval holds 1";
    const bool holds = sentence.above ? ratio.value > 1 : ratio.value < 1;
    if (!ratio.has_interval()) return holds ? "same side, no interval" : "other side, no interval";
    return holds ? "confirmed here" : "contradicted here";
  }

  std::string remark(const SentenceRow& row, const SaidNumber& left,
                     const SaidNumber& right) const {
    std::vector<std::string> remarks;
    const bool above = row.sentence->above;
    if (above ? row.published <= 1 : row.published >= 1)
      remarks.emplace_back("the report's own numbers contradict it");
    for (const SaidNumber* one : {&left, &right}) {
      const bool known = std::isfinite(one->measured.value);
      if (known && one->measured.extrapolated) add_once(remarks, std::string("extrapolated"));
      if (known && one->measured.unsteady) add_once(remarks, std::string("never became steady"));
      if (known && !one->measured.stands_in.empty()) add_once(remarks, one->measured.stands_in);
      if (!known && figures_.most_ranks() > 0 && one->setting.devices > figures_.most_ranks())
        add_once(remarks, needs_text(one->setting, one->quantity));
    }
    return fmt::format("{}", fmt::join(remarks, "; "));
  }

  LayoutFigures& figures_;
  std::vector<const AuditedNumber*> published_;
};

std::string compared(const LayoutSentence& sentence) {
  return sentence.right.text == "1" ? sentence.left.text
                                    : sentence.left.text + " / " + sentence.right.text;
}

/// Numbers without a claim: what they are computed from is named in the row.
TableColumns<SentenceRow> sentence_columns() {
  using Row = SentenceRow;
  using CellOf = RowColumn<Row>::CellOf;
  const auto text = [](const char* name, const char* head, CellOf cell) {
    return RowColumn<Row>({name, head, true, "", "", 0}, std::move(cell));
  };
  const auto number = [](const char* name, const char* head, CellOf cell) {
    return RowColumn<Row>({name, head, false, "", "", 0}, std::move(cell));
  };
  return {
      text("topic", "topic", [](const Row& row) { return Cell(row.sentence->topic); }),
      text("says", "its numbers say", [](const Row& row) { return Cell(row.sentence->says); }),
      text("ratio", "ratio", [](const Row& row) { return Cell(compared(*row.sentence)); }),
      number("report_ratio", "report",
             [](const Row& row) { return significant_cell(row.published); }),
      number("measured_ratio", "measured",
             [](const Row& row) { return significant_cell(row.measured.value); }),
      number("low", "low", [](const Row& row) { return significant_cell(row.measured.low); }),
      number("high", "high", [](const Row& row) { return significant_cell(row.measured.high); }),
      text("judgement", "judgement", [](const Row& row) { return Cell(row.judgement); }),
      text("remark", "remark", [](const Row& row) { return Cell(row.remark); })};
}

}  // namespace

Table sentences_table(const Layout& layout, const AuditedNumbers* published,
                      LayoutFigures& figures) {
  const TableColumns<SentenceRow> columns = sentence_columns();
  Table table = columns.table(
      layout.name + "-sentences", "What the numbers of the report say, and what was measured",
      {"its numbers say: read from the report's printed numbers, not quoted from its text",
       "report, measured: the ratio named in the row, of the report's numbers and of the "
       "runs; the sentence says on which side of 1 it lies. What other hardware than the "
       "report's contradicts may hold on the report's",
       fmt::format("low, high: 95 % interval over the runs of each side, {} or more (of "
                   "the logarithms: Welch's; of two numbers of the same runs, and against a "
                   "constant, Student's); of iteration times, medians, of contenders of one job "
                   "over its rounds; else n/a, and nothing is confirmed or contradicted",
                   kFewestStarts)});
  table.notes.insert(table.notes.end(), layout.notes.begin(), layout.notes.end());
  const Sentences all(layout, published, figures);
  std::vector<std::string> sources;
  for (const RunGroup& group : figures.groups())
    sources.push_back(sources_of(group));
  for (const LayoutSentence& sentence : layout.sentences)
    table.add(columns.cells(all.row(sentence)), fmt::format("{}", fmt::join(sources, ", ")));
  return table;
}

}  // namespace gradsync::report::published
