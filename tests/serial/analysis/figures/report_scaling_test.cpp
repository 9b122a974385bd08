// SPDX-License-Identifier: BSD-3-Clause
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "analysis/figures/comparisons.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;
using doctest::Approx;

TEST_CASE("tables: strong and weak scaling are determined from the runs") {
  const RunFolder folder;
  write_sample(folder / "one.h5", {"none", 1, 12, 5, 64, 2});
  write_sample(folder / "strong.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "weak.h5", {"ddp", 2, 12, 5, 64, 2});
  write_sample(folder / "mode.h5", {"ddp", 1, 12, 5, 64, 2});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  const auto row = [&](const char* run, const char* base) {
    return row_with(table, {{"run", run}, {"base", base}, {"basis", "iteration"}});
  };
  const std::size_t strong = row("strong", "none, 1 x 64");
  CHECK(shown(table, strong, "scaling") == "strong");
  CHECK(number(table, strong, "speedup") == Approx(10.65 / 11.65));
  CHECK(number(table, strong, "efficiency_percent") == Approx(50 * 10.65 / 11.65));
  CHECK(number(table, strong, "ratio") == Approx(10.65 / 11.65));
  const std::size_t weak = row("weak", "none, 1 x 64");
  CHECK(shown(table, weak, "scaling") == "weak");
  CHECK(number(table, weak, "efficiency_percent") == Approx(100 * 10.65 / 11.65));
  CHECK(number(table, weak, "speedup") == Approx(2 * 10.65 / 11.65));
  CHECK(number(table, weak, "ratio") == Approx(10.65 / 11.65));
  CHECK(shown(table, row("weak", "ddp, 1 x 64"), "scaling") == "weak");
  CHECK(shown(table, row("one", "none, 1 x 64"), "remark") == "the base itself");
  // One start each: the iterations of two starts say nothing of how far they differ by chance.
  CHECK(shown(table, strong, "speedup_low") == "n/a");
  CHECK(shown(table, strong, "efficiency_high_percent") == "n/a");
  // Two epochs were recorded of each: the second one counts.
  const std::size_t running =
      row_with(table, {{"run", "weak"}, {"basis", "running time"}, {"base", "none, 1 x 64"}});
  CHECK(shown(table, running, "count") == "1");
  CHECK(number(table, running, "speedup") == 1);
  CHECK(number(table, running, "efficiency_percent") == 50);
  // The base is among what tells rows apart: a narrow text keeps it.
  std::ostringstream narrow;
  print_narrow_text(narrow, table, 60, "--wide");
  CHECK(contains(narrow.str(), "base"));
}

TEST_CASE("tables: a batch of one image scales, too") {
  const RunFolder folder;
  write_sample(folder / "one.h5", {"none", 1, 12, 5, 1, 2});
  write_sample(folder / "weak.h5", {"ddp", 2, 12, 5, 1, 2});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  CHECK(shown(table, row_with(table, {{"run", "weak"}, {"basis", "iteration"}}), "scaling") ==
        "weak");
}

TEST_CASE("tables: super-linear speedup is flagged, a missing base is said") {
  const RunFolder folder;
  write_changed(folder / "one.h5", {"none", 1, 12, 5, 64, 2}, {}, {}, four_times_slower);
  write_sample(folder / "two.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "alone.h5", {"ddp", 2, 12, 5, 48, 2});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  const std::size_t two = row_with(table, {{"run", "two"}, {"basis", "iteration"}});
  CHECK(number(table, two, "efficiency_percent") == Approx(200 * 10.65 / 11.65));
  CHECK(contains(shown(table, two, "remark"), "super-linear, not tested"));
  CHECK(contains(all_notes(table), "Likely causes"));
  const std::size_t alone = row_with(table, {{"run", "alone"}});
  CHECK(shown(table, alone, "base") == "none");
  CHECK(shown(table, alone, "speedup") == "n/a");
}

TEST_CASE("tables: an efficiency has an interval where cell and base were started three times") {
  const RunFolder folder;
  for (int start = 0; start < 3; ++start) {
    write_changed(folder / fmt::format("one{}.h5", start), {"none", 1, 12, 5, 64, 2}, {}, {},
                  four_times_slower);
    write_sample(folder / fmt::format("two{}.h5", start), {"ddp", 2, 12, 5, 32, 2});
  }
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  const std::size_t two = row_with(table, {{"mode", "ddp"}, {"basis", "iteration"}});
  CHECK(contains(shown(table, two, "remark"), "SUPER-LINEAR"));
  CHECK(number(table, two, "efficiency_low_percent") == Approx(200 * 10.65 / 11.65));
  // So do epochs, by the median of each start.
  const std::size_t epochs = row_with(table, {{"mode", "ddp"}, {"basis", "running time"}});
  CHECK(number(table, epochs, "speedup_low") == number(table, epochs, "speedup"));
}

TEST_CASE("tables: one rank of another mode is no base for what compute takes alone") {
  const RunFolder folder;
  write_sample(folder / "other.h5", {"allreduce", 1, 12, 5, 64, 2});
  write_sample(folder / "two.h5", {"ddp", 2, 12, 5, 32, 2});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  CHECK(shown(table, row_with(table, {{"run", "two"}}), "base") == "none");
}

TEST_CASE("tables: a base with other threads, precision or data") {
  const RunFolder folder;
  const SampleShape one{"none", 1, 12, 5, 64, 2}, two{"ddp", 2, 12, 5, 32, 2};
  write_changed(folder / "one.h5", one, {{"threads", "2", "default"}}, {});
  write_changed(folder / "two.h5", two, {{"threads", "1", "default"}}, {});
  write_changed(folder / "half.h5", two,
                {{"precision", "bf16", "command line"}, {"lr", "1", "default"}}, {});
  write_changed(folder / "other.h5", two, {{"lr", "2", "default"}}, {{"train_images", "320"}});
  const Table table = make_speedup_table(loaded_with_failures(folder), {});
  CHECK(shown(table, row_with(table, {{"run", "two"}}), "remark") ==
        "threads 2 in the base, 1 here");
  CHECK(shown(table, row_with(table, {{"run", "half"}}), "base") == "none");
  CHECK(shown(table, row_with(table, {{"run", "other"}}), "base") == "none");
}

TEST_CASE("tables: compute and communication, measured beside derived") {
  const RunFolder folder;
  write_sample(folder / "one.h5", {"none", 1, 12, 5, 64, 2});
  write_sample(folder / "strong.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "weak.h5", {"ddp", 2, 12, 5, 64, 2});
  const Table table = make_compute_comm_table(loaded_with_failures(folder), {});
  const std::size_t strong = row_with(table, {{"run", "strong"}});
  CHECK(shown(table, strong, "iteration_ms") == "11.15");  // mean of 10.65 and 11.65
  CHECK(shown(table, strong, "measured_compute_ms") == "6.00");
  CHECK(shown(table, strong, "measured_hidden_ms") == "2.00");
  CHECK(shown(table, strong, "measured_exposed_ms") == "1.00");
  CHECK(shown(table, strong, "measured_wait_ms") == "n/a");  // schema 1: part of communication
  CHECK(shown(table, strong, "measured_sum_percent") == "100.0");
  CHECK(number(table, strong, "derived_base_ms") == Approx(10.65));
  CHECK(number(table, strong, "derived_compute_ms") == Approx(5.325));
  CHECK(number(table, strong, "derived_communication_ms") == Approx(5.825));
  // Twice the images of the base: T(1) is 21.3 ms.
  const std::size_t weak = row_with(table, {{"run", "weak"}});
  CHECK(number(table, weak, "derived_compute_ms") == Approx(10.65));
  CHECK(number(table, weak, "derived_communication_ms") == Approx(0.5));
  CHECK(contains(shown(table, weak, "derived_base"), "(weak)"));
  CHECK_FALSE(contains(all_notes(table), "negative"));
}

TEST_CASE("tables: the base of a derived split is the group's own") {
  const RunFolder folder;
  write_changed(folder / "own.h5", {"ddp", 1, 12, 5, 32, 2}, {}, {}, four_times_slower);
  write_sample(folder / "one.h5", {"none", 1, 12, 5, 64, 2});
  write_sample(folder / "small.h5", {"ddp", 2, 12, 5, 16, 2});
  write_sample(folder / "strong.h5", {"ddp", 2, 12, 5, 32, 2});
  write_sample(folder / "wide.h5", {"ddp", 4, 12, 5, 16, 2});
  const Table table = make_compute_comm_table(loaded_with_failures(folder), {});
  const auto base_ms = [&](const char* run) {
    return number(table, row_with(table, {{"run", run}}), "derived_base_ms");
  };
  CHECK(base_ms("small") == Approx(42.6));
  CHECK(base_ms("strong") == Approx(10.65));
  CHECK(base_ms("wide") == Approx(10.65));
}

TEST_CASE("tables: negative derived communication is shown and explained") {
  const RunFolder folder;
  write_changed(folder / "one.h5", {"none", 1, 12, 5, 64, 2}, {}, {}, four_times_slower);
  write_sample(folder / "two.h5", {"ddp", 2, 12, 5, 32, 2});
  const Table table = make_compute_comm_table(loaded_with_failures(folder), {});
  const std::size_t two = row_with(table, {{"run", "two"}});
  CHECK(shown(table, two, "derived_communication_ms") == "-10.15");  // 11.15 − 42.6/2
  CHECK(contains(shown(table, two, "remark"), "NEGATIVE"));
  CHECK(contains(all_notes(table), "negative derived communication is shown as it is"));
}
