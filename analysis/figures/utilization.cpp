// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/figures/utilization.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "analysis/figures/run_group.h"
#include "analysis/read/columns.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

/// "tf32" of a run in fp32 whose products are rounded to it.
std::string precision_of(const Run& run) {
  const std::string precision = option_value(run, "precision");
  const bool on_gpu = option_value(run, "device") == "cuda";
  return precision == "fp32" && on_gpu && settings_of(run, {"tf32"}).tf32 ? "tf32" : precision;
}

/// What each rank's matrix products reached; empty without a probe in the run's precision.
std::vector<RankProbe> probe_of(const Run& run) {
  std::vector<RankProbe> last;
  for (const ProbeRow& probe : run.reader->probes())
    if (probe.precision == precision_of(run)) last = probe.ranks;
  return last;
}

/// Images of a rank in a steady iteration.
double images_per_rank(const Run& run) {
  return steady_images({{&run}}) / static_cast<double>(run.ranks);
}

/// "A100 PCIe" of "NVIDIA A100 80GB PCIe": the words of the driver's name without the brand and the
/// memory that the model is sold with. A part of a GPU ("… MIG 1g.5gb"), a form with another clock
/// ("… 32GB-LS") and memory of a form made for one site ("… 64GB") keep their word.
std::string gpu_model(std::string device) {
  static const std::set<std::string> without = {
      "NVIDIA", "Tesla", "16GB",  "24GB", "32GB", "40GB",  "48GB", "80GB",
      "120GB",  "141GB", "480GB", "144G", "HBM2", "HBM2e", "HBM3", "HBM3e"};
  std::ranges::replace(device, '-', ' ');
  std::string model;
  for (const std::string& word : split_list(device, ' '))
    if (!word.empty() && !without.contains(word)) model += (model.empty() ? "" : " ") + word;
  return model;
}

std::vector<double> usage_means(const Run& run, Usage what) {
  return rank_means(*run.reader, run.steady,
                    [what](RunReader& reader, std::size_t first, std::size_t count) {
                      return reader.usage(what, first, count);
                    });
}

std::vector<double> phase_means(const Run& run, Phase phase) {
  return rank_means(*run.reader, run.steady, phase_blocks(phase));
}

/// The steady iterations; read for runs with samples of their GPUs alone, since it takes two
/// columns of the file.
std::vector<Window> sampled_windows(const Run& run) {
  return run.reader->device_samples().empty() ? std::vector<Window>() : steady_windows(run);
}

/// Whether a moment is in one of the windows, and not in an evaluation or a block of another
/// contender between them.
bool is_within(const std::vector<Window>& windows, double at_s) {
  const auto behind = std::ranges::upper_bound(windows, at_s, {}, &Window::begin_s);
  return behind != windows.begin() && at_s <= std::prev(behind)->end_s;
}

/// Mean of what is finite of the samples in the windows, by rank.
std::vector<double> sampled_means(const Run& run, const std::vector<Window>& windows,
                                  double DeviceSample::*value) {
  std::vector<std::vector<double>> found(static_cast<std::size_t>(run.ranks));
  for (const DeviceSample& sample : run.reader->device_samples()) {
    const auto rank = static_cast<std::size_t>(sample.rank);
    if (rank < found.size() && std::isfinite(sample.*value) && is_within(windows, sample.at_s))
      found[rank].push_back(sample.*value);
  }
  return each(found, [](const auto& values) { return mean(values); });
}

}  // namespace

double flop_per_image(const RunReader& run) {
  std::vector<double> counted;
  for (const LayerRow& layer : run.layers())
    counted.insert(counted.end(), {layer.forward_flop, layer.backward_flop});
  return sum(counted);
}

NetworkCost network_cost(const Run& run) {
  NetworkCost cost;
  if (run.reader->layers().empty()) return cost;
  cost.parameters = 0;
  for (const LayerRow& layer : run.reader->layers())
    cost.parameters += static_cast<double>(layer.parameters);
  cost.sample_flop = flop_per_image(*run.reader);
  cost.samples_of_rank = images_per_rank(run);
  return cost;
}

