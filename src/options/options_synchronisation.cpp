#include <fmt/ranges.h>

#include "options/option_groups.h"

namespace gradsync {

namespace {

constexpr std::int64_t kMaxBucketBytes = std::int64_t{16} << 30;

const std::vector<std::string> kGranularities = {"tensor", "flat"};
const std::vector<std::string> kOverlaps = {"backward", "step"};
const std::vector<std::string> kWireTypes = {"fp32", "bf16", "fp16"};

// `auto` is 0: not settled yet.
std::int64_t bucket_option(const OptionValues& values, const std::string& name) {
  return text_option(values, name) == kAuto ? 0 : size_option(values, name, 1, kMaxBucketBytes);
}

}  // namespace

TrainOptionTable synchronisation_options() {
  using enum OptionRole;
  const std::string group = "Synchronisation";
  return {
      {kMode, "sync", "MODE", "ddp",
       fmt::format("how gradients are synchronised: {}", fmt::join(sync_mode_names(), ", ")),
       group},
      {kMode, "granularity", joined(kGranularities), "flat",
       "allreduce: one call a parameter (tensor) or one for all gradients (flat)", group},
      {kMode, "first-bucket", "SIZE|auto", "1MiB",
       "ddp and c10d: the first bucket, 1B to 16GiB; auto: as for --bucket-cap", group},
      {kMode, "bucket-cap", "SIZE|auto", "25MiB",
       "ddp and c10d: every further bucket, 1B to 16GiB; auto: the size that is predicted to leave "
       "least of the exchange exposed, from a few steps and all-reduces before training",
       group},
      {kMode, "overlap", joined(kOverlaps), "backward",
       "ddp: what the exchange may go on beside: the backward pass, or the next forward pass too "
       "(step), where each layer waits for its own gradients alone; the same sums",
       group},
      {kMode, "wire-dtype", joined(kWireTypes), "fp32",
       "ddp: type of the gradients while they travel", group},
  };
}

void read_synchronisation(const OptionValues& values, TrainOptions& options) {
  options.sync = choice_option(values, "sync", sync_mode_names());
  options.granularity = choice_option(values, "granularity", kGranularities);
  options.first_bucket_bytes = bucket_option(values, "first-bucket");
  options.bucket_cap_bytes = bucket_option(values, "bucket-cap");
  options.wire_dtype = choice_option(values, "wire-dtype", kWireTypes);
  options.overlap = choice_option(values, "overlap", kOverlaps);
}

// --overlap step updates layer by layer, and leaves the ranks nothing else to tell each other.
void require_overlap_possible(const OptionValues& values, const TrainOptions& options) {
  if (options.overlap != "step") return;
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    throw option_error(values, "overlap", "step does not go with " + why, fix);
  };
  if (options.sync != "ddp") refuse("--sync " + options.sync, "--sync ddp");
  if (options.clip_norm > 0)
    refuse("--clip-norm, which needs all gradients at once", "--clip-norm 0");
  if (options.precision == "fp16")
    refuse("--precision fp16, whose steps may be left out", "--precision bf16");
  if (options.batch_norm != "local")
    refuse("--batch-norm " + options.batch_norm, "--batch-norm local");
}

}  // namespace gradsync
