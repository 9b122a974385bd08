#include "base/cli/program_help.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "base/table.h"
#include "serial/option_sandbox.h"
#include "serial/programs.h"

using namespace gradsync;

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
    CHECK(lines_of(text).size() <= 50);
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
                             "Precedence:", "64  usage or configuration", "87  ranks disagree"})
      CHECK_MESSAGE(contains(text, part), part);
    const auto first = text.find("--json FILE");
    CHECK(text.find("--json FILE", first + 1) == std::string::npos);
  }
}

TEST_CASE("program help: a clause behind a semicolon is for --help-all") {
  const OptionTable table = {{"rate", "X", "0.5", "a number, 0 to 1; 0: off", "Numbers"},
                             {"mode", "a|b", "a", "a way", "Words", false, {}, 0, {"a", "b"}}};
  const ProgramHelp help = {"program", "program", "Does it.", "program", {"rate"}};
  const std::string text = help_text(help, table);
  CHECK(contains(text, "a number, 0 to 1 [0.5]\n"));
  CHECK_FALSE(contains(text, "0: off"));
  CHECK_FALSE(contains(text, "--mode"));
  CHECK(contains(text, "all 2 options"));
  CHECK(contains(full_help_text(help, table), "a number, 0 to 1; 0: off [0.5]"));
}

TEST_CASE("program help: no text is a command of roff") {
  const OptionTable table = {{"rate", "X", "", ".so /etc/passwd \\fB", "Numbers"}};
  const std::string page = manual_page({"program", "program", "'Does it.", ".x"}, table);
  for (const std::string& line : lines_of(page))
    CHECK_FALSE(line.starts_with("'"));
  CHECK(contains(page, "\n\\&.so /etc/passwd \\efB\n"));
  CHECK(contains(page, "\n\\&.x\n"));
}
