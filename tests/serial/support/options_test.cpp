#include "support/options.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "serial/option_sandbox.h"
#include "support/version.h"

using namespace gradsync;

TEST_CASE("options: both ways to write a value, switches on and off") {
  const Sandbox sandbox;
  const auto given =
      resolve({"--rate", "0.25", "--count=-7", "--no-augment", "--quick", "--note", "a b"});
  CHECK(number_option(given.values, "rate", 0, 1) == 0.25);
  CHECK(integer_option(given.values, "count", -10, 10) == -7);
  CHECK_FALSE(switch_option(given.values, "augment"));
  CHECK(switch_option(given.values, "quick"));
  CHECK(text_option(given.values, "note") == "a b");
  CHECK(given.values.at("rate").source == "command line");
  CHECK(given.values.at("cap").source == "default");
  CHECK(size_option(given.values, "cap", 0, 1 << 30) == 1 << 20);
  CHECK(duration_option(given.values, "wait", 0, 60) == 10);
  CHECK(given.values.size() == small_table().size());
}

TEST_CASE("options: a misspelt or abbreviated option suggests the right one") {
  const Sandbox sandbox;
  CHECK(contains(refusal([] { resolve({"--rat", "1"}); }), "did you mean --rate?"));
  CHECK(contains(refusal([] { resolve({"--cuont=1"}); }), "did you mean --count?"));
  CHECK(contains(refusal([] { resolve({"--no-agument"}); }), "did you mean --no-augment?"));
  CHECK(contains(refusal([] { resolve({"--xylophone"}); }), "--help"));
  CHECK(contains(refusal([] { resolve({"--hel"}); }), "did you mean --help?"));
}

TEST_CASE("options: what a command line must not hold") {
  const Sandbox sandbox;
  CHECK(contains(refusal([] { resolve({"--rate", "1", "--rate", "2"}); }), "given twice"));
  CHECK(contains(refusal([] { resolve({"--augment", "--no-augment"}); }), "given twice"));
  CHECK(contains(refusal([] { resolve({"--rate"}); }), "--rate needs a value"));
  CHECK(contains(refusal([] { resolve({"--rate", "--quick"}); }), "--rate needs a value"));
  CHECK(contains(refusal([] { resolve({"--rate="}); }), "--rate needs a value"));
  CHECK(contains(refusal([] { resolve({"--quick=yes"}); }), "switch"));
  CHECK(contains(refusal([] { resolve({"stray"}); }), "\"stray\" is not expected"));
  CHECK(contains(refusal([] { resolve({"-n", "4"}, small_table(), "FILE"); }), "long names"));
}

TEST_CASE("options: a value that is not UTF-8 is refused wherever it comes from") {
  const Sandbox sandbox;
  CHECK(contains(refusal([] {
                   resolve({"--note", "x\xff.h5"});
                 }),
                 "--note: \"x\\xff.h5\" is not UTF-8"));
  const std::string file = sandbox.file("job.cfg", "note = cut \xe2\x82\n");
  const std::string text = refusal([&] { resolve({"--config", file.c_str()}); });
  CHECK(contains(text, "job.cfg"));
  CHECK(contains(text, "cut \\xe2\\x82"));
  CHECK(text_option(resolve({"--note", "Zürich ×"}).values, "note") == "Zürich ×");
}

TEST_CASE("options: positional and repeated values") {
  const Sandbox sandbox;
  const auto given =
      resolve({"one", "--set", "a=1", "two", "--set=b=2", "--", "--three"}, small_table(), "FILE");
  CHECK(given.positional == std::vector<std::string>{"one", "two", "--three"});
  CHECK(list_option(given.values, "set") == std::vector<std::string>{"a=1", "b=2"});
  CHECK(list_option(resolve({}).values, "set").empty());
}

TEST_CASE("options: a bad value names the option, the value, its place and the range") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "rate = 2\nmode = c\n");
  const auto values =
      resolve({"--config", job.c_str(), "--count", "12x", "--cap", "4M", "--wait", "nan"}).values;
  const auto rate = refusal([&] { number_option(values, "rate", 0, 1); });
  CHECK(contains(rate, "job.cfg:1: rate"));
  CHECK(contains(rate, "\"2\" is out of range"));
  CHECK(contains(rate, "from 0 to 1"));
  CHECK(contains(refusal([&] { integer_option(values, "count", 0, 9); }),
                 "--count: \"12x\" is not a whole number"));
  CHECK(contains(refusal([&] { size_option(values, "cap", 1, 1 << 30); }), "4MiB"));
  CHECK(contains(refusal([&] { duration_option(values, "wait", 0, 60); }), "--wait"));
  const auto mode = refusal([&] { choice_option(values, "mode", {"a", "b"}); });
  CHECK(contains(mode, "job.cfg:2: mode: \"c\""));
  CHECK(contains(mode, "a, b"));
  const Variable quick("GRADSYNC_QUICK", "maybe");
  CHECK(contains(refusal([] { switch_option(resolve({}).values, "quick"); }), "GRADSYNC_QUICK"));
  CHECK_THROWS_AS(text_option(values, "no-such"), Error);
}

TEST_CASE("options: the version") {
  CHECK(version_text("gradsync-train").find("gradsync-train 0.2.0 (revision ") == 0);
}

TEST_CASE("options: --quiet and --json are no values of a program, and no job file has them") {
  const Sandbox sandbox;
  const auto given = resolve({"--quiet", "--json", "out.json"});
  CHECK(given.quiet);
  CHECK(given.json == "out.json");
  CHECK(given.values.size() == small_table().size());
  CHECK_FALSE(resolve({}).quiet);
  const std::string job = sandbox.file("job.cfg", "quiet = true\n");
  CHECK(contains(refusal([&] { resolve({"--config", job.c_str()}); }), "quiet is not a key"));
}
