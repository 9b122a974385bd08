// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/utilization.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "analysis/figures/epoch_figures.h"
#include "analysis/figures/rank_figures.h"
#include "analysis/tables/columns.h"
#include "analysis/tables/tables.h"
#include "base/ranges.h"
#include "stats/bandwidth.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// How far a rank, or the mean of all, uses what it has; of a host's counters only in the mean.
struct UseRow : RankRow {
  Utilization use = {};
  HostUse host = {};
};

TableColumns<UseRow> use_columns() {
  using Row = UseRow;
  const std::string layers = "/layer/forward, /layer/backward, /iteration/samples, /time/iteration";
  TableColumns<Row> columns = rank_columns();
  columns.add(
      {{"compute_percent", "compute %", "mean compute / mean iteration",
        "/time/compute, /time/iteration",
        [](const Row& row) { return percent_cell(row.use.compute); }, 0},
       {"link_percent", "link busy %",
        "mean time in which data of collectives could move / mean iteration",
        "/time/comm_busy, /time/iteration",
        [](const Row& row) { return percent_cell(row.use.link_busy); }, 0},
       {"cores", "cores", "mean user and system time / mean iteration",
        "/usage/cpu_time, /time/iteration",
        [](const Row& row) { return Cell::of(row.use.cores, 2); }, 0},
       {"cpu_ms", "CPU ms", "mean user and system time of an iteration", "/usage/cpu_time",
        [](const Row& row) { return Cell::of(1e3 * row.use.cores * row.use.iteration_s, 2); }, 2},
       {"gflop_per_s", "GFLOP/s", "operations of the layers x images of the rank / mean iteration",
        layers, [](const Row& row) { return significant_cell(1e-9 * row.use.flop_per_s); }, 0},
       {"of_probe_percent", "of probe %", "GFLOP/s / that of the probe",
        layers + ", /probe/flop_per_s",
        [](const Row& row) { return percent_cell(row.use.of_probe); }, 0},
       {"of_data_sheet_percent", "of data sheet %", "GFLOP/s / the data sheet's, or --peak-tflops",
        layers + ", /topology/device",
        [](const Row& row) { return percent_cell(row.use.of_data_sheet); }, 2},
       {"voluntary_switches", "switches", "mean context switches of an iteration, to wait",
        "/usage/voluntary_switches",
        [](const Row& row) { return Cell::of(row.use.voluntary_switches, 1); }, 2},
       {"involuntary_switches", "preempted",
        "mean context switches of an iteration by which a core was taken away",
        "/usage/involuntary_switches",
        [](const Row& row) { return Cell::of(row.use.involuntary_switches, 1); }, 2},
       {"gpu_busy_percent", "GPU busy %", "mean of the samples", "/gpu/busy",
        [](const Row& row) { return percent_cell(row.use.gpu_busy); }, 2},
       {"gpu_memory_busy_percent", "GPU memory busy %", "mean of the samples", "/gpu/memory_busy",
        [](const Row& row) { return percent_cell(row.use.gpu_memory_busy); }, 3},
       {"sm_clock_ghz", "SM GHz", "mean of the samples", "/gpu/sm_clock",
        [](const Row& row) { return Cell::of(1e-9 * row.use.sm_clock_hz, 3); }, 3},
       {"memory_gb_per_s", "memory GB/s",
        "bytes between caches and memory in steady iterations / their time", "/host/memory_traffic",
        [](const Row& row) { return Cell::of(row.host.memory_Bps / kGB, 4); }, 3},
       {"sent_gb_per_s", "sent GB/s",
        "bytes that the host's interfaces sent in steady iterations / their time", "/host/sent",
        [](const Row& row) { return Cell::of(row.host.sent_Bps / kGB, 4); }, 3},
       {"received_gb_per_s", "received GB/s",
        "bytes that the host's interfaces received in steady iterations / their time",
        "/host/received", [](const Row& row) { return Cell::of(row.host.received_Bps / kGB, 4); },
        3}});
  return columns.add(name_column());
}

