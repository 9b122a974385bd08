#include "options/modes.h"
#include "options/option_groups.h"

namespace gradsync {

namespace {

constexpr std::int64_t kMaxBucketBytes = std::int64_t{16} << 30;
using Value = BoundValue<TrainOptions>;

TrainOption bucket(const std::string& name, std::int64_t TrainOptions::*bytes,
                   const std::string& help) {
  return open_or(OptionRole::kMode, name, bytes, Value::size(bytes, 1, kMaxBucketBytes), help);
}

}  // namespace

TrainOptionTable synchronization_options() {
  using enum OptionRole;
  using O = TrainOptions;
  return {
      {kMode, "sync", Value::named("MODE", &O::sync, sync_mode_names()),
       "how gradients are synchronized"},
      {kMode, "granularity", Value::choice(&O::granularity, {"tensor", "flat"}),
       "allreduce: one call per parameter (tensor) or one for all gradients (flat)"},
      bucket("first-bucket", &O::first_bucket_bytes,
             "ddp and c10d: size of the first bucket; auto: as for --bucket-cap"),
      bucket("bucket-cap", &O::bucket_cap_bytes,
             "ddp and c10d: size of a bucket; auto: the size with the least predicted "
             "exposed communication, from a few iterations and allreduces before training"),
      {kMode, "overlap", Value::enumerated<Overlap>(&O::overlap, {"backward", "step"}),
       "ddp: what communication overlaps with: the backward pass, or the next forward pass too "
       "(step), where each layer waits for its own gradients only; the sums are the same"},
      {kMode, "wire-dtype", Value::choice(&O::wire_dtype, {"fp32", "bf16", "fp16"}),
       "ddp: data type of the gradients in transit"},
  };
}

// --overlap step updates layer by layer, and the ranks exchange nothing else.
void require_overlap_possible(const OptionValues& values, const TrainOptions& options) {
  if (options.overlap != Overlap::kStep) return;
  const auto refuse = [&](const std::string& why, const std::string& fix) {
    throw option_error(values, "overlap", "step cannot be combined with " + why, fix);
  };
  if (!mode_named(options.sync).defers) refuse("--sync " + options.sync, "--sync ddp");
  if (options.clip_norm > 0)
    refuse("--clip-norm, which needs all gradients at once", "--clip-norm 0");
  if (options.precision == "fp16")
    refuse("--precision fp16, whose steps may be left out", "--precision bf16");
  if (options.batch_norm != BatchNormMode::kLocal)
    refuse("--batch-norm " + batch_norm_name(options.batch_norm), "--batch-norm local");
}

}  // namespace gradsync
