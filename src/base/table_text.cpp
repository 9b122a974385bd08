#include <sstream>

#include "base/table_formats.h"

namespace gradsync {

std::string render_text(const Table& table) {
  std::ostringstream out;
  print_text(out, table);
  return out.str();
}

}  // namespace gradsync
