// SPDX-License-Identifier: BSD-3-Clause
// Loaded with LD_PRELOAD, counts the calls in which the host waits for a GPU, by name: those of the
// runtime, and those of the driver that libraries with a runtime of their own (NCCL, cuBLAS) look
// up with dlsym and cuGetProcAddress. Every call is forwarded to the function of that name.
//
//   long gradsync_waits(const char* label)   found with dlsym: writes what was counted since it was
//                                            called last, forgets it, and returns the sum
//
// It writes lines "label name count", at the end under "exit", to $COUNT_WAITS_FILE with the
// number of the process appended, else to stderr. What was never called has no line.

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

/// All that is counted returns an int and takes up to six pointers or integers, which lie in
/// registers: passing six on passes any number on.
using Word = void*;
using Function = int (*)(Word, Word, Word, Word, Word, Word);

struct Counted {
  const char* name;
  std::atomic<long> calls{0};
  std::atomic<Function> real{nullptr};
};

enum Call : std::size_t {
  kDeviceSynchronize,
  kStreamSynchronize,
  kEventSynchronize,
  kMemcpy,
  kMemcpyToSymbol,
  kMemcpyFromSymbol,
  kDriverCtxSynchronize,
  kDriverStreamSynchronize,
  kDriverEventSynchronize,
  kDriverMemcpy,
  kDriverMemcpyToDevice,
  kDriverMemcpyToHost,
  kCalls
};

std::array<Counted, kCalls>& counted() {
  static std::array<Counted, kCalls> all{{{"cudaDeviceSynchronize"},
                                          {"cudaStreamSynchronize"},
                                          {"cudaEventSynchronize"},
                                          {"cudaMemcpy"},
                                          {"cudaMemcpyToSymbol"},
                                          {"cudaMemcpyFromSymbol"},
                                          {"cuCtxSynchronize"},
                                          {"cuStreamSynchronize"},
                                          {"cuEventSynchronize"},
                                          {"cuMemcpy"},
                                          {"cuMemcpyHtoD_v2"},
                                          {"cuMemcpyDtoH_v2"}}};
  return all;
}

using Dlsym = void* (*)(void*, const char*) noexcept;

