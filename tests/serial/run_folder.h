// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "analysis/read/run_set.h"
#include "record/reader.h"
#include "record/recorder.h"

/// Runs that tests make up in memory. What files do to a run is tested in tests/serial/record.
namespace gradsync::testing {

/// A run as a test records it; the interface is that of Recorder.
class MadeRun : public RunInMemory {
 public:
  explicit MadeRun(RunInfo info) : RunInMemory(std::move(info)) { finish(RunStatus::kRunning); }

  using RunInMemory::add;
  template <typename Row>
  void add(const Row& row) {
    for_each_list(
        [&](auto& rows) {
          using Rows = std::remove_reference_t<decltype(rows)>;
          if constexpr (std::is_same_v<typename Rows::value_type, Row>) rows.push_back(row);
        },
        lists_);
  }
  void finish(RunStatus status) { end_.status = status; }
};

/// What a folder of run files is to the report, without files. Like the name of a folder, a const
/// one can be written to.
class RunFolder {
 public:
  /// The name of a run in a folder.
  struct File {
    const RunFolder* folder;
    std::string name;
  };

  File operator/(const std::string& name) const { return {this, name}; }
  /// Replaces the run of this name. Each name is a run of its own.
  MadeRun& make(const std::string& name, RunInfo info) const {
    info.run_id += " in " + name;
    return runs_.insert_or_assign(name, MadeRun(std::move(info))).first->second;
  }
  std::unique_ptr<RunReader> open(const std::string& name) const {
    return std::make_unique<MadeRun>(runs_.at(name));
  }
  std::vector<report::FoundRun> found() const {
    std::vector<report::FoundRun> found;
    for (const auto& [name, run] : runs_)
      found.push_back({name, true, [&run = run] { return std::make_unique<MadeRun>(run); }});
    return found;
  }

 private:
  mutable std::map<std::string, MadeRun> runs_;
};

/// Where a run is recorded: a file, or in memory.
inline Recorder recorder_of(const std::filesystem::path& file, const RunInfo& info) {
  return Recorder(file, info);
}
inline MadeRun& recorder_of(const RunFolder::File& file, const RunInfo& info) {
  return file.folder->make(file.name, info);
}

}  // namespace gradsync::testing
