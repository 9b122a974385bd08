#include <algorithm>
#include <array>
#include <cmath>

#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/split_figures.h"
#include "analysis/figures/utilization.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

constexpr double kJoulesPerKwh = 3.6e6, kSecondsPerHour = 3600;

/// Of one iteration, in joules; NaN for what was not measured on every rank, or host.
struct IterationEnergy {
  double gpus_j = kNotMeasured, packages_j = kNotMeasured, memory_j = kNotMeasured;

  /// Of the parts that were measured; NaN without any.
  double total_j() const { return sum(std::array{gpus_j, packages_j, memory_j}); }
};

double sum_of_all(const std::vector<double>& values) {
  double sum = values.empty() ? kNotMeasured : 0;
  for (const double value : values)
    sum += value;
  return sum;
}

bool has_counter(const Run& run) {
  const auto& gpus = run.reader->device_samples();
  const auto& hosts = run.reader->host_samples();
  return std::any_of(gpus.begin(), gpus.end(),
                     [](const DeviceSample& one) { return std::isfinite(one.energy_j); }) ||
         std::any_of(hosts.begin(), hosts.end(), [](const HostSample& one) {
           return std::isfinite(one.package_energy_j) || std::isfinite(one.memory_energy_j);
         });
}

/// Reads the times of the iterations only where a counter was read beside them.
IterationEnergy energy_of(const Run& run) {
  if (!has_counter(run)) return {};
  const auto windows = steady_windows(run);
  std::vector<double> packages, memory;
  for (const HostUse& host : host_use(run, windows)) {
    packages.push_back(host.package_j);
    memory.push_back(host.memory_j);
  }
  return {sum_of_all(gpu_energy_j(run, windows)), sum_of_all(packages), sum_of_all(memory)};
}

std::vector<Column> energy_columns(const GroupLabels& labels) {
  std::vector<Column> result = labels.columns();
  const std::string rapl = "RAPL's counter over the steady iterations, sum over the hosts; mean";
  const std::string all = "/gpu/energy, /host/package_energy, /host/memory_energy";
  const std::vector<Column> rest = {
      repeats_column(),
      {"iteration_ms", "iteration ms", false, "mean over ranks and repeats", "/time/iteration"},
      {"gpus_j", "GPUs J", false,
       "NVML's counter over the steady iterations, sum over the GPUs; mean", "/gpu/energy"},
      {"processors_j", "processors J", false, rapl, "/host/package_energy"},
      {"memory_j", "memory J", false, rapl, "/host/memory_energy"},
      {"total_j", "J/iteration", false, "sum of what was measured", all},
      {"step_j", "job step J", false,
       "Slurm's counter over the whole job step (--sacct): start-up and evaluation too, of its "
       "nodes; mean",
       "/provenance/env.SLURM_STEP_ID"},
      {"power_w", "W", false, "J/iteration / iteration", all + ", /time/iteration"},
      {"images_per_j", "images/J", false, "mean images of a steady iteration / J/iteration",
       all + ", /iteration/samples"},
      {"epoch_kwh", "kWh/epoch", false, "J/iteration x iterations of a whole epoch / 3.6e6",
       all + ", /provenance/train_images"},
      {"epoch_cost", "cost/epoch", false,
       "--price-per-hour x iteration x iterations of a whole epoch / 3600",
       "/time/iteration, /provenance/train_images"},
      group_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result, {"total_j", "step_j", "images_per_j", "epoch_kwh", "epoch_cost"});
  return result;
}

std::vector<Cell> energy_row(const RunSet& set, const GroupLabels& labels, const RunGroup& group,
                             double iteration_s, const TableOptions& options) {
  std::vector<double> gpus, packages, memory, total, steps;
  for (const Run* run : group.repeats) {
    const IterationEnergy energy = energy_of(*run);
    gpus.push_back(energy.gpus_j);
    packages.push_back(energy.packages_j);
    memory.push_back(energy.memory_j);
    total.push_back(energy.total_j());
    steps.push_back(step_energy_j(set, *run, options.step_energies));
  }
  const double total_j = mean(total);
  const std::int64_t whole = iterations_of_whole_epoch(group.first());
  const double epoch = whole > 0 ? static_cast<double>(whole) : kNotMeasured;
  std::vector<Cell> cells = labels.cells(group);
  const std::vector<Cell> rest = {
      repeats_cell(group),
      Cell::of(1e3 * iteration_s, 3),
      significant_cell(mean(gpus)),
      significant_cell(mean(packages)),
      significant_cell(mean(memory)),
      significant_cell(total_j),
      significant_cell(mean(steps)),
      Cell::of(total_j / iteration_s, 1),
      significant_cell(steady_images(group) / total_j),
      significant_cell(total_j * epoch / kJoulesPerKwh),
      significant_cell(options.price_per_hour * iteration_s * epoch / kSecondsPerHour),
      group_name_cell(group)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  return cells;
}

bool has_zero(const StepEnergies& energies) {
  return std::any_of(energies.begin(), energies.end(),
                     [](const auto& step) { return step.second == 0; });
}

}  // namespace

bool has_energy_or_price(const RunSet& set, const TableOptions& options) {
  return !std::isnan(options.price_per_hour) || !options.step_energies.empty() ||
         std::any_of(set.runs.begin(), set.runs.end(),
                     [](const Run& run) { return energy_of(run).total_j() >= 0; });
}

Table make_energy_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  GroupSplits splits(groups);
  Table table{"energy",
              "Energy and cost",
              {"measured, never estimated: GPUs by NVML's energy counter (Volta or later), "
               "processors and memory by RAPL where the site lets users read "
               "/sys/class/powercap; n/a where there is no counter, or no sample beside it",
               std::isnan(options.price_per_hour)
                   ? "cost: give --price-per-hour, the price of all hosts of the run together"
                   : "cost: the time of an epoch's iterations at --price-per-hour, the price of "
                     "all hosts of the run together",
               "J/iteration is the sum of the parts that were measured: fans, power supplies and "
               "network are in none. Counters of a GPU or host count all of its processes",
               "job step: of runs that srun started, each in a step of its own"},
              energy_columns(labels),
              {}};
  // The first note, which text always shows.
  if (has_zero(options.step_energies))
    table.notes.insert(table.notes.begin(),
                       "job step J: 0 J, which Slurm writes where nothing gathers energy, is n/a");
  for (const RunGroup& group : groups)
    table.add(energy_row(set, labels, group, splits.measured(group)[Phase::kIteration], options),
              sources_of(group));
  return table;
}

}  // namespace gradsync::report
