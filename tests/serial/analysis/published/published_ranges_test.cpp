#include <filesystem>

#include <doctest/doctest.h>

#include "analysis/metrics/quantized_figures.h"
#include "analysis/published/csv.h"
#include "support/file.h"
#include "support/parse.h"

using namespace gradsync;
using namespace gradsync::report;

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