double data_sheet_flop_per_s(const std::string& device, const std::string& precision) {
  struct Gpu {
    const char* model;
    double fp32, tf32, bf16, fp16;
  };
  // Dense TFLOP/s, half of what is stated with sparsity; 0: the GPU has no such unit. From NVIDIA's
  // data sheets of the V100 (2020), T4, A2, A10, A30, A40, A100, L4, L40, L40S, H100 (SXM, PCIe,
  // NVL), H200 (SXM, NVL), GH200, HGX B200 (an eighth) and GB200 NVL72 (a seventy-second).
  static constexpr Gpu kGpus[] = {{"GB200", 80, 1250, 2500, 2500},
                                  {"B200", 75, 1125, 2250, 2250},
                                  {"GH200", 67, 494, 989, 989},
                                  {"H200", 67, 494, 989, 989},
                                  {"H200 NVL", 60, 417, 835, 835},
                                  {"H100", 67, 494, 989, 989},
                                  {"H100 NVL", 60, 417, 835, 835},
                                  {"H100 PCIe", 51, 378, 756, 756},
                                  {"A100 SXM4", 19.5, 156, 312, 312},
                                  {"A100 PCIe", 19.5, 156, 312, 312},
                                  {"A100 PCIE", 19.5, 156, 312, 312},
                                  {"A40", 37.4, 74.8, 149.7, 149.7},
                                  {"A30", 10.3, 82, 165, 165},
                                  {"A10", 31.2, 62.5, 125, 125},
                                  {"A2", 4.5, 9, 18, 18},
                                  {"L40S", 91.6, 183, 362, 362},
                                  {"L40", 90.5, 90.5, 181, 181},
                                  {"L4", 30.3, 60, 121, 121},
                                  {"V100S PCIE", 16.4, 0, 0, 130},
                                  {"V100 PCIE", 14, 0, 0, 112},
                                  {"V100 SXM2", 15.7, 0, 0, 125},
                                  {"T4", 8.1, 0, 0, 65}};
  const std::string model = gpu_model(device);
  const auto known =
      std::ranges::find_if(kGpus, [&](const Gpu& gpu) { return model == gpu.model; });
  if (known == std::end(kGpus)) return kNotMeasured;
  const double tflops = precision == "fp32"   ? known->fp32
                        : precision == "tf32" ? known->tf32
                        : precision == "bf16" ? known->bf16
                        : precision == "fp16" ? known->fp16
                                              : 0;
  return positive(tflops * 1e12);
}

std::vector<Utilization> utilization(const Run& run, double peak_flop_per_s) {
  std::vector<Utilization> all(static_cast<std::size_t>(run.ranks));
  const auto windows = sampled_windows(run);
  const auto iteration = phase_means(run, Phase::kIteration);
  const auto compute = phase_means(run, Phase::kCompute),
             moving = phase_means(run, Phase::kCommBusy);
  const auto cpu = usage_means(run, Usage::kCpuTime),
             waits = usage_means(run, Usage::kVoluntarySwitches),
             preemptions = usage_means(run, Usage::kInvoluntarySwitches);
  const auto busy = sampled_means(run, windows, &DeviceSample::busy),
             memory = sampled_means(run, windows, &DeviceSample::memory_busy),
             clock = sampled_means(run, windows, &DeviceSample::sm_clock_hz);
  const auto probe = probe_of(run);
  const double flop = flop_per_image(*run.reader) * images_per_rank(run);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    Utilization& one = all[rank];
    one.iteration_s = iteration[rank];
    one.compute = compute[rank] / iteration[rank];
    one.link_busy = run.ranks > 1 ? moving[rank] / iteration[rank] : kNotMeasured;
    one.cores = cpu[rank] / iteration[rank];
    one.voluntary_switches = waits[rank];
    one.involuntary_switches = preemptions[rank];
    one.flop_per_s = flop / iteration[rank];
    if (rank < probe.size()) one.of_probe = one.flop_per_s / probe[rank].flop_per_s;
    const double sheet =
        std::isnan(peak_flop_per_s)
            ? data_sheet_flop_per_s(run.reader->info().topology[rank].device, precision_of(run))
            : peak_flop_per_s;
    one.of_data_sheet = one.flop_per_s / sheet;
    one.gpu_busy = busy[rank];
    one.gpu_memory_busy = memory[rank];
    one.sm_clock_hz = clock[rank];
  }
  return all;
}

