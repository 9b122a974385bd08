#include "analysis/published/audited.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"

namespace gradsync::report::published {

namespace {

namespace fs = std::filesystem;
using AuditJson = nlohmann::json;

/// Beside this program, of a build or an installation; of a test in build/tests, in build/bin.
fs::path audit_program() {
  const fs::path programs = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* folder : {".", "../bin"})
    if (const fs::path program = programs / folder / "gradsync-audit"; fs::exists(program))
      return program;
  throw Error(ExitCode::kEnvironment,
              fmt::format("gradsync-audit, which reads published numbers, is not in '{}'",
                          programs.string()),
              "make, or make install");
}

/// What gradsync-audit said is on standard error by then.
[[noreturn]] void refuse(const fs::path& file, const ProcessResult& result) {
  const bool of_file = result.exit_code >= static_cast<int>(ExitCode::kUsage) &&
                       result.exit_code <= static_cast<int>(ExitCode::kInputOutput);
  throw Error(of_file ? static_cast<ExitCode>(result.exit_code) : ExitCode::kEnvironment,
              fmt::format("gradsync-audit ended with {} on '{}'", result.text(), file.string()),
              of_file ? "" : "gradsync-audit needs python3, 3.9 or newer");
}

AuditJson tables_of(const fs::path& file, std::int64_t images) {
  const auto [result, output] =
      capture_process({audit_program(), "--table", "numbers,findings", "--json", "-", "--images",
                       std::to_string(images), file});
  if (!result.succeeded()) refuse(file, result);
  return AuditJson::parse(output).at("tables");
}

std::int64_t count_in(const AuditJson& row, const char* name) {
  return row.at(name).is_null() ? kNotSaid : row.at(name).get<std::int64_t>();
}

double number_in(const AuditJson& row, const char* name) {
  return row.at(name).is_null() ? kNotMeasured : row.at(name).get<double>();
}

AuditedNumber audited_number(const AuditJson& row) {
  return {row.at("line"),          row.at("report"),         row.at("table"),
          row.at("model"),         row.at("mode"),           row.at("quantity"),
          row.at("unit"),          count_in(row, "devices"), count_in(row, "batch_per_device"),
          number_in(row, "value"), row.at("decimals"),       number_in(row, "base_value")};
}

/// Of "lines 3-5, 9".
std::set<std::size_t> lines_in(const std::string& text) {
  std::set<std::size_t> lines;
  for (const std::string& part : split_list(text.substr(text.find(' ') + 1), ',')) {
    const auto ends = split_list(part, '-');
    for (std::int64_t line = parse_integer(ends.front()); line <= parse_integer(ends.back());
         ++line)
      lines.insert(static_cast<std::size_t>(line));
  }
  return lines;
}

std::vector<AuditFinding> findings_in(const AuditJson& table) {
  std::vector<AuditFinding> findings;
  for (const AuditJson& row : table.at("rows"))
    findings.push_back({row.at("severity"), row.at("check"), row.at("finding"),
                        lines_in(row.at("lines").get<std::string>())});
  return findings;
}

std::string csv_field(const std::string& text) {
  std::string result = "\"";
  for (const char c : text)
    result += c == '"' ? "\"\"" : std::string(1, c);
  return result + "\"";
}

std::string count_or_nothing(std::int64_t count) {
  return count == kNotSaid ? "" : std::to_string(count);
}

/// Sets the lines. What is there twice, in two tables of a layout, is written once.
std::string csv_of(std::vector<AuditedNumber>& numbers) {
  std::string text = "report,table,model,mode,devices,batch_per_device,quantity,value,unit\n";
  std::vector<std::string> settings;
  for (AuditedNumber& one : numbers) {
    const std::string setting =
        fmt::format("{},{},{},{},{},{},{},", csv_field(one.report), csv_field(one.table),
                    csv_field(one.model), csv_field(one.mode), count_or_nothing(one.devices),
                    count_or_nothing(one.batch_per_device), csv_field(one.quantity));
    const auto known = std::find(settings.begin(), settings.end(), setting);
    one.line = static_cast<std::size_t>(known - settings.begin()) + 2;
    if (known != settings.end()) continue;
    settings.push_back(setting);
    text += setting + fmt::format("{:.{}f},{}\n", one.value, one.decimals, csv_field(one.unit));
  }
  return text;
}

}  // namespace

AuditedNumbers audited(const fs::path& file, std::int64_t images) {
  const AuditJson tables = tables_of(file, images);
  AuditedNumbers all{file.filename().string(), {}, {}};
  for (const AuditJson& table : tables)
    if (table.at("name") == "published-numbers")
      for (const AuditJson& row : table.at("rows"))
        all.numbers.push_back(audited_number(row));
    else
      all.findings = findings_in(table);
  return all;
}

std::vector<AuditFinding> audit(std::vector<AuditedNumber>& numbers, std::int64_t images) {
  if (numbers.empty()) return {};
  const std::string text = csv_of(numbers);
  const UniqueFd file(::memfd_create("measured", MFD_CLOEXEC));
  if (!file) throw Error(ExitCode::kInputOutput, "no file in memory: " + errno_text());
  write_all(file.get(), std::as_bytes(std::span(text)), "measured");
  return audited(fmt::format("/proc/{}/fd/{}", ::getpid(), file.get()), images).findings;
}

}  // namespace gradsync::report::published
