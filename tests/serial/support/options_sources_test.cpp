#include <string>

#include <doctest/doctest.h>

#include "serial/option_sandbox.h"
#include "support/options.h"

using namespace gradsync;

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