Utilization mean_of(const std::vector<Utilization>& ranks) {
  using U = Utilization;
  U all;
  for (double U::*one :
       {&U::iteration_s, &U::compute, &U::link_busy, &U::cores, &U::voluntary_switches,
        &U::involuntary_switches, &U::flop_per_s, &U::of_probe, &U::of_data_sheet, &U::gpu_busy,
        &U::gpu_memory_busy, &U::sm_clock_hz})
    all.*one = mean(each(ranks, one));
  return all;
}

namespace {

/// Rows at which the counters of the job had something else behind them: it was resumed, or another
/// contender had its block.
std::set<std::size_t> first_rows_of_stretches(const RunReader& run) {
  const IterationIndex& index = run.index();
  std::set<std::size_t> rows;
  for (const ResumeRow& resume : run.resumes())
    rows.insert(static_cast<std::size_t>(
        std::ranges::lower_bound(index.iteration, resume.iteration) - index.iteration.begin()));
  if (!run.info().experiment.empty())
    for (std::size_t row = 0; row < index.round.size(); ++row)
      if (row == 0 || index.round[row] != index.round[row - 1]) rows.insert(row);
  return rows;
}

}  // namespace

std::vector<Window> steady_windows(const Run& run) {
  std::vector<Window> windows;
  RunReader& reader = *run.reader;
  const std::set<std::size_t> cuts = first_rows_of_stretches(reader);
  double from_s = -HUGE_VAL, last_end_s = -HUGE_VAL;
  std::size_t of_stretch = 0;  // the first window of this stretch
  const auto end_stretch = [&](double until_s) {
    for (; of_stretch < windows.size(); ++of_stretch)
      windows[of_stretch].until_s = until_s;
  };
  for_each_block(reader, 2 * reader.ranks(), [&](std::size_t first, std::size_t count) {
    const Matrix begins = reader.begin(first, count),
                 times = reader.time(Phase::kIteration, first, count);
    for (std::size_t i = 0; i < count; ++i) {
      const double begin_s = begins.at(i, 0), end_s = begin_s + times.at(i, 0);
      if (cuts.contains(first + i)) {
        end_stretch(last_end_s);
        from_s = begin_s;
      }
      if (run.steady.keeps(first + i)) windows.push_back({begin_s, end_s, from_s, HUGE_VAL});
      last_end_s = end_s;
    }
  });
  if (!reader.info().experiment.empty()) end_stretch(last_end_s);
  return windows;
}

void CounterSamples::add(double moment_s, double count) {
  if (!std::isfinite(moment_s) || !std::isfinite(count)) return;
  if (!at_s_.empty() && moment_s <= at_s_.back()) return;
  at_s_.push_back(moment_s);
  value_.push_back(count);
}

double CounterSamples::value_at(double moment_s, const Window& window) const {
  constexpr double kLongestGap_s = 10;
  const auto after = std::ranges::lower_bound(at_s_, moment_s);
  if (after == at_s_.begin() || after == at_s_.end()) return kNotMeasured;
  const auto i = static_cast<std::size_t>(after - at_s_.begin());
  if (at_s_[i - 1] < window.from_s || at_s_[i] > window.until_s) return kNotMeasured;
  const double gap_s = at_s_[i] - at_s_[i - 1], advance = value_[i] - value_[i - 1];
  if (gap_s > kLongestGap_s || advance < 0) return kNotMeasured;
  return value_[i - 1] + advance * (moment_s - at_s_[i - 1]) / gap_s;
}

