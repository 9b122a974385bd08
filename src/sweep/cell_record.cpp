#include "sweep/cell_record.h"

#include <algorithm>
#include <array>
#include <csignal>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "record/recorder.h"
#include "sweep/cell_lock.h"

namespace gradsync::sweep {

namespace {

using nlohmann::json;

constexpr std::array<const char*, 3> kKindNames = {"failed", "out of memory", "not run"};

// What slurmstepd and srun say, by version.
constexpr std::array<const char*, 4> kSlurmsWords = {"oom-kill", "oom_kill", "Out Of Memory",
                                                     "OUT_OF_MEMORY"};

// Of Intel MPI, which ends with 255 whatever the signal.
constexpr const char* kKilledByIntel = "KILLED BY SIGNAL: 9 ";

FailureKind kind_of(const json& failure) {
  const json name = failure.value("kind", json());
  for (std::size_t i = 0; i < kKindNames.size(); ++i)
    if (name == kKindNames[i]) return static_cast<FailureKind>(i);
  return FailureKind::kFailed;
}

template <typename Value>
Value value_or(const json& failure, const char* key, Value otherwise) {
  try {
    return failure.value(key, otherwise);
  } catch (const json::exception&) {
    return otherwise;
  }
}

int integer_or(const json& failure, const char* key, int otherwise) {
  try {
    return whole_number<int>(failure.value(key, json(otherwise)));
  } catch (const Error&) {
    return otherwise;
  }
}

/// The last "program: …" with its fix.
std::string own_error(const std::vector<std::string>& lines, const std::string& program) {
  std::string error;
  bool inside = false;
  for (const auto& line : lines) {
    const bool continues = inside && line.starts_with("fix: ");
    if (line.starts_with(program + ": ")) error = line.substr(program.size() + 2);
    if (continues) error += '\n' + line;
    inside = line.starts_with(program + ": ") || continues;
  }
  return error;
}

/// A rank that was killed says nothing: its launcher does, "srun: error: n2: task 1: Killed" or
/// "mpirun noticed that process rank 1 with PID 7 on node n2 exited on signal 9 (Killed).", before
/// it reports all the ranks that it ended itself. Behind: Intel MPI, MPICH.
bool tells_of_a_rank(const std::string& line) {
  const auto holds = [&](const char* words) { return line.find(words) != std::string::npos; };
  return (line.starts_with("srun: error: ") && holds(": task")) ||
         holds("noticed that process rank") || holds("KILLED BY SIGNAL: ") ||
         holds("TERMINATED WITH THE EXIT STRING: ");
}

}  // namespace

void record_failure(const CellFiles& files, const GridCell& cell, const CellFailure& failure) {
  const json record = {{"cell", cell.name},
                       {"kind", kKindNames[static_cast<std::size_t>(failure.kind)]},
                       {"exit_code", failure.result.exit_code},
                       {"signal", failure.result.signal},
                       {"message", failure.message},
                       {"log", files.log.filename().string()},
                       {"time", utc_now()},
                       {"duration_s", failure.duration_s}};
  // A log need not be UTF-8.
  write_file_atomically(files.failure,
                        record.dump(2, ' ', false, json::error_handler_t::replace) + '\n');
}

std::optional<CellFailure> recorded_failure(const CellFiles& files) {
  if (!std::filesystem::exists(files.failure)) return std::nullopt;
  const json record =
      json::parse(read_text_file(files.failure), nullptr, /*allow_exceptions=*/false);
  CellFailure failure;
  if (!record.is_object()) return failure;
  failure.kind = kind_of(record);
  failure.result = {integer_or(record, "exit_code", -1), integer_or(record, "signal", 0)};
  failure.message = value_or(record, "message", std::string());
  failure.duration_s = value_or(record, "duration_s", 0.0);
  return failure;
}

std::string last_error(const std::string& log, const std::string& program) {
  std::vector<std::string> lines = split_list(log, '\n');
  std::erase(lines, "");
  const std::string own = own_error(lines, program);
  if (!own.empty()) return own;
  const auto lost = std::find_if(lines.begin(), lines.end(), tells_of_a_rank);
  if (lost != lines.end()) return *lost;
  const std::size_t shown = std::min<std::size_t>(3, lines.size());
  return fmt::format(
      "{}", fmt::join(lines.end() - static_cast<std::ptrdiff_t>(shown), lines.end(), "\n"));
}

bool was_killed(const ProcessResult& result, const std::string& log) {
  return result.signal == SIGKILL || result.exit_code == 128 + SIGKILL ||
         result.exit_code == SIGKILL ||
         (result.exit_code == 255 && log.find(kKilledByIntel) != std::string::npos);
}

bool killed_for_memory(const ProcessResult& result, std::int64_t kernel_counted,
                       const std::string& log) {
  const bool said_so =
      std::any_of(kSlurmsWords.begin(), kSlurmsWords.end(),
                  [&](const char* words) { return log.find(words) != std::string::npos; });
  return was_killed(result, log) && (kernel_counted > 0 || said_so);
}

std::int64_t kernel_memory_kills() {
  const std::string key = "oom_kill ";
  try {
    for (const auto& line : split_list(read_text_file("/proc/vmstat"), '\n'))
      if (line.starts_with(key)) return parse_integer(line.substr(key.size()));
  } catch (const Error&) {
    // An old kernel, or no /proc.
  }
  return 0;
}

namespace {

CellState state_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::kOutOfMemory:
      return CellState::kOutOfMemory;
    case FailureKind::kNotRun:
      return CellState::kNotRun;
    case FailureKind::kFailed:
      break;
  }
  return CellState::kFailed;
}

}  // namespace

CellState cell_state(const CellFiles& files) {
  if (is_running(files)) return CellState::kRunning;
  if (const auto failure = recorded_failure(files)) return state_of(failure->kind);
  const bool has_run = std::filesystem::exists(files.run);
  if (std::filesystem::exists(files.journal))
    return has_run && is_published(files.run) ? CellState::kDone : CellState::kPartial;
  return has_run ? CellState::kDone : CellState::kMissing;
}

bool is_settled(CellState state) {
  return state == CellState::kDone || state == CellState::kOutOfMemory;
}

std::string state_text(CellState state) {
  switch (state) {
    case CellState::kMissing:
      return "missing";
    case CellState::kRunning:
      return "running";
    case CellState::kPartial:
      return "partial";
    case CellState::kDone:
      return "done";
    case CellState::kFailed:
      return "failed";
    case CellState::kOutOfMemory:
      return "out of memory";
    case CellState::kNotRun:
      return "not run";
  }
  return "";
}

}  // namespace gradsync::sweep
