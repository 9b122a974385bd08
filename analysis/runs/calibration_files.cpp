#include "analysis/runs/calibration_files.h"

#include <algorithm>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradsync::report {

namespace {

std::string provenance_of(const RunReader& file, std::string_view name) {
  for (const NamedText& entry : file.info().provenance)
    if (entry.name == name) return entry.value.substr(0, entry.value.find('\n'));
  return {};
}

std::vector<std::string> of_ranks(const RunReader& file, std::string RankPlace::*field) {
  std::vector<std::string> values;
  for (const RankPlace& place : file.info().topology)
    values.push_back(place.*field);
  return values;
}

/// Each value once, in order of rank.
std::string named(const std::vector<std::string>& of_ranks) {
  std::vector<std::string> once;
  for (const std::string& value : of_ranks)
    if (std::find(once.begin(), once.end(), value) == once.end()) once.push_back(value);
  return fmt::format("{}", fmt::join(once, ", "));
}

std::string differ(std::string_view what, const std::string& run, const std::string& file) {
  return fmt::format("{}: {} in the run, {} in the calibration", what, run, file);
}

/// "hosts: …" also where the same hosts hold other ranks.
std::string differ(std::string_view what, const std::vector<std::string>& run,
                   const std::vector<std::string>& file) {
  if (run == file) return {};
  const bool same_names = named(run) == named(file);
  return differ(what, same_names ? fmt::format("{}", fmt::join(run, ", ")) : named(run),
                same_names ? fmt::format("{}", fmt::join(file, ", ")) : named(file));
}

const CalibrationFile* calibration_file_of(const Run& run,
                                           const std::vector<CalibrationFile>& files) {
  const CalibrationFile* best = nullptr;
  const auto created = [](const CalibrationFile& file) { return file.reader->info().created; };
  for (const CalibrationFile& file : files)
    if (why_not_calibrated_by(*run.reader, *file.reader).empty() &&
        (!best || created(file) >= created(*best)))
      best = &file;
  return best;
}

/// Of a file that no run is held against.
std::string remark_on(const CalibrationFile& file, const std::vector<const Run*>& without) {
  const auto of_no_use = [&](const std::string& why) {
    return fmt::format("calibration {} is not used: {}", file.path.string(), why);
  };
  if (without.empty()) return of_no_use("the runs hold their own");
  for (const Run* run : without) {
    const std::string why = why_not_calibrated_by(*run->reader, *file.reader);
    if (!why.empty()) return of_no_use(fmt::format("{} ({})", why, run->path.string()));
  }
  return of_no_use("a later one is of the same ranks");
}

}  // namespace

bool is_calibration_file(const RunReader& file) {
  return file.iterations() == 0 && !file.calibration().empty() && file.option("sync").empty();
}

std::string why_not_calibrated_by(const RunReader& run, const RunReader& file) {
  if (run.ranks() != file.ranks())
    return differ("ranks", std::to_string(run.ranks()), std::to_string(file.ranks()));
  for (const auto& [what, field] :
       {std::pair{"hosts", &RankPlace::host}, std::pair{"devices", &RankPlace::device},
        std::pair{"devices", &RankPlace::device_uuid}}) {
    const std::string why = differ(what, of_ranks(run, field), of_ranks(file, field));
    if (!why.empty()) return why;
  }
  const std::string ours = provenance_of(run, "mpi"), theirs = provenance_of(file, "mpi");
  return ours == theirs ? "" : differ("MPI", ours, theirs);
}

void assign_calibration_files(RunSet& set) {
  std::vector<const Run*> without;
  std::set<const CalibrationFile*> used;
  for (Run& run : set.runs) {
    if (!run.reader->calibration().empty()) continue;
    without.push_back(&run);
    run.calibration_file = calibration_file_of(run, set.calibrations);
    used.insert(run.calibration_file);
  }
  for (const CalibrationFile& file : set.calibrations)
    if (!used.contains(&file)) set.remarks.push_back(remark_on(file, without));
}

}  // namespace gradsync::report
