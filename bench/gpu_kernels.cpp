// SPDX-License-Identifier: BSD-3-Clause
// Our kernels against what the memory of the GPU allows: the time that a copy of as many bytes
// takes. CSV: kernel, values, bytes moved, median µs, µs of the copy, their ratio. Without a GPU it
// says SKIP.

#include <algorithm>
#include <iostream>
#include <vector>

#include <fmt/format.h>
#include <torch/types.h>

#include "base/error.h"
#include "model/current_stream.h"
#include "optim/optimizer.h"
#include "stats/statistics.h"
#if GRADSYNC_WITH_CUDA
#include <ATen/cuda/CUDAEvent.h>
#endif

namespace {

using namespace gradsync;

constexpr int kRounds = 50, kWarmup = 5, kInARow = 20;

#if GRADSYNC_WITH_CUDA

/// Median microseconds on the device of one of many that follow each other: the host is ahead of
/// all but the first, so the time is not that of its launches.
template <typename Work>
double microseconds(Work work) {
  std::vector<double> times;
  for (int round = 0; round < kRounds + kWarmup; ++round) {
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    for (int i = 0; i < kInARow; ++i)
      work();
    end.record();
    end.synchronize();
    if (round >= kWarmup)
      times.push_back(1e3 * static_cast<double>(begin.elapsed_time(end)) / kInARow);
  }
  return median(times);
}

/// Half of the bytes read, half written.
double copy_microseconds(std::int64_t bytes) {
  const auto from = torch::ones({bytes / 2}, torch::dtype(torch::kUInt8).device(torch::kCUDA));
  auto to = torch::empty_like(from);
  return microseconds([&] { to.copy_(from); });
}

void print(const std::string& kernel, std::int64_t values, std::int64_t bytes, double time_us) {
  const double copy_us = copy_microseconds(bytes);
  std::cout << fmt::format("{},{},{},{:.2f},{:.2f},{:.3f}\n", kernel, values, bytes, time_us,
                           copy_us, time_us / copy_us);
}

void measure_sgd(const std::string& model) {
  Replica replica = make_replica(model, 1, Layout::kNhwc);
  replica.network->to(torch::kCUDA);
  for (torch::Tensor& parameter : replica.parameters)
    parameter.mutable_grad() = torch::randn_like(parameter);
  FusedSgd sgd(replica, OptimizerSettings());
  const double time_us = microseconds([&] { sgd.step(1e-4); });
  constexpr std::int64_t kTraffic = 24;  // three read, three written
  print("sgd " + model, replica.parameter_count(), kTraffic * replica.parameter_count(), time_us);
}

void measure_wire(std::int64_t values) {
  const auto device = torch::device(torch::kCUDA);
  auto floats = torch::randn({values}, device);
  auto wire = torch::empty({values}, device.dtype(torch::kInt16));
  auto* halves = reinterpret_cast<std::uint16_t*>(wire.data_ptr<std::int16_t>());
  const StreamHandle stream = current_stream(floats.device());
  constexpr std::int64_t kTraffic = 6;
  for (const HalfType type : {HalfType::kBfloat16, HalfType::kFloat16}) {
    const std::string name = type == HalfType::kBfloat16 ? "bf16" : "fp16";
    print("pack " + name, values, kTraffic * values, microseconds([&] {
            launch_pack(floats.data_ptr<float>(), halves, values, 0.5f, type, stream);
          }));
    print("unpack " + name, values, kTraffic * values, microseconds([&] {
            launch_unpack(halves, floats.data_ptr<float>(), values, 1, type, stream);
          }));
  }
}

int measure() {
  std::cout << "kernel,values,bytes,median_us,copy_us,ratio\n";
  measure_sgd("resnet18");
  measure_sgd("vgg11");
  measure_wire(11'000'000);
  return 0;
}

#else

int measure() {
  return 0;
}

#endif

}  // namespace

int main() {
  return gradsync::run_program("bench/gpu_kernels", [] {
    if (torch::cuda::is_available()) return measure();
    std::cout << "SKIP kernels on a GPU: there is none\n";
    return 0;
  });
}
