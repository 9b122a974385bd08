#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include <doctest/doctest.h>

#include "analysis/output/output.h"
#include "analysis/published/audit.h"
#include "analysis/published/audit_page.h"
#include "analysis/published/published_report.h"
#include "analysis/published/published_tables.h"
#include "base/file.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::report::published;

namespace {

constexpr const char* kFile = "results/published/reports.csv";
constexpr const char* kPage = "results/published/audit.md";

bool is_here() {
  if (std::filesystem::exists(kFile)) return true;
  MESSAGE("SKIP: results/published is not below the working folder");
  return false;
}

Study shipped() {
  return Study(parse_published(read_text_file(kFile), "reports.csv"));
}

std::string verdict_on_line(const Study& study, const Audit& audit, std::size_t line) {
  for (std::size_t i = 0; i < study.rows().size(); ++i)
    if (study.rows()[i].line == line) return audit.verdicts[i].text;
  return "no such line";
}

std::string finding(const Audit& audit, const std::string& report, const std::string& part) {
  for (const Finding& one : audit.findings)
    if (one.report == report && contains(one.text(), part))
      return std::string(severity_text(one.severity)) + ": " + one.text();
  return "";
}

PublishedOptions audit_options(std::vector<const char*> args) {
  const CleanEnvironment clean;
  args.insert(args.begin(), {"gradsync-audit", "--site", "/dev/null"});
  return published_options(
      resolve_options(published_option_table(), static_cast<int>(args.size()), args.data(), "FILE")
          .values);
}

std::string printed(PublishedOptions options, const char* file) {
  options.file = file;
  std::ostringstream out, log;
  ReportOutput output(options.output, out, log);
  write_published(read_published(options), output);
  return out.str();
}

/// One random edit: a byte, a swap of fields, a line twice, a line less, a tail less.
std::string with_changed_bytes(std::string text, std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return random() % std::max<std::size_t>(1, limit); };
  const auto line_start = [&](std::size_t at) { return text.rfind('\n', at) + 1; };
  const std::size_t at = below(text.size());
  const std::size_t begin = line_start(at),
                    end = std::min(text.find('\n', at), text.size() - 1) + 1;
  using namespace std::literals;
  static constexpr std::string_view kBytes = ",\"\n\r-+.e0159%;\t\0\xFF xsN"sv;
  switch (below(6)) {
    case 0:
      text[at] = kBytes[below(kBytes.size())];
      break;
    case 1:
      text.insert(at, 1, kBytes[below(kBytes.size())]);
      break;
    case 2:
      text.erase(at, 1 + below(20));
      break;
    case 3:
      text.insert(begin, text.substr(begin, end - begin));
      break;
    case 4:
      text.erase(begin, end - begin);
      break;
    default:
      text.insert(at, std::to_string(random()));
  }
  return text;
}

}  // namespace

