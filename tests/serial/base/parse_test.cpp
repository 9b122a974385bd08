// SPDX-License-Identifier: BSD-3-Clause
#include "base/parse.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/cli/key_values.h"
#include "base/json_number.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

using namespace gradsync;

TEST_CASE("parse: whole numbers take the whole text and fit 64 bits") {
  CHECK(parse_integer("0") == 0);
  CHECK(parse_integer("-17") == -17);
  CHECK(parse_integer("9223372036854775807") == std::numeric_limits<std::int64_t>::max());
  for (const char* text : {"", " 1", "1 ", "12x", "1.0", "1e3", "0x10", "+1", "-", "--1", "four"})
    CHECK_MESSAGE(contains(refusal([&] { parse_integer(text); }), "is not a whole number"), text);
  CHECK(contains(refusal([] { parse_integer("9223372036854775808"); }), "does not fit"));
  CHECK(contains(refusal([] { parse_integer("-99999999999999999999"); }), "does not fit"));
}

TEST_CASE("parse: numbers are finite decimals") {
  CHECK(parse_number("0.1") == 0.1);
  CHECK(parse_number("5e-4") == 5e-4);
  CHECK(parse_number("-3") == -3.0);
  CHECK(parse_number(".5") == 0.5);
  for (const char* text :
       {"nan", "NaN", "-nan", "inf", "-inf", "infinity", "", "1,5", "0.1x", "1e"})
    CHECK_MESSAGE(contains(refusal([&] { parse_number(text); }), "is not a finite number"), text);
  CHECK(contains(refusal([] { parse_number("1e999"); }), "beyond"));
}

TEST_CASE("parse: sizes name their powers") {
  CHECK(parse_size("4096") == 4096);
  CHECK(parse_size("4096B") == 4096);
  CHECK(parse_size("25MB") == 25'000'000);
  CHECK(parse_size("25MiB") == 26'214'400);
  CHECK(parse_size("1 GiB") == 1'073'741'824);
  CHECK(parse_size("3GB") == 3'000'000'000);
  CHECK(parse_size("2kB") == 2000);
  CHECK(parse_size("2KiB") == 2048);
  CHECK(parse_size("1.5KiB") == 1536);
  CHECK(parse_size("1TiB") == std::int64_t{1} << 40);
  CHECK(parse_size("1TB") == 1'000'000'000'000);
  CHECK(parse_size("0") == 0);
  for (int tenths = 1; tenths < 10'000; ++tenths) {
    const std::string number = fmt::format("{}.{}", tenths / 10, tenths % 10);
    CHECK(parse_size(number + "MB") == std::int64_t{tenths} * 100'000);
    CHECK(parse_size(number + "GB") == std::int64_t{tenths} * 100'000'000);
  }
  for (const char* text :
       {"", "MiB", "-1MiB", "4PiB", "4MiBx", "0.3B", "1e", "nanMiB", "9000000GiB", "4.0000001MB"})
    refusal([&] { parse_size(text); });
}

TEST_CASE("parse: a bare K, M or G says which two it could mean") {
  const std::string message = refusal([] { parse_size("4M"); });
  CHECK(contains(message, "4MB"));
  CHECK(contains(message, "4MiB"));
  CHECK(contains(refusal([] { parse_size("4k"); }), "4kB"));
  CHECK(contains(refusal([] { parse_size("4KB"); }), "4KiB"));
  CHECK(contains(refusal([] { parse_size("1G"); }), "1GiB"));
}

TEST_CASE("parse: times are seconds") {
  CHECK(parse_duration("90") == 90);
  CHECK(parse_duration("90s") == 90);
  CHECK(parse_duration("250ms") == doctest::Approx(0.25));
  CHECK(parse_duration("20us") == doctest::Approx(20e-6));
  CHECK(parse_duration("10m") == 600);
  CHECK(parse_duration("1.5h") == 5400);
  for (const char* text : {"", "s", "-1s", "5d", "10min", "inf", "1h30m", "1e308h"})
    refusal([&] { parse_duration(text); });
}

TEST_CASE("parse: switches") {
  for (const char* text : {"true", "yes", "on", "1", "TRUE"})
    CHECK(parse_switch(text));
  for (const char* text : {"false", "no", "off", "0"})
    CHECK_FALSE(parse_switch(text));
  refusal([] { parse_switch("maybe"); });
  refusal([] { parse_switch(""); });
}

TEST_CASE("parse: bytes and times for people") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(512) == "512 B");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(25 << 20) == "25 MiB");
  CHECK(format_bytes(std::int64_t{16} << 30) == "16 GiB");
  CHECK(format_duration(std::nan("")) == "n/a");
  CHECK(format_duration(0) == "0 s");
  CHECK(format_duration(25e-6) == "25 µs");
  CHECK(format_duration(0.9996e-3) == "1 ms");
  CHECK(format_duration(0.25) == "250 ms");
  CHECK(format_duration(12.34) == "12.3 s");
  CHECK(format_duration(59.94) == "59.9 s");
  CHECK(format_duration(59.96) == "1 min 0 s");
  CHECK(format_duration(125) == "2 min 5 s");
  CHECK(format_duration(3599.7) == "1 h 0 min");
  CHECK(format_duration(3720) == "1 h 2 min");
}

