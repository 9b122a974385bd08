#include "analysis/published/audit_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/parse.h"

namespace gradsync::report::published {

namespace {

Block block(Block::Kind kind, std::string text, std::string lead = {}) {
  return {kind, std::move(lead), std::move(text), {}};
}

struct Counts {
  std::array<std::size_t, 4> verdicts{};  ///< by Judgment
  std::array<std::size_t, 3> findings{};  ///< by Severity

  std::size_t of(Judgment judgment) const { return verdicts[static_cast<std::size_t>(judgment)]; }
  std::size_t of(Severity severity) const { return findings[static_cast<std::size_t>(severity)]; }
};

std::map<std::string, Counts> counts_by_report(const Study& study, const Audit& audit) {
  std::map<std::string, Counts> counts;
  for (std::size_t i = 0; i < study.rows().size(); ++i)
    ++counts[study.rows()[i].report].verdicts[static_cast<std::size_t>(audit.verdicts[i].judgment)];
  for (const Finding& finding : audit.findings)
    ++counts[finding.report].findings[static_cast<std::size_t>(finding.severity)];
  return counts;
}

// --- overview ------------------------------------------------------------------------------------

Cell audit_page_count(std::size_t number) {
  return Cell::count(static_cast<double>(number));
}

void add_counts(Table& table, const std::string& name, const Counts& counts) {
  table.add({name, audit_page_count(counts.of(Judgment::kPrimary)),
             audit_page_count(counts.of(Judgment::kAgrees)),
             audit_page_count(counts.of(Judgment::kDiffers)),
             audit_page_count(counts.of(Judgment::kCannot)),
             audit_page_count(counts.of(Severity::kImpossible)),
             audit_page_count(counts.of(Severity::kContradicted)),
             audit_page_count(counts.of(Severity::kDoubtful))});
}

Block overview(const Study& study, const Audit& audit) {
  Table table{"published-overview",
              "Numbers and findings",
              {"primary: measured, taken as printed; the others are derived, or of an unknown kind "
               "or unit"},
              {{"report", "report", true},
               {"primary", "primary"},
               {"agree", "agree"},
               {"differ", "differ"},
               {"cannot", "cannot be recomputed"},
               {"impossible", "impossible"},
               {"contradicted", "contradicted"},
               {"doubtful", "doubtful"}},
              {}};
  const auto counts = counts_by_report(study, audit);
  for (const std::string& report : study.reports())
    add_counts(table, report, counts.at(report));
  if (counts.count("") != 0) add_counts(table, "across reports", counts.at(""));
  return {Block::Kind::kTable, "", "", std::move(table)};
}

std::string message_text(const AuditOptions& options) {
  if (options.message_bytes > 0)
    return fmt::format("a message of {} bytes (--message-bytes)",
                       with_commas(options.message_bytes));
  if (options.parameters > 0)
    return fmt::format("{} parameters of 4 bytes (--parameters)", with_commas(options.parameters));
  return "messages by the model's name (--parameters, --message-bytes)";
}

std::string method_text(const AuditOptions& options) {
  return fmt::format(
      "Each derived number was recomputed from the others under each known convention, with {} "
      "images in an epoch (--images) and {}. It agrees where the printed digits allow it: half a "
      "unit of the last digit, of the number and of those it is made from, carried through the "
      "formula. A convention gives a column if at least half of its values agree, a tenth more "
      "for each step that it is away from what the words say.",
      with_commas(options.images), message_text(options));
}

void add_remarks(const Study& study, Page& page) {
  for (const std::string& remark : study.file().remarks)
    page.push_back(block(Block::Kind::kItem, remark, "note"));
}

// --- columns -------------------------------------------------------------------------------------

std::string column_head(const ColumnAudit& column) {
  const DerivedColumn& one = column.column;
  std::vector<std::string> parts;
  if (!one.table.empty()) parts.push_back("table " + one.table);
  if (!one.model.empty()) parts.push_back(one.model);
  parts.push_back(count_text(one.rows.size(), "value"));
  return fmt::format("{} ({})", one.quantity, fmt::join(parts, ", "));
}

std::string off_text(const Fit& fit) {
  return fmt::format("printed / expected is {:.3g} to {:.3g}", fit.lowest, fit.highest);
}

std::string fit_text(const ColumnAudit& column) {
  const Fit& fit = column.fit;
  if (!fit.convention) return "no convention is known for it";
  const std::string name =
      fmt::format("{}, {}{}", fit.convention->name, fit.convention->formula, constants_text(fit));
  if (fit.reproduces) return name;
  if (fit.recomputed == 0)
    return fmt::format("what {} needs is not published", fit.convention->name);
  const std::string none =
      fmt::format("no combination of {} of convention, constants and sources gives it",
                  with_commas(static_cast<double>(fit.tried)));
  const bool near = fit.median_distance <= std::log(kNear);
  return fmt::format("{}; {} {}: {}", none, near ? "the nearest is" : "by", name, off_text(fit));
}

std::string tally_text(const ColumnAudit& column) {
  std::vector<std::string> parts;
  if (column.agree > 0)
    parts.push_back(fmt::format("{} agree{}", column.agree, column.agree == 1 ? "s" : ""));
  if (column.differ > 0)
    parts.push_back(fmt::format("{} differ{}", column.differ, column.differ == 1 ? "s" : ""));
  if (column.cannot > 0) parts.push_back(fmt::format("{} cannot be recomputed", column.cannot));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void add_columns(const Audit& audit, const std::string& report, Page& page) {
  bool first = true;
  for (const ColumnAudit& column : audit.columns) {
    if (column.column.report != report) continue;
    if (std::exchange(first, false))
      page.push_back(block(Block::Kind::kSubheading, "How its derived numbers were made"));
    page.push_back(block(Block::Kind::kItem,
                         fmt::format("{}. {}.", fit_text(column), tally_text(column)),
                         column_head(column)));
  }
}

// --- values --------------------------------------------------------------------------------------

std::string value_text(const Row& row, const Verdict& verdict) {
  return fmt::format("{} of {}{}{} is {}{}{}; {}", row.quantity, row.mode,
                     row.mode.empty() ? "" : ", ", setting_text(row.devices, row.batch_per_device),
                     row.text, row.unit_text == "1" ? "" : " ",
                     row.unit_text == "1" ? "" : row.unit_text, verdict.text);
}

// What differs, one by one; what cannot be recomputed only where it is no column's common fate.
bool is_shown(const Row& row, const Verdict& verdict) {
  return verdict.judgment == Judgment::kDiffers ||
         (verdict.judgment == Judgment::kCannot && !row.what.derived);
}

void add_values(const Study& study, const Audit& audit, const std::string& report, Page& page) {
  constexpr std::size_t kMost = 40;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < study.rows().size(); ++i) {
    const Row& row = study.rows()[i];
    if (row.report != report || !is_shown(row, audit.verdicts[i])) continue;
    if (++shown > kMost) continue;
    if (shown == 1) page.push_back(block(Block::Kind::kSubheading, "Values that do not agree"));
    page.push_back(block(Block::Kind::kItem, value_text(row, audit.verdicts[i]),
                         fmt::format("line {}", row.line)));
  }
  if (shown > kMost)
    page.push_back(block(Block::Kind::kItem, "all of them are in the table 'values'",
                         fmt::format("{} more", shown - kMost)));
}

// --- findings ------------------------------------------------------------------------------------

void add_finding(const Finding& finding, Page& page) {
  constexpr std::size_t kMostCells = 8;
  const std::string why = finding.why.empty() ? "" : " " + finding.why;
  page.push_back(block(Block::Kind::kItem,
                       fmt::format("{}.{}{} ({})", finding.what, why, finding.right_text(),
                                   lines_text(finding.lines)),
                       std::string(severity_text(finding.severity)) + ", " + finding.check));
  for (std::size_t i = 0; i < std::min(kMostCells, finding.cells.size()); ++i)
    page.push_back(block(Block::Kind::kSubitem, finding.cells[i]));
  if (finding.cells.size() > kMostCells)
    page.push_back(block(Block::Kind::kSubitem,
                         fmt::format("and {} more", finding.cells.size() - kMostCells)));
}

void add_findings(const Audit& audit, const std::string& report, Page& page) {
  bool first = true;
  for (const Finding& finding : audit.findings) {
    if (finding.report != report) continue;
    if (std::exchange(first, false)) page.push_back(block(Block::Kind::kSubheading, "Findings"));
    add_finding(finding, page);
  }
  if (first && !report.empty())
    page.push_back(block(Block::Kind::kParagraph, "No finding beyond the values above."));
}

}  // namespace

std::string constants_text(const Fit& fit) {
  std::vector<std::string> parts;
  const Convention& convention = *fit.convention;
  const Choice& choice = fit.choice;
  const auto needs = [&](Input input) { return convention.needs_input(input); };
  if (needs(Input::kTime)) parts.push_back("T(n) = " + choice.time.text());
  if (needs(Input::kBaseTime)) parts.push_back("T(1) = " + choice.base.text());
  if (needs(Input::kBaseTime) && choice.rule.same_global_batch)
    parts.push_back("base of the same global batch");
  if (needs(Input::kBaseTime) && choice.rule.same_mode) parts.push_back("base of the same mode");
  if (needs(Input::kMessage)) parts.push_back("S = " + choice.message.text);
  if (needs(Input::kIterations))
    parts.push_back(fmt::format("iterations with the {}", last_batch_text(choice.last)));
  if (choice.derived_comm)
    parts.push_back("communication = T(n) - T(1)/n from " + choice.time.text());
  if (!choice.slip.text.empty()) parts.emplace_back(choice.slip.text);
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, "; "));
}

Page audit_page(const Study& study, const Audit& audit) {
  Page page = {
      block(Block::Kind::kTitle, "Published numbers of " + study.file().name + ", audited"),
      block(Block::Kind::kParagraph, method_text(audit.options)), overview(study, audit)};
  add_remarks(study, page);
  for (const std::string& report : study.reports()) {
    page.push_back(block(Block::Kind::kHeading, report));
    add_columns(audit, report, page);
    add_values(study, audit, report, page);
    add_findings(audit, report, page);
  }
  const bool across = std::any_of(audit.findings.begin(), audit.findings.end(),
                                  [](const Finding& finding) { return finding.report.empty(); });
  if (across) page.push_back(block(Block::Kind::kHeading, "Across reports"));
  add_findings(audit, "", page);
  return page;
}

}  // namespace gradsync::report::published
