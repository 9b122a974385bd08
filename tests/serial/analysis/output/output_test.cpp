// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/output.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "analysis/output/claims.h"
#include "analysis/output/output.h"
#include "analysis/plots/plots.h"
#include "analysis/plots/svg.h"
#include "analysis/report_options.h"
#include "analysis/tables/tables.h"
#include "base/file.h"
#include "base/process.h"
#include "base/table.h"
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
  // The first only of runs that it is of.
  CHECK(options_of({"x"}).tables[0]->name == "cost");
  CHECK(options_of({"x"}).tables[1]->name == "summary");
  CHECK(options_of({"x"}).tables.size() < tables().size());
  CHECK(options_of({"x", "--output", "folder"}).tables.size() == tables().size());
  CHECK(options_of({"x", "--table", "all"}).tables.size() == tables().size());
  // What is only about one table asks for it.
  CHECK(options_of({"x", "--what-if", "ranks=8"}).tables_asked == std::set<std::string>{"what-if"});
  CHECK(contains(options_of({"x", "--what-if", "ranks=8"}).tables, "what-if",
                 [](const TableSpec* spec) { return spec->name; }));
  CHECK(options_of({"x", "--table", "split", "--what-if", "ranks=8"}).tables.size() == 1);
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

TEST_CASE(
    "report: every table, format and plot has a line of --list, and every table one of --help") {
  const std::string list = report_list();
  const std::string help = help_text(report_help(), report_option_table());
  const auto line_of = [](const std::string& text, const auto& spec) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("  " + spec.name + "  ") && line.ends_with("  " + spec.description))
        return line;
    return std::string();
  };
  for (const TableSpec& spec : tables()) {
    CHECK_MESSAGE(!line_of(list, spec).empty(), spec.name);
    CHECK_MESSAGE(!line_of(help, spec).empty(), spec.name);
    CHECK_MESSAGE(display_width(line_of(help, spec)) <= 80, spec.name);
  }
  for (const FormatSpec& spec : formats())
    CHECK_MESSAGE(!line_of(list, spec).empty(), spec.name);
  for (const PlotSpec& spec : plots())
    CHECK_MESSAGE(!line_of(list, spec).empty(), spec.name);
}

TEST_CASE("report: a name that is not in a list is met with the nearest, before the list") {
  const auto message = [](std::vector<const char*> args) {
    return error_text(ExitCode::kUsage, [&] { options_of(args); });
  };
  CHECK(contains(message({"x", "--table", "sumary"}), "did you mean summary?"));
  CHECK(contains(message({"x", "--format", "markdwon"}), "did you mean markdown?"));
  CHECK(contains(message({"x", "--bandwidth-convention", "bussbw"}), "did you mean busbw?"));
  CHECK(contains(message({"x", "--what-if", "bandwith=1GB/s"}), "did you mean bandwidth?"));
  OutputOptions output;
  output.columns_chosen = {"ranksx"};
  Table table{"t", "Title", {}, {{"ranks", "ranks"}}, {}};
  CHECK(contains(error_text(ExitCode::kUsage, [&] { output.with_chosen_columns({table}); }),
                 "no table has a column 'ranksx'; did you mean ranks?"));
}

TEST_CASE("report: no byte of a run file commands the terminal") {
  const std::string hostile =
      "a\x1b]0;title\x07"
      "b\x7f"
      "c\xc2\x9b"
      "d\xc3\xa9\r";
  Table table{"t", hostile, {hostile}, {{"run", "run", true}}, {}};
  table.add({hostile});
  VerdictClause clause{"bound", hostile, {}, hostile, hostile, false};
  for (const char* format : {"text", "markdown", "csv", "latex", "json"})
    for (const bool wide : {false, true}) {
      auto options = options_of({"x", "--format", format});
      options.output.wide = wide;
      std::ostringstream out, log;
      ReportOutput output(options.output, out, log);
      output.write_verdict({clause});
      output.write({table}, {hostile});
      const std::string text = out.str();
      CHECK_MESSAGE(std::ranges::none_of(
                        text, [](unsigned char c) { return (c < 0x20 && c != '\n') || c == 0x7F; }),
                    format);
      CHECK_FALSE(contains(text, "\xc2\x9b"));
      CHECK_MESSAGE(contains(text, "\xc3\xa9"), format);
    }
}

