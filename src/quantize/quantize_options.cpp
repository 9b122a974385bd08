// SPDX-License-Identifier: BSD-3-Clause
#include "quantize/quantize_options.h"

#include <fmt/format.h>

#include "base/cli/bound_option.h"
#include "quantize/plan.h"

namespace gradsync::quantize {

namespace {

using Group = BoundGroup<QuantizeOptions>;
using Groups = std::vector<Group>;
using Value = BoundValue<QuantizeOptions>;
using O = QuantizeOptions;

constexpr std::int64_t kMostImages = 1'000'000'000;

Group network_group() {
  return {"Network and images",
          {
              {"checkpoint", Value::text_value(&O::checkpoint, "FILE|FOLDER"),
               "checkpoint of gradsync-train, or the folder RUN.checkpoints: the newest in it"},
              {"model",
               Value::word_or("auto", &O::model, std::string(),
                              Value::named("NAME", &O::model, plan_names())),
               "network; auto: that of the checkpoint"},
              {"calibration-images", Value::integer(&O::calibration_images, 1, kMostImages),
               "first training images, from which the ranges of activations are calibrated"},
              {"test-images", Value::integer(&O::test_images, 0, kMostImages, "all"),
               "first test images, on which accuracy is measured"},
          }};
}

Group weights_group() {
  using W = WeightScheme;
  const auto weights = [](auto member) { return part_of(&O::weights, member); };
  return {
      "Weights",
      {
          {"weight-convention",
           Value::enumerated<Convention>(weights(&W::convention), convention_names()),
           "scale: (max-min)/(2^(bits-1)-1), max|x|/(2^(bits-1)-1), or (max-min)/(2^bits-1) with "
           "a zero point"},
          {"weight-granularity",
           Value::enumerated<Granularity>(weights(&W::granularity), {"tensor", "channel"}),
           "one scale per layer, or one per output channel"},
          {"weight-range", Value::either("total", "sigma", &O::weight_range_by_sigma),
           "the total range, or mean ± --sigmas deviations"},
          {"weight-bits", Value::integer<int>(weights(&W::bits), kLeastBits, kMostBits),
           "bits of a weight"},
      }};
}

Group activations_group() {
  using A = ActivationScheme;
  using C = CalibratorSettings;
  const auto activations = [](auto member) { return part_of(&O::activations, member); };
  const auto calibrator = [](auto member) {
    return part_of(&O::activations, &A::calibrator, member);
  };
  return {
      "Activations",
      {
          {"activation-convention",
           Value::enumerated<Convention>(activations(&A::convention), convention_names()),
           "scale, as for weights"},
          {"calibrator", Value::enumerated<Calibrator>(calibrator(&C::how), calibrator_names()),
           "how their range is chosen: the total range, mean ± --sigmas deviations, --percentile "
           "of the values, or the least loss of information"},
          {"percentile", Value::number(calibrator(&C::percentile), 50, 100),
           "percent of the values within the range"},
          {"sigmas", Value::number(calibrator(&C::sigmas), 0.5, 100),
           "deviations of a sigma range, of weights too"},
          {"activation-bits", Value::integer<int>(activations(&A::bits), kLeastBits, kMostBits),
           "bits of an activation"},
      }};
}

Group study_group() {
  return {"Study",
          {
              {"ablation", Value::on_off(&O::ablation),
               "accuracy of the other choices too: ranges, conventions, calibrators, per tensor"},
          }};
}

Group output_group() {
  return {"Output",
          {
              {"output", Value::text_value(&O::output, "FILE.h5"),
               "a run file without iterations, for gradsync-report"},
              {"save", Value::text_value(&O::save, "FILE"),
               "the quantized network, in safetensors layout"},
          }};
}

Groups shared_options() {
  return {
      {"Shared with gradsync-train",
       {
           {"data", Value::text_value(&O::data, "FOLDER"), "folder with CIFAR-10's binary files"},
           {"threads", Value::integer(&O::threads, 0, 1024),
            "threads per rank; 0: the cores available to the rank, over the ranks that share "
            "them"},
       }}};
}

ProgramOptions<QuantizeOptions> all_options() {
  return {"quantize",
          {network_group(), weights_group(), activations_group(), study_group(), output_group()},
          shared_options()};
}

}  // namespace

std::string ActivationScheme::text() const {
  const std::string name = calibrator_name(calibrator.how);
  std::string range = name;
  if (calibrator.how == Calibrator::kSigma) range = fmt::format("{:g}-sigma", calibrator.sigmas);
  if (calibrator.how == Calibrator::kPercentile)
    range = fmt::format("percentile {:g}", calibrator.percentile);
  return fmt::format("{}, {}", convention_name(convention), range);
}

OptionTable quantize_option_table() {
  return all_options().table();
}

ProgramHelp quantize_help() {
  return {
      "gradsync-quantize",
      "mpirun -n RANKS gradsync-quantize --checkpoint FILE [OPTION...]",
      "Quantizes a trained network to int8 and measures its accuracy.",
      "gradsync-quantize --checkpoint run.checkpoints --output int8.h5\n"
      "mpirun -n 2 gradsync-quantize --checkpoint run.checkpoints --weight-bits 6\n"
      "gradsync-quantize --checkpoint run.checkpoints --weight-bits 4 --no-ablation\n"
      "gradsync-quantize --checkpoint run.checkpoints --save int8.safetensors --calibrator min-max",
      {ExitCode::kNumbers, ExitCode::kHang, ExitCode::kRanksDisagree},
      {"checkpoint", "model", "calibration-images", "weight-convention", "weight-bits",
       "calibrator", "activation-bits", "ablation", "output", "save", "data", "threads"}};
}

QuantizeOptions quantize_options(const OptionValues& values) {
  QuantizeOptions options = all_options().read(values);
  if (options.checkpoint.empty())
    throw option_error(values, "checkpoint", "there is nothing to quantize",
                       "give a checkpoint of gradsync-train: --checkpoint RUN.checkpoints");
  if (options.weight_range_by_sigma) options.weights.sigmas = options.activations.calibrator.sigmas;
  options.activations.calibrator.bits = options.activations.bits;
  return options;
}

}  // namespace gradsync::quantize