/// The C library's own, under the version that this one has.
Dlsym real_dlsym() {
  static const Dlsym found = [] {
    for (const char* version : {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"})
      if (void* real = dlvsym(RTLD_NEXT, "dlsym", version)) return reinterpret_cast<Dlsym>(real);
    std::abort();
  }();
  return found;
}

int pass_on(Call call, Word a, Word b, Word c, Word d, Word e, Word f) {
  constexpr int kNotFound = 500;  // cudaErrorSymbolNotFound, CUDA_ERROR_NOT_FOUND
  Counted& one = counted()[call];
  ++one.calls;
  if (!one.real) one.real = reinterpret_cast<Function>(real_dlsym()(RTLD_NEXT, one.name));
  const Function real = one.real;
  return real ? real(a, b, c, d, e, f) : kNotFound;
}

/// The driver's names end in a version, by which cuGetProcAddress does not ask.
bool means(const char* asked, const char* name) {
  const std::size_t length = std::strlen(asked);
  return std::strncmp(asked, name, length) == 0 &&
         (name[length] == '\0' || std::strcmp(name + length, "_v2") == 0);
}

long report(const char* label) {
  std::string text;
  long sum = 0;
  for (Counted& one : counted()) {
    const long calls = one.calls.exchange(0);
    if (calls == 0) continue;
    sum += calls;
    text += std::string(label) + ' ' + one.name + ' ' + std::to_string(calls) + '\n';
  }
  const char* file = std::getenv("COUNT_WAITS_FILE");
  std::FILE* to =
      file ? std::fopen((file + ('.' + std::to_string(getpid()))).c_str(), "a") : stderr;
  if (to && !text.empty()) std::fputs(text.c_str(), to);
  if (to && to != stderr) std::fclose(to);
  return sum;
}

__attribute__((destructor)) void at_exit() {
  report("exit");
}

}  // namespace

#define COUNTED(name, call)                                             \
  extern "C" int name(Word a, Word b, Word c, Word d, Word e, Word f) { \
    return pass_on(call, a, b, c, d, e, f);                             \
  }

COUNTED(cudaDeviceSynchronize, kDeviceSynchronize)
COUNTED(cudaStreamSynchronize, kStreamSynchronize)
COUNTED(cudaEventSynchronize, kEventSynchronize)
COUNTED(cudaMemcpy, kMemcpy)
COUNTED(cudaMemcpyToSymbol, kMemcpyToSymbol)
COUNTED(cudaMemcpyFromSymbol, kMemcpyFromSymbol)
COUNTED(cuCtxSynchronize, kDriverCtxSynchronize)
COUNTED(cuStreamSynchronize, kDriverStreamSynchronize)
COUNTED(cuEventSynchronize, kDriverEventSynchronize)
COUNTED(cuMemcpy, kDriverMemcpy)
COUNTED(cuMemcpyHtoD_v2, kDriverMemcpyToDevice)
COUNTED(cuMemcpyDtoH_v2, kDriverMemcpyToHost)

extern "C" long gradsync_waits(const char* label) {
  return report(label);
}

namespace {

constexpr std::array<Function, kCalls> kOurs = {cudaDeviceSynchronize, cudaStreamSynchronize,
                                                cudaEventSynchronize,  cudaMemcpy,
                                                cudaMemcpyToSymbol,    cudaMemcpyFromSymbol,
                                                cuCtxSynchronize,      cuStreamSynchronize,
                                                cuEventSynchronize,    cuMemcpy,
                                                cuMemcpyHtoD_v2,       cuMemcpyDtoH_v2};

/// The driver's ways of finding its functions: the first has no place for a status.
using Flags = unsigned long long;
using ProcAddress = int (*)(const char*, void**, int, Flags);
using ProcAddress2 = int (*)(const char*, void**, int, Flags, void*);
std::atomic<ProcAddress> real_proc_address{nullptr};
std::atomic<ProcAddress2> real_proc_address_2{nullptr};

void put_ours(int result, void** function, const char* name, int version, Flags flags);

int proc_address(const char* name, void** function, int version, Flags flags) {
  const int result = real_proc_address.load()(name, function, version, flags);
  put_ours(result, function, name, version, flags);
  return result;
}

int proc_address_2(const char* name, void** function, int version, Flags flags, void* status) {
  const int result = real_proc_address_2.load()(name, function, version, flags, status);
  put_ours(result, function, name, version, flags);
  return result;
}

/// What a caller gets that asked the driver for `real` by `name`.
void* in_place_of(void* real, const char* name) {
  if (real == nullptr) return real;
  if (std::strcmp(name, "cuGetProcAddress") == 0) {
    real_proc_address = reinterpret_cast<ProcAddress>(real);
    return reinterpret_cast<void*>(proc_address);
  }
  if (std::strcmp(name, "cuGetProcAddress_v2") == 0) {
    real_proc_address_2 = reinterpret_cast<ProcAddress2>(real);
    return reinterpret_cast<void*>(proc_address_2);
  }
  for (std::size_t i = kDriverCtxSynchronize; i < kCalls; ++i) {
    if (!means(name, counted()[i].name)) continue;
    void* ours = reinterpret_cast<void*>(kOurs[i]);
    if (real != ours) counted()[i].real = reinterpret_cast<Function>(real);
    return ours;
  }
  return real;
}

void put_ours(int result, void** function, const char* name, int version, Flags flags) {
  constexpr Flags kPerThreadStream = 2;    // other functions of the same names
  constexpr int kFirstWithStatus = 12000;  // CUDA's version, from which on "…" means "…_v2"
  if (result != 0 || function == nullptr || (flags & kPerThreadStream) != 0) return;
  const bool itself = std::strcmp(name, "cuGetProcAddress") == 0 && version >= kFirstWithStatus;
  *function = in_place_of(*function, itself ? "cuGetProcAddress_v2" : name);
}

}  // namespace

// A tail call, so that RTLD_NEXT is what follows the caller and not what follows this.
extern "C" void* dlsym(void* handle, const char* name) noexcept {
  if (handle == RTLD_NEXT || handle == RTLD_DEFAULT || std::strncmp(name, "cu", 2) != 0 ||
      std::strncmp(name, "cuda", 4) == 0)
    return real_dlsym()(handle, name);
  return in_place_of(real_dlsym()(handle, name), name);
}
