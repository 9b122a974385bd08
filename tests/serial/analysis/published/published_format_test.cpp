#include <doctest/doctest.h>

#include "analysis/published/csv.h"
#include "analysis/published/page.h"
#include "analysis/published/rows.h"
#include "serial/expect_error.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::report::published;

namespace {

constexpr const char* kHeader =
    "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n";

std::vector<CsvRecord> csv(const std::string& text) {
  return parse_csv(text, "t.csv");
}

std::string bad_csv(const std::string& text) {
  return error_text(ExitCode::kBadData, [&] { csv(text); });
}

PublishedFile published_text(const std::string& text) {
  return parse_published(text, "t.csv");
}

std::string bad(const std::string& text) {
  return error_text(ExitCode::kBadData, [&] { published_text(text); });
}

std::string with_row(const std::string& row) {
  return kHeader + row + "\n";
}

}  // namespace

TEST_CASE("published: RFC 4180, with a byte order mark, CRLF, CR and blank lines") {
  const auto records =
      csv("\xEF\xBB\xBF"
          "a,\"b,\"\"c\"\"\"\r\n\r\n x , \"two\nlines\" \nlast,\rcr,1");
  REQUIRE(records.size() == 4);
  CHECK(records[0].fields == std::vector<std::string>{"a", "b,\"c\""});
  CHECK(records[1].fields == std::vector<std::string>{"x", "two\nlines"});
  CHECK(records[1].line == 3);
  CHECK(records[2].fields == std::vector<std::string>{"last", ""});
  CHECK(records[2].line == 5);
  CHECK(records[3].line == 6);
  CHECK(csv("").empty());
  CHECK(csv("\"\"").empty());  // one empty field is an empty line
}

TEST_CASE("published: malformed CSV names its line") {
  CHECK(contains(bad_csv("a,b\n1,\"open\n2"), "t.csv:2: the quote that opens a field here"));
  CHECK(contains(bad_csv("a,b\n1,\"x\" y"), "t.csv:2: there is text after a closing quote"));
  CHECK(contains(bad_csv("a,b\n\nx\"y,2"), "t.csv:3: a quote inside a field"));
  CHECK(contains(bad_csv(std::string("a\0b", 3)), "t.csv:1: this is not a text file"));
}

TEST_CASE("published: columns in any order, any capitals, missing and of one's own") {
  const auto file = published_text("Unit,VALUE,quantity,nodes\ns,12.5,epoch_time,2\n");
  REQUIRE(file.rows.size() == 1);
  const Row& row = file.rows[0];
  CHECK(row.value == 12.5);
  CHECK(row.decimals == 1);
  CHECK(row.devices == kNotSaid);
  CHECK(row.extra == "nodes=2");
  CHECK(row.what.kind == Kind::kEpochTime);
  CHECK(file.remarks.size() == 7);  // six columns that are not there and one that is not known
  CHECK(contains(file.remarks.back(), "'nodes' is not of the format"));
}

TEST_CASE("published: what is wrong is said with its line") {
  CHECK(contains(bad(""), "t.csv:1: the file is empty"));
  CHECK(contains(bad(kHeader), "there is a header and no row"));
  CHECK(contains(bad("quantity,unit\nx,1\n"), "the header has no column 'value'"));
  CHECK(contains(bad("quantity;value;unit\nx;1;s\n"), "the header has no column 'quantity'"));
  CHECK(contains(bad("quantity,value,Value\nx,1,2\n"), "names 'Value' twice"));
  CHECK(contains(bad(with_row("r,t,m,single,1,32,epoch_time,1.5")),
                 "t.csv:2: 8 fields under a header of 9"));
  for (const char* number : {"abc", "nan", "inf", "1e999", "1,5", "12s", "0x10", "1 000", "--1"})
    CHECK(contains(bad(with_row("r,t,m,single,1,32,epoch_time,\"" + std::string(number) + "\",s")),
                   "t.csv:2: the value \"" + std::string(number)));
  CHECK(
      contains(bad(with_row("r,t,m,single,1,32,epoch_time,,s")), "t.csv:2: the value is missing"));
  CHECK(contains(bad(with_row("r,t,m,single,1,32,,1,s")), "t.csv:2: the quantity is missing"));
  CHECK(contains(bad(with_row("r,t,m,single,0,32,epoch_time,1,s")), "devices is '0'"));
  CHECK(contains(bad(with_row("r,t,m,single,two,32,epoch_time,1,s")), "devices is 'two'"));
  CHECK(contains(bad(with_row("r,t,m,single,1,-3,epoch_time,1,s")), "batch_per_device is '-3'"));
  CHECK(contains(bad(with_row("r,t,m,single,1,99999999999999999999,epoch_time,1,s")),
                 "batch_per_device"));
}

