// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include "base/error.h"
#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

namespace {

template <typename Action>
ExitCode code_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::kOk;
}

void check_sample(RunReader& run, const SampleShape& shape, const RunInfo& info) {
  CHECK(same(run.info(), info));
  REQUIRE(run.iterations() == shape.iterations);
  REQUIRE(run.ranks() == shape.ranks);
  const auto rows = run.rows(0, shape.iterations);
  for (std::size_t i = 0; i < shape.iterations; ++i)
    CHECK(same(rows[i], sample_row(shape, i)));
  REQUIRE(run.epochs().size() == shape.iterations / shape.per_epoch);
  for (std::size_t e = 0; e < run.epochs().size(); ++e)
    CHECK(same(run.epochs()[e], sample_epoch(shape, e)));
  REQUIRE(run.verification().size() == 1);
  CHECK(same(run.verification()[0], sample_verification()));
}

// Every matrix and every list against the generator, entry by entry.
void check_matrices(RunReader& run, const SampleShape& shape) {
  const auto agree = [&](const Matrix& matrix, auto value) {
    CHECK(matrix.rows == shape.iterations);
    CHECK(matrix.columns == shape.ranks);
    bool equal = true;
    for (std::size_t i = 0; i < matrix.rows; ++i)
      for (std::size_t r = 0; r < matrix.columns; ++r) {
        const double expected = value(sample_row(shape, i).ranks[r]);
        const double found = matrix.at(i, r);
        equal = equal && (expected == found || (std::isnan(expected) && std::isnan(found)));
      }
    CHECK(equal);
  };
  for (std::size_t p = 0; p < kPhases; ++p)
    agree(run.time(static_cast<Phase>(p)),
          [p](const RankIteration& rank) { return rank.time_s[p]; });
  agree(run.begin(), [](const RankIteration& rank) { return rank.begin_s; });
  agree(run.loss(), [](const RankIteration& rank) { return rank.loss; });
  agree(run.correct(), [](const RankIteration& rank) { return double(rank.correct); });
  for (std::size_t t = 0; t < kRowCategories; ++t)
    agree(run.traffic(static_cast<Traffic>(t)),
          [t](const RankIteration& rank) { return double(rank.traffic_bytes[t]); });
  for (std::size_t i = 0; i < shape.iterations; ++i) {
    const IterationRow row = sample_row(shape, i);
    CHECK(run.index().iteration[i] == row.iteration);
    CHECK(run.index().epoch[i] == row.epoch);
    CHECK(run.index().step[i] == row.step);
    CHECK(run.index().samples[i] == row.samples);
    CHECK(run.index().learning_rate[i] == row.learning_rate);
    CHECK(run.index().warmup[i] == row.warmup);
  }
}

}  // namespace

TEST_CASE("record: a run comes back whole from the journal and from the file") {
  const TestFolder folder;
  const SampleShape shape;
  const auto output = folder / "run.h5";
  Recorder recorder(output, sample_info(shape));
  record_sample(recorder, shape);
  recorder.sync();
  CHECK(recorder.acknowledged() == 12);
  {
    const auto journal = open_run(journal_path(output));
    CHECK(journal->status() == RunStatus::kRunning);
    CHECK(journal->finished().empty());
    CHECK(journal->remarks().empty());
    CHECK(journal->index().buckets == 3);
    check_sample(*journal, shape, sample_info(shape));
    check_matrices(*journal, shape);
    CHECK(journal->option("model") == "lenet");
    CHECK(journal->option("no such option").empty());
    CHECK_THROWS_AS(journal->rows(10, 3), Error);
  }
  recorder.finish(RunStatus::kPartial);
  // The journal of a partial run stays, and the lock while the recorder lives.
  CHECK(folder.entries() == 3);
  const auto run = open_run(output);
  CHECK(run->status() == RunStatus::kPartial);
  CHECK(run->finished().size() == std::string("2026-01-02T03:04:05Z").size());
  CHECK(run->remarks().empty());
  CHECK(run->index().buckets == 3);
  check_sample(*run, shape, sample_info(shape));
  check_matrices(*run, shape);
  CHECK(same(run->rows(7, 2)[1], sample_row(shape, 8)));
}

TEST_CASE("record: runs without rows, without epochs, of one rank") {
  const TestFolder folder;
  const SampleShape empty{"none", 1, 0, 5, 32, 2};
  write_sample(folder / "empty.h5", empty);
  check_sample(*open_run(folder / "empty.h5"), empty, sample_info_at("empty.h5", empty));
  const SampleShape one{"none", 1, 1, 5, 32, 2};
  write_sample(folder / "one.h5", one);
  check_sample(*open_run(folder / "one.h5"), one, sample_info_at("one.h5", one));
}

