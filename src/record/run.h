// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stats/bandwidth.h"

/// What one run records, free of any file format. docs/file-format.md describes the file.
/// Times are seconds in float64; a value that was not measured is NaN, never 0.

namespace gradsync {

/// A run file's schema is "gradsync-run/<number>": what is written, and the oldest that is read.
/// In schema 1 `wait` was a part of comm_busy, and an interval of a collective began when the rank
/// came to it (docs/numbers.md).
inline constexpr std::string_view kRunSchemaName = "gradsync-run/";
inline constexpr int kRunSchema = 3, kOldestRunSchema = 1;
/// The phases of one iteration of one rank, `/time/<name>[iteration, rank]`.
/// With C the union of its compute intervals, K that of the intervals in which data of its
/// collectives could move, S that of the intervals in which they waited for the last rank, and W
/// the iteration: compute = |C|, comm_busy = |K|, hidden = |C ∩ K|, exposed = |K \ C|,
/// wait = |S \ (C ∪ K)| and other = W − |C ∪ K ∪ S|, so compute + exposed + wait + other = W.
/// `data` (waiting for the loader) is part of other. Files of schema 1: docs/numbers.md.
enum class Phase : std::size_t {
  kIteration,
  kData,
  kForward,
  kBackward,
  kOptimizer,
  kCompute,
  kCommBusy,
  kHidden,
  kExposed,
  kWait,
  kOther,
  kConvert
};
inline constexpr std::array<std::string_view, 12> kPhaseNames = {
    "iteration", "data",   "forward", "backward", "optimizer", "compute",
    "comm_busy", "hidden", "exposed", "wait",     "other",     "convert"};
inline constexpr std::size_t kPhases = kPhaseNames.size();

/// What all threads of a rank's process used of the host from the begin of an iteration to its end
/// there, `/usage/<name>[iteration, rank]`: user and system time, context switches to wait, and
/// those by which a core was taken away.
enum class Usage : std::size_t { kCpuTime, kVoluntarySwitches, kInvoluntarySwitches };
inline constexpr std::array<std::string_view, 3> kUsageNames = {"cpu_time", "voluntary_switches",
                                                                "involuntary_switches"};
inline constexpr std::size_t kUsages = kUsageNames.size();

/// What travels, in bytes by the formulas of docs/numbers.md. The first kRowCategories travel
/// within an iteration, `/traffic/<name>[iteration, rank]`; all of them are in `/traffic_total`.
enum class Traffic : std::size_t {
  kGradients,
  kParameters,
  kBuffers,
  kInputs,
  kMetrics,
  kControl,
  kOptimizer,
  kCheckpoint
};
inline constexpr std::array<std::string_view, 8> kTrafficNames = {
    "gradients", "parameters", "buffers",   "inputs",
    "metrics",   "control",    "optimizer", "checkpoint"};
inline constexpr std::size_t kTrafficCategories = kTrafficNames.size();
inline constexpr std::size_t kRowCategories = 6;

/// Bytes as run files state them, where a negative number stands for one that is not known.
inline double known_bytes(double bytes) {
  return bytes < 0 ? kNotMeasured : bytes;
}

struct ConfigEntry {
  std::string name, value;
  std::string source;  ///< "command line", "environment", "job file", "site file" or "default"
};

struct NamedText {
  std::string name, value;
};

/// Provenance under "remark 1", "remark 2", …: what a reader of the numbers must know. A run made
/// of traces says there what these lack.
inline constexpr std::string_view kRemarkPrefix = "remark ";
/// Provenance `source` of such a run.
inline constexpr std::string_view kTracesSource = "traces of torch.profiler";

/// Where one rank ran.
struct RankPlace {
  std::int32_t rank = 0;
  std::int32_t local_rank = 0;
  std::string host;
  std::string device;       ///< "cpu: AMD EPYC …" or the GPU's name
  std::string device_uuid;  ///< empty on the CPU
  std::string affinity;     ///< the cores it may use, as the kernel lists them: "0-1"
  std::int32_t threads = 0;
  double clock_offset_s = kNotMeasured;  ///< add to this rank's clock to read rank 0's
  double clock_uncertainty_s = kNotMeasured;
  // The host, as its kernel states it; 0 or empty: not recorded.
  std::int32_t host_processors = 0, host_sockets = 0, host_numa_nodes = 0;
  std::int64_t host_memory_bytes = 0;
  std::string host_caches;   ///< "L1d 48 KiB, L2 1 MiB, L3 32 MiB"
  std::string host_network;  ///< "mlx5_0 port 1 200 Gbit/s, eth0 25 Gbit/s"
  // The GPU.
  std::int64_t device_memory_bytes = 0;
  std::string device_links;  ///< "PCIe 5 x16, 18 NVLinks of 26.6 GB/s; NODE to local rank 1"
};

/// Everything known before the first iteration.
struct RunInfo {
  std::string run_id;   ///< a UUID
  std::string created;  ///< ISO 8601, UTC
  std::string command_line;
  std::vector<ConfigEntry> config;
  std::vector<NamedText> provenance;
  std::vector<NamedText> experiment;  ///< of a contender of --compare: docs/file-format.md
  std::vector<RankPlace> topology;    ///< one entry a rank, in order of rank
  int schema = kRunSchema;
};

/// One collective of one rank, in seconds since the start of that rank's iteration.
struct BucketTimes {
  double ready_s = kNotMeasured;  ///< its last gradient was there
  double start_s = kNotMeasured;  ///< this rank came to the collective
  double end_s = kNotMeasured;    ///< its result was there
  /// From when on its data could move: the last rank had come. Between start and end.
  double arrival_s = kNotMeasured;