// Each expectation below was worked out with a calculator from the lines that it names.
TEST_CASE("published reports: findings checked by hand") {
  if (!is_here()) return;
  const Study study = shipped();
  const Audit result = audit(study, {});
  const auto verdict = [&](std::size_t line) { return verdict_on_line(study, result, line); };
  // report-a: 41.3/23.15 = 1.784, printed 1.86; 33.95/9.01 = 3.768, printed 3.76.
  CHECK(verdict(27) == "differs: expected 1.78");
  CHECK(verdict(29) == "agrees");  // 33.64/17.87 = 1.882
  CHECK(verdict(37) == "agrees (cut off, not rounded)");
  // report-a: the compute times are the epoch times of lines 26 to 36.
  CHECK(contains(finding(result, "report-a", "compute equals"), "11.65 s of 11.65 s"));
  // report-a: 44,695,848 B / 2.9463 s = 15.17 MB/s; 782 of them 11.86 GB/s.
  CHECK(contains(verdict(40), "differs: expected 15.17 (message"));
  CHECK(contains(verdict(40), "needs comm = 3.059 s"));  // 44,695,848 B / 14.61 MB/s
  CHECK(contains(finding(result, "report-a", "one message"),
                 "14.61 MB/s instead of a busbw of 11.86 GB/s over 782"));
  // report-c: 2 * 16.1/41.32 = 0.779, 4 * 9.19/8.76 = 4.196 where T(1)/T(n) is 0.390 and 1.049.
  CHECK(verdict(157) == "agrees");
  CHECK(verdict(169) == "agrees");
  CHECK(contains(finding(result, "report-c", "n*T(1)/T(n)"), "0.39 to 1.05"));
  CHECK(contains(finding(result, "report-c", "super-linear"), "4 devices at batch 512: 4.2"));
  // report-c: 16.1/2 = 8.05, 41.32 − 8.05 = 33.27; 46,758,048 B / 2^30 / 33.27 s = 0.001309.
  CHECK(verdict(170) == "agrees");
  CHECK(verdict(171) == "agrees");
  CHECK(verdict(172) == "agrees");
  // 0.0435469 GiB / 4.19 s = 0.01039; 1.5 * 0.0435469 / 6.47 = 0.010096.
  // Both follow from volumes rounded before: 0.044/4.19 = 0.01050, 0.065/6.47 = 0.010046.
  CHECK(contains(verdict(184), "differs: expected 0.0104; follows from 0.044 GB in 4.19 s"));
  CHECK(contains(verdict(187), "differs: expected 0.01010; follows from 0.065 GB in 6.47 s"));
  CHECK(contains(finding(result, "report-c", "powers of 1,024"), "GB/s follows"));
  CHECK(contains(finding(result, "report-c", "larger than the data set"), "64.33 s"));
  // report-d: 0.6860174233346339 * 50,000 = 34,300.87; times 391 * 640 it is 171,669.00.
  CHECK(contains(finding(result, "report-d", "no whole number"),
                 "34300.87 images, but a whole number"));
  // report-d: 18.0824/4.8961 = 3.69, 22.5501/22.7454 = 0.99.
  CHECK(contains(finding(result, "report-d", "running time"), "3.69 by training") == false);
  CHECK(contains(finding(result, "report-d", "running time"), "is 3.69 or 0.99"));
  // report-e: 15.7 GB/s * 11.43 s = 179.5 GB; 2 * 2 * 44.7 MB * 782 = 139.8 GB.
  CHECK(contains(finding(result, "report-e", "more than all gradients"), "179.5 GB, of 139.8 GB"));
  // report-e against report-a: 15.7 GB/s to 14.61 MB/s is 1,075, 234.12 to 250.1 is 936.
  CHECK(contains(finding(result, "", "about 1,000 times"), "936 to 1225"));
  // report-e: 9.82/2.3797 = 4.1 for one setting.
  CHECK(contains(finding(result, "report-e", "far apart"), "2.3797 s"));
  // report-b: 45 + 17 = 62; ranks of all-reduce with 1083, 1089, 1084 and 1083 right.
  CHECK(contains(finding(result, "report-b", "do not sum"), "leave 38 %"));
  CHECK(contains(finding(result, "report-b", "test results"), "1083, 1089, 1084, 1083"));
  // report-b: 13 mean losses; the least printed loss of ddp:rank1 is 2.2727, below ln 10.
  CHECK(contains(finding(result, "report-b", "each printed iteration"), "ddp:rank1, 4 devices"));
  // report-e: 11.43 s/782, 0.40 s/196, 1.59 s/49; 49 messages of 2.04 ms are 0.1 s.
  CHECK(contains(finding(result, "report-e", "communication grows"),
                 "14.6 ms x 782 at batch 32, 2.04 ms x 196 at batch 128, 32.4 ms x 49"));
  CHECK(contains(finding(result, "report-e", "communication grows"), "0.1 s instead of 1.59 s"));
  // report-e: 15.89/0.57 = 27.88; 15.50 + 11.43 = 26.93.
  CHECK(contains(finding(result, "report-e", "not above 1"), "0.57 needs T(n) = 27.88 s"));
  // report-d: 0.673774237 s/49 = 13.8 ms, 0.375480685 s/2 = 188 ms; 2 of 20 ms are 0.0399 s.
  const std::string grows = finding(result, "report-d", "communication grows");
  CHECK(contains(grows, "contradicted"));
  CHECK(contains(grows, "13.8 ms x 49"));
  CHECK(contains(grows, "188 ms x 2 at batch 8192; batch 8192 needs 0.0399 s instead of 0.3755 s"));
  // report-d: 2 * 1 * 44,695,848 B * 782 / 21.20944891 s = 3.295904 GB/s; half of it a device.
  CHECK(verdict(284) == "agrees");
  CHECK(contains(finding(result, "report-d", "all links together"),
                 "3.295903942 GB/s, on one link 1.647951971 GB/s"));
  // report-d: 24.2283/33.5877 = 0.7213 by running times; 32.7164 - 23.014/2 = 21.2094 by training.
  CHECK(verdict(281) == "agrees");
  CHECK(verdict(283) == "agrees");
  CHECK(contains(finding(result, "report-d", "speedup by running_time"), "doubtful"));
  // report-a: 44,695,848 B / 1.4798 s = 30.20 MB/s; / 0.1787 s = 250.12, 0.17870 is cut off.
  CHECK(contains(finding(result, "report-a", "communication on one device"), "30.20 MB/s"));
  CHECK(verdict(272) == "agrees");
  CHECK(verdict(274) == "agrees");
  CHECK(contains(finding(result, "report-d", "slower than one"), "32.72 s against 23.01 s"));
  CHECK_FALSE(contains(finding(result, "report-d", "slower than one"), "8192"));  // by 1 %
  // report-a: a message takes 3.8 to 6.6 ms, which repeats may explain.
  CHECK(finding(result, "report-a", "message grows").empty());
  CHECK(contains(finding(result, "report-a", "compute equals"), "needs compute = 10.11 s"));
  for (const Finding& one : result.findings)
    CHECK_MESSAGE(!one.right_if.empty(), one.text());
  CHECK_FALSE(contains(finding(result, "report-b", "test results"), "1277"));
}

