// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "record/reader.h"
#include "serial/test_folder.h"

/// The parsers of everything that comes from outside a process, each as a function of some bytes.
/// `make fuzz` calls them with what libFuzzer makes up, tests/serial with the files of
/// NAME in tests/fuzz/corpus.tar.xz.
namespace gradsync::fuzz {

using Input = std::span<const std::uint8_t>;

struct Target {
  std::string_view name;
  /// Reads the input as the program would. An Error is the right answer to most inputs and is
  /// caught; any other exception, a crash, a hang and memory without bounds are defects.
  void (*run)(Input);
};

/// All targets, in the order of their names.
std::span<const Target> targets();

/// Calls the target; an Error of gradsync is swallowed.
void run(const Target& target, Input input);

/// The input as a file, for parsers that take a path. It is in memory only.
class InputFile {
 public:
  explicit InputFile(std::string_view content);
  std::filesystem::path path() const;

 private:
  UniqueFd file_;
};

inline std::string_view text_of(Input input) {
  return {reinterpret_cast<const char*>(input.data()), input.size()};
}

// The targets.
void checkpoint(Input input);
void cifar10(Input input);
void int8_file(Input input);
void job_file(Input input);
void journal(Input input);
void options(Input input);
void curve_file(Input input);
void profiler_trace(Input input);
void ring_handshake(Input input);
void run_file(Input input);
void site_file(Input input);
void sweep_records(Input input);

/// Asks a run for everything that it holds.
void read_all(RunReader& run);

/// A folder for parsers that take one; removed at the end of the process.
class Folder : public TestFolder {
 public:
  /// Replaces a file.
  void write(const std::string& name, std::string_view content) const;
};

}  // namespace gradsync::fuzz
