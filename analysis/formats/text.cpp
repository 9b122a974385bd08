#include <sstream>

#include "analysis/formats/formats.h"

namespace gradsync::report {

std::string render_text(const Table& table) {
  std::ostringstream out;
  print_text(out, table);
  return out.str();
}

}  // namespace gradsync::report
