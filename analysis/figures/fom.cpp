#include "analysis/figures/fom.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stats/statistics.h"

namespace gradsync::report {

namespace {

std::string base_name(const Run& run) {
  const std::string schedule = batch_schedule(run);
  const std::string batch = run.batch_per_rank > 0 ? std::to_string(run.batch_per_rank) : "unknown";
  return fmt::format("{}.{}.n{}.{}", run.model, run.mode, run.ranks,
                     schedule.empty() ? "b" + batch : "batch-schedule=" + schedule);
}

}  // namespace

std::string fom_line(const Fom& fom) {
  const std::string value = std::isfinite(fom.value) ? fmt::format("{:.9g}", fom.value) : "n/a";
  return fmt::format("FOM {} {} {}", fom.name, value, fom.unit);
}

std::vector<std::string> cell_names(const std::vector<const RunGroup*>& groups) {
  std::vector<std::string> names;
  for (const RunGroup* group : groups)
    names.push_back(base_name(group->first()));
  names = told_apart(std::move(names), groups, ".", "-{}");
  for (std::string& name : names)
    name.erase(std::remove(name.begin(), name.end(), ' '), name.end());
  return names;
}

std::vector<Fom> figures_of_merit(const std::vector<RunGroup>& groups) {
  const auto names = cell_names(pointers_to(groups));
  std::vector<Fom> figures;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double iteration_s = median(steady_values(groups[i], Phase::kIteration));
    const double exposed_s = median(steady_values(groups[i], Phase::kExposed));
    figures.push_back({"iteration_median." + names[i], 1e3 * iteration_s, "ms"});
    figures.push_back({"images_per_s." + names[i], images_per_s(groups[i]).value, "images/s"});
    figures.push_back({"exposed_median_slowest_rank." + names[i], 1e3 * exposed_s, "ms"});
  }
  return figures;
}

}  // namespace gradsync::report
