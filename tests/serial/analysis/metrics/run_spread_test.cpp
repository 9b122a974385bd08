#include "analysis/metrics/run_spread.h"

#include <algorithm>

#include <doctest/doctest.h>

#include "analysis/tables/tables.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/study_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

namespace {

RunSpread spread_of(const std::vector<StudyRun>& study) {
  const TestFolder folder;
  for (std::size_t i = 0; i < study.size(); ++i)
    write_study(folder / (std::to_string(i) + ".h5"), study[i]);
  const RunSet set = loaded(folder);
  return run_spreads(group_runs(set)).at("lenet");
}

}  // namespace

TEST_CASE("spread: modes on one rank are a control, for the same batch only") {
  const RunSpread spread = spread_of({{"none", 1, 32, 0.010},
                                      {"allreduce", 1, 32, 0.011},
                                      {"ddp", 1, 32, 0.0122},
                                      {"ddp", 1, 64, 0.030},
                                      {"ddp", 2, 32, 0.100}});
  CHECK(spread.factor == Approx(1.22));
  CHECK(spread_text(spread, "lenet") ==
        "runs of the same work differ by up to 22.0 % (lenet: 3 runs on one rank, 10 ms to 12.2 "
        "ms)");
}

TEST_CASE("spread: repeats of a cell count on any number of ranks; single runs say nothing") {
  CHECK(spread_of({{"ddp", 2, 32, 0.010}, {"ddp", 2, 32, 0.015}}).factor == Approx(1.5));
  CHECK_FALSE(spread_of({{"ddp", 2, 32, 0.010}, {"allreduce", 2, 32, 0.015}}).known());
  // Of several cells the largest counts, whichever is first.
  for (const double first_s : {0.012, 0.018})
    CHECK(spread_of({{"ddp", 2, 32, 0.010},
                     {"ddp", 2, 32, first_s},
                     {"ddp", 2, 64, 0.010},
                     {"ddp", 2, 64, 0.015}})
              .factor == Approx(std::max(first_s / 0.010, 1.5)));
  CHECK_FALSE(spread_of({{"ddp", 2, 32, 0.01, 0, 0, 0}, {"ddp", 2, 32, 0.01, 0, 0, 0}}).known());
}

TEST_CASE("spread: faster and slower only beyond it") {
  const RunSpread none, tenth{1.1, ""};
  CHECK(spread_word({1.3, 1.2, 1.4, 9}, tenth) == "slower");
  CHECK(spread_word({0.7, 0.6, 0.8, 9}, tenth) == "faster");
  CHECK(spread_word({1.1, 1.05, 1.2, 9}, tenth) == "within the spread");
  CHECK(spread_word({0.95, 0.92, 0.98, 9}, tenth) == "within the spread");
  CHECK(spread_word({1.3, 1.2, 1.4, 9}, none) == "one run each");
  CHECK(spread_word({1.0, 0.9, 1.1, 9}, none) == "no difference");
  CHECK(spread_word({1.3, kNotMeasured, kNotMeasured, 3}, tenth) == "too few");
}

TEST_CASE("spread: table modes-paired calls no mode on one rank faster, and says what is noise") {
  const TestFolder folder;
  write_study(folder / "a.h5", {"none", 1, 32, 0.0085});
  write_study(folder / "b.h5", {"allreduce", 1, 32, 0.0100});
  write_study(folder / "c.h5", {"ddp", 1, 32, 0.0122});
  write_study(folder / "d.h5", {"allreduce", 2, 32, 0.010});
  write_study(folder / "e.h5", {"ddp", 2, 32, 0.0061});
  const Table table = make_modes_paired_table(loaded(folder), {});
  CHECK(shown(table, 0, "verdict") == "within the spread");
  CHECK(shown(table, 1, "verdict") == "reference");
  CHECK(shown(table, 2, "verdict") == "within the spread");
  CHECK(shown(table, 4, "verdict") == "faster");
  CHECK(contains(all_notes(table),
                 "differ by up to 43.5 % (lenet: 3 runs on one rank, 8.5 ms to "
                 "12.2 ms); smaller differences are noise here"));
}
