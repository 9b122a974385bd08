#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

/// The dimensions of a run file; each has a scale of the same name in the root.
/// `iteration`, `bucket` and `epoch` are groups there, `iterations` and `epochs` options in
/// `/config`: a netCDF group sees the dimensions of the groups around it, and takes a variable of
/// the same name for their coordinate.
enum class FileAxis : std::size_t {
  kIterations,
  kRanks,
  kBuckets,
  kEpochs,
  kChecks,
  kCalibrations,
  kWindows,
  kReadings,
  kResumes,
  kSamples,
  kHostSamples,
  kLayers,
  kProbes,
  kTotals,
  kCategories,
  kQuantizedTensors,
  kQuantizedSteps,
  kQuantizedSpeeds,
  kBins,
  kLevels,
  kNone  ///< no axis of data sets
};
inline constexpr std::array<std::string_view, 20> kAxisNames = {"recorded_iterations",
                                                                "ranks",
                                                                "buckets",
                                                                "recorded_epochs",
                                                                "checks",
                                                                "calibrations",
                                                                "windows",
                                                                "readings",
                                                                "resumes",
                                                                "samples",
                                                                "host_samples",
                                                                "layers",
                                                                "probes",
                                                                "totals",
                                                                "categories",
                                                                "quantized_tensors",
                                                                "quantized_steps",
                                                                "quantized_speeds",
                                                                "bins",
                                                                "levels"};
inline constexpr std::array<std::string_view, 20> kAxisLongNames = {
    "optimizer steps in the order they were recorded",
    "MPI ranks",
    "collectives of an iteration in the order they began",
    "epochs in the order they were recorded",
    "checks of --verify-modes",
    "sizes of collectives that were calibrated",
    "windows of --counterfactual in the order they ran",
    "readings of the clocks",
    "iterations at which the run was resumed",
    "readings of the GPUs in the order they were recorded",
    "readings of the hosts in the order they were recorded",
    "layers of the network in the order of the forward pass",
    "probes of arithmetic in the order they ran",
    "instants at which all traffic was counted",
    "0 gradients, 1 parameters, 2 buffers, 3 inputs, 4 metrics, 5 control, 6 optimizer, 7 "
    "checkpoint",
    "weights, activations and biases of a network that was quantized",
    "steps and variants of quantizing it",
    "paths and batches whose speed was measured",
    "bins of a histogram of real numbers",
    "integers, from -128 on"};

/// What a data set is, apart from its numbers.
struct DatasetSpec {
  std::string path;  ///< from the root, without a leading slash: "time/iteration"
  std::vector<FileAxis> dimensions;
  std::string units;  ///< "s", "B", "1"
  std::string long_name;
};

/// The length of each axis, by FileAxis.
using AxisLengths = std::array<std::size_t, kAxisNames.size()>;

}  // namespace gradsync
