// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include "base/memory.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "comm/watchdog.h"
#include "machine/device.h"
#include "machine/host.h"
#include "machine/kernels.h"
#include "model/image_batch.h"
#include "model/replica.h"
#include "stats/clock.h"
#include "stats/statistics.h"
#include "train/compute_settings.h"

#if GRADSYNC_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

namespace gradsync {

namespace {

constexpr ProbePlan kOnCpu{32, 1, 3}, kOnGpu{0, 3, 10};

struct Candidate {
  Precision precision;
  Layout layout;
};

std::string name_of(const Candidate& candidate) {
  return fmt::format("{} {}", precision_name(candidate.precision),
                     candidate.layout == Layout::kNchw ? "nchw" : "nhwc");
}

/// What `auto` may take: fp16 needs its loss scaled, so it is never taken unasked.
bool may_be(Precision precision, const TrainOptions& options, bool fast_bf16) {
  if (options.precision != "auto") return options.precision == precision_name(precision);
  return precision == Precision::kFp32 || (precision == Precision::kBf16 && fast_bf16);
}

/// `fast_bf16`: on all ranks.
std::vector<Candidate> candidates(const TrainOptions& options, bool fast_bf16) {
  std::vector<Candidate> all;
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16})
    for (const Layout layout : {Layout::kNchw, Layout::kNhwc}) {
      const bool layout_fits =
          options.layout == "auto" || (options.layout == "nhwc") == (layout == Layout::kNhwc);
      if (may_be(precision, options, fast_bf16) && layout_fits) all.push_back({precision, layout});
    }
  return all;
}

/// Median seconds of one forward and backward pass.
double probe(const Candidate& candidate, const TrainOptions& options, const torch::Device& device) {
  const Replica replica = make_replica(options.model, options.seed, candidate.layout, device);
  const ProbePlan plan = probe_plan(options, device);
  const NetworkInput input = network_input(options);
  const auto sizes = batch_sizes(input, plan.batch);
  const torch::Tensor images = torch::empty_strided(sizes, batch_strides(sizes, candidate.layout),
                                                    torch::TensorOptions(device));
  input.tokens() ? images.zero_() : images.normal_();
  std::vector<double> times_s;
  for (int step = 0; step < plan.warmup + plan.steps; ++step) {
    const Stopwatch watch;
    const AutocastScope autocast(candidate.precision, device.type());
    replica.network->forward(images).to(torch::kFloat32).logsumexp(-1).mean().backward();
    if (device.is_cuda()) torch::cuda::synchronize(device.index());
    if (step >= plan.warmup) times_s.push_back(watch.elapsed_s());
  }
  return median(times_s);
}

/// Infinite where a TorchScript module rejects samples in that layout.
double probe_if_taken(const Candidate& candidate, const TrainOptions& options,
                      const torch::Device& device) {
  try {
    return probe(candidate, options, device);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    return std::numeric_limits<double>::infinity();
  }
}

std::int64_t settle_threads(const Session& session, const TrainOptions& options,
                            ComputeSettings& settings) {
  const std::vector<Cores> cores = cores_on_node(session);
  std::vector<RankCores> ranks;
  for (std::size_t rank = 0; rank < cores.size(); ++rank)
    ranks.push_back({cores[rank], options.threads > 0 ? static_cast<std::size_t>(options.threads)
                                                      : fair_threads(cores, rank)});
  std::string shortage;  // a text for each host
  if (const auto found = core_shortage(ranks))
    shortage = fmt::format(
        "{} with {} have {} on {}: times include waiting for a core; start fewer ranks a "
        "node, or give fewer --threads",
        count_text(found->ranks, "rank"), count_text(found->threads, "thread"),
        count_text(found->cores, "core"), session.host());
  for (const std::string& text : session.gather(shortage))
    if (!text.empty()) add_once(settings.warnings, text);
  return static_cast<std::int64_t>(ranks[static_cast<std::size_t>(session.local_rank())].threads);
}

}  // namespace

std::string precision_name(Precision precision) {
  if (precision == Precision::kFp32) return "fp32";
  return precision == Precision::kBf16 ? "bf16" : "fp16";
}

void set_gpu_arithmetic(bool tf32) {
  at::globalContext().setBenchmarkCuDNN(true);
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setAllowTF32CuBLAS(tf32);
}

