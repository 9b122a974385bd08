#include "base/table.h"

#include <sstream>

#include <doctest/doctest.h>

#include "serial/expect_error.h"

using namespace gradsync;

namespace {

Table timed() {
  Table table{"t",
              "Times",
              {"first note that is longer than a line", "second note", "third note"},
              {{"mode", "mode", true, "", "", 0},
               {"ms", "ms", false},
               {"low_ms", "low", false},
               {"high_ms", "high", false},
               {"detail", "detail", false, "", "", 2},
               {"run", "run", true}},
              {}};
  table.add(
      {"ddp", Cell::of(217.3, 1), Cell::of(216.1, 1), Cell::of(219.3, 1), Cell::count(7), "a-run"});
  table.add({"none", Cell::of(9, 1), Cell::of(NAN, 1), Cell::of(NAN, 1), Cell::count(8), "b"});
  return table;
}

std::string narrow(const Table& table, std::size_t width) {
  std::ostringstream text;
  print_narrow_text(text, table, width, "--wide");
  return text.str();
}

}  // namespace

TEST_CASE("table: words are wrapped at spaces") {
  CHECK(wrapped("one two three", 7) == std::vector<std::string>{"one two", "three"});
  CHECK(wrapped("overlong a", 3) == std::vector<std::string>{"overlong", "a"});
  CHECK(wrapped("", 5).empty());
}

TEST_CASE("table: text folds intervals, and says how many notes are left out") {
  CHECK(narrow(timed(), 60) ==
        "Times\n"
        "mode                    ms  detail  run\n"
        "----  --------------------  ------  -----\n"
        "ddp   217.3 [216.1, 219.3]       7  a-run\n"
        "none                   9.0       8  b\n"
        "  first note that is longer than a line\n"
        "  second note\n"
        "  (1 more note: --wide)\n");
}

TEST_CASE("table: columns that do not fit are left out by detail, then from the right") {
  Table table = timed();
  table.notes.clear();
  CHECK(narrow(table, 40) ==
        "Times\n"
        "mode                    ms  run\n"
        "----  --------------------  -----\n"
        "ddp   217.3 [216.1, 219.3]  a-run\n"
        "none                   9.0  b\n"
        "  (1 column not shown: detail: --wide)\n");
  CHECK(contains(narrow(table, 26), "(2 columns not shown:\n  detail, run: --wide)\n"));
  // What is always shown stays, however narrow the terminal is.
  CHECK(contains(narrow(table, 3), "mode\n----\nddp\nnone\n"));
}

TEST_CASE("table: what all rows say leaves a narrow text first, and is said below it") {
  Table table = timed();
  table.notes.clear();
  table.columns.insert(table.columns.begin() + 1, {{"model", "model", true}, {"ranks", "ranks"}});
  for (auto& row : table.rows)
    row.insert(row.begin() + 1, {Cell("lenet"), Cell::count(2)});
  CHECK(contains(narrow(table, 58), "mode  model  ranks                    ms  detail  run\n"));
  CHECK(contains(narrow(table, 50), "mode  model                    ms  detail  run\n"));
  CHECK(contains(narrow(table, 50), "(1 column not shown: ranks = 2: --wide)"));
  keep(table.columns, {"ranks", "run"});
  CHECK(contains(narrow(table, 40), "mode  ranks                    ms  run\n"));
  CHECK(contains(narrow(table, 40), "model = lenet"));
  // One row does not say what rows have in common.
  table.rows.resize(1);
  CHECK(contains(narrow(table, 50), "(1 column not shown: detail: --wide)"));
  CHECK(contains(error_text(ExitCode::kInternal, [&] { keep(table.columns, {"nothing"}); }),
                 "no column is named nothing"));
}
