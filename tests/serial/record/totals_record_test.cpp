#include <doctest/doctest.h>

#include "analysis/tables/tables.h"
#include "record/journal.h"
#include "record/reader.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_tables.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

RankTraffic moved(std::int64_t by) {
  RankTraffic traffic;
  for (std::size_t at = 0; at < kTrafficCategories; ++at) {
    traffic.sent_bytes[at] = by * 1000 + static_cast<std::int64_t>(at);
    traffic.received_bytes[at] = by * 2000 + static_cast<std::int64_t>(at);
    traffic.calls[at] = by;
  }
  traffic.sent_bytes[6] = traffic.received_bytes[6] = traffic.calls[6] = 0;
  return traffic;
}

const TrafficRow kStart{"start", 0, {moved(1), moved(2)}};
const TrafficRow kTrained{"trained", 10, {moved(11), moved(22)}};
const ReplicaRow kReplicas{{{"0123456789abcdef", "", 0, 0}, {"fedcba9876543210", "", 0.25, 0}}};

void record(const std::filesystem::path& output) {
  Recorder recorder(output, sample_info({}));
  recorder.add(sample_row({}, 0));
  EpochRow epoch = sample_epoch({}, 0);
  epoch.new_batches = 5;
  epoch.shared_images = 0;
  recorder.add(epoch);
  recorder.add(kStart);
  recorder.add(kTrained);
  recorder.add(kReplicas);
  recorder.finish(RunStatus::kComplete);
}

}  // namespace

TEST_CASE("record: totals of traffic and replicas come back whole") {
  const TestFolder folder;
  record(folder / "run.h5");
  const auto run = open_run(folder / "run.h5");
  REQUIRE(run->traffic_totals().size() == 2);
  CHECK(encode(run->traffic_totals()[1]) == encode(kTrained));
  CHECK(run->traffic_totals()[0].ranks[1].received_bytes[7] == 4007);
  REQUIRE(run->replicas().size() == 1);
  CHECK(encode(run->replicas()[0]) == encode(kReplicas));
  CHECK(run->epochs()[0].new_batches == 5);
}

TEST_CASE("record: a run without them reads as one without") {
  const TestFolder folder;
  Recorder recorder(folder / "run.h5", sample_info({}));
  recorder.finish(RunStatus::kComplete);
  const auto run = open_run(folder / "run.h5");
  CHECK(run->traffic_totals().empty());
  CHECK(run->replicas().empty());
}

TEST_CASE("record: a row of other ranks is refused") {
  const TestFolder folder;
  Recorder recorder(folder / "run.h5", sample_info({}));
  CHECK_THROWS_AS(recorder.add(TrafficRow{"start", 0, {moved(1)}}), Error);
  CHECK_THROWS_AS(recorder.add(ReplicaRow{}), Error);
}

TEST_CASE("tables: traffic-total divides by the iterations and leaves unused categories out") {
  const TestFolder folder;
  record(folder / "run.h5");
  const Table table = make_traffic_total_table(loaded_with_failures(folder), {});
  CHECK(table.rows.size() == kTrafficCategories - 1);
  CHECK(shown(table, 0, "category") == "gradients");
  CHECK(shown(table, 0, "calls") == "1.00");
  CHECK(shown(table, 0, "root_sent_bytes") == "1000.0");
  CHECK(shown(table, 0, "root_received_bytes") == "2000.0");
  CHECK(shown(table, 0, "other_sent_bytes") == "2000.0");
  CHECK(shown(table, 0, "all_sent_bytes") == "3000.0");
  CHECK(shown(table, 0, "before_bytes") == "3000");
}

TEST_CASE("tables: traffic-total says what it leaves out") {
  const TestFolder folder;
  write_sample(folder / "old.h5", {});
  const Table table = make_traffic_total_table(loaded_with_failures(folder), {});
  CHECK(table.rows.empty());
  CHECK(contains(table.notes.back(), "1 runs of earlier versions"));
}

TEST_CASE("tables: replicas, whether the ranks hold the same and what they took") {
  const TestFolder folder;
  record(folder / "run.h5");
  const Table table = make_replicas_table(loaded_with_failures(folder), {});
  CHECK(shown(table, 0, "parameters") == "differ");
  CHECK(shown(table, 0, "parameter_distance") == "0.2500");
  CHECK(shown(table, 0, "buffers") == "none");
  CHECK(shown(table, 0, "orders") == "1");
  CHECK(shown(table, 0, "batches") == "5");
  CHECK(shown(table, 0, "shared_images") == "0");
}
