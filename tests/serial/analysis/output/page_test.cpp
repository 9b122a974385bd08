// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/page.h"

#include <regex>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/tables/comparison.h"
#include "analysis/tables/tables.h"
#include "base/file.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

std::string page_of(const TestFolder& folder, std::vector<Table> tables = {},
                    std::vector<VerdictClause> verdict = {}) {
  const RunSet set = load_runs(find_runs({folder.path().string()}));
  std::vector<std::string> missing;
  if (tables.empty()) tables = {make_modes_table(set, {}), make_split_table(set, {})};
  return render_page(
      set, {std::move(verdict), make_charts({set, tables, {}}, missing), std::move(tables)});
}

Table small_table() {
  Table table{
      "small",
      "A small one",
      {"n = 1"},
      {{"name", "name", true}, {"time_ms", "time ms", false, "W <mean>", "/time/iteration"}},
      {}};
  table.add({"ddp & co", Cell::of(1.23456, 2)}, "a\"b.h5");
  table.add({"none", Cell::of(kNotMeasured, 2)}, "c.h5");
  return table;
}

}  // namespace

TEST_CASE("page: a number carries its claim") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const std::string page = page_of(folder, {small_table()});
  CHECK(contains(page,
                 "id=\"small.1.time_ms\" data-value=\"1.23456\" title=\"time_ms = W &lt;mean&gt;; "
                 "data set: /time/iteration; file: a&quot;b.h5\">1.23</td>"));
  CHECK(contains(page, "id=\"small.2.time_ms\" data-value=\"\""));
  CHECK(contains(page, ">n/a</td>"));
  CHECK(contains(page, "<th scope=\"row\">ddp &amp; co</th>"));
  CHECK(contains(page, "<dt><code>time_ms</code></dt>"));
}

TEST_CASE("page: hostile names stay text, ids are unique, nothing is fetched") {
  const TestFolder folder;
  SampleShape hostile;
  hostile.mode = "<script>alert('x')</script>\"onload=\"x";
  write_sample(folder / "a<img src=x>.h5", hostile);
  write_sample(folder / "b.h5", {"none", 1});
  const std::string page = page_of(
      folder, {}, {{"bound", "It is <b>bound</b>", {"a\"b.h5"}, "/time/<i>", "here", false}});
  CHECK_FALSE(contains(page, "<script>alert"));
  CHECK_FALSE(contains(page, "<img"));
  CHECK_FALSE(contains(page, "<b>bound"));
  CHECK(contains(page, "It is &lt;b&gt;bound&lt;/b&gt;."));
  CHECK(contains(page, "/time/&lt;i&gt;"));
  CHECK_FALSE(contains(page, "\"onload"));
  CHECK_FALSE(contains(page, "://"));
  CHECK_FALSE(contains(page, "@import"));
  std::set<std::string> ids;
  const std::regex id(" id=\"([^\"]*)\"");
  for (std::sregex_iterator match(page.begin(), page.end(), id), end; match != end; ++match)
    CHECK_MESSAGE(ids.insert((*match)[1]).second, (*match)[1].str());
  CHECK(ids.size() > 100);
}

TEST_CASE("page: runs without numbers make a page that states it") {
  const TestFolder folder;
  write_unmeasured(folder / "unmeasured.h5", 3);
  const std::string page = page_of(folder);
  CHECK(contains(page, "The runs hold no numbers for them."));
  CHECK_FALSE(contains(page, "nan<"));
  CHECK(contains(page, "</html>"));
}

TEST_CASE("page: a long table ends with a note") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  Table table = small_table();
  while (table.rows.size() < kMostPageRows + 5)
    table.add({"more", Cell::count(1)});
  const std::string page = page_of(folder, {table});
  CHECK(contains(page, "5 more rows not shown here"));
  CHECK_FALSE(contains(page, fmt::format("small.{}.time_ms", kMostPageRows + 1)));
}

TEST_CASE("page: the same runs give the same bytes") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  CHECK(page_of(folder) == page_of(folder));
}

