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

/// The folder beside a run file, of no other run: `run.checkpoints` for `run.h5`, `run-checkpoints`
/// for `run`.
std::filesystem::path checkpoint_folder(const std::filesystem::path& output);

/// `iteration-000000120.safetensors`.
std::filesystem::path checkpoint_name(std::int64_t iteration);

/// The checkpoints of a folder, newest first; none if there is no folder. Other files do not count.
std::vector<NamedCheckpoint> checkpoints_in(const std::filesystem::path& folder);

/// Makes the folder if it is missing. Throws Error kCannotCreate.
void make_checkpoint_folder(const std::filesystem::path& folder);

/// Removes all but the `kept` newest, and what a killed writer left under a temporary name. Call it
/// after a newer one is on the disk. Throws Error kInputOutput.
void remove_older_checkpoints(const std::filesystem::path& folder, std::size_t kept);

}  // namespace gradsync
