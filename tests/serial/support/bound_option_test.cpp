#include "support/bound_option.h"

#include <doctest/doctest.h>

#include "serial/option_sandbox.h"
#include "support/parse.h"

using namespace gradsync;

namespace {

struct Part {
  double share = 0.5;
};

enum class Color { kRed, kGreen };

struct Settings {
  std::int64_t count = 3, bytes = 4 << 20;
  double wait_s = 90;
  bool deep = false;
  Color color = Color::kGreen;
  Part part;
};

using Value = BoundValue<Settings>;
using S = Settings;

const ProgramOptions<Settings> kOptions = {
    "report",
    {{"What",
      {{"count",
        Value::word_or("auto", &S::count, std::int64_t{0}, Value::integer(&S::count, 1, 9)),
        "how many; auto: all"},
       {"bytes", Value::size(&S::bytes, 1, 1 << 30), "how large"},
       {"wait", Value::duration(&S::wait_s, 0, 3600, "none"), "how long"}}}},
    {{"How",
      {{"deep", Value::either("flat", "deep", &S::deep), "how deep"},
       {"color", Value::enumerated<Color>(&S::color, {"red", "green"}), "which"},
       {"share", Value::fraction(part_of(&S::part, &Part::share)), "how much"}}}}};

Settings read(std::vector<const char*> arguments) {
  return kOptions.read(resolve(std::move(arguments), kOptions.table()).values);
}

}  // namespace

TEST_CASE("bound options: sizes, times and numbers are written as the parsers read them") {
  for (const std::int64_t bytes : {0L, 1L, 1000L, 1024L, 25L << 20, 900'000'000'000L, 1'234'567L})
    CHECK(parse_size(size_text(bytes)) == bytes);
  CHECK(size_text(25 << 20) == "25MiB");
  CHECK(size_text(900'000'000'000) == "900GB");
  CHECK(size_text(1024) == "1KiB");
  for (const double seconds : {0.0, 0.25, 1.0, 60.0, 90.0, 900.0, 7200.0, 31'622'400.0})
    CHECK(parse_duration(duration_text(seconds)) == seconds);
  CHECK(duration_text(900) == "15m");
  CHECK(duration_text(90) == "90s");
  for (const double value : {0.0, 0.1, 5e-4, 1e-8, 1e6, 1e20, -0.25, 1.0 / 3})
    CHECK(parse_number(number_text(value)) == value);
  CHECK(number_text(5e-4) == "5e-4");
  CHECK(number_text(1e6) == "1000000");
}

TEST_CASE("bound options: range and default of --help are those of the reader") {
  const OptionTable table = kOptions.table();
  CHECK(table[0].value_name == "N|auto");
  CHECK(table[0].help == "how many, 1 to 9; auto: all");
  CHECK(table[0].default_value == "3");
  CHECK(table[0].scope == "report");
  CHECK(table[1].help == "how large, 1B to 1GiB");
  CHECK(table[1].default_value == "4MiB");
  CHECK(table[2].help == "how long, 0 (none) to 1h");
  CHECK(table[3].value_name == "flat|deep");
  CHECK(table[3].group == "How");
  CHECK(table[3].scope.empty());
  CHECK(table[4].default_value == "green");
  CHECK(table[5].help == "how much, 0 to below 1");
}

TEST_CASE("bound options: every value goes to its member") {
  const Sandbox sandbox;
  const Settings read_back = read({"--count", "auto", "--bytes", "1kB", "--wait", "2m", "--deep",
                                   "deep", "--color", "red", "--share", "0.25"});
  CHECK(read_back.count == 0);
  CHECK(read_back.bytes == 1000);
  CHECK(read_back.wait_s == 120);
  CHECK(read_back.deep);
  CHECK(read_back.color == Color::kRed);
  CHECK(read_back.part.share == 0.25);
  CHECK(read({}).count == 3);
  CHECK(contains(refusal([] { read({"--count", "0"}); }), "from 1 to 9"));
  CHECK(contains(refusal([] { read({"--share", "1"}); }), "below 1"));
  CHECK(contains(refusal([] { read({"--color", "gren"}); }), "did you mean green?"));
}
