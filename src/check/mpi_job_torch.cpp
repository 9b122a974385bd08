// SPDX-License-Identifier: BSD-3-Clause
#include <gnu/libc-version.h>
#include <sys/mman.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <iterator>

#include <ATen/Version.h>
#include <fmt/format.h>
#include <mpi.h>
#include <torch/version.h>

#include "base/version.h"
#include "check/check.h"
#include "check/mpi_job.h"
#include "comm/places.h"
#include "comm/session.h"
#include "machine/gpus.h"
#include "machine/kernels.h"
#include "record/hdf5.h"
#include "transport/trial_sum.h"

namespace gradsync::check {

namespace {

Place place_of(const Session& session) {
  return {
      session.rank(),   session.size(), session.local_rank(), session.local_size(), session.host(),
      core_mask().text, cpu_name()};
}

}  // namespace

MpiJob::MpiJob(const Session& session, Launcher launcher)
    : session_(session),
      launcher_(std::move(launcher)),
      transport_(session.world()),
      place_(place_of(session)) {}

std::vector<Library> MpiJob::libraries() const {
  return suite_libraries();
}

std::unique_ptr<GpuMonitor> MpiJob::gpu_monitor(const std::string& uuid) const {
  std::string why;
  return open_nvml(uuid, why);
}

std::vector<std::string> MpiJob::gather(const std::string& mine) {
  return session_.gather(mine);
}

std::string MpiJob::broadcast(const std::string& of_root) {
  std::string text = of_root;
  session_.broadcast(text);
  return text;
}

void MpiJob::meet() {
  session_.meet();
}

SteadyOffset MpiJob::read_clock() {
  const ClockOffset clock = measure_clock_offset(session_);
  return {clock.offset_s, clock.uncertainty_s};
}

void MpiJob::sum(std::span<float> data) {
  const CollectiveScope watched(session_.watchdog(), CollectiveKind::kAllReduce);
  transport_.run(Collective::all_reduce(data, Scale::kSum));
}

namespace {

std::string log_of_nccl;  ///< memory of this process as a file, or empty

}  // namespace

void keep_nccl_log() {
  if (std::getenv("NCCL_DEBUG") != nullptr) return;
  const int memory = ::memfd_create("nccl-log", MFD_CLOEXEC);
  if (memory < 0) return;
  log_of_nccl = fmt::format("/proc/self/fd/{}", memory);
  ::setenv("NCCL_DEBUG", "INFO", 1);
  ::setenv("NCCL_DEBUG_SUBSYS", "INIT,GRAPH,NET,P2P,SHM,TUNING", 1);
  ::setenv("NCCL_DEBUG_FILE", log_of_nccl.c_str(), 1);
}

std::string kept_nccl_log() {
  if (log_of_nccl.empty()) return {};
  std::ifstream file(log_of_nccl);
  return {std::istreambuf_iterator<char>(file), {}};
}

namespace {

constexpr std::size_t kTrialValues = kNcclTrialBytes / sizeof(float);
constexpr int kTrialCalls = 10;

}  // namespace

NcclTrial try_nccl(const Session& session, NcclApi& api, Device& device, ScaleOnDevice scale) {
  device.use_in_this_thread();
  const StreamHandle stream = device.make_stream();
  const EventHandle begin = device.make_event(), end = device.make_event();
  auto* memory = static_cast<float*>(device.make_memory(kNcclTrialBytes));
  NcclTrial trial;
  {
    const WatchdogTimeoutExtension sets_up(session.watchdog(), WatchedPhase::kTransport);
    NcclTransport nccl(session, session.watchdog(), api, device, stream, scale);
    const CollectiveScope watched(session.watchdog(), CollectiveKind::kAllReduce);
    const auto sum = [&] {
      nccl.run(Collective::all_reduce(std::span(memory, kTrialValues), Scale::kSum));
    };
    const auto wait = [&] {
      device.record(end, stream);
      device.wait_for(end);
    };
    std::vector<float> values =
        trial_sum::values(trial_sum::factor_of(session.rank()), kTrialValues);
    device.copy(memory, values.data(), kNcclTrialBytes, stream);
    sum();
    device.copy(values.data(), memory, kNcclTrialBytes, stream);
    wait();
    trial.right =
        values == trial_sum::values(trial_sum::factor_of_all(session.size()), kTrialValues);
    device.record(begin, stream);
    for (int call = 0; call < kTrialCalls && session.size() > 1; ++call)
      sum();
    wait();
    trial.time_s = device.elapsed_s(begin, end) / kTrialCalls;
  }
  device.free_memory(memory);
  device.free_event(begin);
  device.free_event(end);
  device.free_stream(stream);
  return trial;
}

NcclTrial MpiJob::sum_on_gpus(int index) {
  const auto device = make_cuda_device(index);
  const auto api = make_nccl();
  NcclTrial trial = try_nccl(session_, *api, *device, launch_scale);
  trial.chosen = nccl_choices(kept_nccl_log());
  return trial;
}

void MpiJob::swap(int peer, std::span<const float> out, std::span<float> in) {
  session_.swap(peer, std::as_bytes(out), std::as_writable_bytes(in));
}

namespace {

std::string mpi_compiled(const std::string& loaded) {
  // Cray's mpi.h names the MPICH that it is based on, its library a version of its own.
  if (loaded.find("CRAY MPICH") != std::string::npos) return "unknown";
#if defined(OMPI_MAJOR_VERSION)
  return fmt::format("Open MPI {}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
                     OMPI_RELEASE_VERSION);
#elif defined(I_MPI_VERSION)
  return "Intel(R) MPI Library " I_MPI_VERSION;
#elif defined(MPICH_VERSION)
  return "MPICH " MPICH_VERSION;
#else
  return "unknown";
#endif
}

std::string hdf5_loaded() {
  prepare_hdf5();
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

/// One entry a file whose name begins with one of `stems`; one without a file if there is none.
void add(std::vector<Library>& all, Library library, std::initializer_list<const char*> stems) {
  bool found = false;
  for (const char* stem : stems)
    for (const LoadedFile& file : loaded_files(stem)) {
      library.path = file.path;
      library.identity = file.identity;
      all.push_back(library);
      found = true;
    }
  if (!found) all.push_back(library);
}

}  // namespace

std::vector<Library> suite_libraries() {
  const GpuStack gpu = gpu_stack();
  std::vector<Library> all;
  add(all, {"gradsync", revision(), revision(), "", ""}, {""});
  const std::string mpi = mpi_library_version();
  add(all, {"MPI", mpi_compiled(mpi), mpi, "", ""},
      {"libmpi.so", "libmpich.so", "libmpi_gnu", "libmpi_cray"});
  add(all,
      {"HDF5", fmt::format("{}.{}.{}", H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE),
       hdf5_loaded(), "", ""},
      {"libhdf5.so", "libhdf5_serial.so", "libhdf5_openmpi.so", "libhdf5_mpich.so"});
  add(all, {"LibTorch", libtorch_compiled(), libtorch_loaded(), "", ""}, {"libtorch_cpu.so"});
  add(all, {"CUDA", gpu.cuda_compiled, gpu.cuda_loaded, "", ""}, {"libcudart.so"});
  add(all, {"NCCL", gpu.nccl_compiled, gpu.nccl_loaded, "", ""}, {"libnccl.so"});
  add(all, {"C library", "", gnu_get_libc_version(), "", ""}, {"libc.so"});
  return all;
}

namespace {

constexpr std::size_t kCommitShown = 8;

/// The value behind `key` in the library's own list of how it was built, or "unknown".
std::string build_setting(const std::string& config, const std::string& key) {
  const auto begin = config.find(key + "=");
  if (begin == std::string::npos) return "unknown";
  const auto value = begin + key.size() + 1;
  return config.substr(value, config.find_first_of(", \n", value) - value);
}

}  // namespace

std::string libtorch_compiled() {
  return TORCH_VERSION;
}

std::string libtorch_loaded() {
  const std::string config = at::show_config();
  return build_setting(config, "TORCH_VERSION") + " (" +
         build_setting(config, "COMMIT_SHA").substr(0, kCommitShown) + ")";
}

}  // namespace gradsync::check
