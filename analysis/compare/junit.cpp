#include <algorithm>

#include <fmt/format.h>

#include "analysis/compare/comparison.h"

namespace gradsync {

namespace {

/// For an attribute; what XML 1.0 cannot hold becomes a question mark.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  return result;
}

std::string ratio_text(const ComparedCell& cell) {
  return fmt::format("B/A = {:.4f} (95 %: {:.4f} to {:.4f}), A {:.6g} s, B {:.6g} s, {}",
                     cell.time.ratio.value, cell.time.ratio.low, cell.time.ratio.high,
                     cell.time_a.value, cell.time_b.value, cell.verdict());
}

bool skipped(const ComparedCell& cell) {
  return !cell.both() || !cell.time.ratio.has_interval();
}

std::string body(const ComparedCell& cell, double threshold) {
  if (skipped(cell)) return fmt::format("<skipped message=\"{}\"/>", escaped(cell.verdict()));
  const std::string text = escaped(ratio_text(cell));
  if (cell.fails(threshold))
    return fmt::format("<failure message=\"{}\" type=\"threshold\"/>", text);
  return fmt::format("<system-out>{}</system-out>", text);
}

}  // namespace

std::string junit_text(const std::vector<ComparedCell>& cells, double threshold) {
  const auto count = [&](auto&& holds) { return std::count_if(cells.begin(), cells.end(), holds); };
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuite name=\"gradsync-report compare\" tests=\"{}\" failures=\"{}\" errors=\"0\" "
      "skipped=\"{}\">\n",
      cells.size(), count([&](const ComparedCell& cell) { return cell.fails(threshold); }),
      count(skipped));
  for (const ComparedCell& cell : cells)
    text += fmt::format("  <testcase classname=\"gradsync.compare\" name=\"{}\">{}</testcase>\n",
                        escaped(cell.name), body(cell, threshold));
  return text + "</testsuite>\n";
}

}  // namespace gradsync
