#include <cmath>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "analysis/output/claims.h"
#include "analysis/report_options.h"
#include "analysis/tables/tables.h"
#include "base/file.h"
#include "base/table_formats.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

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
  table.add({"Z\xc3\xbcrich \xc3\x97 \xe2\x86\x92 \xf0\x9f\x98\x80 \xff \xc3"});
  const std::string text = render_latex(table);
  CHECK(contains(text,
                 "\\textbackslash{}\\{\\}\\%\\$\\&\\#\\_\\textasciitilde{}\\textasciicircum{}"
                 "\\textless{}\\textgreater{}\\textbar{}''  \\\\"));
  CHECK(contains(text, "Z\xc3\xbcrich $\\times$ ? ? ? ? \\\\"));
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