HostUse mean_of(const std::vector<HostUse>& hosts) {
  HostUse all;
  for (double HostUse::*one : {&HostUse::memory_Bps, &HostUse::sent_Bps, &HostUse::received_Bps})
    all.*one = mean(each(hosts, one));
  return all;
}

}  // namespace

Table make_utilization_table(const RunSet& set, const TableOptions& options) {
  const auto columns = use_columns();
  Table table = columns.table(
      "utilization", "How far ranks and links are used",
      {"compute, link busy: parts of the time, from measured intervals; cores: CPU time of all "
       "threads of the rank / time (getrusage); GFLOP/s: convolutions and matrix products (table "
       "layers); of probe: of the matrix product that --calibrate times",
       "the row \"mean\" is the mean over the ranks; its sent, received and memory are the mean "
       "over the hosts. n/a: not readable on that machine, or not recorded by that version",
       "link busy counts the time, not the bytes: table bandwidth holds them against calibration "
       "and link. sent, received: interface counters of the host with all its processes; memory: "
       "resctrl; GPU: NVML, sampled every 0.2 s",
       "left out as warm-up: " + warmup_text(set)});
  add_waiting_note(set, table.notes);
  for (const Run& run : set.runs) {
    const auto ranks = utilization(run, options.peak_flop_per_s);
    for (const std::size_t rank : run.steady.ranks)
      table.add(columns.cells({rank_row(run, rank), ranks[rank]}), run.path.string());
    table.add(columns.cells({rank_row(run, "mean"), mean_of(ranks),
                             mean_of(host_use(run, steady_windows(run)))}),
              run.path.string());
  }
  return table;
}

namespace {

constexpr double kJoulesPerKwh = 3.6e6, kSecondsPerHour = 3600;

/// Joules of one iteration; NaN for what was not measured on every rank, or host.
struct IterationEnergy {
  double gpus_j = kNotMeasured, packages_j = kNotMeasured, memory_j = kNotMeasured;

