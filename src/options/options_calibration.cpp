#include "options/option_groups.h"
#include "options/sizes.h"

namespace gradsync {

namespace {

std::vector<std::int64_t> parse_sizes(const std::string& text) {
  try {
    return calibrate::parse_size_sweep(text);
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage, error.what(), "give two sizes, as 1KiB:16MiB");
  }
}

}  // namespace

TrainOptionTable calibration_options() {
  using enum OptionRole;
  using Value = BoundValue<TrainOptions>;
  using O = TrainOptions;
  return {
      {kFree, "calibrate", Value::on_off(&O::calibrate),
       "measure the bandwidth of the collectives; a sweep before training, the sizes of the "
       "buckets after it"},
      {kFree, "calibration-sizes",
       Value::parsed("FIRST:LAST", "1KiB:16MiB", &O::calibrate_sizes, parse_sizes),
       "sizes of that sweep, powers of two from the first, 1B to below 2GiB"},
      {kFree, "counterfactual", Value::integer(&O::counterfactual, 0, kMaxCount, "none"),
       "N iterations without exchange, exchange only, and both, after training; on a copy of the "
       "network: compute only, communication only, one after the other, together, and together "
       "without measuring"},
      {kFree, "counterfactual-rounds", Value::integer(&O::counterfactual_rounds, 1, 1000),
       "rounds of these windows"},
  };
}

}  // namespace gradsync
