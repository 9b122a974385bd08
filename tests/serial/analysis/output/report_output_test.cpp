#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <doctest/doctest.h>

#include "analysis/output/output.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/svg.h"
#include "analysis/report_options.h"
#include "analysis/tables/tables.h"
#include "base/process.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

ReportOptions options_of(std::vector<const char*> args) {
  const CleanEnvironment clean;
  args.insert(args.begin(), {"gradsync-report", "--site", "/dev/null"});
  return report_options(
      resolve_options(report_option_table(), static_cast<int>(args.size()), args.data(), "RUN...")
          .values);
}

std::vector<NamedChart> charts_of(const TestFolder& folder) {
  std::vector<std::string> missing;
  return make_charts({loaded(folder), {}, {}}, missing);
}

bool rsvg_is_here() {
  try {
    return run_process({"rsvg-convert", "--version"}, {{}, "/dev/null", {}, {}, {}}).succeeded();
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

TEST_CASE("report: options") {
  CHECK(options_of({"x"}).tables.front()->name == "summary");
  CHECK(options_of({"x"}).tables.size() < tables().size());
  CHECK(options_of({"x", "--output", "folder"}).tables.size() == tables().size());
  CHECK(options_of({"x", "--table", "all"}).tables.size() == tables().size());
  CHECK(options_of({"x"}).output.formats.size() == 1);
  CHECK(options_of({"x"}).table.conventions.size() == 1);
  CHECK(options_of({"x", "--bandwidth-convention", "message"}).table.conventions.size() == 1);
  const auto options =
      options_of({"x", "--table", "split", "--format", "json,csv", "--format", "text"});
  REQUIRE(options.tables.size() == 1);
  CHECK(options.tables[0]->name == "split");
  REQUIRE(options.output.formats.size() == 3);
  CHECK(options.output.formats[0]->name == "text");
  CHECK(contains(error_text(ExitCode::kUsage,
                            [] {
                              options_of({"x", "--table", "splitt"});
                            }),
                 "did you mean split?"));
  error_text(ExitCode::kUsage, [] { options_of({"x", "--format", "xml"}); });
  error_text(ExitCode::kUsage, [] { options_of({"x", "--log-every", "-1"}); });
  error_text(ExitCode::kUsage, [] { options_of({"x", "--plots", "perhaps"}); });
  CHECK(contains(report_list(), "iteration-time"));
}

TEST_CASE("report: a table that is only for a page or for claims is not printed") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded(folder);
  for (const char* format : {"text", "csv"}) {
    const auto options = options_of({"x", "--html", "page.html", "--format", format});
    std::ostringstream out, log;
    ReportOutput output(options.output, out, log);
    output.write(tables().front().make(set, options.table), /*printed=*/false);
    CHECK(out.str().empty());
    output.write(tables().front().make(set, options.table), /*printed=*/true);
    CHECK_FALSE(out.str().empty());
  }
}

TEST_CASE("report: output goes to a folder and text to the terminal as well") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded(folder);
  auto options = options_of({"x", "--format", "all"});
  options.output.output = folder / "new/tables";
  std::ostringstream out, log;
  ReportOutput output(options.output, out, log);
  output.write(make_modes_table(set, {}));
  CHECK(contains(out.str(), "columns not shown: "));
  out.str("");
  options.output.wide = true;
  ReportOutput(options.output, out, log).write(make_modes_table(set, {}));
  CHECK(out.str() == read_text_file(folder / "new/tables/modes.txt"));
  out.str("");
  output.write(make_modes_table(set, {}), /*printed=*/false);
  CHECK(out.str().empty());
  for (const char* extension : {"txt", "md", "tex", "csv", "json"})
    CHECK(std::filesystem::exists(folder / (std::string("new/tables/modes.") + extension)));
  CHECK(std::distance(std::filesystem::directory_iterator(options.output.output), {}) == 5);
  options.output.output = folder / "run.h5/impossible";
  error_text(ExitCode::kCannotCreate, [&] { ReportOutput(options.output, out, log); });
}

TEST_CASE("report: without rsvg-convert there are the data, the SVG and a warning") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  auto options = options_of({"x"});
  options.output.output = folder / "out";
  std::ostringstream out, log;
  const std::string path = std::getenv("PATH");
  setenv("PATH", folder.path().c_str(), 1);
  ReportOutput(options.output, out, log).draw_plots(charts_of(folder));
  setenv("PATH", path.c_str(), 1);
  const std::string text = log.str(), begin = "warning: no PNG and PDF of loss, ";
  CHECK(contains(text, begin));
  CHECK(contains(text, ": rsvg-convert cannot be started\n  fix: "));
  CHECK(text.find("warning", text.find(begin) + 1) == std::string::npos);
  CHECK(contains(log.str(), "apt-get install librsvg2-bin"));
  for (const NamedChart& chart : charts_of(folder)) {
    CHECK(std::filesystem::exists(options.output.output / (chart.name + ".svg")));
    CHECK(std::filesystem::exists(options.output.output / (chart.name + ".plot.csv")));
    CHECK_FALSE(std::filesystem::exists(options.output.output / (chart.name + ".png")));
  }
}

