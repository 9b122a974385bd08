// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "analysis/read/run_set.h"

/// How far a run uses what its ranks and hosts have. All numbers are over its steady iterations;
/// NaN where the run does not hold what they need.
namespace gradsync::report {

/// One rank, or the mean over all of a run.
struct Utilization {
  double iteration_s = kNotMeasured;
  double compute = kNotMeasured;    ///< part of the time in which it computed: |C| / W
  double link_busy = kNotMeasured;  ///< in which data of its collectives could move: |K| / W
  /// User and system time of all its threads / time: cores that it kept busy.
  double cores = kNotMeasured;
  double voluntary_switches = kNotMeasured, involuntary_switches = kNotMeasured;  ///< an iteration
  /// Operations of the network (table layers) for its images / time.
  double flop_per_s = kNotMeasured;
  double of_probe = kNotMeasured;       ///< of what its matrix products reached, --calibrate
  double of_data_sheet = kNotMeasured;  ///< of what its data sheet states, or --peak-tflops
  double gpu_busy = kNotMeasured, gpu_memory_busy = kNotMeasured;  ///< parts of the time, NVML
  double sm_clock_hz = kNotMeasured;
};

/// One entry a rank. `peak_flop_per_s` of a rank takes the place of the data sheet's; NaN: none.
std::vector<Utilization> utilization(const Run& run, double peak_flop_per_s);
Utilization mean_of(const std::vector<Utilization>& ranks);

/// Operations of one image, forward and backward, over all layers; NaN where the run holds none.
double flop_per_image(const RunReader& run);

/// What decides what the exchange of a network costs beside its compute; NaN where the run holds no
/// layers, or none that computes.
struct NetworkCost {
  double parameters = kNotMeasured;
  double sample_flop = kNotMeasured;      ///< forward and backward
  double samples_of_rank = kNotMeasured;  ///< in an iteration

  double gradient_bytes() const { return 4 * parameters; }
  /// Bytes that a rank exchanges for each operation that it computes in an iteration.
  double bytes_per_flop() const { return gradient_bytes() / (sample_flop * samples_of_rank); }
};
NetworkCost network_cost(const Run& run);

/// What the data sheet states of a device in a precision: fp32, tf32, bf16 or fp16. `device` is the
/// name that the driver gives; NaN unless all its words are those of a GPU that is listed.
double data_sheet_flop_per_s(const std::string& device, const std::string& precision);

/// The time between two moments of a run, on rank 0's clock.
struct Window {
  double begin_s = kNotMeasured, end_s = kNotMeasured;
  /// The stretch of the job around it in which nothing else ran: up to where the run was resumed,
  /// or another contender had its block.
  double from_s = -HUGE_VAL, until_s = HUGE_VAL;
};

/// The steady iterations of rank 0, in order.
std::vector<Window> steady_windows(const Run& run);

/// A counter that was read now and then.
class CounterSamples {
 public:
  /// In order of time. What is not finite is left out.
  void add(double moment_s, double count);
  /// What it advanced by in these windows, per second and per window; between samples by a straight
  /// line. Windows that lie before, behind or between samples more than ten seconds apart, beside a
  /// sample that is not of their stretch, or in which the counter began again, are left out. NaN
  /// without any.
  struct Rate {
    double per_s = kNotMeasured, per_window = kNotMeasured;
  };
  Rate rate(const std::vector<Window>& windows) const;

 private:
  double value_at(double moment_s, const Window& window) const;

  std::vector<double> at_s_, value_;
};

/// What the counters of a host say of the steady iterations; NaN for what it could not read.
struct HostUse {
  std::string host;
  double memory_Bps = kNotMeasured;  ///< resctrl
  double sent_Bps = kNotMeasured, received_Bps = kNotMeasured;
  double package_j = kNotMeasured, memory_j = kNotMeasured;  ///< RAPL, an iteration
};
/// One entry a host, in the order of the ranks that read.
std::vector<HostUse> host_use(const Run& run, const std::vector<Window>& windows);

/// Joules of each GPU in an iteration, in the order of the ranks that used it first; NaN without
/// samples. Ranks that share a GPU (one UUID) read one counter.
std::vector<double> gpu_energy_j(const Run& run, const std::vector<Window>& windows);

// What Slurm's accounting knows of the steps in which runs were made.

/// Joules by "JOB.STEP", both as numbers: "4711.0".
using StepEnergies = std::map<std::string, double>;

/// Reads what `sacct --parsable2 --format=JobIDRaw,ConsumedEnergyRaw` printed; other columns are
/// allowed, and lines before the titles. Steps without a value are left out. Throws Error:
/// kNoInput, kBadData (line, reason).
StepEnergies read_step_energies(const std::filesystem::path& path);

/// Energy of the step that a run was made in, which must not be that of another run of the set; NaN
/// where the run was not started by srun, accounting does not know its step, or has 0 J: Slurm
/// writes 0 where nothing gathers energy.
double step_energy_j(const RunSet& set, const Run& run, const StepEnergies& energies);

}  // namespace gradsync::report