TEST_CASE("parse: the nearest name") {
  const std::vector<std::string> names = {"epochs", "batch-per-rank", "batch-global", "lr"};
  CHECK(nearest("eposh", names) == "epochs");
  CHECK(nearest("batch_per_rank", names) == "batch-per-rank");
  CHECK(nearest("BATCH-GLOBAL", names) == "batch-global");
  CHECK(nearest("batch-g", names) == "batch-global");
  CHECK(nearest("xylophone", names) == "");
  CHECK(nearest("x", names) == "");
  CHECK(nearest("", names) == "");
  CHECK(nearest("epochs", {}) == "");
  CHECK(nearest("rl", names) == "lr");
  CHECK(nearest(std::string(1 << 20, 'x'), names) == "");
  CHECK(no_such("table", "sumary", {"summary", "split"}).what() ==
        std::string("'sumary' is no table; did you mean summary?"));
  CHECK(no_such("table", "zzz", {"summary", "split"}).fix() == "give one of summary, split");
}

TEST_CASE("parse: what others wrote is shown without control characters, and in part") {
  CHECK(printable("plain ×\tand\nlines") == "plain ×\tand\nlines");
  CHECK(printable("\x1b]0;t\x07\x7f\xff") == "\\x1b]0;t\\x07\\x7f\\xff");
  CHECK(printable("\xc2\x9b"
                  "2J \xc2\xb5") == "\\x9b2J µ");
  CHECK(excerpt("short") == "short");
  CHECK(excerpt(std::string(80, 'a')) == std::string(80, 'a'));
  CHECK(excerpt(std::string(3'000'000, 'a')) == std::string(80, 'a') + "… (3000000 bytes)");
  std::string umlauts;
  for (int i = 0; i < 100; ++i)
    umlauts += "ä";
  CHECK(excerpt(umlauts) == umlauts.substr(0, 160) + "… (200 bytes)");
  CHECK(refusal([&] { parse_integer(std::string(3000, '1')); }).size() < 200);
}

TEST_CASE("parse: JSON of others has limits of length and depth") {
  CHECK(parse_json(R"({"a": [1, "]\"["]})").is_object());
  CHECK(parse_json("{").is_discarded());
  CHECK(parse_json(std::string(std::size_t{40} << 20, '[')).is_discarded());
  const auto nested = [](std::size_t depth) {
    return parse_json(std::string(depth, '[') + std::string(depth, ']'));
  };
  CHECK(nested(32).is_array());
  CHECK(nested(33).is_discarded());
  CHECK(parse_json("[1, 2]", 5).is_discarded());
}

TEST_CASE("parse: a word that a shell reads back unchanged") {
  CHECK(shell_quoted("a/b-c_1.h5") == "a/b-c_1.h5");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("it's $(id);") == "'it'\\''s $(id);'");
}

TEST_CASE("key values: lines, comments, quotes") {
  const auto entries = parse_key_values(
      "# a comment\n\n a = 1, 2   # two\r\nb=x#y\nc = \" # \\\"q\\\" \\\\ \" # end\nd =  # none",
      "f.cfg");
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].key == "a");
  CHECK(entries[0].value == "1, 2");
  CHECK(entries[0].where == "f.cfg:3");
  CHECK(entries[1].value == "x#y");
  CHECK(entries[2].value == " # \"q\" \\ ");
  CHECK(entries[2].quoted);
  CHECK(entries[3].value == "");
  CHECK(entries[3].where == "f.cfg:6");
}

TEST_CASE("key values: what is not one says where") {
  CHECK(contains(refusal([] { parse_key_values("a = 1\nwords", "f.cfg"); }), "f.cfg:2"));
  CHECK(contains(refusal([] { parse_key_values("a b = 1", "f.cfg"); }), "not a key"));
  CHECK(contains(refusal([] { parse_key_values("= 1", "f.cfg"); }), "not a key"));
  CHECK(contains(refusal([] { parse_key_values("a = \"open", "f.cfg"); }), "closing quote"));
  CHECK(contains(refusal([] { parse_key_values("a = \"x\" y", "f.cfg"); }),
                 "after the closing quote"));
  CHECK(
      contains(refusal([] { parse_key_values(std::string("a = \0", 5), "f.cfg"); }), "text file"));
  CHECK_THROWS_AS(read_key_values("/nonexistent/x.cfg"), Error);
}

TEST_CASE("key values: of a file with a byte order mark and CR LF") {
  const TestFolder folder;
  std::ofstream(folder / "x.cfg") << "\xEF\xBB\xBF# edited\r\na = 1\r\n";
  const auto entries = read_key_values(folder / "x.cfg");
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].value == "1");
  CHECK(entries[0].where == (folder / "x.cfg").string() + ":2");
}

TEST_CASE("key values: any value survives being written and read") {
  for (const std::string value :
       {"plain", "", " blank ", "a # b", "\"q\"", "back\\slash", "two\nlines", "é"}) {
    const auto entries = parse_key_values("k = " + quoted_where_needed(value) + "  # note\n", "f");
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].value == value);
  }
}

TEST_CASE("key values: a key twice names both lines") {
  const auto entries = parse_key_values("a = 1\nb = 2\na = 3\nb = 4", "f.cfg");
  const std::string message = refusal([&] { require_unique_keys(entries, {"b"}); });
  CHECK(contains(message, "f.cfg:3"));
  CHECK(contains(message, "f.cfg:1"));
}
