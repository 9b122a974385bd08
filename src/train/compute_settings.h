// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "comm/places.h"
#include "comm/session.h"
#include "data/augment.h"
#include "machine/lane.h"
#include "options/options.h"

namespace gradsync {

/// What autocast computes in; parameters and gradients stay float32.
enum class Precision { kFp32, kBf16, kFp16 };

std::string precision_name(Precision precision);

/// How a rank computes: settled once at start, equal on all ranks, recorded.
struct ComputeSettings {
  Precision precision = Precision::kFp32;
  Layout layout = Layout::kNhwc;
  std::int64_t threads = 1;
  torch::Device device = torch::kCPU;
  std::vector<std::string> probed;    ///< what `auto` measured, one line each
  std::vector<std::string> warnings;  ///< shortages of cores, on rank 0
};

/// Settings of a process that computes on a GPU: cuDNN tries its algorithms for each new shape and
/// keeps the fastest; TF32 in float32 products and convolutions only if asked for.
void set_gpu_arithmetic(bool tf32);

/// What `auto` times of a precision or layout.
struct ProbePlan {
  std::int64_t batch = 0;
  int warmup = 0, steps = 0;
};
/// A part of the run's batch on the CPU, where it shows which is faster. A GPU is bound by launches
/// at such a batch, so it takes the run's own.
ProbePlan probe_plan(const TrainOptions& options, const torch::Device& device);

/// Whether the device has instructions for bfloat16; without them LibTorch emulates it, many times
/// slower than float32. GPUs that CUDA 13 serves have them, but for the oldest, which lose the
/// comparison.
bool fast_bf16(const torch::Device& device);

/// Sets LibTorch's threads and settles precision and layout; `auto` times a few steps of the run's
/// own network in each combination on all ranks at once and takes the fastest by rank 0's median;
/// bfloat16 only if all ranks are fast with it. Collective.
ComputeSettings settle_compute(const Session& session, const TrainOptions& options,
                               const torch::Device& device = torch::kCPU,
                               bool fast_here = fast_bf16(torch::kCPU));

/// Autocast on the device while it lives, unless the precision is float32; drops the cache of casts
/// at its end.
class AutocastScope {
 public:
  explicit AutocastScope(Precision precision, torch::DeviceType device = torch::kCPU);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  torch::DeviceType device_;
};

/// The device this rank computes on, with its streams and its ring of events.
class RankDevice {
 public:
  /// Takes the device that all ranks agree on, and on a GPU makes the stream that this thread
  /// computes on from now on: whatever is built later lies on it. Throws as choose_device does, one
  /// message for the job. Collective.
  RankDevice(const Session& session, const DeviceRequest& request);
  ~RankDevice();
  RankDevice(const RankDevice&) = delete;
  RankDevice& operator=(const RankDevice&) = delete;

  const DeviceChoice& choice() const { return gpu_.choice; }
  torch::Device torch() const { return torch_; }
  /// Null on the CPU.
  DeviceLane* lane() { return lane_.get(); }
  /// Name and UUID, for the run file.
  const GpuDevice& description() const { return gpu_.description; }

 private:
  void open(int index);

  RankGpu gpu_;
  torch::Device torch_ = torch::kCPU;
  std::unique_ptr<Device> device_;
  std::unique_ptr<EventRing> ring_;
  std::unique_ptr<DeviceLane> lane_;
};

/// Most bytes of a GPU's memory that tensors of this process have taken at once since the last
/// reset; not what the allocator keeps beside them.
std::int64_t peak_device_bytes(const torch::Device& device);
void reset_peak_device_bytes(const torch::Device& device);
/// Bytes of the current GPU that are not in use; nothing where the driver does not say.
std::optional<std::int64_t> free_device_bytes();

}  // namespace gradsync