TEST_CASE("published reports: every number that they print is there once") {
  if (!is_here()) return;
  const Study study = shipped();
  std::map<std::string, std::size_t> numbers;
  for (const Row& row : study.rows()) {
    ++numbers[row.report];
    CHECK_MESSAGE(row.usable(), "line " << row.line);
  }
  CHECK(numbers == std::map<std::string, std::size_t>{{"report-a", 64},
                                                      {"report-b", 85},
                                                      {"report-c", 51},
                                                      {"report-d", 88},
                                                      {"report-e", 38}});
  // One setting has one mode in a report, whatever the table.
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::set<std::string>> modes;
  for (const Row& row : study.rows())
    if (row.report != "report-b")
      modes[{row.report, row.devices, row.batch_per_device}].insert(row.mode);
  for (const auto& [setting, of_setting] : modes)
    CHECK_MESSAGE(of_setting.size() == 1, std::get<0>(setting));
}

TEST_CASE("published reports: the page is what the command prints, byte for byte") {
  if (!is_here()) return;
  const auto options = audit_options({"--table", "audit", "--format", "markdown"});
  CHECK(printed(options, kFile) == read_text_file(kPage));
}

TEST_CASE("published reports: all tables in all formats, to a folder as well") {
  if (!is_here()) return;
  const TestFolder folder;
  PublishedOptions options = audit_options({"--format", "all"});
  const std::string all = printed(options, kFile);
  CHECK(contains(all, "Published numbers of reports.csv, audited"));
  CHECK(contains(all, "\"published-findings\""));
  CHECK_FALSE(contains(all, "\nFindings in reports.csv\n"));  // the page says it already
  options.output.output = folder / "out";
  printed(options, kFile);
  CHECK(std::filesystem::exists(folder / "out/audit.md"));
  CHECK(std::filesystem::exists(folder / "out/published-values.csv"));
  CHECK(std::filesystem::exists(folder / "out/published-findings.json"));
}

TEST_CASE("published: options") {
  CHECK(audit_options({}).tables.size() == published_tables().size());
  const PublishedOptions options =
      audit_options({"--parameters", "1000", "--message-bytes", "4MiB", "--images", "60000",
                     "--batch", "32", "--fastest-link", "64GB", "--table", "values,findings"});
  CHECK(options.audit.parameters == 1000);
  CHECK(options.audit.message_bytes == 4194304);
  CHECK(options.audit.images == 60000);
  CHECK(options.audit.fastest_link_bytes_per_s == 64e9);
  CHECK(options.batch_per_device == 32);
  CHECK(options.tables.size() == 2);
  CHECK(contains(refusal([] { audit_options({"--table", "vallues"}); }), "did you mean values?"));
  refusal([] { audit_options({"--images", "0"}); });
  refusal([] { audit_options({"--message-bytes", "4M"}); });
  error_text(ExitCode::kNoInput, [] { printed(audit_options({}), "/nowhere.csv"); });
}

TEST_CASE("published: mutated files end in an audit or in an error with a line") {
  if (!is_here()) return;
  const std::string whole = read_text_file(kFile);
  // A part of the file keeps one round short; it holds every table of report-a and some of b.
  const std::string text = whole.substr(0, whole.find('\n', 6000) + 1);
  std::mt19937_64 random(20260101);
  int audited = 0, refused = 0;
  for (int round = 0; round < 400; ++round) {
    std::string file = text;
    for (std::size_t edits = 1 + random() % 4; edits > 0; --edits)
      file = with_changed_bytes(std::move(file), random);
    try {
      const Study study(parse_published(file, "m.csv"));
      const Audit result = audit(study, {});
      CHECK(result.verdicts.size() == study.rows().size());
      CHECK_FALSE(page_text(audit_page(study, result)).empty());
      ++audited;
    } catch (const Error& error) {
      CHECK(error.exit_code() == static_cast<int>(ExitCode::kBadData));
      CHECK(std::string(error.what()).starts_with("m.csv:"));
      ++refused;
    }
  }
  CHECK(audited > 50);
  CHECK(refused > 50);
}
