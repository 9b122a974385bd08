// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <set>

#include <doctest/doctest.h>
#include <hdf5.h>

#include "analysis/tables/tables.h"
#include "comm/collective_call.h"
#include "comm/ledger.h"
#include "record/hdf5.h"
#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"
#include "serial/study_tables.h"
#include "serial/test_folder.h"
#include "stats/bandwidth.h"

using namespace gradsync;
using namespace gradsync::testing;
using namespace gradsync::report;

namespace {

template <typename Row>
bool all_same(const std::vector<Row>& a, const std::vector<Row>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), same<Row>);
}

void check_measurements(const RunReader& run, std::size_t ranks) {
  CHECK(all_same(run.calibration(), sample_calibration()));
  CHECK(all_same(run.windows(), sample_windows(ranks)));
  CHECK(all_same(run.clocks(), sample_clocks(ranks)));
  CHECK(all_same(run.device_samples(), sample_device_samples()));
  CHECK(all_same(run.host_samples(), sample_host_samples()));
  CHECK(all_same(run.layers(), sample_layers()));
  CHECK(all_same(run.probes(), sample_probes(run.ranks())));
  CHECK(all_same(run.nccl_choices(), sample_nccl_choices()));
}

void write_with_measurements(const std::filesystem::path& output) {
  Recorder recorder(output, sample_info({}));
  record_sample(recorder, {});
  record_measurements(recorder, 2);
  recorder.finish(RunStatus::kComplete);
}

void edit(const std::filesystem::path& path, const std::function<void(hid_t)>& change) {
  prepare_hdf5();
  const H5Object file(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
  REQUIRE(file);
  change(file.id());
}

}  // namespace

TEST_CASE(
    "calibration record: calibration, windows, clocks, memory and GPUs come back from both "
    "formats") {
  const TestFolder folder;
  const auto output = folder / "run.h5";
  Recorder recorder(output, sample_info({}));
  record_sample(recorder, {});
  record_measurements(recorder, 2);
  recorder.sync();
  check_measurements(*open_run(journal_path(output)), 2);
  recorder.finish(RunStatus::kComplete);
  const auto run = open_run(output);
  check_measurements(*run, 2);
  CHECK(run->epochs()[1].ranks[0].peak_memory_bytes == 1e8 + 1);
  CHECK(std::isnan(run->epochs()[1].ranks[1].peak_memory_bytes));
}

TEST_CASE("calibration record: a run of a calibration alone has no iterations") {
  const TestFolder folder;
  Recorder recorder(folder / "run.h5", sample_info({}));
  for (const auto& row : sample_calibration())
    recorder.add(row);
  recorder.finish(RunStatus::kComplete);
  const auto run = open_run(folder / "run.h5");
  CHECK(run->iterations() == 0);
  CHECK(all_same(run->calibration(), sample_calibration()));
  CHECK(run->windows().empty());
  CHECK(run->clocks().empty());
}

TEST_CASE("calibration record: files without these groups read as empty") {
  const TestFolder folder;
  write_with_measurements(folder / "run.h5");
  edit(folder / "run.h5", [](hid_t file) {
    for (const char* path : {"calibration", "counterfactual", "clock", "epoch/peak_memory"})
      REQUIRE(H5Ldelete(file, path, H5P_DEFAULT) >= 0);
  });
  const auto run = open_run(folder / "run.h5");
  CHECK(run->iterations() == 12);
  CHECK(run->calibration().empty());
  CHECK(run->windows().empty());
  CHECK(run->clocks().empty());
  CHECK(std::isnan(run->epochs()[0].ranks[0].peak_memory_bytes));
}

TEST_CASE("calibration record: half a group is bad data") {
  for (const std::string path :
       {"calibration/median", "calibration/collective", "counterfactual/iteration",
        "counterfactual/kind", "clock/offset", "clock/at"}) {
    const TestFolder folder;
    write_with_measurements(folder / "run.h5");
    edit(folder / "run.h5",
         [&](hid_t file) { REQUIRE(H5Ldelete(file, path.c_str(), H5P_DEFAULT) >= 0); });
    CHECK(contains(error_text(ExitCode::kBadData, [&] { open_run(folder / "run.h5"); }),
                   "/" + path + " of"));
  }
}

TEST_CASE("calibration record: rows of another number of ranks are refused") {
  const TestFolder folder;
  Recorder recorder(folder / "run.h5", sample_info({}));
  CHECK_THROWS_AS(recorder.add(sample_windows(3)[0]), Error);
  CHECK_THROWS_AS(recorder.add(sample_clocks(1)[0]), Error);
}

