// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/published/numbers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"

namespace gradsync::report::published {

namespace {

// --- quantities and units ------------------------------------------------------------------------

/// Names of a value, with blanks between; in those of kinds N stands for a number.
template <typename Value>
struct Named {
  std::string_view names;
  Value value;
};

constexpr Named<Kind> kKinds[] = {
    {"epoch_time epoch_N_time time_per_epoch", Kind::kEpochTime},
    {"training_time epoch_N_training_time", Kind::kTrainingTime},
    {"running_time epoch_N_running_time", Kind::kRunningTime},
    {"iteration_time mean_iteration_time time_per_iteration", Kind::kIterationTime},
    {"compute_time computation_time", Kind::kComputeTime},
    {"comm_time communication_time", Kind::kCommTime},
    {"speedup strong_speedup", Kind::kSpeedup},
    {"bandwidth busbw algbw bandwidth_utilization", Kind::kBandwidth},
    {"compute_share", Kind::kComputeShare},
    {"comm_share communication_share", Kind::kCommShare},
    {"loss loss_iter_N epoch_N_loss train_loss test_loss", Kind::kLoss},
    {"accuracy epoch_N_accuracy train_accuracy test_accuracy", Kind::kAccuracy},
    {"test_correct", Kind::kCorrect}};

constexpr Named<double> kSeconds[] = {{"ns", 1e-9},
                                      {"us µs μs", 1e-6},
                                      {"ms", 1e-3},
                                      {"s sec secs second seconds", 1},
                                      {"d", 86400},
                                      {"min mins minute minutes", 60},
                                      {"h hr hour hours", 3600}};

constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr Named<double> kBytes[] = {
    {"B byte bytes", 1}, {"kB KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},       {"TB", 1e12},
    {"KiB", kKi},        {"MiB", kMi},       {"GiB", kGi},       {"TiB", kTi},      {"bit", 0.125},
    {"kbit kb", 125},    {"Mbit Mb", 125e3}, {"Gbit Gb", 125e6}, {"Tbit Tb", 125e9}};
constexpr Named<double> kBitsPerSecond[] = {
    {"kbps", 125}, {"Mbps", 125e3}, {"Gbps", 125e6}, {"Tbps", 125e9}};

template <typename Value, std::size_t N>
std::optional<Value> find_named(const Named<Value> (&all)[N], std::string_view name) {
  for (const Named<Value>& one : all)
    for (const std::string& known : split_list(one.names, ' '))
      if (known == name) return one.value;
  return {};
}

// "Epoch-2-Time" as "epoch_N_time".
std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !pattern.ends_with('N'))
      pattern += 'N';
    else if (!digit)
      pattern += c == '-' || c == ' '
                     ? '_'
                     : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return pattern;
}

std::optional<double> bandwidth_factor(std::string_view text) {
  for (const std::string_view ending : {"/s", "/sec", "/second", "ps"})
    if (text.ends_with(ending))
      if (const auto bytes = find_named(kBytes, text.substr(0, text.size() - ending.size())))
        return bytes;
  return find_named(kBitsPerSecond, text);
}

}  // namespace

Kind kind_of(std::string_view name) {
  return find_named(kKinds, pattern_of(name)).value_or(Kind::kUnknown);
}

bool is_epoch_time(Kind kind) {
  return kind == Kind::kEpochTime || kind == Kind::kTrainingTime || kind == Kind::kRunningTime;
}

bool is_time(Kind kind) {
  return is_epoch_time(kind) || kind == Kind::kIterationTime || kind == Kind::kComputeTime ||
         kind == Kind::kCommTime;
}

bool is_derived(Kind kind) {
  return kind == Kind::kComputeTime || kind == Kind::kCommTime || kind == Kind::kSpeedup ||
         kind == Kind::kBandwidth;
}

std::optional<Unit> parse_unit(std::string_view text) {
  if (text == "%" || text == "percent") return Unit{0.01};
  if (text.empty() || text == "1" || text == "x" || text == "×") return Unit{};
  if (const auto seconds = find_named(kSeconds, text)) return Unit{*seconds};
  if (const auto rate = bandwidth_factor(text)) return Unit{*rate, 0, true};
  if (!text.starts_with("of ")) return {};
  try {
    return Unit{1, parse_number(trimmed(text.substr(3)))};
  } catch (const Error&) {
    return {};
  }
}

// --- what gradsync-audit reads and finds ---------------------------------------------------------

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
  try {
    return AuditJson::parse(output).at("tables");
  } catch (const AuditJson::exception& error) {
    throw Error(ExitCode::kBadData, fmt::format("gradsync-audit wrote invalid JSON of '{}': {}",
                                                file.string(), error.what()));
  }
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

/// 3, 4, 5 and 9 of "lines 3-5, 9".
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
    const auto known = std::ranges::find(settings, setting);
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
