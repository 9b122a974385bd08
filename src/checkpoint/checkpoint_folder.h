// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gradsync {

/// One checkpoint by its name; whether it is sound shows only when it is opened.
struct NamedCheckpoint {
  std::int64_t iteration = 0;
  std::filesystem::path path;
};

/// The folder beside a run file: `run.checkpoints` for `run.h5`, `run.dat.checkpoint-files` for
/// `run.dat`: no two run files share one.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output);

/// `iteration-000000120.safetensors`.
std::filesystem::path checkpoint_name(std::int64_t iteration);

/// The checkpoints of a folder, newest first; none if there is no folder. Other files do not count.
std::vector<NamedCheckpoint> checkpoints_in(const std::filesystem::path& folder);

/// Makes the folder if it is missing. Throws Error kCannotCreate.
void make_checkpoint_folder(const std::filesystem::path& folder);

/// Moves the checkpoints of a folder that are not among `own` into a new folder beside it:
/// `run.checkpoints.earlier-1`, or the first number that is free. Returns how many, and where they
/// are. Throws Error kCannotCreate.
struct SetAside {
  std::size_t checkpoints = 0;
  std::filesystem::path folder;
};
SetAside set_aside_checkpoints(const std::filesystem::path& folder,
                               const std::vector<NamedCheckpoint>& own);

/// The checkpoints of one run, in its folder. What others wrote there is neither counted nor
/// removed.
class OwnCheckpoints {
 public:
  /// `earlier`: those that the run had written before it was resumed.
  OwnCheckpoints(std::filesystem::path folder, std::vector<NamedCheckpoint> earlier);

  /// Removes all but the `kept` newest, and what a killed writer left under a temporary name. Call
  /// it when the checkpoint after `iteration` is on the disk. Throws Error kInputOutput.
  void written(std::int64_t iteration, std::size_t kept);

 private:
  std::filesystem::path folder_;
  std::vector<NamedCheckpoint> own_;  ///< oldest first
};

}  // namespace gradsync