TEST_CASE("calibration record: a reading that lacks a row is noticed, and which") {
  const TestFolder folder;
  // Journals without an end, so that the two differ in nothing else.
  Recorder whole(folder / "whole.h5", sample_info({}));
  record_measurements(whole, 2);
  Recorder lacking(folder / "lacking.h5", sample_info({}));
  const auto difference = [&] {
    return error_text(ExitCode::kInputOutput, [&] {
      require_same_run(*open_run(folder / "whole.h5.journal"),
                       *open_run(folder / "lacking.h5.journal"));
    });
  };
  CHECK(contains(difference(), "in its calibration"));
  for (const auto& row : sample_calibration())
    lacking.add(row);
  CHECK(contains(difference(), "in its counterfactual windows"));
  for (const auto& row : sample_windows(2))
    lacking.add(row);
  CHECK(contains(difference(), "in its clocks"));
  for (const auto& row : sample_clocks(2))
    lacking.add(row);
  CHECK(contains(difference(), "in its samples of GPUs"));
  for (const auto& sample : sample_device_samples())
    lacking.add(sample);
  CHECK(contains(difference(), "in its samples of hosts"));
  for (const auto& sample : sample_host_samples())
    lacking.add(sample);
  CHECK(contains(difference(), "in the layers of its network"));
  for (const auto& layer : sample_layers())
    lacking.add(layer);
  CHECK(contains(difference(), "in its probes of arithmetic"));
  for (const auto& probe : sample_probes(2))
    lacking.add(probe);
  CHECK(contains(difference(), "in what NCCL chose"));
  for (const auto& choice : sample_nccl_choices())
    lacking.add(choice);
  CHECK_NOTHROW(require_same_run(*open_run(folder / "whole.h5.journal"),
                                 *open_run(folder / "lacking.h5.journal")));
}

TEST_CASE("calibration record: payloads that make no sense do not decode") {
  const auto bytes = [](const std::string& text) {
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return std::vector<std::byte>(begin, begin + text.size());
  };
  CalibrationRow row = sample_calibration()[0];
  CHECK(decode<CalibrationRow>(encode(row)).has_value());
  CHECK_FALSE(decode<CalibrationRow>(bytes("{}")).has_value());
  CHECK_FALSE(decode<WindowRow>(bytes("[]")).has_value());
  CHECK_FALSE(decode<ClockRow>(bytes("{\"when\":3}")).has_value());
  const auto good = encode(row);
  std::string text(reinterpret_cast<const char*>(good.data()), good.size());
  text.replace(text.find("allreduce"), 9, "telepathy");
  CHECK_FALSE(decode<CalibrationRow>(bytes(text)).has_value());
}

TEST_CASE("collective names") {
  CHECK(collective_name(CollectiveKind::kScatter) == "scatter");
  CHECK(parse_collective("allgather") == CollectiveKind::kAllGather);
  CHECK_FALSE(parse_collective("telepathy").has_value());
}

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
  CHECK(contains(table.notes.back(), "1 run of earlier versions"));
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

namespace {

QuantizedTensorRow sample_tensor(const std::string& layer, std::int64_t offset) {
  QuantizedTensorRow row;
  row.layer = layer;
  row.role = "weight";
  row.count = 450 + offset;
  row.minimum = -0.5;
  row.maximum = 0.25;
  row.sqnr_db = std::numeric_limits<double>::infinity();
  row.scales = 6;
  for (std::size_t bin = 0; bin < kHistogramBins; ++bin)
    row.histogram.push_back(static_cast<std::int64_t>(bin) + offset);
  for (std::size_t level = 0; level < kHistogramLevels; ++level)
    row.integers.push_back(1000 - static_cast<std::int64_t>(level) + offset);
  return row;
}

Quantization sample_quantization() {
  Quantization all;
  all.tensors = {sample_tensor("conv1", 0), sample_tensor("fc1 \xc3\xa4", 7)};
  all.steps = {{"step", "fp32", "fp32", "fp32", "fp32", 10000, 6420, -1, 247120},
               {"ablation", "as published", "int8", "int8", "int32", 10000, 6400, 10000, -1}};
  all.speeds = {{"int8: portable", 128, 2, 15, 50000.5, 2.5, 2.25, NAN}};
  return all;
}

}  // namespace

TEST_CASE("quantization: journal and file give back every field") {
  const TestFolder folder;
  const auto output = folder / "q.h5";
  const auto expected = encode(sample_quantization());
  {
    Recorder recorder(output, sample_info(SampleShape()));
    recorder.add(sample_quantization());
    recorder.sync();
    CHECK(encode(open_run(output.string() + ".journal")->quantization()) == expected);
    recorder.finish(RunStatus::kComplete);
  }
  const auto run = open_run(output);
  CHECK(run->iterations() == 0);
  CHECK(encode(run->quantization()) == expected);
  CHECK(run->quantization().tensors[1].integers[255] == 752);
}

TEST_CASE("quantization: a run without one has an empty one") {
  const TestFolder folder;
  const auto output = folder / "plain.h5";
  {
    Recorder recorder(output, sample_info(SampleShape()));
    recorder.finish(RunStatus::kComplete);
  }
  CHECK(open_run(output)->quantization().empty());
}

TEST_CASE("quantization: records that are none are refused, histograms of another length too") {
  CHECK_FALSE(decode<Quantization>(std::as_bytes(std::span("{}", 2))));
  CHECK_FALSE(decode<Quantization>({}));
  Quantization short_one = sample_quantization();
  short_one.tensors[0].histogram.pop_back();
  CHECK_FALSE(decode<Quantization>(encode(short_one)));
  error_text(ExitCode::kInternal, [&] { require_recordable(short_one); });
}
