// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include "machine/device.h"

namespace gradsync::test {

/// Why nothing can run on a GPU here; empty if it can.
inline std::string why_no_gpu() {
  int devices = 0;
  const cudaError_t error = cudaGetDeviceCount(&devices);
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return devices > 0 ? "" : "no GPU";
}

/// Call first in a case: `if (skips("what is tested")) return;`
inline bool skips(const std::string& what) {
  std::string reason = why_no_gpu();
  if (reason.empty()) return false;
  MESSAGE("SKIP " << what << ": " << reason);
  return true;
}

inline void require(cudaError_t error) {
  REQUIRE_MESSAGE(error == cudaSuccess, cudaGetErrorString(error));
}

/// Values in device memory, freed with it.
template <typename T>
class DeviceValues {
 public:
  explicit DeviceValues(std::size_t count) : count_(count) {
    require(cudaMalloc(reinterpret_cast<void**>(&values_), count * sizeof(T)));
  }
  explicit DeviceValues(std::span<const T> values) : DeviceValues(values.size()) {
    require(cudaMemcpy(values_, values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  }
  ~DeviceValues() { cudaFree(values_); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  T* get() const { return values_; }
  /// Waits for the device.
  std::vector<T> copy() const {
    std::vector<T> host(count_);
    require(cudaDeviceSynchronize());
    require(cudaMemcpy(host.data(), values_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* values_ = nullptr;
  std::size_t count_;
};

/// A stream of its own, so that a kernel that ignores its stream is seen.
class Stream {
 public:
  Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator StreamHandle() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace gradsync::test