TEST_CASE("report: many tables begin with an index, and remarks are printed once") {
  const auto printed = [](std::size_t count, std::vector<const char*> args) {
    const auto options = options_of(std::move(args));
    std::vector<Table> tables;
    for (std::size_t i = 0; i < count; ++i) {
      tables.push_back({fmt::format("name-{}", i), "Title", {}, {{"ranks", "ranks"}}, {}});
      tables.back().add({Cell::count(2)});
    }
    std::ostringstream out, log;
    ReportOutput(options.output, out, log).write(tables, {"a run did not end"});
    return out.str();
  };
  CHECK(printed(4, {"x"}).starts_with("Tables\n  name-0      1 row  Title\n  name-1      1 row"));
  CHECK_FALSE(contains(printed(1, {"x"}), "Tables\n"));
  for (const std::size_t count : {1U, 4U})
    CHECK(count_of(printed(count, {"x", "--wide"}), "note: a run did not end") == 1);
  CHECK(printed(1, {"x", "--wide"}).starts_with("note: a run did not end\n"));
  // A file of its own holds them all.
  CHECK(count_of(printed(4, {"x", "--format", "markdown"}), "note: a run did not end") == 4);
}

TEST_CASE("report: a table that is only for a page or for claims is not printed") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded(folder);
  for (const char* format : {"text", "csv"}) {
    const auto options = options_of({"x", "--html", "page.html", "--format", format});
    std::ostringstream out, log;
    ReportOutput output(options.output, out, log);
    output.write({tables().front().make(set, options.table)}, {},
                 [](const Table&) { return false; });
    CHECK(out.str().empty());
    output.write({tables().front().make(set, options.table)});
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
  output.write({make_modes_table(set, {})});
  CHECK(contains(out.str(), "columns not shown: "));
  out.str("");
  options.output.wide = true;
  ReportOutput(options.output, out, log).write({make_modes_table(set, {})});
  CHECK(out.str() == read_text_file(folder / "new/tables/modes.txt"));
  out.str("");
  output.write({make_modes_table(set, {})}, {}, [](const Table&) { return false; });
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

TEST_CASE("report: lines of one mode are told apart by their settings, and only repeats numbered") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {"ddp", 2});
  for (const char* name : {"b.h5", "c.h5"}) {
    StudyRun run{"ddp", 2, 32, 0.010};
    run.change_info = [](RunInfo& info) {
      info.config.push_back({"wire-dtype", "bf16", "command line"});
    };
    write_study(folder / name, run);
  }
  const auto chart = make_iteration_time_plot(loaded(folder));
  REQUIRE(chart);
  std::vector<std::string> labels;
  for (const ChartSeries& series : chart->panels.at(0).series)
    if (!series.label.empty()) labels.push_back(series.label);
  CHECK(labels == std::vector<std::string>{"ddp, wire-dtype=fp32", "ddp, wire-dtype=bf16",
                                           "ddp, wire-dtype=bf16, run 2"});
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
  options.columns_chosen = {"c", "c_ms"};
  CHECK(options.with_chosen_columns({table, other})[0].columns.size() == 1);
  options.columns_chosen = {"b_msec"};
  CHECK(contains(refusal([&] {
                   options.with_chosen_columns({table, other});
                 }),
                 "no table has a column 'b_msec'"));
}

namespace {

Table small() {
  Table table{"t",
              "A & B",
              {"50 % of_it"},
              {{"name", "name", true}, {"time_ms", "time ms", false, "a / b", "/time/iteration"}},
              {}};
  table.add({"x_1 [y]", Cell::of(-1.25, 2)}, "a.h5");
  table.add({"z", Cell::of(kNan, 2)}, "a.h5, b, c.h5");
  return table;
}

/// Claims of all tables on the runs in a folder, as the program writes them.
std::filesystem::path claims_of(const TestFolder& folder) {
  OptionValues values;
  for (const OptionSpec& spec : report_option_table())
    values[spec.name] = {spec.default_value, "default", "default"};
  values["claims"].value = (folder / "claims.json").string();
  const ReportOptions options = report_options(values);
  const RunSet set = load_places({folder.path().string()});
  Claims claims{claimed_options(report_option_table(), values), claimed_files(set), {}};
  for (const TableSpec* table : options.tables)
    add_claims(table->make(set, options.table), claims.files, claims.claims);
  write_plainly(folder / "claims.json", claims_json(claims));
  return folder / "claims.json";
}

std::string verify_report(const std::filesystem::path& claims) {
  return verify_claims(claims, "gradsync-report", report_option_table(), tables_of_claims);
}

void write_runs(const TestFolder& folder) {
  write_sample(folder / "one, two.h5", {"none", 1, 12, 5, 64, 2});
  write_sample(folder / "two.h5", {"ddp", 2});
  write_plainly(folder / "big.failed.json", R"({"exit_code":81,"message":"out of memory"})");
}

}  // namespace

