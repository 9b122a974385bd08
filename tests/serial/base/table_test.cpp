// SPDX-License-Identifier: BSD-3-Clause
#include "base/table.h"

#include <limits>
#include <set>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

TEST_CASE("table: a program without --wide prints all notes") {
  const Table table = timed();
  std::ostringstream out;
  print_narrow_text(out, table, 200, "--json FILE", SIZE_MAX);
  CHECK(contains(out.str(), "third note"));
  CHECK_FALSE(contains(out.str(), "more note"));
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

TEST_CASE("table: a narrow text keeps the labels that tell rows apart, whatever its width") {
  const auto label = [](const char* name, int detail) {
    return Column{name, name, true, "", "", detail, true};
  };
  Table table{"t",
              "Title",
              {},
              {label("mode", 1),
               label("model", 1),
               label("ranks", 3),
               label("base", 2),
               {"remark", "remark", true},
               {"time", "time", false, "T", "/time", 0},
               label("run", 3)},
              {}};
  for (const char* ranks : {"1", "2"})
    for (const char* base : {"one rank", "its fewest ranks"})
      table.add({"ddp", "resnet18", ranks, base, std::string("remark on ") + base, Cell::of(1, 3),
                 std::string("a-long-name-of-a-run-") + ranks});
  for (std::size_t width = 1; width < 200; ++width) {
    std::set<std::vector<std::string>> rows;
    const ShownColumns shown = shown_columns(table, width);
    for (const auto& row : table.rows) {
      std::vector<std::string> labels;
      for (const ShownColumn& column : shown.columns)
        if (table.columns[column.column].label) labels.push_back(column.cell(row));
      rows.insert(labels);
    }
    CHECK_MESSAGE(rows.size() == 4, width);
  }
  // What all rows say leaves first; of two labels that tell the same apart, the one of less use.
  const std::string text = narrow(table, 50);
  CHECK(contains(text, "mode  ranks  base               time\n"));
  CHECK(contains(text, "model = resnet18"));
}

TEST_CASE("table: what is rounded to zero has no sign") {
  CHECK(Cell::of(-0.04, 1).shown() == "0.0");
  CHECK(Cell::of(-0.0, 0).shown() == "0");
  CHECK(Cell::of(-0.05, 2).shown() == "-0.05");
  CHECK(Cell::of(-0.06, 1).shown() == "-0.1");
  CHECK(Cell::of(-std::numeric_limits<double>::infinity(), 1).shown() == "-inf");
  CHECK(machine_number(-0.0) == "0");
}

namespace {

Table sample_table() {
  Table table{"modes",
              "Modes | all",
              {"n = 2"},
              {{"mode", "mode", true}, {"time_ms", "time ms"}, {"run", "run", true}},
              {}};
  table.add({"ddp", Cell::of(1.23456789, 2), "a,b"});
  table.add({"c10d", Cell::of(kNan, 2), "say \"hi\" | *bye*"});
  table.add({"none", Cell::count(12), ""});
  return table;
}

}  // namespace

TEST_CASE("format: text") {
  CHECK(render_text(sample_table()) ==
        "Modes | all\n"
        "mode  time ms  run\n"
        "----  -------  ----------------\n"
        "ddp      1.23  a,b\n"
        "c10d      n/a  say \"hi\" | *bye*\n"
        "none       12\n"
        "  n = 2\n");
}

TEST_CASE("format: markdown") {
  CHECK(render_markdown(sample_table()) ==
        "### Modes \\| all\n"
        "\n"
        "| mode | time ms | run |\n"
        "| :-- | --: | :-- |\n"
        "| ddp | 1.23 | a,b |\n"
        "| c10d | n/a | say \"hi\" \\| \\*bye\\* |\n"
        "| none | 12 |  |\n"
        "\n"
        "- n = 2\n");
}

TEST_CASE("format: csv has full precision, empty fields for what was not measured, no notes") {
  CHECK(render_csv(sample_table()) ==
        "mode,time_ms,run\n"
        "ddp,1.23456789,\"a,b\"\n"
        "c10d,,\"say \"\"hi\"\" | *bye*\"\n"
        "none,12,\n");
}

TEST_CASE("format: csv holds no formula") {
  Table table = sample_table();
  for (const auto& [text, field] : {std::pair{"=HYPERLINK(1)", "'=HYPERLINK(1)"},
                                    {"-2+cmd|x", "'-2+cmd|x"},
                                    {"@a", "'@a"},
                                    {"-", "-"},
                                    {"a=b", "a=b"}}) {
    table.rows[0][0] = Cell(text);
    CHECK(contains(render_csv(table), fmt::format("\n{},", field)));
  }
}

TEST_CASE("format: a text of others holds no control characters in any format") {
  Table table = sample_table();
  table.rows[0][0] = Cell("\x1b]0;owned\x07");
  for (const FormatSpec& format : formats()) {
    const std::string text = format.render(table, true);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.find('\x07') == std::string::npos);
  }
}

TEST_CASE("format: csv holds no formulas for spreadsheets") {
  Table table{"t", "Title", {}, {{"run", "run", true}, {"change", "change"}}, {}};
  for (const char* text : {"=HYPERLINK(\"a\")", "+1", "-2+3", "@SUM(A1)", "\t=1", "-"})
    table.add({text, Cell::of(-1.5, 1)});
  CHECK(render_csv(table) ==
        "run,change\n"
        "\"'=HYPERLINK(\"\"a\"\")\",-1.5\n"
        "'+1,-1.5\n"
        "'-2+3,-1.5\n"
        "'@SUM(A1),-1.5\n"
        "'\t=1,-1.5\n"
        "-,-1.5\n");
}

TEST_CASE("format: json") {
  const auto document = nlohmann::json::parse(table_json(sample_table()));
  CHECK(document["schema_version"] == 1);
  CHECK(document["name"] == "modes");
  CHECK(document["notes"] == nlohmann::json::array({"n = 2"}));
  CHECK(document["columns"][1]["name"] == "time_ms");
  CHECK(document["rows"][0]["time_ms"] == 1.23456789);
  CHECK(document["rows"][1]["time_ms"].is_null());
  CHECK(document["rows"][1]["run"] == "say \"hi\" | *bye*");
  CHECK(document["rows"][2]["time_ms"].is_number_integer());
}

TEST_CASE("format: a table without rows") {
  Table table{"t", "Title", {}, {{"a", "A"}}, {}};
  CHECK(render_text(table) == "Title\nA\n-\n");
  CHECK(render_csv(table) == "a\n");
  CHECK(nlohmann::json::parse(table_json(table))["rows"].empty());
}

TEST_CASE("format: numbers read back unchanged") {
  CHECK(machine_number(0) == "0");
  CHECK(machine_number(-3) == "-3");
  CHECK(machine_number(0.1) == "0.1");
  CHECK(machine_number(1e300) == "1e+300");
  for (const double value : {1.0 / 3, 6037.735849056604, 1e-7, 123456789012.5})
    CHECK(std::stod(machine_number(value)) == value);
}

TEST_CASE("format: the registry names each once") {
  REQUIRE(formats().size() == 5);
  CHECK(formats()[0].name == "text");
  for (const FormatSpec& format : formats())
    CHECK(format.render(sample_table(), false).ends_with("\n"));
}
