// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/options.h"

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/cli/bound_option.h"
#include "base/cli/program_help.h"
#include "base/parse.h"
#include "base/table.h"
#include "base/version.h"
#include "serial/option_sandbox.h"
#include "serial/programs.h"

using namespace gradsync;

TEST_CASE("options: both ways to write a value, switches on and off") {
  const Sandbox sandbox;
  const auto given =
      resolve({"--rate", "0.25", "--count=-7", "--no-augment", "--quick", "--note", "a b"});
  CHECK(read_value(given.values, "rate", number_form(0, 1)) == 0.25);
  CHECK(read_value(given.values, "count", integer_form(-10, 10)) == -7);
  CHECK_FALSE(read_value(given.values, "augment", switch_form()));
  CHECK(read_value(given.values, "quick", switch_form()));
  CHECK(text_option(given.values, "note") == "a b");
  CHECK(given.values.at("rate").source == "command line");
  CHECK(given.values.at("cap").source == "default");
  CHECK(read_value(given.values, "cap", size_form(0, 1 << 30)) == 1 << 20);
  CHECK(read_value(given.values, "wait", duration_form(0, 60)) == 10);
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
  const std::string word(3000, 'x'), option = "--" + word;
  CHECK(refusal([&] { resolve({option.c_str()}); }).size() < 300);
  CHECK(refusal([&] { resolve({word.c_str()}); }).size() < 300);
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
  CHECK(contains(refusal([] {
                   resolve({"--note", "\x1b]0;owned\x07"});
                 }),
                 "--note: \"\\x1b]0;owned\\x07\" has control characters"));
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
  const auto rate = refusal([&] { read_value(values, "rate", number_form(0, 1)); });
  CHECK(contains(rate, "job.cfg:1: rate"));
  CHECK(contains(rate, "\"2\" is out of range"));
  CHECK(contains(rate, "from 0 to 1"));
  CHECK(contains(refusal([&] { read_value(values, "count", integer_form(0, 9)); }),
                 "--count: \"12x\" is not a whole number"));
  CHECK(contains(refusal([&] { read_value(values, "cap", size_form(1, 1 << 30)); }), "4MiB"));
  CHECK(contains(refusal([&] { read_value(values, "wait", duration_form(0, 60)); }), "--wait"));
  const auto mode = refusal([&] { read_value(values, "mode", choice_form({"a", "b"})); });
  CHECK(contains(mode, "job.cfg:2: mode: \"c\""));
  CHECK(contains(mode, "a, b"));
  const Variable quick("GRADSYNC_QUICK", "maybe");
  CHECK(contains(refusal([] { read_value(resolve({}).values, "quick", switch_form()); }),
                 "GRADSYNC_QUICK"));
  CHECK_THROWS_AS(text_option(values, "no-such"), Error);
}

TEST_CASE("options: the version") {
  CHECK(version_text("gradsync-train").find("gradsync-train " + version_number() + " (revision ") ==
        0);
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

TEST_CASE("options: command line > environment > job file > site file > default") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "rate = 0.1\ncount = 11\ncap = 1KiB\n");
  sandbox.file("gradsync/site.cfg", "rate = 0.2\ncount = 22\ncap = 2KiB\nwait = 22s\n");
  const Variable rate("GRADSYNC_RATE", "0.3"), count("GRADSYNC_COUNT", "33");
  const auto values = resolve({"--config", job.c_str(), "--rate", "0.4"}).values;
  CHECK(values.at("rate").value == "0.4");
  CHECK(values.at("rate").source == "command line");
  CHECK(values.at("count").value == "33");
  CHECK(values.at("count").source == "environment");
  CHECK(values.at("count").where == "GRADSYNC_COUNT");
  CHECK(values.at("cap").value == "1KiB");
  CHECK(values.at("cap").where == job + ":3");
  CHECK(values.at("wait").value == "22s");
  CHECK(values.at("wait").source == "site file");
  CHECK(values.at("mode").source == "default");
}

TEST_CASE("options: files are named by variable, too, and an empty variable is unset") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "rate = 0.1\n");
  const std::string site = sandbox.file("site.cfg", "count = 9\n");
  sandbox.file("gradsync/site.cfg", "count = 22\n");
  const Variable config("GRADSYNC_CONFIG", job), named("GRADSYNC_SITE", site),
      empty("GRADSYNC_RATE", "");
  const auto values = resolve({}).values;
  CHECK(values.at("rate").value == "0.1");
  CHECK(values.at("count").value == "9");
  CHECK(resolve({"--site", "/dev/null"}).values.at("count").value == "3");
}

TEST_CASE("options: unknown keys and variables") {
  const Sandbox sandbox;
  const std::string job = sandbox.file("job.cfg", "\nraet = 0.1\n");
  CHECK(contains(refusal([&] {
                   resolve({"--config", job.c_str()});
                 }),
                 "job.cfg:2: raet is not a key; did you mean rate?"));
  const std::string twice = sandbox.file("twice.cfg", "rate = 1\nrate = 2\n");
  CHECK(contains(refusal([&] { resolve({"--config", twice.c_str()}); }), "twice.cfg:2"));

  const std::string site = sandbox.file("site.cfg", "raet = 0.1\n");
  CHECK_NOTHROW(resolve({"--site", site.c_str()}));
  CHECK(contains(refusal([&] {
                   resolve({"--site", site.c_str()}, small_table(), "", Foreign::kReject);
                 }),
                 "did you mean rate?"));

  const Variable allowed("GRADSYNC_MAX_RESTARTS", "3"), misspelt("GRADSYNC_CUONT", "1");
  CHECK_NOTHROW(resolve({}));
  CHECK(contains(refusal([] { resolve({}, small_table(), "", Foreign::kReject); }),
                 "did you mean GRADSYNC_COUNT?"));
  CHECK_NOTHROW(resolve({"--help"}, small_table(), "", Foreign::kReject));
}

