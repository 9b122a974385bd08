#include <string>

#include <doctest/doctest.h>

#include "analysis/report_options.h"
#include "options/options.h"
#include "serial/option_sandbox.h"
#include "sweep/sweep_options.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::sweep;

namespace {

// A program with an output of its own and the folder of the images that the trainer takes, too.
OptionTable checking_table() {
  OptionTable table = scoped("check", {{"output", "FILE", "", "a report", "Own"}});
  table.push_back({"data", "FOLDER", "here", "the images", "Own"});
  return table;
}

}  // namespace

TEST_CASE("scoped options: a variable of the trainer does not reach another program's option") {
  const Sandbox sandbox;
  const Variable trainers("GRADSYNC_OUTPUT", "run.h5"), data("GRADSYNC_DATA", "/images");
  CHECK(resolve({}, train_option_table()).values.at("output").value == "run.h5");
  CHECK(resolve({}, report_option_table()).values.at("output").value.empty());
  const auto values = resolve({}, checking_table()).values;
  CHECK(values.at("output").value.empty());
  CHECK(values.at("data").value == "/images");
}

TEST_CASE("scoped options: each program reads variables and site keys of its own name") {
  const Sandbox sandbox;
  const std::string site =
      sandbox.file("site.cfg", "output = trainer.h5\ncheck-output = checked\ndata = /shared\n");
  auto values = resolve({"--site", site.c_str()}, checking_table()).values;
  CHECK(values.at("output").value == "checked");
  CHECK(values.at("output").where == site + ":2");
  CHECK(values.at("data").value == "/shared");

  const Variable own("GRADSYNC_CHECK_OUTPUT", "elsewhere");
  values = resolve({"--site", site.c_str()}, checking_table()).values;
  CHECK(values.at("output").value == "elsewhere");
  CHECK(values.at("output").where == "GRADSYNC_CHECK_OUTPUT");
}

TEST_CASE("scoped options: the trainer leaves other programs' names to them, not misspelt ones") {
  const Sandbox sandbox;
  const OptionTable& trainer = train_option_table();
  const std::string site = sandbox.file("site.cfg", "report-output = tables\nlr = 0.5\n");
  const Variable reports("GRADSYNC_REPORT_OUTPUT", "tables");
  const auto values = resolve({"--site", site.c_str()}, trainer, "", Foreign::kReject).values;
  CHECK(values.at("lr").value == "0.5");
  CHECK(values.at("output").value.empty());
  const Variable misspelt("GRADSYNC_REPROT_OUTPUT", "tables");
  CHECK(contains(refusal([&] { resolve({}, trainer, "", Foreign::kReject); }),
                 "GRADSYNC_REPROT_OUTPUT"));
}

TEST_CASE("scoped options: a program refuses what is misspelt under its own name") {
  const Sandbox sandbox;
  const std::string site = sandbox.file("site.cfg", "report-fromat = csv\n");
  CHECK(contains(refusal([&] {
                   resolve({"--site", site.c_str()}, report_option_table());
                 }),
                 "did you mean report-format?"));
  const Variable misspelt("GRADSYNC_SWEEP_RESLUTS", "there");
  CHECK_NOTHROW(resolve({}, report_option_table()));
  CHECK(contains(refusal([] { resolve({}, sweep_option_table()); }),
                 "did you mean GRADSYNC_SWEEP_RESULTS?"));
}

TEST_CASE("scoped options: a job file in GRADSYNC_CONFIG is the trainer's, keys have plain names") {
  const Sandbox sandbox;
  const std::string trainers = sandbox.file("train.cfg", "lr = 0.5\n");
  const std::string reports = sandbox.file("report.cfg", "format = csv\n");
  const Variable config("GRADSYNC_CONFIG", trainers);
  CHECK(resolve({}, report_option_table()).values.at("format").value == "text");
  CHECK_NOTHROW(resolve({}, OptionTable{}));
  const Variable own("GRADSYNC_REPORT_CONFIG", reports);
  CHECK(resolve({}, report_option_table()).values.at("format").value == "csv");
}

TEST_CASE("scoped options: --help says how the variables are called") {
  const std::string text = full_help_text({"program", "program", "", ""}, checking_table());
  for (const char* part : {"environment GRADSYNC_CHECK_<NAME>", "(GRADSYNC_CHECK_CONFIG)",
                           "the images (GRADSYNC_DATA) [here]", "check- before"})
    CHECK_MESSAGE(contains(text, part), part);
  CHECK_FALSE(contains(text, "GRADSYNC_OUTPUT"));
}