ProbePlan probe_plan(const TrainOptions& options, const torch::Device& device) {
  ProbePlan plan = device.is_cuda() ? kOnGpu : kOnCpu;
  // A TorchScript module may take no other batch.
  plan.batch = device.is_cuda() || is_script(options.model)
                   ? options.batch_per_rank
                   : std::min(options.batch_per_rank, kOnCpu.batch);
  return plan;
}

bool fast_bf16(const torch::Device& device) {
  if (device.is_cuda()) return true;
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;
#endif
}

ComputeSettings settle_compute(const Session& session, const TrainOptions& options,
                               const torch::Device& device, bool fast_here) {
  ComputeSettings settings;
  settings.device = device;
  if (device.is_cuda()) set_gpu_arithmetic(options.tf32);
  settings.threads = settle_threads(session, options, settings);
  at::set_num_threads(static_cast<int>(settings.threads));
  const auto all = candidates(options, session.max(fast_here ? 0.0 : 1.0) == 0);
  int best = 0;
  if (all.size() > 1) {
    // Ranks wait for the slowest.
    const WatchdogTimeoutExtension probes(session.watchdog(), WatchedPhase::kCalibration);
    std::vector<double> times_s;
    for (const Candidate& candidate : all) {
      session.meet();
      times_s.push_back(probe_if_taken(candidate, options, device));
      settings.probed.push_back(
          std::isinf(times_s.back())
              ? name_of(candidate) + " rejected"
              : fmt::format("{} {:.1f} ms", name_of(candidate), times_s.back() * 1e3));
    }
    best = static_cast<int>(std::min_element(times_s.begin(), times_s.end()) - times_s.begin());
    session.broadcast(best);
  }
  settings.precision = all[static_cast<std::size_t>(best)].precision;
  settings.layout = all[static_cast<std::size_t>(best)].layout;
  return settings;
}

AutocastScope::AutocastScope(Precision precision, torch::DeviceType device)
    : active_(precision != Precision::kFp32), device_(device) {
  if (!active_) return;
  at::autocast::set_autocast_dtype(device_,
                                   precision == Precision::kBf16 ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, false);
}

RankDevice::RankDevice(const Session& session, const DeviceRequest& request)
    : gpu_(agree_on_gpus(session, request)) {
  if (gpu_.choice.cuda) session.together([&] { open(gpu_.index); });
}

#if GRADSYNC_WITH_CUDA

namespace {

/// Less than an eighth of the device is left, with what LibTorch holds and does not use.
bool nearly_full() try {
  std::size_t free = 0, all = 0;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) return false;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  const auto unused = stats.reserved_bytes[0].current - stats.allocated_bytes[0].current;
  return 8 * (free + static_cast<std::size_t>(unused)) < all;
} catch (...) {
  return false;
}

}  // namespace

void RankDevice::open(int index) {
  torch_ = torch::Device(torch::kCUDA, static_cast<c10::DeviceIndex>(index));
  device_ = make_cuda_device(index);
  c10::cuda::set_device(torch_.index());
  // A stream of the pool, not the default one, since only such a stream can be captured.
  const auto compute = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, torch_.index());
  c10::cuda::setCurrentCUDAStream(compute);
  ring_ = std::make_unique<EventRing>(*device_);
  lane_ = std::make_unique<DeviceLane>(DeviceLane{*device_,
                                                  *ring_,
                                                  compute.stream(),
                                                  device_->make_stream(),
                                                  {launch_pack, launch_unpack, launch_lowest_bad}});
  ask_device_memory(nearly_full);
}

std::int64_t peak_device_bytes(const torch::Device& device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].peak;
}

void reset_peak_device_bytes(const torch::Device& device) {
  c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
}

std::optional<std::int64_t> free_device_bytes() {
  std::size_t free = 0, all = 0;
  if (cudaMemGetInfo(&free, &all) != cudaSuccess) return std::nullopt;
  return static_cast<std::int64_t>(free);
}

#else

void RankDevice::open(int index) {
  device_ = make_cuda_device(index);  // refuses
}

std::int64_t peak_device_bytes(const torch::Device&) {
  return 0;
}

void reset_peak_device_bytes(const torch::Device&) {}

std::optional<std::int64_t> free_device_bytes() {
  return std::nullopt;
}

#endif

RankDevice::~RankDevice() {
  ask_device_memory(nullptr);
  if (lane_) device_->free_stream(lane_->communication);
}

}  // namespace gradsync
