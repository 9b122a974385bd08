#include "base/table_formats.h"

namespace gradsync {

namespace {

/// Of a form that has all columns in any case.
template <auto kRender>
std::string whole(const Table& table, bool) {
  return kRender(table);
}

}  // namespace

const std::vector<FormatSpec>& formats() {
  static const std::vector<FormatSpec> all = {
      {"text", "txt", "aligned columns for a terminal", whole<render_text>},
      {"markdown", "md", "pipe tables with notes", whole<render_markdown>},
      {"latex", "tex", "booktabs floats with labels and notes, as wide as an A4 page",
       render_latex},
      {"csv", "csv", "one header row, full precision, no notes", whole<render_csv>},
      {"json", "json", "one object per table, full precision, null where not measured",
       whole<table_json>},
  };
  return all;
}

}  // namespace gradsync
