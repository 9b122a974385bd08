// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "analysis/read/run_set.h"
#include "analysis/tables/tables.h"
#include "base/table.h"
#include "run_folder.h"
#include "test_folder.h"

/// What tests of the report look at.
namespace gradsync::testing {

using namespace gradsync::report;

inline RunSet loaded(const std::filesystem::path& place) {
  return load_runs(find_runs({place.string()}));
}

inline RunSet loaded(const TestFolder& folder) {
  return loaded(folder.path());
}

inline RunSet loaded(const RunFolder& folder) {
  return load_runs(folder.found());
}

inline RunSet loaded(const RunFolder::File& file) {
  return load_runs({{file.name, true, [&] { return file.folder->open(file.name); }}});
}

/// The place of the column with this machine name; a test without it ends there.
inline std::size_t column_of(const Table& table, const std::string& column) {
  for (std::size_t c = 0; c < table.columns.size(); ++c)
    if (table.columns[c].name == column) return c;
  FAIL("no column " << column);
  return 0;
}

/// What a person reads in the cell of a column.
inline std::string shown(const Table& table, std::size_t row, const std::string& column) {
  return table.rows.at(row)[column_of(table, column)].shown();
}

/// A table as the report prints it, with what a reader must know of the runs.
inline Table printed(const std::string& name, const RunSet& set) {
  for (const TableSpec& spec : tables())
    if (spec.name == name) return spec.make(set, {});
  FAIL("no table " << name);
  return {};
}

inline std::string all_notes(const Table& table) {
  std::string text;
  for (const std::string& note : table.notes)
    text += note + "\n";
  return text;
}

}  // namespace gradsync::testing
