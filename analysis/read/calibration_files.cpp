#include "analysis/read/calibration_files.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "record/reader.h"

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
    if (!file.chosen && why_not_calibrated_by(*run.reader, *file.reader).empty() &&
        (!best || created(file) >= created(*best)))
      best = &file;
  return best;
}

const CalibrationFile* chosen_for(const Run& run, const std::vector<CalibrationFile>& files) {
  const auto found = std::find_if(files.begin(), files.end(), [&](const CalibrationFile& file) {
    return file.chosen && file.reader->ranks() == run.reader->ranks();
  });
  return found == files.end() ? nullptr : &*found;
}

std::string chosen_and_not_used(const CalibrationFile& file, const RunSet& set) {
  std::set<std::size_t> ranks;
  for (const Run& run : set.runs)
    ranks.insert(run.reader->ranks());
  return fmt::format("calibration {} is not used: ranks: {} in the runs, {} in the calibration",
                     file.name(), fmt::join(ranks, ", "), file.reader->ranks());
}

/// Of a file that no run is held against.
std::string remark_on(const CalibrationFile& file, const std::vector<const Run*>& without) {
  const auto of_no_use = [&](const std::string& why) {
    return fmt::format("calibration {} is not used: {}", file.name(), why);
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

void add_chosen_calibration(const std::vector<CurveFile>& files, RunSet& set) {
  std::map<std::int64_t, std::pair<std::vector<std::filesystem::path>, RunLists>> by_ranks;
  for (const CurveFile& file : files) {
    CurveFileContent content = read_curve_file(file);
    set.remarks.insert(set.remarks.end(), content.remarks.begin(), content.remarks.end());
    for (const Curves& curves : content.curves) {
      auto& [paths, lists] = by_ranks[curves.ranks];
      paths.push_back(file.path);
      lists.calibration.insert(lists.calibration.end(), curves.rows.begin(), curves.rows.end());
    }
  }
  for (auto& [ranks, content] : by_ranks) {
    RunInfo info;
    info.topology.resize(static_cast<std::size_t>(ranks));
    set.calibrations.push_back(
        {std::move(content.first),
         std::make_unique<RunInMemory>(std::move(info), std::move(content.second)), true});
  }
}

void assign_calibration_files(RunSet& set) {
  std::vector<const Run*> without;
  std::set<const CalibrationFile*> used;
  for (Run& run : set.runs) {
    run.calibration_file = chosen_for(run, set.calibrations);
    if (!run.calibration_file && run.reader->calibration().empty()) {
      without.push_back(&run);
      run.calibration_file = calibration_file_of(run, set.calibrations);
    }
    used.insert(run.calibration_file);
  }
  for (const CalibrationFile& file : set.calibrations)
    if (!used.contains(&file))
      set.remarks.push_back(file.chosen ? chosen_and_not_used(file, set)
                                        : remark_on(file, without));
}

}  // namespace gradsync::report