TEST_CASE("claims: every number has its id") {
  const Table table = small();
  CHECK(number_id(table, 0, 1) == "t.1.time_ms");
  CHECK(contains(render_markdown(table),
                 "| x\\_1 \\[y\\] | <span id=\"t.1.time_ms\">-1.25</span> |\n"));
  CHECK(contains(render_markdown(table), "<span id=\"t.2.time_ms\">n/a</span>"));
  Table odd = small();
  odd.name = "a\"b<c>";
  CHECK(number_id(odd, 1, 1) == "a_b_c_.2.time_ms");
}

TEST_CASE("format: latex") {
  const std::string text = render_latex(small());
  CHECK(contains(text, "\\usepackage{booktabs,graphicx}"));
  CHECK(contains(text, "\\caption{A \\& B}\n\\label{tab:t}\n"));
  CHECK(contains(text, "\\begin{tabular}{lr}\n\\toprule\nname & time ms \\\\\n\\midrule\n"));
  CHECK(contains(text, "x\\_1 {[}y{]} &\n$-$1.25 \\\\ % t.1.time_ms\n"));
  CHECK(contains(text, "z &\nn/a \\\\ % t.2.time_ms\n\\bottomrule\n"));
  CHECK(contains(text, "50 \\% of\\_it\\par\n"));
}

TEST_CASE("format: latex stops at nothing that a name can hold") {
  Table table{"t", "T", {}, {{"name", "name", true}}, {}};
  table.add({"\\{}%$&#_~^<>|\"\n"});
  table.add({"1 ± 2·σ² − Σx̂ ×µ"});
  table.add({"Z\xc3\xbcrich \xc3\x97 \xe2\x86\x92 \xf0\x9f\x98\x80 \xff \xc3"});
  table.add({"--data, ---"});
  const std::string text = render_latex(table);
  CHECK(contains(text, "-{}-data, -{}-{}- "));
  CHECK(contains(text,
                 "\\textbackslash{}\\{\\}\\%\\$\\&\\#\\_\\textasciitilde{}\\textasciicircum{}"
                 "\\textless{}\\textgreater{}\\textbar{}''  \\\\"));
  CHECK(contains(text, "1 $\\pm$ 2$\\cdot$$\\sigma$$^2$ $-$ $\\Sigma$x\\^{} $\\times$$\\mu$"));
  CHECK(contains(text, "Z\xc3\xbcrich $\\times$ ? ? \\textbackslash{}xff \\textbackslash{}xc3 "));
}

TEST_CASE("format: latex cuts long tables and turns wide ones") {
  Table table{"t", "T", {"counted once"}, {{"n", "n", false, "counted"}}, {}};
  for (int i = 0; i < 41; ++i)
    table.add({Cell::count(i)});
  const std::string text = render_latex(table);
  CHECK(contains(text, "\\caption{T (continued)}"));
  CHECK(text.find("\\label") == text.rfind("\\label"));
  CHECK(text.find("counted once") == text.rfind("counted once"));
  CHECK(contains(text, "40 \\\\ % t.41.n"));
  CHECK_FALSE(contains(text, "sidewaystable"));
  table.rows[0][0] = std::string(120, 'x');
  CHECK(contains(render_latex(table), "\\begin{sidewaystable}\n"));
  CHECK(contains(render_latex(table), ",rotating}"));
}

TEST_CASE("format: latex fits an A4 page, and says what it leaves out") {
  Table table{"t", "T", {}, {{"mode", "mode", true, "", "", 0}}, {}};
  for (const char* name : {"time", "low", "high"})
    table.columns.push_back({name, name, false, "measured", "", 0});
  table.columns.push_back({"long", std::string(60, 'x'), false, "", "", 1});
  table.columns.push_back({"other", std::string(40, 'y'), false, "", "", 2});
  table.add({"ddp", Cell::of(2, 1), Cell::of(1, 1), Cell::of(3, 1), "a", "b"});
  const std::string text = render_latex(table);
  CHECK(contains(text, "\\begin{tabular}{lrr}\n"));
  CHECK(contains(text, "\n2.0 {[}1.0, 3.0{]} & % t.1.time t.1.low t.1.high\n"));
  CHECK(contains(text, "Columns not shown: " + std::string(40, 'y') + "."));
  CHECK(contains(render_latex(table, true), "\\begin{tabular}{lrrrrr}\n"));
  CHECK_FALSE(contains(render_latex(table, true), "not shown"));
}

TEST_CASE("claims: of a table, with the files of each row") {
  std::vector<Claim> claims;
  add_claims(small(), {{"a.h5", ""}, {"b, c.h5", ""}, {"c.h5", ""}, {"h5", ""}}, claims);
  REQUIRE(claims.size() == 2);
  CHECK(claims[0].id == "t.1.time_ms");
  CHECK(claims[0].formula == "a / b");
  CHECK(claims[0].dataset == "/time/iteration");
  CHECK(claims[0].files == std::vector<std::string>{"a.h5"});
  CHECK(claims[0].value == -1.25);
  CHECK(claims[1].files.front() == "a.h5");
  CHECK(std::isnan(claims[1].value));
}