TEST_CASE("page: the verdict stands beside the plot of the split, ahead of the contents") {
  const TestFolder folder;
  write_sample(folder / "ddp.h5", {});
  std::vector<VerdictClause> verdict(8, {"reduce.none", "nothing would", {}, "", "", false});
  verdict.push_back({"link.latency", "latency limits", {}, "", "", false});
  const std::string page = page_of(folder, {}, verdict);
  const auto at = [&](const char* text) { return page.find(text); };
  REQUIRE(at("class=\"lead\"") != std::string::npos);
  CHECK(at("class=\"lead\"") < at("Nothing would."));
  CHECK(at("Nothing would.") < at("id=\"plot-split\""));
  CHECK(at("id=\"plot-split\"") < at("aria-label=\"Contents\""));
  CHECK(at("aria-label=\"Contents\"") < at("Latency limits."));
  CHECK(page.find("id=\"plot-split\"", at("id=\"plot-split\"") + 1) == std::string::npos);
}

TEST_CASE("page: a sentence begins with a capital, names stay as they are") {
  const TestFolder folder;
  write_sample(folder / "ddp.h5", {});
  VerdictClause of_network{"link.latency", "vgg11: latency limits", {}, "", "", false};
  of_network.networks = {"vgg11"};
  const std::string page = page_of(folder, {},
                                   {{"bound.share", "ddp at 2 ranks", {}, "", "", false},
                                    {"link.bandwidth", "ddpx", {}, "", "", false},
                                    of_network});
  for (const char* text : {"<p>ddp at 2 ranks.", "<p>Ddpx.", "<p>vgg11: latency"})
    CHECK_MESSAGE(contains(page, text), text);
}

TEST_CASE("page: one table is open, and one without rows is left out") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  Table empty = small_table(), second = small_table();
  empty.name = "empty";
  empty.rows.clear();
  second.name = "second";
  const std::string page = page_of(folder, {small_table(), empty, second});
  CHECK(contains(page, "id=\"table-small\" open>"));
  CHECK(contains(page, "id=\"table-second\">"));
  CHECK_FALSE(contains(page, "table-empty"));
}

TEST_CASE(
    "page: exposed communication is marked where it contains waiting, a shared host has no "
    "figures") {
  const std::string reservation = "contains waiting for late ranks (schema 1)";
  const TestFolder old, recent, shared;
  StudyRun run{"ddp", 2, 32, 0.006, 0.004};
  write_study(recent / "run.h5", run);
  CHECK(contains(page_of(recent), "Highest exposed communication"));
  CHECK_FALSE(contains(page_of(recent), reservation));
  run.schema = 1;
  write_study(old / "run.h5", run);
  CHECK(contains(page_of(old), reservation));
  write_study(shared / "run.h5", with_cpu_time({"ddp", 2, 32, 0.006, 0.004}, 0.3));
  CHECK_FALSE(contains(page_of(shared), "Highest"));
  CHECK(contains(page_of(shared), "shared host"));
}

TEST_CASE("page: hosts and absolute paths are shown only on request") {
  const TestFolder folder;
  std::filesystem::create_directories(folder / "deep/er");
  // A host that is called like a mode, a network that is a file, a folder of somebody.
  StudyRun run{"ddp", 2, 32, 0.01, 0.002};
  run.change_info = [](RunInfo& info) {
    for (RankPlace& place : info.topology)
      place.host = "ddp";
    for (ConfigEntry& option : info.config)
      if (option.name == "model") option.value = "/home/alice/net.pt";
  };
  write_study(folder / "deep/er/run.h5", run);
  run.change_info = [](RunInfo& info) {
    for (RankPlace& place : info.topology)
      place.host = "secret-node";
    info.topology.back().host = "zebra";
  };
  write_study(folder / "run.h5", run);
  write_file_atomically(folder / "bad.h5", "no run");
  const auto page = [&](bool hidden) {
    const std::vector<std::string> places = {(folder / "deep/../").string()};
    RunSet opened = load_places(places);
    const std::vector<const RunReader*> readers = {opened.runs[0].reader.get(),
                                                   opened.runs[1].reader.get()};
    const RunSet set = load_places(places, {}, {}, {}, hidden, &opened);
    // No file is read twice.
    for (const Run& one : set.runs)
      CHECK(std::ranges::find(readers, one.reader.get()) != readers.end());
    std::vector<Table> made;
    for (const TableSpec& spec : tables())
      if (spec.applies(set, {})) made.push_back(spec.make(set, {}));
    std::vector<std::string> missing;
    PageContent content{make_verdict(set), make_charts({set, made, {}}, missing), made};
    content.places = !hidden;
    return render_page(set, content);
  };
  const std::string shown = page(false), hidden = page(true);
  for (const std::string& text : {folder.path().string(), std::string("secret-node"),
                                  std::string("zebra"), std::string("/home/alice")}) {
    CHECK_MESSAGE(contains(shown, text), text);
    CHECK_MESSAGE(!contains(hidden, text), text);
  }
  CHECK(contains(hidden, "<td>#1</td>"));
  CHECK(contains(hidden, "<td>#2</td>"));
  CHECK(contains(hidden, "file: deep/er/run.h5"));
  CHECK(contains(hidden, "left out: "));
  CHECK(contains(hidden, "net.pt"));
  // The mode is still called so.
  CHECK(count_of(hidden, "<th scope=\"row\">ddp</th>") ==
        count_of(shown, "<th scope=\"row\">ddp</th>"));
}