TEST_CASE("published: a line said twice is left out, two values for one thing are refused") {
  const std::string row = "r,t,m,single,1,32,epoch_time,1.5,s\n";
  const auto file = published_text(kHeader + row + row);
  CHECK(file.rows.size() == 1);
  REQUIRE(file.remarks.size() == 1);
  CHECK(file.remarks[0] == "line 3 repeats line 2 and was left out");
  // 1,500 ms is 1.5 s: the same number.
  CHECK(published_text(kHeader + row + "r,t,m,single,1,32,epoch_time,1500,ms\n").rows.size() == 1);
  CHECK(contains(bad(kHeader + row + "r,t,m,single,1,32,epoch_time,1.6,s\n"),
                 "t.csv:3: 1.6 s here, but 1.5 s on line 2"));
  CHECK(published_text(kHeader + row + "r,t,m,single,2,32,epoch_time,1.6,s\n").rows.size() == 2);
}

TEST_CASE("published: digits leave half a step open") {
  const auto range = [](const std::string& value, const std::string& unit) {
    return published_text(with_row("r,t,m,single,1,32,epoch_time," + value + "," + unit))
        .rows[0]
        .range();
  };
  CHECK(range("1.25", "s").low == doctest::Approx(1.245));
  CHECK(range("1.25", "s").high == doctest::Approx(1.255));
  CHECK(range("250", "ms").low == doctest::Approx(0.2495));
  CHECK(range("2", "min").high == doctest::Approx(150));
  CHECK(range("3e2", "s").low == doctest::Approx(250));
  CHECK(range("1.50e-1", "s").high == doctest::Approx(0.1505));
  CHECK(range("0e-99999", "s").value == 0);
  CHECK(range("-7", "s").low == doctest::Approx(-7.5));
}

TEST_CASE("published: units") {
  const auto is = [](const char* text, Dimension dimension, double factor) {
    const Unit unit = parse_unit(text);
    CHECK(unit.dimension == dimension);
    CHECK(unit.factor == doctest::Approx(factor));
  };
  is("s", Dimension::kTime, 1);
  is("ms", Dimension::kTime, 1e-3);
  is("µs", Dimension::kTime, 1e-6);
  is("min", Dimension::kTime, 60);
  is("MB/s", Dimension::kBandwidth, 1e6);
  is("MiB/s", Dimension::kBandwidth, 1048576);
  is("GiB/s", Dimension::kBandwidth, 1073741824);
  is("Gbit/s", Dimension::kBandwidth, 1.25e8);
  is("Gb/s", Dimension::kBandwidth, 1.25e8);
  is("Gbps", Dimension::kBandwidth, 1.25e8);
  is("GBps", Dimension::kBandwidth, 1e9);
  is("MiB", Dimension::kBytes, 1048576);
  is("%", Dimension::kRatio, 0.01);
  is("1", Dimension::kRatio, 1);
  is("", Dimension::kRatio, 1);
  is("images/s", Dimension::kRate, 1);
  CHECK(parse_unit("of 10000").total == 10000);
  for (const char* unknown : {"parsec", "of", "of many", "of 0", "/s", "ps", "GB/h"})
    CHECK(parse_unit(unknown).dimension == Dimension::kUnknown);
}

TEST_CASE("published: quantities, numbers in names count as N") {
  CHECK(quantity_of("epoch_17_time").kind == Kind::kEpochTime);
  CHECK(quantity_of("Epoch-2-Time").kind == Kind::kEpochTime);
  CHECK(quantity_of("comm_time").derived);
  CHECK_FALSE(quantity_of("epoch_time").derived);
  CHECK(quantity_of("loss_iter_40").kind == Kind::kLoss);
  CHECK(quantity_of("epoch__time").kind == Kind::kUnknown);
  CHECK(quantity_of("").kind == Kind::kUnknown);
}

TEST_CASE("published: a page as text and as Markdown") {
  const Page page = {{Block::Kind::kTitle, "", "A_b", {}},
                     {Block::Kind::kItem, "lead", std::string(120, 'x') + " tail", {}},
                     {Block::Kind::kSubitem, "", "below", {}},
                     {Block::Kind::kParagraph, "", "<script>", {}}};
  CHECK(page_markdown(page) ==
        "# A\\_b\n\n- **lead**: " + std::string(120, 'x') + " tail\n  - below\n\n\\<script\\>\n");
  const std::string text = page_text(page);
  CHECK(text.starts_with("A_b\n===\n\n  - lead:\n    xxx"));
  CHECK(contains(text, "x\n    tail\n      * below\n\n<script>\n"));
  CHECK(lines_text({9, 3, 4, 3, 5, 11}) == "lines 3-5, 9, 11");
  CHECK(lines_text({7}) == "line 7");
}
