// SPDX-License-Identifier: BSD-3-Clause
// A library with the functions of NVML that are used, for tests: two GPUs, whose numbers tell the
// calls apart; the second, GPU-bare, has neither NVLink nor an energy counter. Without
// FAKE_NVML_INIT_ERROR it is there; its power cannot be read, as on some laptops.

#include <cstdlib>
#include <cstring>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};
struct FakeUtilization {
  unsigned gpu, memory;
};
struct FakeFieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  int type, status;
  unsigned number, rest;
};

static int gpus[2];

int nvmlInit_v2() {
  const char* error = std::getenv("FAKE_NVML_INIT_ERROR");
  return error == nullptr ? 0 : std::atoi(error);
}

int nvmlShutdown() {
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const bool bare = std::strcmp(uuid, "GPU-bare") == 0;
  *device = &gpus[bare ? 1 : 0];
  return bare || std::strcmp(uuid, "GPU-fake") == 0 || std::strcmp(uuid, "MIG-part") == 0 ? 0 : 6;
}

int nvmlDeviceGetUtilizationRates(void*, FakeUtilization* percent) {
  *percent = {93, 41};
  return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoule) {
  *millijoule = 1500;
  return device == &gpus[1] ? 3 : 0;
}

int nvmlDeviceGetTotalEccErrors(void* device, int type, int since, unsigned long long* errors) {
  *errors = 2;
  return type == 1 && since == 0 && device == &gpus[0] ? 0 : 3;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* generation) {
  *generation = 5;
  return 0;
}

int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* lanes) {
  *lanes = 16;
  return 0;
}

// Four links, the second of which is down.
int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* up) {
  *up = link != 1;
  return device == &gpus[1] || link > 3 ? 3 : 0;
}

// The common rate of the links, MB/s; a GPU without links has none.
int nvmlDeviceGetFieldValues(void* device, int count, FakeFieldValue* values) {
  for (int i = 0; i < count; ++i) {
    values[i].status = values[i].field != 90 || device == &gpus[1] ? 3 : 0;
    values[i].type = 1;
    values[i].number = 26562;
  }
  return 0;
}

int nvmlDeviceGetTopologyCommonAncestor(void* one, void* other, int* level) {
  *level = one == other ? 0 : 40;
  return 0;
}

int nvmlDeviceGetMemoryInfo(void*, FakeMemory* memory) {
  *memory = {1000, 300, 700};
  return 0;
}

int nvmlDeviceGetClockInfo(void*, int which, unsigned* megahertz) {
  *megahertz = which == 1 ? 1980 : 3201;
  return 0;
}

int nvmlDeviceGetPowerUsage(void*, unsigned*) {
  return 3;  // not supported
}

int nvmlDeviceGetTemperature(void*, int, unsigned* degrees) {
  *degrees = 41;
  return 0;
}

// Only the name before driver 535.
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = 0x4 | 0x20 | 0x1;
  return 0;
}
}
