// SPDX-License-Identifier: BSD-3-Clause
// What of CUDA tests/e2e/waits.py calls: each answers 100 and the sum of what came in. The driver's
// functions are found with cuGetProcAddress_v2, too.

#include <cstring>

namespace {

int driver_stream_synchronize(long stream) {
  return static_cast<int>(100 + stream);
}

int driver_copy_to_device(long to, long from, long bytes) {
  return static_cast<int>(100 + to + from + bytes);
}

int driver_stream_query(long stream) {
  return static_cast<int>(100 + stream);
}

int driver_proc_address(const char* name, void** function, int version, unsigned long long);

/// Not the exported function: that one's name may mean another library's. A status is written.
int driver_proc_address_2(const char* name, void** function, int version, unsigned long long flags,
                          int* status) {
  const int result = driver_proc_address(name, function, version, flags);
  if (status) *status = result;
  return result;
}

int driver_proc_address(const char* name, void** function, int version, unsigned long long) {
  *function = nullptr;
  if (std::strcmp(name, "cuStreamSynchronize") == 0)
    *function = reinterpret_cast<void*>(driver_stream_synchronize);
  if (std::strcmp(name, "cuMemcpyHtoD") == 0)
    *function = reinterpret_cast<void*>(driver_copy_to_device);
  if (std::strcmp(name, "cuStreamQuery") == 0)
    *function = reinterpret_cast<void*>(driver_stream_query);
  if (std::strcmp(name, "cuGetProcAddress") == 0)
    *function = version >= 12000 ? reinterpret_cast<void*>(driver_proc_address_2)
                                 : reinterpret_cast<void*>(driver_proc_address);
  return *function ? 0 : 500;
}

}  // namespace

extern "C" {

int cudaDeviceSynchronize() {
  return 100;
}

int cudaStreamSynchronize(long stream) {
  return static_cast<int>(100 + stream);
}

int cudaMemcpy(long to, long from, long bytes, int kind) {
  return static_cast<int>(100 + to + from + bytes + kind);
}

int cudaStreamQuery(long stream) {
  return static_cast<int>(100 + stream);
}

int cuCtxSynchronize() {
  return 100;
}

int cuStreamSynchronize(long stream) {
  return driver_stream_synchronize(stream);
}

int cuGetProcAddress(const char* name, void** function, int version, unsigned long long flags) {
  return driver_proc_address(name, function, version, flags);
}

int cuGetProcAddress_v2(const char* name, void** function, int version, unsigned long long flags,
                        int* status) {
  return driver_proc_address_2(name, function, version, flags, status);
}

}  // extern "C"