TEST_CASE("record: nothing is overwritten") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const RunInfo info = sample_info({});
  const auto record = [&] { Recorder recorder(output, info); };

  write_file_atomically(output, "precious");
  CHECK(code_of(record) == ExitCode::kCannotCreate);
  CHECK(read_text_file(output) == "precious");
  CHECK(folder.entries() == 1);
  std::filesystem::remove(output);

  write_file_atomically(journal_path(output), "precious");
  CHECK(code_of(record) == ExitCode::kCannotCreate);
  CHECK(read_text_file(journal_path(output)) == "precious");
  std::filesystem::remove(journal_path(output));

  std::filesystem::create_symlink(folder / "elsewhere", journal_path(output));
  CHECK(code_of(record) == ExitCode::kCannotCreate);
  CHECK_FALSE(std::filesystem::exists(folder / "elsewhere"));
  std::filesystem::remove(journal_path(output));

  CHECK(code_of([&] { Recorder recorder(folder / "missing/run.h5", info); }) ==
        ExitCode::kCannotCreate);
}

TEST_CASE(
    "record: what killed processes have left of a run's files goes when it is written again") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  const auto leave = [&](const char* name) { write_file_atomically(folder / name, "left"); };
  const auto there = [&](const char* name) { return std::filesystem::exists(folder / name); };
  leave("run.h5.tmp-0123456789ab");
  leave("run.h5.journal.tmp-0123456789ab");
  leave("other-run.h5.tmp-0123456789ab");
  Recorder recorder(output, sample_info({}));
  CHECK_FALSE(there("run.h5.tmp-0123456789ab"));
  CHECK_FALSE(there("run.h5.journal.tmp-0123456789ab"));
  CHECK(there("other-run.h5.tmp-0123456789ab"));
}

TEST_CASE("record: an output that appears during the run is kept, and so is the journal") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  Recorder recorder(output, sample_info({}));
  record_sample(recorder, {});
  write_file_atomically(output, "precious");
  CHECK(code_of([&] { recorder.finish(RunStatus::kComplete); }) == ExitCode::kCannotCreate);
  CHECK(read_text_file(output) == "precious");
  CHECK(folder.entries() == 3);  // with the journal, and its lock while the recorder lives
  const auto journal = open_run(journal_path(output));
  CHECK(journal->status() == RunStatus::kComplete);
  check_sample(*journal, {}, sample_info({}));
}

TEST_CASE("record: what no format can hold is refused before the run") {
  const TestFolder folder;
  const auto refused = [&](RunInfo info) {
    return code_of([&] { Recorder recorder(folder / "run.h5", info); }) == ExitCode::kInternal &&
           folder.entries() == 0;
  };
  RunInfo info = sample_info({});
  info.config.push_back(info.config[0]);
  CHECK(refused(info));
  info = sample_info({});
  info.provenance.push_back({"a/b", ""});
  CHECK(refused(info));
  info = sample_info({});
  std::swap(info.topology[0], info.topology[1]);
  CHECK(refused(info));
  info = sample_info({});
  info.topology[0].rank = 5;
  CHECK(refused(info));
  info = sample_info({});
  info.topology.clear();
  CHECK(refused(info));
}

TEST_CASE("record: a row that does not fit the run is an error and is not written") {
  const TestFolder folder;
  Recorder recorder(folder / "run.h5", sample_info({}));
  IterationRow row = sample_row({}, 0);
  row.ranks.pop_back();
  CHECK(code_of([&] { recorder.add(row); }) == ExitCode::kInternal);
  row = sample_row({}, 0);
  row.ranks[1].buckets.pop_back();
  CHECK(code_of([&] { recorder.add(row); }) == ExitCode::kInternal);
  EpochRow epoch = sample_epoch({}, 0);
  epoch.ranks.clear();
  CHECK(code_of([&] { recorder.add(epoch); }) == ExitCode::kInternal);
  recorder.finish(RunStatus::kPartial);
  CHECK(open_run(folder / "run.h5")->iterations() == 0);
}

TEST_CASE("record: a reading that differs in one value is noticed") {
  const TestFolder folder;
  SampleShape shape;
  write_sample(folder / "a.h5", shape);
  shape.batch_per_rank = 33;
  write_sample(folder / "b.h5", shape);
  const auto a = open_run(folder / "a.h5");
  CHECK(code_of([&] { require_same_run(*a, *open_run(folder / "b.h5")); }) ==
        ExitCode::kInputOutput);
  CHECK(code_of([&] { require_same_run(*a, *open_run(folder / "a.h5")); }) == ExitCode::kOk);
}

TEST_CASE("record: what is neither a run file nor a journal is named so") {
  const TestFolder folder;
  CHECK(code_of([&] { open_run(folder / "missing.h5"); }) == ExitCode::kNoInput);
  write_file_atomically(folder / "text", "hello, world");
  CHECK(code_of([&] { open_run(folder / "text"); }) == ExitCode::kBadData);
  write_file_atomically(folder / "nothing", "");
  CHECK(code_of([&] { open_run(folder / "nothing"); }) == ExitCode::kBadData);
}