  /// Sum of the parts that were measured; NaN without any.
  double total_j() const { return sum(std::array{gpus_j, packages_j, memory_j}); }
};

struct EnergyRow : CellRow {
  IterationEnergy energy = {};
  double step_j = kNotMeasured;
  double iteration_s = kNotMeasured, images = kNotMeasured;
  double epoch = kNotMeasured;  ///< iterations
};

TableColumns<EnergyRow> energy_columns(const GroupLabels& labels, double price_per_hour) {
  using Row = EnergyRow;
  const std::string rapl = "RAPL's counter over the steady iterations, sum over the hosts; mean";
  const std::string all = "/gpu/energy, /host/package_energy, /host/memory_energy";
  TableColumns<Row> columns = labels.columns();
  columns.add(repeats_column());
  columns.add(
      {{"iteration_ms", "iteration ms", "mean over ranks and repeats", "/time/iteration",
        [](const Row& row) { return ms_cell(row.iteration_s); }},
       {"gpus_j", "GPUs J", "NVML's counter over the steady iterations, sum over the GPUs; mean",
        "/gpu/energy", [](const Row& row) { return significant_cell(row.energy.gpus_j); }},
       {"processors_j", "processors J", rapl, "/host/package_energy",
        [](const Row& row) { return significant_cell(row.energy.packages_j); }},
       {"memory_j", "memory J", rapl, "/host/memory_energy",
        [](const Row& row) { return significant_cell(row.energy.memory_j); }},
       {"total_j", "J/iteration", "sum of what was measured", all,
        [](const Row& row) { return significant_cell(row.energy.total_j()); }, 0},
       {"step_j", "job step J",
        "Slurm's counter over the whole job step (--sacct): start-up and evaluation too, of its "
        "nodes; mean",
        "/provenance/env.SLURM_STEP_ID",
        [](const Row& row) { return significant_cell(row.step_j); }, 0},
       {"power_w", "W", "J/iteration / iteration", all + ", /time/iteration",
        [](const Row& row) { return Cell::of(row.energy.total_j() / row.iteration_s, 1); }},
       {"images_per_j", "images/J", "mean images of a steady iteration / J/iteration",
        all + ", /iteration/samples",
        [](const Row& row) { return significant_cell(row.images / row.energy.total_j()); }, 0},
       {"epoch_kwh", "kWh/epoch", "J/iteration x iterations of a whole epoch / 3.6e6",
        all + ", /provenance/train_images",
        [](const Row& row) {
          return significant_cell(row.energy.total_j() * row.epoch / kJoulesPerKwh);
        },
        0},
       {"epoch_cost", "cost/epoch",
        "--price-per-hour x iteration x iterations of a whole epoch / 3600",
        "/time/iteration, /provenance/train_images",
        [=](const Row& row) {
          return significant_cell(price_per_hour * row.iteration_s * row.epoch / kSecondsPerHour);
        },
        0}});
  return columns.add(name_column());
}

double sum_of_all(const std::vector<double>& values) {
  double sum = values.empty() ? kNotMeasured : 0;
  for (const double value : values)
    sum += value;
  return sum;
}

bool has_counter(const Run& run) {
  const auto& gpus = run.reader->device_samples();
  const auto& hosts = run.reader->host_samples();
  return std::ranges::any_of(gpus,
                             [](const DeviceSample& one) { return std::isfinite(one.energy_j); }) ||
         std::ranges::any_of(hosts, [](const HostSample& one) {
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

EnergyRow energy_row(const RunSet& set, const CellRow& label, const RunGroup& group,
                     const StepEnergies& step_energies) {
  std::vector<double> gpus, packages, memory, steps;
  for (const Run* run : group.repeats) {
    const IterationEnergy energy = energy_of(*run);
    gpus.push_back(energy.gpus_j);
    packages.push_back(energy.packages_j);
    memory.push_back(energy.memory_j);
    steps.push_back(step_energy_j(set, *run, step_energies));
  }
  EnergyRow row{label, {mean(gpus), mean(packages), mean(memory)}, mean(steps)};
  row.images = steady_images(group);
  if (const std::int64_t whole = iterations_of_whole_epoch(group.first()); whole > 0)
    row.epoch = static_cast<double>(whole);
  return row;
}

}  // namespace

bool has_energy_or_price(const RunSet& set, const TableOptions& options) {
  return !std::isnan(options.price_per_hour) || !options.step_energies.empty() ||
         std::ranges::any_of(set.runs,
                             [](const Run& run) { return energy_of(run).total_j() >= 0; });
}

Table make_energy_table(const RunSet& set, const TableOptions& options) {
  const auto groups = group_runs(set);
  const GroupLabels labels(groups);
  GroupSplits splits(groups);
  const auto columns = energy_columns(labels, options.price_per_hour);
  Table table = columns.table(
      "energy", "Energy and cost",
      {"measured, never estimated: GPUs by NVML's energy counter (Volta or later), "
       "processors and memory by RAPL where the site lets users read "
       "/sys/class/powercap; n/a where there is no counter, or no sample beside it",
       std::isnan(options.price_per_hour)
           ? "cost: give --price-per-hour, the price of all hosts of the run together"
           : "cost: the time of an epoch's iterations at --price-per-hour, the price of "
             "all hosts of the run together",
       "J/iteration is the sum of the parts that were measured: fans, power supplies and "
       "network are in none. Counters of a GPU or host count all of its processes",
       "job step: of runs that srun started, each in a step of its own"});
  // The first note, which text always shows.
  if (std::ranges::any_of(options.step_energies, [](const auto& step) { return step.second == 0; }))
    table.notes.insert(table.notes.begin(),
                       "job step J: 0 J, which Slurm writes where nothing gathers energy, is n/a");
  for (const RunGroup& group : groups) {
    EnergyRow row = energy_row(set, labels.row(group), group, options.step_energies);
    row.iteration_s = splits.measured(group)[Phase::kIteration];
    table.add(columns.cells(row), sources_of(group));
  }
  return table;
}

namespace {

/// A kind of host: those that differ in nothing but their name are one.
struct HostKind {
  std::vector<std::string> hosts;
  std::size_t ranks = 0;  ///< most of one host
  RankPlace place;        ///< of its first rank
  std::string source;     ///< the first run on it
};

TableColumns<HostKind> host_kind_columns() {
  using Row = HostKind;
  const auto stated = [](const char* name, const char* head, auto member, int detail = 1) {
    return RowColumn<Row>(
        name, head, "as stated", fmt::format("/topology/{}", name),
        [=](const Row& row) { return known_count(row.place.*member); }, detail);
  };
  const auto gib = [](std::int64_t bytes) {
    return Cell::of(bytes > 0 ? static_cast<double>(bytes) / kGiB : kNotMeasured, 1);
  };
  const auto known = [](const std::string& text) { return text.empty() ? "n/a" : text; };
  return {
      {"host", "first host", kLabel, [](const Row& row) { return row.hosts.front(); }},
      {"hosts", "hosts", "hosts that differ in nothing else", "/topology/host",
       [](const Row& row) { return count_cell(row.hosts.size()); }},
      {"ranks", "ranks", "most ranks of one of them", "/topology/host",
       [](const Row& row) { return count_cell(row.ranks); }},
      {"device", "computes on", [](const Row& row) { return row.place.device; }},
      stated("host_processors", "processors", &RankPlace::host_processors),
      stated("host_sockets", "sockets", &RankPlace::host_sockets, 2),
      stated("host_numa_nodes", "NUMA nodes", &RankPlace::host_numa_nodes, 2),
      {"memory_gib", "memory GiB", "as stated / 2^30", "/topology/host_memory",
       [=](const Row& row) { return gib(row.place.host_memory_bytes); }},
      {"caches", "caches", [=](const Row& row) { return known(row.place.host_caches); }, 2},
      {"network", "network", [=](const Row& row) { return known(row.place.host_network); }},
      {"gpu_memory_gib", "GPU GiB", "as stated / 2^30", "/topology/device_memory",
       [=](const Row& row) { return gib(row.place.device_memory_bytes); }, 2},
      {"gpu_links", "GPU links", [=](const Row& row) { return known(row.place.device_links); }, 2}};
}

bool same_hardware(const RankPlace& a, const RankPlace& b) {
  return a.device == b.device && a.host_processors == b.host_processors &&
         a.host_sockets == b.host_sockets && a.host_numa_nodes == b.host_numa_nodes &&
         a.host_memory_bytes == b.host_memory_bytes && a.host_caches == b.host_caches &&
         a.host_network == b.host_network && a.device_memory_bytes == b.device_memory_bytes;
}

void add_hosts(const Run& run, std::vector<HostKind>& kinds) {
  const auto& places = run.reader->info().topology;
  for (const RankPlace& place : places) {
    if (place.local_rank != 0) continue;
    auto kind = std::ranges::find_if(
        kinds, [&](const HostKind& one) { return same_hardware(one.place, place); });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {{}, 0, place, run.path.string()});
    if (!contains(kind->hosts, place.host)) kind->hosts.push_back(place.host);
    const auto ranks = std::ranges::count(places, place.host, &RankPlace::host);
    kind->ranks = std::max(kind->ranks, static_cast<std::size_t>(ranks));
  }
}

}  // namespace

bool has_hardware(const RunSet& set, const TableOptions&) {
  return std::ranges::any_of(set.runs, [](const Run& run) {
    const auto& places = run.reader->info().topology;
    return !places.empty() && places.front().host_processors > 0;
  });
}

Table make_hardware_table(const RunSet& set, const TableOptions&) {
  const auto columns = host_kind_columns();
  Table table = columns.table(
      "hardware", "Hosts of the runs",
      {"as the kernel and the GPU's driver stated when the run began; hosts that differ in "
       "nothing but their names are one row",
       "network: ports that are active and state a rate; virtual interfaces state none. "
       "paths between GPUs: PIX one PCIe switch, PXB several, PHB a host bridge, NODE a NUMA "
       "node, SYS none of these"});
  std::vector<HostKind> kinds;
  for (const Run& run : set.runs)
    add_hosts(run, kinds);
  for (const HostKind& kind : kinds)
    table.add(columns.cells(kind), kind.source);
  return table;
}

}  // namespace gradsync::report
