// A library with the functions of NVML that are used, for tests: one GPU, whose numbers tell the
// calls apart. Without FAKE_NVML_INIT_ERROR it is there; its power cannot be read, as on some
// laptops.

#include <cstdlib>
#include <cstring>

extern "C" {

struct FakeMemory {
  unsigned long long total, free, used;
};

int nvmlInit_v2() {
  const char* error = std::getenv("FAKE_NVML_INIT_ERROR");
  return error == nullptr ? 0 : std::atoi(error);
}

int nvmlShutdown() {
  return 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  static int gpu = 0;
  *device = &gpu;
  return std::strcmp(uuid, "GPU-fake") == 0 ? 0 : 6;
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