TEST_CASE("report: every plot is drawn, also of one row and of hostile names") {
  if (!rsvg_is_here()) {
    MESSAGE("SKIP: rsvg-convert is not installed");
    return;
  }
  const TestFolder folder;
  SampleShape hostile;
  hostile.mode = "it's; system('touch pwned') `touch pwned` _{x}^2";
  write_sample(folder / "a,\"b\".h5", hostile);
  write_sample(folder / "one.h5", {"none", 1, 1, 5, 32, 0});
  write_unmeasured(folder / "nan.h5", 3);
  auto options = options_of({"x"});
  options.output.output = folder / "out";
  std::ostringstream out, log;
  ReportOutput(options.output, out, log).draw_plots(charts_of(folder));
  CHECK(log.str().starts_with("plots in " + options.output.output.string() + ": loss, "));
  CHECK(std::ranges::count(log.str(), '\n') == 1);
  CHECK_FALSE(std::filesystem::exists(folder / "out/pwned"));
  const auto charts = charts_of(folder);
  CHECK(charts.size() == 5);  // no calibration, no run of more than one rank with its base
  for (const NamedChart& plot : charts) {
    CHECK(read_text_file(folder / ("out/" + plot.name + ".png")).starts_with("\x89PNG"));
    CHECK(contains(read_text_file(folder / ("out/" + plot.name + ".svg")), "</svg>"));
    CHECK(read_text_file(folder / ("out/" + plot.name + ".pdf")).starts_with("%PDF"));
  }
  CHECK(std::distance(std::filesystem::directory_iterator(options.output.output), {}) == 20);
}

TEST_CASE("report: an SVG that rsvg-convert refuses gives its words and no picture") {
  if (!rsvg_is_here()) {
    MESSAGE("SKIP: rsvg-convert is not installed");
    return;
  }
  const TestFolder folder;
  write_file_atomically(folder / "bad.svg", "<svg>");
  CHECK(contains(error_text(ExitCode::kInputOutput, [&] { draw_figure("bad", folder.path()); }),
                 "Error"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("report: runs without numbers give no plot") {
  const TestFolder folder;
  write_unmeasured(folder / "nan.h5", 3);
  write_sample(folder / "empty.h5", {"none", 1, 0, 5, 32, 2});
  CHECK_FALSE(make_loss_plot(loaded(folder)));
  CHECK_FALSE(make_iteration_time_plot(loaded(folder)));
}

TEST_CASE("report: a slow first iteration does not flatten the plot") {
  const auto panel_with = [](double first_s) {
    const TestFolder folder;
    StudyRun run{"ddp", 2, 32, 0.010};
    run.change = [&](IterationRow& row) {
      for (RankIteration& rank : row.ranks)
        if (row.iteration == 0) rank[Phase::kIteration] = first_s;
    };
    write_study(folder / "a.h5", run);
    return make_iteration_time_plot(loaded(folder))->panels.at(0);
  };
  // 1.15 times the 98 % quantile of the others, which take 10 ms.
  CHECK(panel_with(1).y_top == doctest::Approx(11.5).epsilon(0.01));
  CHECK(contains(panel_with(1).subtitle, ": 1 of 12 points above"));
  CHECK(std::isnan(panel_with(0.012).y_top));
  CHECK(panel_with(0.012).subtitle.empty());
}

TEST_CASE("report: a panel for each number of ranks; repeats are numbered") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {"ddp", 2});
  write_sample(folder / "b.h5", {"ddp", 2});
  write_sample(folder / "c.h5", {"none", 1});
  const auto chart = make_iteration_time_plot(loaded(folder));
  REQUIRE(chart);
  REQUIRE(chart->panels.size() == 2);
  CHECK(chart->panels[0].title == "1 rank, batch 32 per rank (32 global)");
  // The points of both runs, then their lines.
  const auto& series = chart->panels[1].series;
  REQUIRE(series.size() == 4);
  CHECK(series[2].label == "ddp");
  CHECK(series[3].label == "ddp, run 2");
  CHECK(series[2].color == series[3].color);
  CHECK(series[2].dash != series[3].dash);
}

TEST_CASE("output: --columns takes heads and names, in the order given") {
  Table table{"t", "T", {"note"}, {{"a_ms", "a"}, {"b_ms", "b"}, {"c_ms", "c"}}, {}};
  table.add({"1", "2", "3"}, "x.h5");
  Table other{"u", "U", {}, {{"d", "d"}}, {}};
  OutputOptions options;
  CHECK(options.with_chosen_columns({table, other})[0].columns.size() == 3);
  options.columns_chosen = {"c", "a_ms"};
  const auto chosen = options.with_chosen_columns({table, other});
  REQUIRE(chosen[0].columns.size() == 2);
  CHECK(chosen[0].columns[0].name == "c_ms");
  CHECK(chosen[0].rows[0][1].text == "1");
  CHECK(chosen[0].sources == table.sources);
  CHECK(chosen[1].columns.size() == 1);
  options.columns_chosen = {"b_msec"};
  CHECK(contains(refusal([&] {
                   options.with_chosen_columns({table, other});
                 }),
                 "no table has a column 'b_msec'"));
}
