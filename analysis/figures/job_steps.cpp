#include "analysis/figures/job_steps.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

constexpr const char* kCommand =
    "sacct --parsable2 --format=JobIDRaw,ConsumedEnergyRaw -j JOB > FILE";

/// Where the columns stand in a line, and what a launcher or logger puts before each.
struct SacctColumns {
  std::size_t step = 0, energy = 0;
  LinePrefix prefix;

  SacctColumns(const std::filesystem::path& path, std::string_view header) {
    // The first name of a column is a word before a bar.
    const std::size_t first = header.substr(0, header.find('|')).find_last_of(" \t:>])") + 1;
    prefix = LinePrefix(header.substr(0, first));
    const std::vector<std::string> names = split_list(header.substr(first), '|');
    const auto at = [&](const char* name) {
      const auto found = std::find(names.begin(), names.end(), name);
      if (found == names.end())
        throw Error(
            ExitCode::kBadData,
            fmt::format("'{}': its titles, '{}', {} {}", path.string(),
                        with_escaped_bytes(trimmed(header.substr(0, 100))),
                        names.size() > 1 ? "have no column" : "have no bars, and no column", name),
            kCommand);
      return static_cast<std::size_t>(found - names.begin());
    };
    step = at("JobIDRaw");
    energy = at("ConsumedEnergyRaw");
  }
  std::size_t least_fields() const { return std::max(step, energy) + 1; }
};

/// The line of titles: the first that names a column of energy or of jobs, else the first.
std::size_t titles_at(const std::vector<std::string>& lines) {
  for (std::size_t i = 0; i < lines.size(); ++i)
    for (const char* name : {"JobID", "ConsumedEnergy"})
      if (lines[i].find(name) != std::string::npos) return i;
  return 0;
}

double joules(const std::filesystem::path& path, std::size_t line, const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value < 1e15))
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}', line {}: '{}' is not a number of joules", path.string(), line, text),
        kCommand);
  return value;
}

/// Empty where the run was not started by srun.
std::string step_of(const Run& run) {
  const std::string job = provenance_value(run, "env.SLURM_JOB_ID");
  const std::string step = provenance_value(run, "env.SLURM_STEP_ID");
  return job.empty() || step.empty() ? "" : job + "." + step;
}

}  // namespace

StepEnergies read_step_energies(const std::filesystem::path& path) {
  const std::vector<std::string> lines = split_list(read_foreign_text(path), '\n');
  const std::size_t titles = titles_at(lines);
  const SacctColumns columns(path, lines[titles]);
  StepEnergies energies;
  for (std::size_t number = titles + 2; number <= lines.size(); ++number) {
    const auto line = columns.prefix.rest(lines[number - 1]);
    if (!line || line->find('|') == line->npos) continue;
    std::vector<std::string> fields = split_list(*line, '|');
    fields.resize(std::max(fields.size(), columns.least_fields()));
    const std::string &step = fields[columns.step], &energy = fields[columns.energy];
    if (step.empty())
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}', line {}: it names no job", path.string(), number), kCommand);
    if (energy.empty()) continue;
    const double energy_j = joules(path, number, energy);
    if (const auto [same, added] = energies.emplace(step, energy_j);
        !added && same->second != energy_j)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}', line {}: step {} has {} J here and {} J above", path.string(),
                              number, step, energy_j, same->second),
                  kCommand);
  }
  return energies;
}

double step_energy_j(const RunSet& set, const Run& run, const StepEnergies& energies) {
  const std::string step = step_of(run);
  const auto found = energies.find(step);
  if (step.empty() || found == energies.end() || found->second == 0) return kNotMeasured;
  const auto of_step = std::count_if(set.runs.begin(), set.runs.end(),
                                     [&](const Run& other) { return step_of(other) == step; });
  return of_step == 1 ? found->second : kNotMeasured;
}

}  // namespace gradsync::report
