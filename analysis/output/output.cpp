#include "analysis/output/output.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/plots/plots.h"
#include "analysis/plots/svg.h"
#include "base/error.h"
#include "base/file.h"

namespace gradsync::report {

namespace {

bool is_for_people(const FormatSpec& format) {
  return format.name == "text" || format.name == "markdown";
}

/// On standard output; `whole` is the table as text.
std::string text_for(const OutputOptions& options, const Table& table, const std::string& whole) {
  const std::size_t width = options.columns();
  if (width == 0) return whole;
  std::ostringstream text;
  print_narrow_text(text, table, width, "--wide");
  return text.str();
}

}  // namespace

ReportOutput::ReportOutput(const OutputOptions& options, std::ostream& out, std::ostream& log)
    : options_(options), out_(out), log_(log) {
  if (options_.output.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(options_.output, failure);
  if (failure)
    throw Error(
        ExitCode::kCannotCreate,
        fmt::format("cannot make the folder '{}': {}", options_.output.string(), failure.message()),
        "choose another --output");
}

void ReportOutput::print(const std::string& text) {
  out_ << (first_ ? "" : "\n") << text << std::flush;
  first_ = false;
  if (!out_) throw Error(ExitCode::kInputOutput, "cannot write to standard output");
}

void ReportOutput::write(const Table& table, bool printed, bool machines_only) {
  const bool folder = !options_.output.empty();
  for (const FormatSpec* format : options_.formats) {
    if (machines_only && is_for_people(*format)) continue;
    const std::string text = format->render(table, options_.wide);
    if (folder)
      write_file_atomically(options_.output / (table.name + "." + format->extension), text);
    if (!printed) continue;
    if (format->name == "text")
      print(text_for(options_, table, text));
    else if (!folder)
      print(text);
  }
}

void ReportOutput::write_page(const std::string& name, const std::string& text,
                              const std::string& markdown) {
  for (const FormatSpec* format : options_.formats) {
    if (!is_for_people(*format)) continue;
    const std::string& page = format->name == "text" ? text : markdown;
    if (!options_.output.empty())
      write_file_atomically(options_.output / (name + "." + format->extension), page);
    if (options_.output.empty() || format->name == "text") print(page);
  }
}

void ReportOutput::write_verdict(const std::vector<VerdictClause>& clauses) {
  const bool text = std::any_of(options_.formats.begin(), options_.formats.end(),
                                [](const FormatSpec* format) { return format->name == "text"; });
  if (!options_.output.empty()) {
    write_file_atomically(options_.output / "verdict.md", verdict_markdown(clauses));
    write_file_atomically(options_.output / "verdict.json", verdict_json(clauses));
  }
  if (text) print(verdict_text(clauses, options_.columns()));
}

void ReportOutput::draw_plots(const std::vector<NamedChart>& charts) {
  if (options_.output.empty() || charts.empty()) return;
  std::map<std::string, std::vector<std::string>> plots_of;  // those not drawn, by the reason
  std::vector<std::string_view> names;
  for (const NamedChart& plot : charts) {
    names.push_back(plot.name);
    write_figure(plot.chart, plot.name, options_.output);
    try {
      draw_figure(plot.name, options_.output);
    } catch (const Error& error) {
      const std::string fix = error.fix().empty() ? "" : "\n  fix: " + error.fix();
      plots_of[error.what() + fix].push_back(plot.name);
    }
  }
  log_ << fmt::format("plots in {}: {}\n", options_.output.string(), fmt::join(names, ", "));
  for (const auto& [reason, plots] : plots_of)
    log_ << fmt::format("warning: no PNG and PDF of {}: {}\n", fmt::join(plots, ", "), reason);
}

}  // namespace gradsync::report
