#include "analysis/published/numbers.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/process.h"

namespace gradsync::report::published {

namespace {

// --- quantities and units ------------------------------------------------------------------------

using NamedKind = std::pair<std::string_view, Kind>;
using NamedFactor = std::pair<std::string_view, double>;

/// N stands for a number.
constexpr std::array<NamedKind, 33> kKinds = {{{"epoch_time", Kind::kEpochTime},
                                               {"epoch_N_time", Kind::kEpochTime},
                                               {"time_per_epoch", Kind::kEpochTime},
                                               {"training_time", Kind::kTrainingTime},
                                               {"epoch_N_training_time", Kind::kTrainingTime},
                                               {"running_time", Kind::kRunningTime},
                                               {"epoch_N_running_time", Kind::kRunningTime},
                                               {"iteration_time", Kind::kIterationTime},
                                               {"mean_iteration_time", Kind::kIterationTime},
                                               {"time_per_iteration", Kind::kIterationTime},
                                               {"compute_time", Kind::kComputeTime},
                                               {"computation_time", Kind::kComputeTime},
                                               {"comm_time", Kind::kCommTime},
                                               {"communication_time", Kind::kCommTime},
                                               {"speedup", Kind::kSpeedup},
                                               {"strong_speedup", Kind::kSpeedup},
                                               {"bandwidth", Kind::kBandwidth},
                                               {"busbw", Kind::kBandwidth},
                                               {"algbw", Kind::kBandwidth},
                                               {"bandwidth_utilization", Kind::kBandwidth},
                                               {"compute_share", Kind::kComputeShare},
                                               {"comm_share", Kind::kCommShare},
                                               {"communication_share", Kind::kCommShare},
                                               {"loss", Kind::kLoss},
                                               {"loss_iter_N", Kind::kLoss},
                                               {"epoch_N_loss", Kind::kLoss},
                                               {"train_loss", Kind::kLoss},
                                               {"test_loss", Kind::kLoss},
                                               {"accuracy", Kind::kAccuracy},
                                               {"epoch_N_accuracy", Kind::kAccuracy},
                                               {"train_accuracy", Kind::kAccuracy},
                                               {"test_accuracy", Kind::kAccuracy},
                                               {"test_correct", Kind::kCorrect}}};

constexpr std::array<NamedFactor, 19> kSeconds = {{{"ns", 1e-9},
                                                   {"us", 1e-6},
                                                   {"µs", 1e-6},
                                                   {"μs", 1e-6},
                                                   {"ms", 1e-3},
                                                   {"s", 1},
                                                   {"sec", 1},
                                                   {"secs", 1},
                                                   {"second", 1},
                                                   {"seconds", 1},
                                                   {"min", 60},
                                                   {"mins", 60},
                                                   {"minute", 60},
                                                   {"minutes", 60},
                                                   {"h", 3600},
                                                   {"hr", 3600},
                                                   {"hour", 3600},
                                                   {"hours", 3600},
                                                   {"d", 86400}}};

constexpr double kKi = 1024, kMi = kKi * kKi, kGi = kMi * kKi, kTi = kGi * kKi;
constexpr std::array<NamedFactor, 21> kBytes = {
    {{"B", 1},       {"byte", 1},   {"bytes", 1},    {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
     {"GB", 1e9},    {"TB", 1e12},  {"KiB", kKi},    {"MiB", kMi},    {"GiB", kGi},    {"TiB", kTi},
     {"bit", 0.125}, {"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"Tbit", 125e9}, {"kb", 125},
     {"Mb", 125e3},  {"Gb", 125e6}, {"Tb", 125e9}}};
constexpr std::array<NamedFactor, 4> kBitsPerSecond = {
    {{"kbps", 125}, {"Mbps", 125e3}, {"Gbps", 125e6}, {"Tbps", 125e9}}};

template <std::size_t N>
std::optional<double> factor_in(const std::array<NamedFactor, N>& names, std::string_view name) {
  for (const auto& [known, factor] : names)
    if (known == name) return factor;
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
      if (const auto bytes = factor_in(kBytes, text.substr(0, text.size() - ending.size())))
        return bytes;
  return factor_in(kBitsPerSecond, text);
}

}  // namespace

Kind kind_of(std::string_view name) {
  const std::string pattern = pattern_of(name);
  for (const auto& [known, kind] : kKinds)
    if (known == pattern) return kind;
  return Kind::kUnknown;
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
  if (const auto seconds = factor_in(kSeconds, text)) return Unit{*seconds};
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
