// SPDX-License-Identifier: BSD-3-Clause
#include "machine/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "stats/clock.h"

namespace gradsync {

std::string name_of(const DeviceFacts& rank) {
  return fmt::format("rank {} ({})", rank.rank, rank.host);
}

namespace {

const std::string kNone = "none";
const std::string kToTheCpu = "; --device cpu uses no GPU";

/// A driver serves every CUDA version of its own major number and older ones.
bool too_old(const DeviceFacts& rank) {
  return rank.driver != kNone && rank.runtime != kNone &&
         std::atoi(rank.driver.c_str()) < std::atoi(rank.runtime.c_str());
}

/// What is to be done about an error of the driver that users of other tools met as well.
std::string fix_of_error(const std::string& error) {
  switch (std::atoi(error.c_str())) {
    case 802:
      return "the node has an NVSwitch: its Fabric Manager must run, in the driver's release "
             "(systemctl status nvidia-fabricmanager)";
    case 803:
      return "the node's driver was updated beside the one that is loaded: it must restart";
    case 804:
      return "take the folder of cuda-compat out of LD_LIBRARY_PATH";
    default:
      return "look at nvidia-smi on that host";
  }
}

GpuLack lack_of(const DeviceFacts& rank, bool may_share) {
  if (rank.runtime == kNone)
    return {"this build is without CUDA", "make status shows what a build with CUDA needs"};
  if (rank.driver == kNone)
    return {"no CUDA driver",
            "run on a host with a GPU: nvidia-smi must list it, in a container with its --nv or "
            "--gpus option"};
  if (too_old(rank))
    return {fmt::format("the driver is for CUDA {}, this build needs CUDA {}", rank.driver,
                        rank.runtime),
            fmt::format("request a node with a driver of {} or later",
                        rank.runtime.starts_with("12") ? 525 : 580)};
  if (!rank.error.empty())
    return {"the driver answers with error " + rank.error, fix_of_error(rank.error)};
  if (gpu_index(rank.local_rank, rank.gpus.size(), may_share) >= 0) return {};
  return {rank.gpus.empty()
              ? "no visible GPU"
              : fmt::format("{} visible GPUs for local rank {}", rank.gpus.size(), rank.local_rank),
          "request --gpus-per-node=RANKS-PER-NODE (not --gpus-per-task), look at "
          "CUDA_VISIBLE_DEVICES"};
}

const GpuDevice& gpu_of(const DeviceFacts& rank, const DeviceRequest& request) {
  const int index = gpu_index(rank.local_rank, rank.gpus.size(), request.allow_shared_gpu);
  return rank.gpus[static_cast<std::size_t>(index)];
}

/// The first GPU with several ranks, if there is one: its UUID, host and ranks.
std::string shared_gpu(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  std::map<std::string, std::vector<int>> users;
  for (const DeviceFacts& rank : ranks)
    users[fmt::format("{} ({})", gpu_of(rank, request).uuid, rank.host)].push_back(rank.rank);
  for (const auto& [gpu, of_it] : users)
    if (of_it.size() > 1)
      return fmt::format("ranks {} are on one GPU, {}", fmt::join(of_it, ", "), gpu);
  return {};
}

/// Whether two ranks of a host drive instances of GPUs (MIG): nothing says of which GPU.
bool on_instances(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  std::map<std::string, int> users;
  for (const DeviceFacts& rank : ranks)
    if (gpu_of(rank, request).name.find(" MIG ") != std::string::npos) ++users[rank.host];
  return std::ranges::any_of(users, [](const auto& host) { return host.second > 1; });
}

DeviceChoice on_gpus(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  DeviceChoice choice;
  choice.cuda = true;
  const std::string shared = shared_gpu(request, ranks);
  choice.shared = !shared.empty();
  choice.instances = on_instances(request, ranks);
  choice.apart = unreachable_gpu(ranks);
  if (choice.shared && !request.allow_shared_gpu)
    throw Error(ExitCode::kEnvironment, shared,
                "request --gpus-per-node=RANKS-PER-NODE and no --gpu-bind, or start fewer ranks a "
                "node; --allow-shared-gpu for tests" +
                    kToTheCpu);
  return choice;
}

}  // namespace

int gpu_index(int local_rank, std::size_t visible, bool may_share) {
  if (visible == 1) return 0;
  if (may_share && visible > 0) return local_rank % static_cast<int>(visible);
  return local_rank < static_cast<int>(visible) ? local_rank : -1;
}

std::string unreachable_gpu(const std::vector<DeviceFacts>& ranks) {
  for (const DeviceFacts& rank : ranks)
    if (!rank.unseen.empty())
      return fmt::format("the driver hides {}, the GPU of another rank, from {}",
                         rank.unseen.front(), name_of(rank));
  return {};
}

bool is_without_gpus(const std::vector<DeviceFacts>& ranks) {
  return std::ranges::all_of(
      ranks, [](const DeviceFacts& rank) { return rank.gpus.empty() && rank.error.empty(); });
}

GpuLack gpu_lack(const DeviceFacts& rank, bool may_share) {
  GpuLack lack = lack_of(rank, may_share);
  if (!lack.fix.empty()) lack.fix += kToTheCpu;
  return lack;
}

DeviceChoice choose_device(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks) {
  if (request.device == "cpu") return {};
  const auto lacks = [&](const DeviceFacts& rank) {
    return !gpu_lack(rank, request.allow_shared_gpu).what.empty();
  };
  const auto lacking = std::ranges::find_if(ranks, lacks);
  if (lacking == ranks.end()) return on_gpus(request, ranks);
  const GpuLack lack = gpu_lack(*lacking, request.allow_shared_gpu);
  if (request.device == "cuda" || !is_without_gpus(ranks))
    throw Error(ExitCode::kEnvironment,
                fmt::format("{} has no GPU to compute on: {}", name_of(*lacking), lack.what),
                lack.fix);
  return {false, false, fmt::format("{}: {}", name_of(*lacking), lack.what)};
}

namespace {

/// A path type of NCCL's in words; empty for the one GPU of a host.
std::string between_gpus(const std::string& type) {
  if (type == "LOC") return "";
  if (type == "NVL" || type == "NVB") return "NVLink between GPUs";
  return fmt::format("{} between GPUs, no NVLink", type);
}

}  // namespace

std::string nccl_choices(std::string_view log) {
  static const std::regex network("Using network ([^\\s]+)"), way(" via ([A-Z0-9]+(/[^\\s]+)?)"),
      channels("(\\d+) coll channels, .*?(\\d+) nvls channels"),
      algorithm("(\\d+) Bytes -> Algo (\\w+) proto (\\w+)"), port("/\\d+(\\(\\d+\\))?"),
      ring("Pattern 4, .* type ([A-Z0-9]+)/");  // the longest way between GPUs of a host
  const auto all = [&](const std::regex& wanted, auto&& text) {
    std::set<std::string> found;
    using Found = std::regex_iterator<std::string_view::const_iterator>;
    for (Found one(log.begin(), log.end(), wanted); one != Found(); ++one)
      found.insert(text(*one));
    return fmt::format("{}", fmt::join(found, ", "));
  };
  std::vector<std::string> parts = {
      all(network, [](const auto& one) { return "network " + one.str(1); }),
      all(way, [](const auto& one) { return std::regex_replace(one.str(1), port, ""); }),
      all(ring, [](const auto& one) { return between_gpus(one.str(1)); }),
      all(channels,
          [](const auto& one) {
            return fmt::format("{} channels, {} of NVLS", one.str(1), one.str(2));
          }),
      all(algorithm, [](const auto& one) {
        return fmt::format("{}, {} for {} B", one.str(2), one.str(3), one.str(1));
      })};
  std::erase(parts, "");
  return fmt::format("{}", fmt::join(parts, "; "));
}

namespace {

// NVML's binary interface, which is stable: its header belongs to the toolkit, not to the wheels.
using NvmlDevice = struct NvmlDeviceTag*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlFieldValue {
  unsigned field, scope;
  long long timestamp_us, latency_us;
  int type, status;
  union {
    unsigned number;
    unsigned long long room;
  };
};
constexpr int kSuccess = 0, kNotFound = 6;
constexpr unsigned kFieldNvlinkRate = 90;  // MB/s of each link that is up
constexpr int kTypeUnsigned = 1;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
constexpr int kUncorrected = 1, kSinceLoaded = 0;
constexpr unsigned kMostNvlinks = 18;

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
  explicit Functions(const Library& library) {
    const auto load = [&]<typename Function>(Function*& function, const char* name) {
      function = library.find<Function>(name);
    };
    load(init, "nvmlInit_v2");
    load(shutdown, "nvmlShutdown");
    load(by_uuid, "nvmlDeviceGetHandleByUUID");
    load(memory, "nvmlDeviceGetMemoryInfo");
    load(clock, "nvmlDeviceGetClockInfo");
    load(power, "nvmlDeviceGetPowerUsage");
    load(temperature, "nvmlDeviceGetTemperature");
    load(utilization, "nvmlDeviceGetUtilizationRates");
    load(energy, "nvmlDeviceGetTotalEnergyConsumption");
    load(pcie_generation, "nvmlDeviceGetMaxPcieLinkGeneration");
    load(pcie_lanes, "nvmlDeviceGetMaxPcieLinkWidth");
    load(nvlink_state, "nvmlDeviceGetNvLinkState");
    load(fields, "nvmlDeviceGetFieldValues");
    load(errors, "nvmlDeviceGetTotalEccErrors");
    load(ancestor, "nvmlDeviceGetTopologyCommonAncestor");
    load(reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    if (reasons == nullptr)  // the name before driver 535
      load(reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*by_uuid)(const char*, NvmlDevice*) = nullptr;
  int (*memory)(NvmlDevice, NvmlMemory*) = nullptr;
  int (*clock)(NvmlDevice, int, unsigned*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*energy)(NvmlDevice, unsigned long long*) = nullptr;
  int (*pcie_generation)(NvmlDevice, unsigned*) = nullptr;
  int (*pcie_lanes)(NvmlDevice, unsigned*) = nullptr;
  int (*nvlink_state)(NvmlDevice, unsigned, int*) = nullptr;
  int (*fields)(NvmlDevice, int, NvmlFieldValue*) = nullptr;
  int (*errors)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  int (*ancestor)(NvmlDevice, NvmlDevice, int*) = nullptr;
  int (*reasons)(NvmlDevice, unsigned long long*) = nullptr;
};

/// Whether the driver has the function and it gave an answer.
template <typename... Parameters, typename... Arguments>
bool answers(int (*function)(Parameters...), Arguments... arguments) {
  return function != nullptr && function(arguments...) == kSuccess;
}

/// NVML's answer. An instance of a GPU (MIG) has a UUID of its own, which CUDA and NVML spell alike
/// but for the prefix.
int find_device(const Functions& functions, const std::string& uuid, NvmlDevice& device) {
  const int error = functions.by_uuid(uuid.c_str(), &device);
  if (error == kSuccess || !uuid.starts_with("GPU-")) return error;
  return functions.by_uuid(("MIG-" + uuid.substr(4)).c_str(), &device);
}

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
    if (NvmlMemory memory{}; answers(nvml_.memory, device_, &memory)) {
      reading.memory_used_bytes = static_cast<double>(memory.used);
      reading.memory_bytes = static_cast<double>(memory.total);
    }
    if (NvmlUtilization percent{}; answers(nvml_.utilization, device_, &percent)) {
      reading.busy = percent.gpu * 1e-2;
      reading.memory_busy = percent.memory * 1e-2;
    }
    reading.sm_clock_hz = clock_hz(kClockSm);
    reading.memory_clock_hz = clock_hz(kClockMemory);
    unsigned value = 0;
    if (answers(nvml_.power, device_, &value)) reading.power_w = value * 1e-3;
    if (answers(nvml_.temperature, device_, kTemperatureGpu, &value)) reading.temperature_c = value;
    unsigned long long large = 0;
    if (answers(nvml_.energy, device_, &large))
      reading.energy_j = static_cast<double>(large) * 1e-3;
    if (answers(nvml_.reasons, device_, &large))
      reading.throttle_reasons = static_cast<std::int64_t>(large);
    return reading;
  }

