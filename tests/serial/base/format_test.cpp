#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/table_formats.h"
#include "serial/expect_error.h"

using namespace gradsync;
using namespace gradsync::report;

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
