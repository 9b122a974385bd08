// SPDX-License-Identifier: BSD-3-Clause
// A profiler plugin of NCCL (version 4 of that interface, NCCL 2.27 and later) that lies in the
// program itself. NCCL tells it what it has chosen when it launches a collective, which costs the
// host a look into a set; nothing is timed, and nothing changes on the GPU.
#include <sys/types.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "machine/gpus.h"

namespace gradsync {

namespace {

// The binary interface: its header belongs to the sources of NCCL, not to its packages.
constexpr int kNcclSuccess = 0;                    // ncclSuccess
constexpr std::uint8_t kOfCollectives = 1U << 1U;  // ncclProfileColl

struct NcclCollective {
  std::uint64_t number;
  const char* function;
  const void* send;
  void* receive;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t channels, warps;
  const char *algorithm, *protocol;
};

struct NcclEvent {
  std::uint8_t type;
  void* parent;
  int rank;
  NcclCollective collective;  // a union, of which this is the largest
};

struct NcclPlugin {
  const char* name;
  int (*init)(void** context, int* wanted, const char* communicator, std::uint64_t hash, int nodes,
              int ranks, int rank, void* log);
  int (*start)(void* context, void** handle, const NcclEvent* event);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, void* arguments);
  int (*end)(void* context);
};

std::string text_or_empty(const char* text) {
  return text == nullptr ? "" : text;
}

/// Bytes of a value of that type, as NCCL names it; 0: not known.
std::int64_t value_bytes(const std::string& type) {
  static const std::map<std::string, std::int64_t> kBytes = {
      {"ncclInt8", 1},    {"ncclUint8", 1},    {"ncclFloat8e4m3", 1}, {"ncclFloat8e5m2", 1},
      {"ncclFloat16", 2}, {"ncclBfloat16", 2}, {"ncclInt32", 4},      {"ncclUint32", 4},
      {"ncclFloat32", 4}, {"ncclInt64", 8},    {"ncclUint64", 8},     {"ncclFloat64", 8}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

/// What NCCL has said to this process: its interface has no place of a caller's own. Its threads
/// write here.
struct Said {
  std::mutex mutex;
  std::set<NcclChoice> choices;
};
Said& said() {
  static Said all;
  return all;
}

// NOLINTNEXTLINE(readability-function-size): the parameters are NCCL's
int on_init(void** context, int* wanted, const char* /*communicator*/, std::uint64_t /*hash*/,
            int /*nodes*/, int /*ranks*/, int /*rank*/, void* /*log*/) {
  *context = &said();
  *wanted = kOfCollectives;
  return kNcclSuccess;
}

int on_start(void* /*context*/, void** handle, const NcclEvent* event) {
  *handle = &said();  // without one of a group, NCCL 2.27 tells nothing of its collectives
  if (event->type != kOfCollectives) return kNcclSuccess;
  const NcclCollective& one = event->collective;
  const std::int64_t bytes = value_bytes(text_or_empty(one.type));
  const std::scoped_lock lock(said().mutex);
  said().choices.insert({text_or_empty(one.function), text_or_empty(one.type),
                         bytes > 0 ? bytes * static_cast<std::int64_t>(one.count) : -1,
                         text_or_empty(one.algorithm), text_or_empty(one.protocol), one.channels});
  return kNcclSuccess;
}

int on_stop(void* /*handle*/) {
  return kNcclSuccess;
}
int on_record(void* /*handle*/, int /*state*/, void* /*arguments*/) {
  return kNcclSuccess;
}
int on_end(void* /*context*/) {
  return kNcclSuccess;
}

}  // namespace

void keep_nccl_choices() {
  ::setenv("NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN", 0);
}

std::vector<NcclChoice> kept_nccl_choices() {
  const std::scoped_lock lock(said().mutex);
  return {said().choices.begin(), said().choices.end()};
}

// NCCL looks for it among the symbols that a program exports (config/build.mk).
extern "C" {
extern const NcclPlugin ncclProfiler_v4;
const NcclPlugin ncclProfiler_v4 = {"gradsync", on_init, on_start, on_stop, on_record, on_end};
}

}  // namespace gradsync