TEST_CASE("page: a browser may run the page's own script only, which unfolds tables for paper") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const std::string page = page_of(folder);
  CHECK(contains(page,
                 "content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"));
  CHECK(count_of(page, "<script") == 1);
  CHECK(contains(page, "addEventListener(\"beforeprint\""));
  CHECK(contains(page, "addEventListener(\"afterprint\""));
  // What is drawn in the color of text is light in the dark.
  CHECK_FALSE(contains(page, "\"#222222\""));
  CHECK(contains(page, "stroke=\"currentColor\""));
}

TEST_CASE("page: a narrow window has what all rows say below the table") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  Table table{"t", "T", {}, {{"mode", "mode", true}, {"model", "model", true}, {"ms", "ms"}}, {}};
  table.add({"ddp", "lenet <5>", Cell::of(1, 1)});
  CHECK_FALSE(contains(page_of(folder, {table}), "In all rows"));
  table.add({"none", "lenet <5>", Cell::of(2, 1)});
  const std::string page = page_of(folder, {table});
  CHECK(contains(page, "<th scope=\"col\" class=\"same\" title=\"model\">model</th>"));
  CHECK(contains(page, "<td class=\"same\">lenet &lt;5&gt;</td>"));
  CHECK(contains(page, "<p class=\"fine same-note\">In all rows: model lenet &lt;5&gt;.</p>"));
  CHECK(contains(page, ".same{display:none}"));
}

TEST_CASE("page: an option in a sentence is not broken over two lines") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const std::string page = page_of(
      folder, {}, {{"scaling.none", "run gradsync-train --batch-per-rank 32 -- <x>", {}, "", ""}});
  CHECK(contains(
      page, "Run gradsync-train <span class=\"whole\">--batch-per-rank</span> 32 -- &lt;x&gt;."));
}

TEST_CASE("page: one of a thing is in the singular") {
  for (const std::size_t iterations : {1U, 12U}) {
    const TestFolder folder;
    StudyRun run{"ddp", 1, 1, 0.01};
    run.iterations = iterations;
    write_study(folder / "run.h5", run);
    const RunSet set = load_runs(find_runs({folder.path().string()}));
    std::vector<Table> made;
    for (const TableSpec& spec : tables())
      if (spec.applies(set, {})) made.push_back(spec.make(set, {}));
    const std::string page = page_of(folder, made, make_verdict(set));
    const std::regex plural(
        "[^0-9.]1 (more |steady |whole |other "
        ")?(ranks|runs|cells|iterations|images|epochs|points|files|"
        "threads|rows|lines|samples|models|modes|hosts|collectives|comparisons)[^a-z]");
    std::smatch found;
    CHECK_MESSAGE(!std::regex_search(page, found, plural), found.str());
  }
}

