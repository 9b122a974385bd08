// SPDX-License-Identifier: BSD-3-Clause
#include <gnu/libc-version.h>

#include <initializer_list>

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
#include "record/hdf5.h"

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

GpuLinks MpiJob::gpu_links(const std::string& uuid) const {
  std::string why;
  const auto monitor = open_nvml(uuid, why);
  return monitor ? monitor->links() : GpuLinks{};
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
