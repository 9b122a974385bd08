#include "analysis/output/page.h"

#include <regex>
#include <set>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/tables/tables.h"
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
  CHECK(contains(page, "5 more rows are not shown here"));
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
  const std::string page = page_of(folder, {},
                                   {{"reduce.none", "nothing would", {}, "", "", false},
                                    {"link.latency", "latency limits", {}, "", "", false}});
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
  write_sample(folder / "run.h5", {});
  const RunSet set = load_runs(find_runs({folder.path().string()}));
  const std::string host = set.runs.front().reader->info().topology.front().host;
  Table table = small_table();
  table.add({host, Cell::of(1, 0)}, (folder / "run.h5").string());
  PageContent content{{}, {}, {table}, "A title of mine"};
  const std::string hidden = render_page(set, content);
  CHECK(contains(hidden, "<h1>A title of mine</h1>"));
  CHECK_FALSE(contains(hidden, folder.path().parent_path().string() + "/"));
  CHECK_FALSE(contains(hidden, ">" + host + "<"));
  CHECK(contains(hidden, ">host 1<"));
  content.places = true;
  const std::string shown = render_page(set, content);
  CHECK(contains(shown, folder.path().string()));
  CHECK(contains(shown, ">" + host + "<"));
}