  GpuLinks links() override {
    GpuLinks links;
    unsigned value = 0;
    if (answers(nvml_.pcie_generation, device_, &value))
      links.pcie_generation = static_cast<int>(value);
    if (answers(nvml_.pcie_lanes, device_, &value)) links.pcie_lanes = static_cast<int>(value);
    for (unsigned link = 0; link < kMostNvlinks; ++link)
      count_nvlink(link, links);
    links.nvlink_Bps = nvlink_Bps();
    return links;
  }

  std::int64_t uncorrected_errors() override {
    unsigned long long errors = 0;
    const bool known = answers(nvml_.errors, device_, kUncorrected, kSinceLoaded, &errors);
    return known ? static_cast<std::int64_t>(errors) : -1;
  }

  bool shows(const std::string& uuid) override {
    NvmlDevice other = nullptr;
    return find_device(nvml_, uuid, other) != kNotFound;
  }

  std::string path_to(const std::string& uuid) override {
    NvmlDevice other = nullptr;
    int level = -1;
    const bool known = answers(nvml_.by_uuid, uuid.c_str(), &other) &&
                       answers(nvml_.ancestor, device_, other, &level);
    return common_ancestor_name(known ? level : -1);
  }

 private:
  /// A GPU without NVLink has no answer for any.
  void count_nvlink(unsigned link, GpuLinks& links) {
    int up = 0;
    if (!answers(nvml_.nvlink_state, device_, link, &up)) return;
    links.nvlinks = std::max(links.nvlinks, 0) + (up != 0 ? 1 : 0);
    links.all_nvlinks = std::max(links.all_nvlinks, 0) + 1;
  }

