#include <functional>

#include <doctest/doctest.h>
#include <hdf5.h>

#include "record/hdf5.h"
#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::testing;

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
