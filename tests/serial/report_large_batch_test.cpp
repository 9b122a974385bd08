#include <doctest/doctest.h>

#include "analysis/metrics/remedy.h"
#include "study_tables.h"

using namespace gradsync;
using namespace gradsync::testing;

TEST_CASE("tables: large batch, the remedy and the epoch") {
  const TestFolder folder;
  const ConfigEntry plain{"lr", "0.1", "default"};
  write_changed(folder / "small.h5", {"ddp", 2, 10, 5, 32, 2}, {plain}, {});
  write_changed(folder / "big.h5", {"ddp", 2, 10, 5, 256, 2}, {plain}, {});
  write_changed(folder / "help.h5", {"ddp", 2, 10, 5, 256, 2},
                {{"lr", "0.8", "command line"},
                 {"accumulate", "4", "command line"},
                 {"warmup-epochs", "5", "command line"},
                 {"optimizer", "sgd", "default"}},
                {});
  const RunSet set = loaded_with_failures(folder);
  const Table table = make_large_batch_table(set, {});
  CHECK(shown(table, row_with(table, {{"run", "small"}}), "remedy") == "none");
  CHECK(shown(table, row_with(table, {{"run", "big"}}), "remedy") == "none");
  CHECK(shown(table, row_with(table, {{"run", "help"}}), "remedy") ==
        "lr 0.8 (0.1 at batch 64), warmup-epochs 5, accumulate 4");
  CHECK(shown(table, 0, "epoch") == "2");
  CHECK(shown(table, 0, "train_loss") == "1.9000");
  CHECK(shown(table, 0, "test_accuracy_percent") == "50.00");
  TableOptions options;
  options.at_epoch = 1;
  CHECK(shown(make_large_batch_table(set, options), 0, "train_loss") == "2.0000");
  options.at_epoch = 9;
  const Table beyond = make_large_batch_table(set, options);
  CHECK(shown(beyond, 0, "train_loss") == "n/a");
  CHECK(shown(beyond, 0, "remark") == "did not reach the epoch");
}

TEST_CASE("tables: every number of these tables says its formula and its data set") {
  const TestFolder folder;
  write_sample(folder / "run.h5", {});
  const RunSet set = loaded_with_failures(folder);
  for (const auto make : {make_batch_size_table, make_speedup_table, make_compute_comm_table,
                          make_bandwidth_table, make_large_batch_table}) {
    const Table table = make(set, {});
    REQUIRE(table.rows.size() == table.sources.size());
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      CHECK(contains(table.sources[row], "run.h5"));
      for (std::size_t c = 0; c < table.columns.size(); ++c) {
        if (!table.rows[row][c].is_number()) continue;
        CHECK_MESSAGE(!table.columns[c].formula.empty(), table.columns[c].name);
        CHECK(table.columns[c].dataset.starts_with("/"));
      }
    }
  }
}