  double nvlink_Bps() {
    NvmlFieldValue rate{};
    rate.field = kFieldNvlinkRate;
    const bool known = answers(nvml_.fields, device_, 1, &rate) && rate.status == kSuccess &&
                       rate.type == kTypeUnsigned && rate.number > 0;
    return known ? rate.number * 1e6 : kNotMeasured;
  }

  double clock_hz(int which) {
    unsigned megahertz = 0;
    return answers(nvml_.clock, device_, which, &megahertz) ? megahertz * 1e6 : kNotMeasured;
  }

  Library library_;
  Functions nvml_;
  NvmlDevice device_;
};

}  // namespace

std::string links_text(const GpuLinks& links) {
  std::string text;
  if (links.pcie_generation > 0 && links.pcie_lanes > 0)
    text = fmt::format("PCIe {} x{}", links.pcie_generation, links.pcie_lanes);
  if (links.nvlinks <= 0) return text;
  text += fmt::format("{}{} NVLinks", text.empty() ? "" : ", ", links.nvlinks);
  return links.nvlink_Bps > 0 ? fmt::format("{} of {:.1f} GB/s", text, links.nvlink_Bps / 1e9)
                              : text;
}

std::string common_ancestor_name(int level) {
  constexpr std::array<std::pair<int, const char*>, 6> kNames = {
      {{0, "X"}, {10, "PIX"}, {20, "PXB"}, {30, "PHB"}, {40, "NODE"}, {50, "SYS"}}};
  for (const auto& [number, name] : kNames)
    if (number == level) return name;
  return {};
}

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
  if (const int error = find_device(functions, uuid, device); error != kSuccess) {
    functions.shutdown();
    why = "NVML knows no GPU " + uuid + ": error " + std::to_string(error);
    return nullptr;
  }
  return std::make_unique<NvmlMonitor>(std::move(loaded), functions, device);
}

std::vector<std::string> unseen_gpus(const std::string& own, const std::vector<std::string>& others,
                                     const std::string& library) {
  std::string why;
  const auto monitor = open_nvml(own, why, library);
  std::vector<std::string> unseen;
  for (const std::string& uuid : others)
    if (monitor && !monitor->shows(uuid)) unseen.push_back(uuid);
  return unseen;
}

}  // namespace gradsync