TEST_CASE("claims: written, read again, and held") {
  const TestFolder folder;
  write_runs(folder);
  const auto path = claims_of(folder);
  const Claims claims = read_claims(path);
  CHECK(claims.files.size() == 3);
  CHECK(claims.options.contains("at-epoch"));
  CHECK_FALSE(claims.options.contains("output"));
  CHECK_FALSE(claims.options.contains("claims"));
  CHECK(contains(verify_report(path), "numbers from 3 files hold"));
  // A run that came later is none of theirs.
  write_sample(folder / "later.h5", {"allreduce", 4});
  CHECK(contains(verify_report(path), "numbers from 3 files hold"));
}

TEST_CASE("claims: every number of every table says its formula, data set and file") {
  const TestFolder folder;
  write_runs(folder);
  const RunSet set = load_runs(find_runs({folder.path().string()}));
  for (const TableSpec& spec : tables()) {
    const Table table = spec.make(set, {});
    for (std::size_t c = 0; c < table.columns.size(); ++c)
      for (std::size_t row = 0; row < table.rows.size(); ++row)
        CHECK_MESSAGE(table.rows[row][c].is_number() == has_claim(table, row, c),
                      number_id(table, row, c));
  }
  const Claims claims = read_claims(claims_of(folder));
  CHECK(claims.claims.size() > 100);
  for (const Claim& claim : claims.claims) {
    CHECK_MESSAGE(claim.dataset.starts_with("/"), claim.id);
    CHECK_MESSAGE(!claim.files.empty(), claim.id);
  }
}

TEST_CASE("claims: the first that does not hold ends it") {
  const TestFolder folder;
  write_runs(folder);
  const auto path = claims_of(folder);
  auto document = nlohmann::json::parse(read_text_file(path));
  const auto with = [&](auto change) {
    auto copy = document;
    change(copy["claims"]);
    write_plainly(path, copy.dump());
    return error_text(ExitCode::kCheckFailed, [&] { verify_report(path); });
  };
  const auto& fourth = document["claims"][3];
  const std::string id = fourth["id"];
  CHECK(contains(with([](auto& claims) {
                   claims[3]["value"] = 12345.5;
                   claims[9]["value"] = 9;
                 }),
                 "claim " + id + " does not hold: claimed 12345.5, found "));
  CHECK(contains(with([](auto& claims) { claims[3]["value"] = nullptr; }), "claimed n/a, found "));
  CHECK(
      contains(with([](auto& claims) { claims[3]["id"] = "modes.99.x"; }), "found no such number"));
}

TEST_CASE("claims: what a part in a thousand million moves still holds") {
  const std::vector<Claim> one = {{"a", "", "", {}, 1}};
  require_held(one, {{"a", "", "", {}, 1 + 1e-10}});
  error_text(ExitCode::kCheckFailed, [&] { require_held(one, {{"a", "", "", {}, 1 + 1e-8}}); });
  error_text(ExitCode::kCheckFailed, [&] { require_held(one, {{"a", "", "", {}, kNan}}); });
  require_held({{"a", "", "", {}, kNan}}, {{"a", "", "", {}, kNan}});
  require_held({{"a", "", "", {}, 0}}, {{"a", "", "", {}, 0}});
}

TEST_CASE("claims: files that are gone or changed, and files that are none") {
  const TestFolder folder;
  write_runs(folder);
  const auto path = claims_of(folder);
  std::filesystem::rename(folder / "two.h5", folder / "away");
  CHECK(contains(error_text(ExitCode::kNoInput, [&] { verify_report(path); }), "two.h5"));
  write_sample(folder / "two.h5", {"ddp", 4});
  CHECK(contains(error_text(ExitCode::kBadData, [&] { verify_report(path); }),
                 "is not the file that the claims were made from"));
  for (const char* text : {"", "[]", "{}", R"({"schema":"gradsync-claims/1"})",
                           R"({"schema":"gradsync-claims/2","options":{},"files":[],"claims":[]})",
                           R"({"schema":"gradsync-claims/1","options":[],"files":7,"claims":{}})",
                           R"({"schema":"gradsync-claims/1","options":{"no-such":"1"},"files":[],
                              "claims":[]})"}) {
    write_plainly(path, text);
    error_text(ExitCode::kBadData, [&] { verify_report(path); });
  }
  error_text(ExitCode::kNoInput, [&] { verify_report(folder / "none.json"); });
}
