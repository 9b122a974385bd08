// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/cli/key_values.h"

/// A job file describes a grid of runs. Its keys are the trainer's options, where a list with
/// commas makes an axis, and those of `job_file_help()`.
namespace gradsync::sweep {

/// A trainer option, `ranks` or `variant` with the values it takes in the grid, at least one.
struct Axis {
  std::string key;
  std::vector<std::string> values;
  std::string where;  ///< "jobs/demo.cfg:12", "--set lr" or "GRADSYNC_DATA"

  bool replaced() const { return where.starts_with("--set "); }
};

/// One `variant` line: options under a name. All such lines together are one axis of the grid:
///   variant = plain:
///   variant = warmup-lars: optimizer=lars lr=2 warmup-epochs=2
struct Variant {
  std::string name;               ///< letters, digits, `.`, `_`, `+`, `-`
  std::vector<KeyValue> options;  ///< of the trainer, and `ranks`; each key at most once
  std::string where;              ///< "jobs/large-batch.cfg:12"

  /// The option of a key; null where the variant leaves it alone.
  const KeyValue* option(const std::string& key) const;
};

/// What an axis of variants is called: the key of its lines.
inline constexpr const char* kVariantKey = "variant";

/// One `exclude` line: leaves out the cells that meet all conditions. A condition is met by any of
/// its values: `exclude = sync=none ranks=2,4`.
struct Exclusion {
  struct Condition {
    std::string key;
    std::vector<std::string> values;
  };
  std::vector<Condition> conditions;
  std::string text, where;
};

enum class CellOrder { kAsWritten, kRandom };

struct Job {
  std::string
      name;  ///< letters, digits, `.`, `_`, `-`; default: the file's name without its ending
  std::vector<Axis> axes;         ///< the first varies slowest; `ranks` is always there
  std::vector<Variant> variants;  ///< those that the axis `variant` names, in its order
  std::int64_t repeats = 1;
  std::vector<Exclusion> exclusions;
  bool interleave = true;  ///< contenders of each other are trained in one job, in turn
  CellOrder order = CellOrder::kAsWritten;
  std::uint64_t order_seed = 1;
  std::filesystem::path results;  ///< folder; default results/<name>
  std::vector<std::string> mpirun_options, srun_options, sbatch_options, report_options;
  std::int64_t ranks_per_node = 0;            ///< 0: the allocation's
  std::int64_t gpus_per_rank = 0;             ///< that job arrays request, 0 or 1
  std::vector<std::string> launcher_options;  ///< the site's, behind srun's or mpirun's
  std::string gpu_request = "gpus-per-node";  ///< of the launcher srun
  std::string mpirun = "mpirun";              ///< the program of the launcher local
};

/// The words between the blanks. As xargs has it, '…' and "…" hold blanks, and a backslash outside
/// of them takes the next character as it is. Throws Error kUsage for a quote without its end.
std::vector<std::string> option_words(const std::string& text);

/// The keys of a job file, for --help-all.
std::string job_file_help();

/// Makes a job of the entries of its file. `overrides` (of --set) take the place of the file's key
/// or are added; each `exclude` adds one, and a key that gives the batch takes the place of the
/// others that do (rivals_of). What they give is given to every variant as well; their own
/// `variant` lines take the place of all the file's. A trainer option that neither gives is taken
/// from its GRADSYNC_* variable, if that is set, as a single value. Throws Error kUsage with
/// file:line for an unknown key (with the nearest), a key given twice, an empty axis, an axis that
/// names a value twice, a variant that sets what is an axis, a number out of range, and for
/// `output` and `compare`, which the sweep gives.
Job make_job(const std::vector<KeyValue>& entries, const std::vector<KeyValue>& overrides,
             const std::string& default_name);

/// Reads the file and makes the job. `sets` are the texts of --set, `trainer_options` what stood
/// behind the `--`; both take the place of the file's keys. Throws also kUsage if there are none,
/// kNoInput, kInputOutput.
Job read_job(const std::filesystem::path& file, const std::vector<std::string>& sets = {},
             const std::vector<KeyValue>& trainer_options = {});

/// The variant of a name; null if there is none.
const Variant* find_variant(const std::vector<Variant>& variants, const std::string& name);

/// `choice` (key -> value, the variant's name under kVariantKey) with the options of that variant
/// in place of the choice's own and of their rivals.
void apply_variant(const std::vector<Variant>& variants,
                   std::map<std::string, std::string>& choice);

/// The other ways to give a batch, if `key` is one of batch-per-rank, batch-global, batch-schedule:
/// only one counts.
std::vector<std::string> rivals_of(const std::string& key);

}  // namespace gradsync::sweep
