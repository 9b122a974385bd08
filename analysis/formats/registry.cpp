#include "analysis/formats/registry.h"

#include "analysis/formats/formats.h"

namespace gradsync::report {

const std::vector<FormatSpec>& formats() {
  static const std::vector<FormatSpec> all = {
      {"text", "txt", "aligned columns for a terminal", render_text},
      {"markdown", "md", "pipe tables with notes", render_markdown},
      {"latex", "tex", "booktabs floats with labels and notes", render_latex},
      {"csv", "csv", "one header row, full precision, no notes", render_csv},
      {"json", "json", "an object a table, full precision, null where not measured", table_json},
  };
  return all;
}

}  // namespace gradsync::report
