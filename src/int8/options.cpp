#include "int8/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "int8/plan.h"

namespace gradsync::quantize {

namespace {

constexpr std::int64_t kMostImages = 1'000'000'000;
const std::vector<std::string> kGranularities = {"tensor", "channel"};
const std::vector<std::string> kRanges = {"total", "sigma"};
const std::string kAuto = "auto";

std::string joined(const std::vector<std::string>& choices) {
  return fmt::format("{}", fmt::join(choices, "|"));
}

OptionTable input_options() {
  const std::string group = "Network and images";
  return {
      {"checkpoint", "FILE|FOLDER", "",
       "checkpoint of gradsync-train, or the folder RUN.checkpoints: the newest in it", group},
      {"model", "NAME", kAuto,
       fmt::format("network: {}; auto: what the checkpoint says", fmt::join(plan_names(), ", ")),
       group},
      {"calibration-images", "N", "1000", "first training images that show the activations' ranges",
       group},
      {"test-images", "N", "0", "first test images that accuracy is of; 0: all", group},
  };
}

OptionTable weight_options() {
  const std::string group = "Weights";
  return {
      {"weight-convention", joined(convention_names()), "max-abs",
       "scale: (max-min)/(2^(bits-1)-1), max|x|/(2^(bits-1)-1), or (max-min)/(2^bits-1) with a "
       "zero point",
       group},
      {"weight-granularity", joined(kGranularities), "channel",
       "one scale a layer, or one an output channel", group},
      {"weight-range", joined(kRanges), "total", "the total range, or mean ± --sigmas deviations",
       group},
      {"weight-bits", "N", "8", "bits of a weight, 2 to 8", group},
  };
}

OptionTable activation_options() {
  const std::string group = "Activations";
  return {
      {"activation-convention", joined(convention_names()), "affine", "scale, as for weights",
       group},
      {"calibrator", joined(calibrator_names()), "percentile",
       "how their range is chosen: all of it, mean ± --sigmas deviations, --percentile of the "
       "numbers, or least information lost",
       group},
      {"percentile", "X", "99.99", "percent of the numbers within the range, 50 to 100", group},
      {"sigmas", "K", "3", "deviations of a sigma range, of weights too, 0.5 to 100", group},
      {"activation-bits", "N", "8", "bits of an activation, 2 to 8", group},
  };
}

OptionTable study_options() {
  const std::string group = "Study";
  return {
      {"ablation", "", "true",
       "accuracy of the other choices too: ranges, conventions, calibrators, per tensor", group},
      {"speed", "", "true",
       "images per second at batch 1 and 128 against the best fp32 path; on one rank only", group},
      {"speed-rounds", "N", "15", "rounds of all paths in turn, 3 to 1000", group},
  };
}

OptionTable file_options() {
  const std::string group = "Output";
  return {
      {"output", "FILE.h5", "", "a run file without iterations, for gradsync-report", group},
      {"save", "FILE", "", "the quantised network, in safetensors layout", group},
  };
}

WeightScheme read_weights(const OptionValues& values) {
  WeightScheme scheme;
  scheme.convention =
      parse_convention(choice_option(values, "weight-convention", convention_names()));
  scheme.granularity = choice_option(values, "weight-granularity", kGranularities) == "tensor"
                           ? Granularity::kTensor
                           : Granularity::kChannel;
  scheme.bits = static_cast<int>(integer_option(values, "weight-bits", kLeastBits, kMostBits));
  const double sigmas = number_option(values, "sigmas", 0.5, 100);
  if (choice_option(values, "weight-range", kRanges) == "sigma") scheme.sigmas = sigmas;
  return scheme;
}

ActivationScheme read_activations(const OptionValues& values) {
  ActivationScheme scheme;
  scheme.convention =
      parse_convention(choice_option(values, "activation-convention", convention_names()));
  scheme.bits = static_cast<int>(integer_option(values, "activation-bits", kLeastBits, kMostBits));
  scheme.calibrator.how = parse_calibrator(choice_option(values, "calibrator", calibrator_names()));
  scheme.calibrator.percentile = number_option(values, "percentile", 50, 100);
  scheme.calibrator.sigmas = number_option(values, "sigmas", 0.5, 100);
  scheme.calibrator.bits = scheme.bits;
  return scheme;
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
  OptionTable table;
  for (const auto& part :
       {input_options(), weight_options(), activation_options(), study_options(), file_options()})
    table.insert(table.end(), part.begin(), part.end());
  table = scoped("quantize", table);
  const std::string group = "Shared with gradsync-train";
  table.push_back(
      {"data", "FOLDER", "data/cifar-10", "folder with CIFAR-10's binary files", group});
  table.push_back(
      {"threads", "N", "0",
       "threads per rank, 1 to 1024; 0: the cores the rank may use, over the ranks that "
       "share them",
       group});
  return table;
}

std::string quantize_help() {
  return help_text(
      "mpirun -n RANKS gradsync-quantize --checkpoint FILE [OPTION…]\n"
      "Quantises a trained network to int8, step by step; shows what it costs and gains.",
      "gradsync-quantize --checkpoint run.checkpoints --output int8.h5 --save int8.safetensors\n"
      "mpirun -n 2 gradsync-quantize --checkpoint run.checkpoints --calibrator entropy\n"
      "gradsync-quantize --checkpoint run.checkpoints --weight-granularity tensor "
      "--weight-convention published --activation-convention published --calibrator min-max\n"
      "gradsync-quantize --checkpoint run.checkpoints --weight-bits 4 --no-speed",
      quantize_option_table());
}

QuantizeOptions quantize_options(const OptionValues& values) {
  QuantizeOptions options;
  options.checkpoint = text_option(values, "checkpoint");
  if (options.checkpoint.empty())
    throw option_error(values, "checkpoint", "there is nothing to quantise",
                       "give a checkpoint of gradsync-train: --checkpoint RUN.checkpoints");
  const std::string model = text_option(values, "model");
  if (model != kAuto) options.model = choice_option(values, "model", plan_names());
  options.data = text_option(values, "data");
  options.weights = read_weights(values);
  options.activations = read_activations(values);
  options.calibration_images = integer_option(values, "calibration-images", 1, kMostImages);
  options.test_images = integer_option(values, "test-images", 0, kMostImages);
  options.ablation = switch_option(values, "ablation");
  options.speed = switch_option(values, "speed");
  options.speed_rounds = integer_option(values, "speed-rounds", 3, 1000);
  options.threads = integer_option(values, "threads", 0, 1024);
  options.output = text_option(values, "output");
  options.save = text_option(values, "save");
  return options;
}

}  // namespace gradsync::quantize
