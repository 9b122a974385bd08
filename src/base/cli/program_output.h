// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "base/cli/options.h"
#include "base/table.h"

namespace gradsync {

/// The output of a program, by --quiet and --json. While it exists,
/// --quiet and `--json -` make std::cout discard what is written to it. One in a program.
class ProgramOutput {
 public:
  ProgramOutput(const ParsedCommandLine& given, std::string program);
  ~ProgramOutput();
  ProgramOutput(const ProgramOutput&) = delete;
  ProgramOutput& operator=(const ProgramOutput&) = delete;

  bool quiet() const { return discarded_ != nullptr; }
  /// Where progress is printed: std::cerr, or nowhere with --quiet.
  std::ostream& progress();

  /// Prints the table on std::cout, narrow enough for its terminal, and keeps it for --json.
  void print(const Table& table);
  /// Keeps a table for --json.
  void add(const Table& table);

  /// Writes the file of --json, "-" being standard output: an object with program, version,
  /// revision and tables, each as table_json() has it. Nothing without --json.
  void write_json() const;

 private:
  std::string program_;
  std::filesystem::path json_;
  std::unique_ptr<std::ostream> discarded_;
  std::streambuf* standard_output_ = nullptr;
  std::vector<std::string> tables_;
};

/// Writes `text` to a file that appears whole or not at all; "-" is standard output, whose errors
/// show at the end of the program.
void write_result(const std::filesystem::path& file, const std::string& text);

/// One line of progress on standard error, overwritten by the next and erased at the end. Nothing
/// where standard error is no terminal, so logs and pipes stay clean.
class ProgressLine {
 public:
  ProgressLine();
  explicit ProgressLine(bool shown) : shown_(shown) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void say(const std::string& text);
  /// Before anything else is written to the terminal.
  void clear();

 private:
  bool shown_;
  bool there_ = false;
};

}  // namespace gradsync
