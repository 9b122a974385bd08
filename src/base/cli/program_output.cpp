// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/program_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/file.h"
#include "base/version.h"

namespace gradsync {

namespace {

/// Takes everything and keeps nothing. Without a buffer the stream would report a failure.
class NullBuffer : public std::streambuf {
 protected:
  int_type overflow(int_type character) override { return traits_type::not_eof(character); }
  std::streamsize xsputn(const char*, std::streamsize count) override { return count; }
};

class NullStream : public std::ostream {
 public:
  NullStream() : std::ostream(nullptr) { rdbuf(&buffer_); }

 private:
  NullBuffer buffer_;
};

/// What a shell exports, or 0.
std::size_t columns_variable() {
  const char* text = std::getenv("COLUMNS");
  const std::string digits = text == nullptr ? "" : text;
  const bool number = !digits.empty() && digits.size() <= 4 &&
                      digits.find_first_not_of("0123456789") == std::string::npos;
  return number ? std::stoul(digits) : 0;
}

std::size_t terminal_columns() {
  winsize window{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 ? window.ws_col : 0;
}

}  // namespace

std::size_t output_columns() {
  constexpr std::size_t kLeast = 60, kUsual = 100;
  for (const std::size_t columns : {columns_variable(), terminal_columns()})
    if (columns > 0) return std::max(kLeast, columns);
  return kUsual;
}

ProgramOutput::ProgramOutput(const ParsedCommandLine& given, std::string program)
    : program_(std::move(program)), json_(given.json) {
  if (!given.quiet && json_ != "-") return;
  discarded_ = std::make_unique<NullStream>();
  standard_output_ = std::cout.rdbuf(discarded_->rdbuf());
}

ProgramOutput::~ProgramOutput() {
  if (standard_output_ != nullptr) std::cout.rdbuf(standard_output_);
}

std::ostream& ProgramOutput::progress() {
  return quiet() ? *discarded_ : std::cerr;
}

void ProgramOutput::print(const Table& table) {
  print_narrow_text(std::cout, table, output_columns(), "--json FILE", SIZE_MAX);
  add(table);
}

void ProgramOutput::add(const Table& table) {
  if (!json_.empty()) tables_.push_back(table_json(table));
}

void ProgramOutput::write_json() const {
  if (json_.empty()) return;
  write_result(json_,
               fmt::format("{{\n\"format\": \"gradsync-results/1\",\n\"program\": \"{}\",\n"
                           "\"version\": \"{}\",\n\"revision\": \"{}\",\n"
                           "\"tables\": [\n{}]\n}}\n",
                           program_, version_number(), revision(), fmt::join(tables_, ",\n")));
}

void write_result(const std::filesystem::path& file, const std::string& text) {
  if (file != "-") return write_file_atomically(file, text);
  std::fwrite(text.data(), 1, text.size(), stdout);  // see require_written
}

ProgressLine::ProgressLine() : shown_(isatty(STDERR_FILENO) != 0) {}

void ProgressLine::say(const std::string& text) {
  if (!shown_) return;
  std::cerr << "\r\033[K" << text << std::flush;
  there_ = true;
}

void ProgressLine::clear() {
  if (there_) std::cerr << "\r\033[K" << std::flush;
  there_ = false;
}

}  // namespace gradsync
