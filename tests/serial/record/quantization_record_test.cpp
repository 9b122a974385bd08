#include <cmath>
#include <limits>

#include <doctest/doctest.h>

#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "tests/serial/expect_error.h"
#include "tests/serial/sample_run.h"
#include "tests/serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::testing;

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
