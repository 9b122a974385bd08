#include "analysis/figures/utilization.h"

#include <algorithm>
#include <cmath>

#include "analysis/figures/bandwidth.h"
#include "analysis/tables/group_cells.h"
#include "analysis/tables/run_cells.h"
#include "analysis/tables/tables.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

std::vector<Column> utilization_columns() {
  std::vector<Column> result = run_columns();
  const std::string layers = "/layer/forward, /layer/backward, /iteration/samples, /time/iteration";
  const std::vector<Column> rest = {
      {"compute_percent", "compute %", false, "mean compute / mean iteration",
       "/time/compute, /time/iteration"},
      {"link_percent", "link busy %", false,
       "mean time in which data of collectives could move / mean iteration",
       "/time/comm_busy, /time/iteration"},
      {"cores", "cores", false, "mean user and system time / mean iteration",
       "/usage/cpu_time, /time/iteration"},
      {"cpu_ms", "CPU ms", false, "mean user and system time of an iteration", "/usage/cpu_time",
       2},
      {"gflop_per_s", "GFLOP/s", false,
       "operations of the layers x images of the rank / mean iteration", layers},
      {"of_probe_percent", "of probe %", false, "GFLOP/s / that of the probe",
       layers + ", /probe/flop_per_s"},
      {"of_data_sheet_percent", "of data sheet %", false,
       "GFLOP/s / the data sheet's, or --peak-tflops", layers + ", /topology/device", 2},
      {"voluntary_switches", "switches", false, "mean context switches of an iteration, to wait",
       "/usage/voluntary_switches", 2},
      {"involuntary_switches", "preempted", false,
       "mean context switches of an iteration by which a core was taken away",
       "/usage/involuntary_switches", 2},
      {"gpu_busy_percent", "GPU busy %", false, "mean of the samples", "/gpu/busy", 2},
      {"gpu_memory_busy_percent", "GPU memory busy %", false, "mean of the samples",
       "/gpu/memory_busy", 3},
      {"sm_clock_ghz", "SM GHz", false, "mean of the samples", "/gpu/sm_clock", 3},
      {"memory_gb_per_s", "memory GB/s", false,
       "bytes between caches and memory in steady iterations / their time", "/host/memory_traffic",
       3},
      {"sent_gb_per_s", "sent GB/s", false,
       "bytes that the host's interfaces sent in steady iterations / their time", "/host/sent", 3},
      {"received_gb_per_s", "received GB/s", false,
       "bytes that the host's interfaces received in steady iterations / their time",
       "/host/received", 3},
      run_name_column()};
  result.insert(result.end(), rest.begin(), rest.end());
  keep(result,
       {"rank", "compute_percent", "link_percent", "cores", "gflop_per_s", "of_probe_percent"});
  return result;
}

std::vector<Cell> utilization_row(const Run& run, const Cell& rank, const Utilization& use,
                                  const HostUse& host) {
  const auto percent = [](double part) { return Cell::of(1e2 * part, 1); };
  std::vector<Cell> cells = run_cells(run, rank);
  const std::vector<Cell> rest = {percent(use.compute),
                                  percent(use.link_busy),
                                  Cell::of(use.cores, 2),
                                  Cell::of(1e3 * use.cores * use.iteration_s, 2),
                                  significant_cell(1e-9 * use.flop_per_s),
                                  percent(use.of_probe),
                                  percent(use.of_data_sheet),
                                  Cell::of(use.voluntary_switches, 1),
                                  Cell::of(use.involuntary_switches, 1),
                                  percent(use.gpu_busy),
                                  percent(use.gpu_memory_busy),
                                  Cell::of(1e-9 * use.sm_clock_hz, 3),
                                  Cell::of(host.memory_Bps / kGB, 4),
                                  Cell::of(host.sent_Bps / kGB, 4),
                                  Cell::of(host.received_Bps / kGB, 4)};
  cells.insert(cells.end(), rest.begin(), rest.end());
  cells.emplace_back(run.name);
  return cells;
}

std::vector<std::string> utilization_notes(const RunSet& set) {
  return {
      "compute, link busy: parts of the time, from measured intervals; cores: CPU time of all "
      "threads of the rank / time (getrusage); GFLOP/s: convolutions and matrix products (table "
      "layers); of probe: of the matrix product that --calibrate times",
      "the row \"mean\" is the mean over the ranks; its sent, received and memory are the mean "
      "over "
      "the hosts. n/a: not readable on that machine, or not recorded by that version",
      "link busy counts the time, not the bytes: table bandwidth holds them against calibration "
      "and link. sent, received: interface counters of the host with all its processes; memory: "
      "resctrl; GPU: NVML, sampled every 0.2 s",
      "left out as warm-up: " + warmup_text(set)};
}

HostUse mean_of(const std::vector<HostUse>& hosts) {
  const auto over_hosts = [&](double HostUse::*value) {
    std::vector<double> values;
    for (const HostUse& host : hosts)
      values.push_back(host.*value);
    return mean(values);
  };
  return {"", over_hosts(&HostUse::memory_Bps), over_hosts(&HostUse::sent_Bps),
          over_hosts(&HostUse::received_Bps)};
}

}  // namespace

Table make_utilization_table(const RunSet& set, const TableOptions& options) {
  Table table{"utilization",
              "How far ranks and links are used",
              utilization_notes(set),
              utilization_columns(),
              {}};
  add_waiting_note(set, table.notes);
  for (const Run& run : set.runs) {
    const auto ranks = utilization(run, options.peak_flop_per_s);
    for (const std::size_t rank : run.steady.ranks)
      table.add(
          utilization_row(run, Cell::count(static_cast<double>(rank)), ranks[rank], HostUse()),
          run.path.string());
    table.add(
        utilization_row(run, "mean", mean_of(ranks), mean_of(host_use(run, steady_windows(run)))),
        run.path.string());
  }
  return table;
}

}  // namespace gradsync::report
