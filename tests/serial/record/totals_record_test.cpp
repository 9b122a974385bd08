#include <cstdint>
#include <set>

#include <doctest/doctest.h>

#include "analysis/tables/tables.h"
#include "record/journal.h"
#include "record/reader.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_tables.h"
#include "stats/bandwidth.h"

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

TEST_CASE("ledger: what each kind moves over the link of a rank") {
  using enum CollectiveKind;
  // 4 ranks, 100 bytes each: ring 2·3/4·100 each way; rooted 3·100 at the root, 100 elsewhere.
  CHECK(link_bytes(kAllReduce, 100, 2, 4, -1) == LinkBytes{150, 150});
  CHECK(link_bytes(kBroadcast, 100, 0, 4, 0) == LinkBytes{300, 0});
  CHECK(link_bytes(kBroadcast, 100, 3, 4, 0) == LinkBytes{0, 100});
  CHECK(link_bytes(kScatter, 100, 1, 4, 1) == LinkBytes{300, 0});
  CHECK(link_bytes(kGather, 100, 0, 4, 0) == LinkBytes{0, 300});
  CHECK(link_bytes(kGather, 100, 1, 4, 0) == LinkBytes{100, 0});
  CHECK(link_bytes(kReduce, 100, 0, 4, 0) == LinkBytes{0, 300});
  CHECK(link_bytes(kAllGather, 100, 0, 4, -1) == LinkBytes{300, 300});
  CHECK(link_bytes(kBarrier, 0, 0, 4, -1) == LinkBytes{0, 0});
}

TEST_CASE("ledger: all that is sent is received, whatever the kind and the ranks") {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (std::size_t kind = 0; kind < kCollectiveNames.size(); ++kind) {
      LinkBytes sum;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto one = link_bytes(static_cast<CollectiveKind>(kind), 240, rank, ranks, 0);
        sum.sent += one.sent;
        sum.received += one.received;
      }
      CHECK_MESSAGE(sum.sent == sum.received, kCollectiveNames[kind]);
      CHECK((ranks > 1 || sum.sent == 0));
    }
}

TEST_CASE("ledger: adds up by category") {
  Ledger ledger;
  ledger.add(Traffic::kGradients, {10, 20});
  ledger.add(Traffic::kGradients, {1, 2});
  ledger.add(Traffic::kCheckpoint, {0, 7});
  CHECK(ledger.total().sent_bytes[0] == 11);
  CHECK(ledger.total().received_bytes[0] == 22);
  CHECK(ledger.total().calls[0] == 2);
  CHECK(ledger.total().received_bytes[7] == 7);
  CHECK(ledger.total().calls[1] == 0);
  RankTraffic more;
  more.sent_bytes[0] = 100;
  more.received_bytes[0] = 200;
  more.calls[0] = 3;
  ledger.add(more);
  CHECK(ledger.total().sent_bytes[0] == 111);
  CHECK(ledger.total().received_bytes[0] == 222);
  CHECK(ledger.total().calls[0] == 5);
}

TEST_CASE("fingerprints: those of many calls differ from each other in each half") {
  std::set<std::uint32_t> low, high;
  CollectiveCall call;
  for (call.count = 0; call.count < 100; ++call.count)
    for (call.iteration = 0; call.iteration < 10; ++call.iteration) {
      low.insert(static_cast<std::uint32_t>(fingerprint(call)));
      high.insert(static_cast<std::uint32_t>(fingerprint(call) >> 32));
    }
  CHECK(low.size() == 1000);
  CHECK(high.size() == 1000);
}