TEST_CASE("options: a missing file is exit 66") {
  const Sandbox sandbox;
  error_text(ExitCode::kNoInput, [] { resolve({"--config", "/nonexistent/job.cfg"}); });
}

TEST_CASE("options: --print-config is a job file that says the same") {
  const Sandbox sandbox;
  const auto first = resolve({"--note", "  # \"odd\" \\n\n", "--rate", "0.75", "--no-augment",
                              "--set", "a=1", "--set", "b=2"})
                         .values;
  const std::string text = config_text(small_table(), first);
  CHECK(text.find("rate    = 0.75  # command line\n") == 0);
  CHECK(text.find("count   = 3  # default\n") != std::string::npos);
  const std::string job = sandbox.file("again.cfg", text);
  const auto second = resolve({"--config", job.c_str()}).values;
  require_same_values(second, first);
  for (const auto& entry : first)
    if (!entry.second.value.empty()) CHECK(second.at(entry.first).source == "job file");
}

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

Settings settings_of(std::vector<const char*> arguments) {
  return kOptions.read(resolve(std::move(arguments), kOptions.table()).values);
}

}  // namespace

TEST_CASE("bound options: sizes, times and numbers are written as the parsers read them") {
  const auto size_text = size_form(0, 1).text;
  const auto duration_text = duration_form(0, 1).text;
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
  const Settings read_back = settings_of({"--count", "auto", "--bytes", "1kB", "--wait", "2m",
                                          "--deep", "deep", "--color", "red", "--share", "0.25"});
  CHECK(read_back.count == 0);
  CHECK(read_back.bytes == 1000);
  CHECK(read_back.wait_s == 120);
  CHECK(read_back.deep);
  CHECK(read_back.color == Color::kRed);
  CHECK(read_back.part.share == 0.25);
  CHECK(settings_of({}).count == 3);
  CHECK(contains(refusal([] { settings_of({"--count", "0"}); }), "from 1 to 9"));
  CHECK(contains(refusal([] { settings_of({"--share", "1"}); }), "below 1"));
  CHECK(contains(refusal([] { settings_of({"--color", "gren"}); }), "did you mean green?"));
}

namespace {

std::size_t width_of(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : lines_of(text))
    widest = std::max(widest, display_width(line));
  return widest;
}

}  // namespace

TEST_CASE("program help: --help fits two screens, and has three commands") {
  for (const Program& program : programs()) {
    const ProgramHelp& help = program.help;
    CAPTURE(help.name);
    const std::string text = help_text(help, program.options);
    CHECK(lines_of(text).size() <= 50 + lines_of(help.listing).size());
    CHECK(width_of(text) <= 80);
    CHECK(lines_of(text)[0] == help.purpose);
    CHECK(contains(text, "Usage: " + help.usage));
    const auto examples = lines_of(help.examples);
    REQUIRE(examples.size() >= 3);
    for (std::size_t at = 0; at < 3; ++at)
      CHECK(contains(text, "  " + examples[at] + "\n"));
    for (const std::string& name : help.basic) {
      CAPTURE(name);
      CHECK(contains(text, "--" + name + " ") != contains(text, "--[no-]" + name + " "));
    }
  }
}

TEST_CASE("program help: --help-all has every option, value and exit code in 100 columns") {
  for (const Program& program : programs()) {
    const ProgramHelp& help = program.help;
    CAPTURE(help.name);
    const std::string text = full_help_text(help, program.options);
    CHECK(width_of(text) <= 100);
    for (const OptionSpec& spec : program.options) {
      CAPTURE(spec.name);
      CHECK(contains(text, (spec.value_name.empty() ? "--[no-]" : "--") + spec.name));
    }
    for (const char* part : {"--config FILE", "--print-config", "--quiet", "--json FILE",
                             "Precedence:", "64  usage or configuration"})
      CHECK_MESSAGE(contains(text, part), part);
    // Texts that all programs share name this one, and codes are its own.
    CHECK(contains(text, help.name + " --help-man | man -l -"));
    CHECK(contains(text, "source <(" + help.name + " --help-bash)"));
    const bool ranks = contains(help.usage, "mpirun") || help.name == "gradsync-sweep";
    CHECK(contains(text, "87  ranks disagree") == ranks);
  }
}

TEST_CASE("program help: a clause behind a semicolon is for --help-all") {
  const OptionTable table = {{"rate", "X", "0.5", "a number, 0 to 1; 0: off", "Numbers"},
                             {"mode", "a|b", "a", "a way", "Words", false, {}, 0, {"a", "b"}}};
  const ProgramHelp help = {"program", "program", "Does it.", "program", {}, {"rate"}};
  const std::string text = help_text(help, table);
  CHECK(contains(text, "a number, 0 to 1 [0.5]\n"));
  CHECK_FALSE(contains(text, "0: off"));
  CHECK_FALSE(contains(text, "--mode"));
  CHECK(contains(text, "all 2 options"));
  CHECK(contains(full_help_text(help, table), "a number, 0 to 1; 0: off [0.5]"));
}

TEST_CASE("program help: no text is a command of roff") {
  const OptionTable table = {{"rate", "X", "", ".so /etc/passwd \\fB", "Numbers"}};
  const std::string page = manual_page({"program", "program", "'Does it.", ".x", {}}, table);
  for (const std::string& line : lines_of(page))
    CHECK_FALSE(line.starts_with("'"));
  CHECK(contains(page, " .so /etc/passwd \\efB\n"));
  CHECK(contains(page, "\n\\&.x\n"));
}