TEST_CASE("page: the highest throughput names those that it is not known to be higher than") {
  const auto key_figure = [](double other_s) {
    const TestFolder folder;
    // Two modes at one rank are runs of the same work, 1 % apart.
    write_study(folder / "none.h5", {"none", 1, 32, 0.0101});
    write_study(folder / "one.h5", {"ddp", 1, 32, 0.0100});
    write_study(folder / "ddp.h5", {"ddp", 2, 32, 0.0100});
    write_study(folder / "allreduce.h5", {"allreduce", 2, 32, other_s});
    const std::string page = page_of(folder);
    const auto at = page.find("Highest throughput");
    return page.substr(at, page.find("</div>", at) - at);
  };
  CHECK(contains(key_figure(0.01005), "not significantly higher than allreduce"));
  CHECK_FALSE(contains(key_figure(0.02), "not significantly higher"));
}

TEST_CASE("page: the highest throughput by its median iteration may be a lower one in its rounds") {
  const TestFolder folder;
  for (const std::string mode : {"ddp", "allreduce"}) {
    StudyRun run{mode, 2, 32, mode == "ddp" ? 0.010 : 0.011, 0, 0, 120};
    run.change_info = [&](RunInfo& info) {
      info.experiment = {{"id", "e"}, {"contender", mode}, {"contenders", "ddp,allreduce"}};
    };
    run.change = [&](IterationRow& row) {
      row.round = row.iteration / 10;
      if (mode == "ddp" && row.iteration % 10 == 9)
        for (RankIteration& rank : row.ranks)
          rank[Phase::kIteration] *= 3;
    };
    write_study(folder / (mode + ".h5"), run);
  }
  CHECK(contains(page_of(folder), "by the interval of their ratio lower than allreduce"));
}

TEST_CASE("page: contenders of one job with other batches are compared by the image, once") {
  const TestFolder folder;
  for (const int accumulate : {1, 2}) {
    const std::string name = accumulate == 1 ? "ddp" : "ddp:accumulate=2";
    StudyRun run{"ddp", 2, 32, accumulate == 1 ? 0.010 : 0.0210, 0, 0, 120};
    run.change_info = [&](RunInfo& info) {
      info.config.push_back({"accumulate", std::to_string(accumulate), "command line"});
      for (ConfigEntry& entry : info.config)
        if (entry.name == "batch-global") entry.value = std::to_string(64 * accumulate);
      info.experiment = {{"id", "e"},
                         {"contender", name},
                         {"contenders", "ddp,ddp:accumulate=2"},
                         {"worth", std::to_string(accumulate)}};
    };
    run.change = [&](IterationRow& row) {
      row.round = row.iteration / 10;
      row.samples *= accumulate;
      for (RankIteration& rank : row.ranks)
        rank[Phase::kIteration] *= row.iteration % 2 == 0 ? 1.001 : 0.999;
    };
    write_study(folder / (std::to_string(accumulate) + ".h5"), run);
  }
  // 5 % slower by the image, and known to be.
  const std::string page = page_of(folder);
  CHECK_FALSE(contains(page, "by the interval of their ratio lower than"));
  CHECK_FALSE(contains(page, "not significantly higher than"));
  const auto of = [&](const char* file) {
    return load_runs(find_runs({(folder / file).string()}));
  };
  const RunSet one = of("1.h5"), two = of("2.h5");
  const auto cells = compare_groups(group_runs(one), group_runs(two));
  REQUIRE(cells.size() == 1);
  CHECK(cells[0].ratio.value == doctest::Approx(1.05).epsilon(0.01));
  CHECK(cells[0].b / cells[0].a == doctest::Approx(1.05).epsilon(0.01));
}

TEST_CASE("page: what contenders of one job cost stands beside the verdict") {
  const TestFolder folder;
  for (const char* mode : {"none", "ddp"}) {
    const SampleShape shape{mode};
    RunInfo info = sample_info(shape);
    info.run_id = std::string("run of ") + mode;
    info.experiment = {{"id", "e"}, {"contender", mode}, {"contenders", "none,ddp"}};
    Recorder recorder(folder / (std::string(mode) + ".h5"), info);
    for (std::size_t i = 0; i < shape.iterations; ++i) {
      IterationRow row = sample_row(shape, i);
      row.round = static_cast<std::int64_t>(i);
      recorder.add(row);
    }
    recorder.finish(RunStatus::kComplete);
  }
  const std::string page = page_of(folder);
  CHECK(page.find("id=\"plot-cost\"") < page.find("aria-label=\"Contents\""));
  CHECK(page.find("aria-label=\"Contents\"") < page.find("id=\"plot-split\""));
}