CounterSamples::Rate CounterSamples::rate(const std::vector<Window>& windows) const {
  double sum = 0, seconds = 0, count = 0;
  for (const Window& window : windows) {
    const double advance = value_at(window.end_s, window) - value_at(window.begin_s, window);
    if (!(advance >= 0)) continue;
    sum += advance;
    seconds += window.end_s - window.begin_s;
    count += 1;
  }
  if (count == 0) return {};
  return {sum / seconds, sum / count};
}

std::vector<HostUse> host_use(const Run& run, const std::vector<Window>& windows) {
  struct Counters {
    CounterSamples package, memory, traffic, sent, received;
  };
  std::map<std::int64_t, Counters> by_rank;
  for (const HostSample& sample : run.reader->host_samples()) {
    Counters& of = by_rank[sample.rank];
    of.package.add(sample.at_s, sample.package_energy_j);
    of.memory.add(sample.at_s, sample.memory_energy_j);
    of.traffic.add(sample.at_s, sample.memory_traffic_bytes);
    of.sent.add(sample.at_s, sample.sent_bytes);
    of.received.add(sample.at_s, sample.received_bytes);
  }
  std::vector<HostUse> hosts;
  const auto& places = run.reader->info().topology;
  for (const auto& [rank, of] : by_rank)
    if (rank >= 0 && static_cast<std::size_t>(rank) < places.size())
      hosts.push_back({places[static_cast<std::size_t>(rank)].host, of.traffic.rate(windows).per_s,
                       of.sent.rate(windows).per_s, of.received.rate(windows).per_s,
                       of.package.rate(windows).per_window, of.memory.rate(windows).per_window});
  return hosts;
}

std::vector<double> gpu_energy_j(const Run& run, const std::vector<Window>& windows) {
  std::vector<CounterSamples> counters(static_cast<std::size_t>(run.ranks));
  for (const DeviceSample& sample : run.reader->device_samples())
    if (sample.rank >= 0 && sample.rank < run.ranks)
      counters[static_cast<std::size_t>(sample.rank)].add(sample.at_s, sample.energy_j);
  std::vector<double> energy_j;
  std::map<std::string, std::size_t> gpus;  // where each stands in energy_j
  for (std::size_t rank = 0; rank < counters.size(); ++rank) {
    const double of_rank_j = counters[rank].rate(windows).per_window;
    const std::string& uuid = run.reader->info().topology[rank].device_uuid;
    const auto [known, added] =
        gpus.emplace(uuid.empty() ? fmt::format("of rank {}", rank) : uuid, energy_j.size());
    if (added)
      energy_j.push_back(of_rank_j);
    else if (std::isnan(energy_j[known->second]))
      energy_j[known->second] = of_rank_j;
  }
  return energy_j;
}

namespace {

constexpr const char* kCommand =
    "sacct --parsable2 --format=JobIDRaw,ConsumedEnergyRaw -j JOB > FILE";

/// Places of the columns in a line, and what a launcher or logger puts before each.
struct SacctColumns {
  std::size_t step = 0, energy = 0;
  LinePrefix prefix;

  SacctColumns(const std::filesystem::path& path, std::string_view header) {
    // The first name of a column is a word before a bar.
    const std::size_t first = header.substr(0, header.find('|')).find_last_of(" \t:>])") + 1;
    prefix = LinePrefix(header.substr(0, first));
    const std::vector<std::string> names = split_list(header.substr(first), '|');
    const auto at = [&](const char* name) {
      const auto found = std::ranges::find(names, name);
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
  const std::string job = provenance_of(*run.reader, "env.SLURM_JOB_ID");
  const std::string step = provenance_of(*run.reader, "env.SLURM_STEP_ID");
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
  const auto of_step =
      std::ranges::count_if(set.runs, [&](const Run& other) { return step_of(other) == step; });
  return of_step == 1 ? found->second : kNotMeasured;
}

}  // namespace gradsync::report