  /// How long its data could move; NaN where that was not recorded.
  double moving_s() const { return end_s - arrival_s; }
};

struct BucketShape {
  std::int64_t bytes = 0;  ///< payload of one rank; -1: not known
  CollectiveKind kind = CollectiveKind::kAllReduce;
};

/// What one rank measured in one iteration.
struct RankIteration {
  double begin_s =
      kNotMeasured;  ///< start of the iteration since the start of the run, rank 0's clock
  std::array<double, kPhases> time_s;
  double loss = kNotMeasured;  ///< mean over the rank's own samples
  std::int64_t correct = 0;    ///< of its own samples
  std::array<double, kUsages> usage;
  std::array<std::int64_t, kRowCategories> traffic_bytes{};  ///< -1: not known
  std::vector<BucketTimes> buckets;                          ///< as many as IterationRow::buckets

  RankIteration() {
    time_s.fill(kNotMeasured);
    usage.fill(kNotMeasured);
  }
  double& operator[](Phase phase) { return time_s[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return time_s[static_cast<std::size_t>(phase)]; }
  double& operator[](Usage what) { return usage[static_cast<std::size_t>(what)]; }
  double operator[](Usage what) const { return usage[static_cast<std::size_t>(what)]; }
};

/// The round of an iteration that belongs to none.
inline constexpr std::int64_t kNoRound = -1;

/// What all ranks have in common in one iteration.
struct IterationHeader {
  std::int64_t iteration = 0;  ///< from 0, over all epochs
  std::int64_t epoch = 0;      ///< from 0
  std::int64_t step = 0;       ///< from 0, in the epoch
  double learning_rate = kNotMeasured;
  std::int64_t samples = 0;  ///< of the global batch
  bool warmup = false;
  std::int64_t round = kNoRound;  ///< of the experiment, in which every contender has iterations
};

/// One iteration of all ranks.
struct IterationRow : IterationHeader {
  IterationHeader& header() { return *this; }
  const IterationHeader& header() const { return *this; }

