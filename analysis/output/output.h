#pragma once

#include <filesystem>
#include <iosfwd>
#include <vector>

#include "analysis/output/output_options.h"
#include "analysis/plots/plots.h"
#include "analysis/verdict/verdict.h"
#include "base/table.h"

namespace gradsync::report {

/// Where results go: standard output, a folder, or both.
class ReportOutput {
 public:
  /// Makes the folder if one is wanted. Throws Error kCannotCreate.
  ReportOutput(const OutputOptions& options, std::ostream& out, std::ostream& log);

  /// A table in every format wanted; files appear whole or not at all. What is `printed` goes to
  /// standard output too where there is a folder: as text. `machines_only` leaves out the formats
  /// for people, for what a page says already.
  void write(const Table& table, bool printed = true, bool machines_only = false);

  /// A page on standard output as text or Markdown, if one of them is wanted; as name.txt and
  /// name.md in the folder.
  void write_page(const std::string& name, const std::string& text, const std::string& markdown);

  /// As text on standard output where text is wanted; as verdict.md and verdict.json in the folder.
  void write_verdict(const std::vector<VerdictClause>& clauses);

  /// All plots, if there is a folder. A plot that cannot be drawn is a warning:
  /// its data and its script are there, and the tables are what counts.
  void draw_plots(const std::vector<NamedChart>& charts);

 private:
  void print(const std::string& text);

  const OutputOptions& options_;
  std::ostream& out_;
  std::ostream& log_;
  bool first_ = true;
};

}  // namespace gradsync::report
