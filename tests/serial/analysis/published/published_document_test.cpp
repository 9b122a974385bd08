#include <filesystem>

#include <doctest/doctest.h>

#include "analysis/figures/quantized_figures.h"
#include "analysis/output/claims.h"
#include "analysis/published/csv.h"
#include "analysis/published/published_report.h"
#include "base/file.h"
#include "base/parse.h"
#include "serial/published_paper.h"
#include "serial/test_folder.h"

// Published numbers as one HTML document, and as claims that can be verified.

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::report::published;
using namespace gradsync::report::published::testing;

namespace {

constexpr const char* kNumbers =
    "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n"
    "paper <1>,speedup,resnet18,single,1,50,epoch_time,100.0,s\n"
    "paper <1>,speedup,resnet18,ddp,2,50,epoch_time,60.0,s\n"
    "paper <1>,speedup,resnet18,ddp,2,50,speedup,2.67,1\n"
    "paper <1>,batch,resnet18,ddp,2,50,epoch_5_accuracy,61,%\n";

PublishedOptions all_of(const std::filesystem::path& file) {
  PublishedOptions options;
  options.file = file;
  for (const PublishedTableSpec& spec : published_tables())
    options.tables.push_back(&spec);
  return options;
}

std::string verify_audit(const std::filesystem::path& claims) {
  return verify_claims(claims, "gradsync-audit", published_option_table(),
                       published::tables_of_claims);
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

}  // namespace

TEST_CASE("published: one HTML document with what was found and every table") {
  const TestFolder folder;
  write_file_atomically(folder / "numbers.csv", kNumbers);
  const std::string html = published_html(read_published(all_of(folder / "numbers.csv")));
  CHECK(contains(html, "<title>Published numbers of numbers.csv, audited</title>"));
  CHECK(contains(html, ">paper &lt;1&gt;</h3>"));
  CHECK_FALSE(contains(html, "paper <1>"));
  for (const char* table :
       {"values", "batch-size", "speedup", "compute-comm", "bandwidth", "large-batch"})
    CHECK(count(html, "id=\"table-published-" + std::string(table) + "\"") == 1);
  CHECK(contains(html, "id=\"published-speedup.2.speedup\" data-value=\"1.6666666666666667\""));
  CHECK(count(html, "<ul") == count(html, "</ul>"));
  CHECK(count(html, "<li") == count(html, "</li>"));
  CHECK_FALSE(contains(html, "http"));
}

TEST_CASE("published: claims hold until the file or a number changes") {
  const TestFolder folder;
  const std::filesystem::path file = folder / "numbers.csv";
  write_file_atomically(file, kNumbers);
  const PublishedReport report = read_published(all_of(file));
  Claims claims{{{"table", "all"}}, claimed_files({file}), {}};
  for (const Table& table : report.tables)
    add_claims(table, claims.files, claims.claims);
  CHECK(claims.claims.size() > 30);
  for (const Claim& claim : claims.claims)
    CHECK_MESSAGE(claim.files == std::vector<std::string>{file.string()}, claim.id);
  write_file_atomically(folder / "claims.json", claims_json(claims));
  CHECK(contains(verify_audit(folder / "claims.json"), "numbers from 1 files hold"));
  for (Claim& claim : claims.claims)
    if (claim.id == "published-speedup.2.speedup") claim.value *= 1.01;
  write_file_atomically(folder / "wrong.json", claims_json(claims));
  CHECK(contains(error_text(ExitCode::kCheckFailed, [&] { verify_audit(folder / "wrong.json"); }),
                 "published-speedup.2.speedup"));
  std::filesystem::remove(file);
  write_file_atomically(file, std::string(kNumbers) + "\n");
  error_text(ExitCode::kBadData, [&] { verify_audit(folder / "claims.json"); });
}

TEST_CASE("published: the ranges that the report shows are those of ranges.csv") {
  constexpr const char* kFile = "results/published/ranges.csv";
  if (!std::filesystem::exists(kFile)) {
    MESSAGE("SKIP: results/published is not below the working folder");
    return;
  }
  const auto records = published::parse_csv(read_text_file(kFile), kFile);
  REQUIRE(records.size() == 1 + kPublishedRanges.size());
  CHECK(records[0].fields == std::vector<std::string>{"report", "layer", "min", "max",
                                                      "three_sigma_lower", "three_sigma_upper"});
  for (std::size_t i = 0; i < kPublishedRanges.size(); ++i) {
    const std::vector<std::string>& printed = records[i + 1].fields;
    const PublishedRange& shown = kPublishedRanges[i];
    CAPTURE(shown.layer);
    CHECK(printed[1] == shown.layer);
    CHECK(parse_number(printed[2]) == shown.minimum);
    CHECK(parse_number(printed[3]) == shown.maximum);
    CHECK(parse_number(printed[4]) == shown.sigma_low);
    CHECK(parse_number(printed[5]) == shown.sigma_high);
  }
}
