#include "device/nvml.h"

#include <dlfcn.h>

#include <array>
#include <chrono>
#include <utility>

#include "support/error.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

// NVML's binary interface, which is stable: its header belongs to the toolkit, not to the wheels.
using NvmlDevice = struct NvmlDeviceTag*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
constexpr int kSuccess = 0;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kTemperatureGpu = 0;

class Library {
 public:
  explicit Library(const std::string& name) : handle_(::dlopen(name.c_str(), RTLD_NOW)) {}
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool loaded() const { return handle_ != nullptr; }
  template <typename Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

/// The functions used; those that a driver may lack are null there.
struct Functions {
  explicit Functions(const Library& library)
      : init(library.find<int()>("nvmlInit_v2")),
        shutdown(library.find<int()>("nvmlShutdown")),
        by_uuid(library.find<int(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByUUID")),
        memory(library.find<int(NvmlDevice, NvmlMemory*)>("nvmlDeviceGetMemoryInfo")),
        clock(library.find<int(NvmlDevice, int, unsigned*)>("nvmlDeviceGetClockInfo")),
        power(library.find<int(NvmlDevice, unsigned*)>("nvmlDeviceGetPowerUsage")),
        temperature(library.find<int(NvmlDevice, int, unsigned*)>("nvmlDeviceGetTemperature")),
        reasons(library.find<int(NvmlDevice, unsigned long long*)>(
            "nvmlDeviceGetCurrentClocksEventReasons")) {
    if (reasons == nullptr)  // the name before driver 535
      reasons = library.find<int(NvmlDevice, unsigned long long*)>(
          "nvmlDeviceGetCurrentClocksThrottleReasons");
  }

  int (*init)();
  int (*shutdown)();
  int (*by_uuid)(const char*, NvmlDevice*);
  int (*memory)(NvmlDevice, NvmlMemory*);
  int (*clock)(NvmlDevice, int, unsigned*);
  int (*power)(NvmlDevice, unsigned*);
  int (*temperature)(NvmlDevice, int, unsigned*);
  int (*reasons)(NvmlDevice, unsigned long long*);
};

class NvmlMonitor : public GpuMonitor {
 public:
  NvmlMonitor(Library library, const Functions& functions, NvmlDevice device)
      : library_(std::move(library)), nvml_(functions), device_(device) {}
  ~NvmlMonitor() override { nvml_.shutdown(); }
  NvmlMonitor(const NvmlMonitor&) = delete;
  NvmlMonitor& operator=(const NvmlMonitor&) = delete;

  GpuReading read() override {
    GpuReading reading;
    reading.at_s = now_s();
    NvmlMemory memory{};
    if (nvml_.memory != nullptr && nvml_.memory(device_, &memory) == kSuccess)
      reading.memory_used_bytes = static_cast<double>(memory.used);
    reading.sm_clock_hz = clock_hz(kClockSm);
    reading.memory_clock_hz = clock_hz(kClockMemory);
    unsigned value = 0;
    if (nvml_.power != nullptr && nvml_.power(device_, &value) == kSuccess)
      reading.power_w = value * 1e-3;
    if (nvml_.temperature != nullptr &&
        nvml_.temperature(device_, kTemperatureGpu, &value) == kSuccess)
      reading.temperature_c = value;
    unsigned long long reasons = 0;
    if (nvml_.reasons != nullptr && nvml_.reasons(device_, &reasons) == kSuccess)
      reading.throttle_reasons = static_cast<std::int64_t>(reasons);
    return reading;
  }

 private:
  double clock_hz(int which) {
    unsigned megahertz = 0;
    const bool known =
        nvml_.clock != nullptr && nvml_.clock(device_, which, &megahertz) == kSuccess;
    return known ? megahertz * 1e6 : GpuReading::kUnknown;
  }

  Library library_;
  Functions nvml_;
  NvmlDevice device_;
};

}  // namespace

std::string throttle_names(std::int64_t reasons) {
  // Idle, application clocks and display clocks (bits 0, 1, 8) are settings, and no loss.
  constexpr std::array<std::pair<std::int64_t, const char*>, 6> kNames = {
      {{0x4, "power cap"},
       {0x8, "hardware slowdown"},
       {0x10, "sync boost"},
       {0x20, "thermal slowdown (software)"},
       {0x40, "thermal slowdown (hardware)"},
       {0x80, "power brake"}}};
  std::string text;
  if (reasons < 0) return text;
  for (const auto& [bit, name] : kNames)
    if ((reasons & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

std::unique_ptr<GpuMonitor> open_nvml(const std::string& uuid, std::string& why,
                                      const std::string& library) {
  Library loaded(library);
  if (!loaded.loaded()) {
    why = library + " is not there";
    return nullptr;
  }
  const Functions functions(loaded);
  if (functions.init == nullptr || functions.shutdown == nullptr || functions.by_uuid == nullptr) {
    why = library + " is no NVML";
    return nullptr;
  }
  if (const int error = functions.init(); error != kSuccess) {
    why = "nvmlInit: error " + std::to_string(error);
    return nullptr;
  }
  NvmlDevice device = nullptr;
  if (const int error = functions.by_uuid(uuid.c_str(), &device); error != kSuccess) {
    functions.shutdown();
    why = "NVML knows no GPU " + uuid + ": error " + std::to_string(error);
    return nullptr;
  }
  return std::make_unique<NvmlMonitor>(std::move(loaded), functions, device);
}

GpuSampler::GpuSampler(std::unique_ptr<GpuMonitor> monitor, double interval_s)
    : monitor_(std::move(monitor)), interval_s_(interval_s) {
  constexpr double kShortest_s = 0.1;
  if (interval_s < kShortest_s)
    throw Error(ExitCode::kInternal, "a GPU is not sampled more often than ten times a second");
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

GpuSampler::~GpuSampler() = default;

std::vector<GpuReading> GpuSampler::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(readings_, {});
}

void GpuSampler::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    lock.unlock();
    const GpuReading reading = monitor_->read();
    lock.lock();
    readings_.push_back(reading);
    stopped_.wait_for(lock, stop, std::chrono::duration<double>(interval_s_), [] { return false; });
  }
}

}  // namespace gradsync
