#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync::report::published {

struct CsvRecord {
  std::size_t line = 0;  ///< of its first character, from 1
  std::vector<std::string> fields;
};

/// The records of a CSV text by RFC 4180: fields between commas, quoted ones may hold commas,
/// doubled quotes and line ends. A byte order mark is skipped, lines end with LF, CRLF or CR, empty
/// lines count but are no records. Blanks around unquoted fields are left out. `name` is for the
/// messages. Throws Error kBadData with "name:line" for an open quote, for anything behind a
/// closing quote, for a quote inside an unquoted field and for what is not text.
std::vector<CsvRecord> parse_csv(std::string_view text, const std::string& name);

}  // namespace gradsync::report::published