  std::vector<BucketShape> buckets;
  std::vector<RankIteration> ranks;
};

/// One rank at the end of one epoch. Test values are NaN where it was not evaluated.
struct RankEpoch {
  double train_loss = kNotMeasured, train_accuracy = kNotMeasured;
  double test_loss = kNotMeasured, test_accuracy = kNotMeasured;
  double training_time_s = kNotMeasured;  ///< its iterations without waiting for data
  double running_time_s = kNotMeasured;   ///< wall time of the epoch, evaluation left out
  double evaluation_time_s = kNotMeasured;
  double peak_memory_bytes = kNotMeasured;  ///< highest so far: resident set (CPU), device (GPU)
};

struct EpochRow {
  std::int64_t epoch = 0;
  std::int64_t iterations = 0;  ///< of this epoch
  std::string order_digest;     ///< of the order of the images: equal in two epochs = same order
  /// Global batches, as sets of images, that no epoch had before, and images that more than one
  /// rank took, repeats that fill the last batch apart; −1: not recorded.
  std::int64_t new_batches = -1, shared_images = -1;
  std::vector<RankEpoch> ranks;
};

/// One line of `--verify-modes`.
struct VerificationRow {
  std::string mode;
  bool passed = false;
  bool ranks_equal = false;          ///< parameter hashes equal on all ranks
  double difference = kNotMeasured;  ///< largest |a − b| to the reference mode
  double tolerance = kNotMeasured;
  std::string parameter_hash;
};

/// The type whose calibration laws are fitted to: gradients are float32.
inline constexpr std::string_view kFloatType = "float";

/// One size of one collective as calibration measured it on the ranks of the run; `/calibration`.
/// Times are of one call, of the slowest rank, over the repetitions.
struct CalibrationRow {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::string transport;  ///< mpi, mpi-ring (over MPI, sleeps), shm, tcp-ring, two-level, nccl
  std::string cadence;    ///< "isolated" (a barrier before each call) or "back-to-back"
  std::string type = std::string(kFloatType);  ///< of the values, as nccl-tests names it
  std::int64_t bytes = 0;                      ///< payload of one rank
  bool of_bucket = false;                      ///< a size that training uses, not a power of two
  std::int64_t repetitions = 0;
  double median_s = kNotMeasured, mean_s = kNotMeasured;
  double minimum_s = kNotMeasured, maximum_s = kNotMeasured;
  double p95_s = kNotMeasured, p99_s = kNotMeasured;  ///< 95 % and 99 % quantiles
  double deviation_s = kNotMeasured;                  ///< sample standard deviation
  std::int64_t wrong = -1;  ///< values that were not what they must be; -1: not checked
};

/// What one rank measured in a window of --counterfactual, an option of earlier versions, per
/// iteration of the window.
struct RankWindow {
  double iteration_s = kNotMeasured;  ///< wall time of the window / iterations
  double compute_s = kNotMeasured, comm_busy_s = kNotMeasured, exposed_s = kNotMeasured;
};

/// The windows of --counterfactual, in the order in which they are printed.
inline constexpr std::array<std::string_view, 5> kWindowKinds = {
    "compute-only", "communication-only", "serial", "overlapped", "overlapped-unmeasured"};

/// One window of --counterfactual (compute alone, the recorded collectives alone, one after
/// the other, together, and together without per-phase stamps); `/counterfactual`.
struct WindowRow {
  std::string kind;        ///< of kWindowKinds
  std::int64_t round = 0;  ///< rounds interleave the kinds
  std::int64_t iterations = 0;
  std::vector<RankWindow> ranks;
};

/// The clocks of the ranks at one instant; `/clock`. Drift is what two of them differ by.
struct ClockReading {
  double offset_s = kNotMeasured;       ///< add to this rank's clock to read rank 0's
  double uncertainty_s = kNotMeasured;  ///< half the shortest round trip
};
struct ClockRow {
  std::string when;            ///< "start" or "end"
  double at_s = kNotMeasured;  ///< since the start of the run, on rank 0's clock
  std::vector<ClockReading> ranks;
};

/// All that one rank sent and received since it started, by Traffic.
struct RankTraffic {
  std::array<std::int64_t, kTrafficCategories> sent_bytes{}, received_bytes{}, calls{};
};

/// What the ranks had moved at one instant; `/traffic_total`. What training moved is the difference
/// of its end and its start.
struct TrafficRow {
  std::string when;             ///< "start" (of the first iteration) or "trained"
  std::int64_t iterations = 0;  ///< done by this process; after a resume from 0
  std::vector<RankTraffic> ranks;
};

/// What a rank's copy of the network is at the end of training; `/replica`.
struct RankReplica {
  std::string parameter_hash, buffer_hash;  ///< 16 hex digits: equal only if bit-equal
  /// |x − x of rank 0| / |x of rank 0|, Euclidean; 0 where the hashes are equal.
  double parameter_distance = kNotMeasured, buffer_distance = kNotMeasured;
};
struct ReplicaRow {
  std::vector<RankReplica> ranks;
};

/// What one layer of the network computes for one image; `/layer`.
struct LayerRow {
  std::string name;       ///< of its parameters: "conv1", "layer1.0.conv2"
  std::string operation;  ///< "convolution", "matmul"
  std::int64_t parameters = 0;
  double forward_flop = kNotMeasured, backward_flop = kNotMeasured;
};

/// What the ranks reach of an operation that computes and nothing else, all at once; `/probe`.
struct RankProbe {
  double flop_per_s = kNotMeasured;  ///< median over the repetitions
};
struct ProbeRow {
  std::string operation;         ///< "matmul 2048"
  std::string precision;         ///< as --precision names it; "tf32" for fp32 with --tf32
  std::int64_t repetitions = 0;  ///< of the rank with the fewest
  std::vector<RankProbe> ranks;
};

/// `status` of a run file.
enum class RunStatus { kRunning, kComplete, kPartial };
inline constexpr std::array<std::string_view, 3> kRunStatusNames = {"running", "complete",
                                                                    "partial"};

/// How a run ended.
struct RunEnd {
  RunStatus status = RunStatus::kRunning;
  std::string finished;  ///< ISO 8601, UTC
};

/// "gradsync-run/3" of 3, and back; nothing of a text that is no run file's schema.
std::string schema_text(int schema);
std::optional<int> parse_schema(std::string_view text);
std::string_view phase_name(Phase phase);
std::string_view traffic_name(Traffic category);
/// Whether the run was made of traces.
bool is_traced(const RunInfo& info);
std::string_view status_name(RunStatus status);
/// Nothing if `name` is none of kRunStatusNames.
std::optional<RunStatus> parse_status(std::string_view name);

/// What every format can hold, checked before a run starts rather than when it ends: names of
/// options and of provenance not empty, unique, without '/' and not "." or ".."; at least one rank,
/// numbered from 0 in order. Throws Error kInternal.
void require_recordable(const RunInfo& info);

/// Transports that files of schema 2 and earlier name otherwise get their present names: "ring" was
/// both the TCP ring of --transport and, in calibration rows, the ring over MPI.
void use_present_names(RunInfo& info);
void use_present_names(std::vector<CalibrationRow>& rows);

/// Requires `ranks` ranks, and as many bucket times a rank as buckets. Throws Error kInternal.
void require_recordable(const IterationRow& row, std::size_t ranks);

/// What gradsync-quantize records of a network, beside the description of its run.

inline constexpr std::size_t kHistogramBins = 60;     ///< of the real numbers of a tensor
inline constexpr std::size_t kHistogramLevels = 256;  ///< integers −128 … 127

/// A tensor of the network and what it became.
struct QuantizedTensorRow {
  std::string layer;  ///< "conv1"; "input" for the images
  std::string role;   ///< "weight", "bias", "activation" (what the layer gives),
                      ///< "pooled" (that after its maximum) or "pixels"
  std::int64_t count = 0;
  double minimum = kNotMeasured, maximum = kNotMeasured, mean = kNotMeasured,
         deviation = kNotMeasured;
  double sigma_low = kNotMeasured, sigma_high = kNotMeasured;  ///< mean ± 3·deviation, not clipped
  std::int64_t scales = 0;                                     ///< 1, or one per output channel
  double scale_least = kNotMeasured, scale_largest = kNotMeasured;
  double zero_point = kNotMeasured;     ///< NaN where channels have several
  double sqnr_db = kNotMeasured;        ///< of what the integers stand for against the real numbers
  double largest_error = kNotMeasured;  ///< NaN where it was not looked at
  double clipped = kNotMeasured;        ///< part of the numbers beyond the clamped range
  std::vector<std::int64_t> histogram;  ///< kHistogramBins from minimum to maximum
  std::vector<std::int64_t> integers;   ///< kHistogramLevels; of biases zeros: they have 32 bits
};

/// The network after one step, or in one variant, on the test images.
struct QuantizedStepRow {
  std::string kind;                        ///< "step" or "ablation"
  std::string name;                        ///< "fp32", "weights", "weights and activations", …
  std::string weights, activations, bias;  ///< how each is quantized, in words; "fp32": not
  std::int64_t images = 0, correct = 0;
  /// Images whose logits were those of the int8 kernels that earlier builds had; −1: not compared.
  std::int64_t agreeing = -1;
  std::int64_t model_bytes = -1;  ///< of the parameters; −1: as the step before
};

/// How fast one path was at one batch, timed in turn with the others. Earlier builds recorded this
/// of their int8 kernels; none is written any more.
struct QuantizedSpeedRow {
  std::string path;  ///< "int8: AVX-512 VNNI", "fp32: eager NHWC", …
  std::int64_t batch = 0, threads = 0, rounds = 0;
  double images_per_s = kNotMeasured;  ///< median over the rounds
  double ratio =
      kNotMeasured;  ///< to the best fp32 path, round by round: median, and its 95 % interval
  double ratio_low = kNotMeasured, ratio_high = kNotMeasured;
};

/// Empty for every run but those of gradsync-quantize.
struct Quantization {
  std::vector<QuantizedTensorRow> tensors;
  std::vector<QuantizedStepRow> steps;
  std::vector<QuantizedSpeedRow> speeds;  ///< of earlier builds

  bool empty() const { return tensors.empty() && steps.empty() && speeds.empty(); }
};

/// Histograms have their lengths. Throws Error kInternal.
void require_recordable(const Quantization& quantization, std::size_t ranks = 0);

}  // namespace gradsync
