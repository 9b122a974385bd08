#include "preflight/suite_libraries.h"

#include <gnu/libc-version.h>

#include <initializer_list>

#include <ATen/Version.h>
#include <fmt/format.h>
#include <mpi.h>
#include <torch/version.h>

#include "check/loaded_files.h"
#include "comm/session.h"
#include "device/gpu_stack.h"
#include "record/hdf5.h"
#include "support/version.h"

namespace gradsync::check {

namespace {

std::string mpi_compiled() {
#if defined(OMPI_MAJOR_VERSION)
  return fmt::format("Open MPI {}.{}.{}", OMPI_MAJOR_VERSION, OMPI_MINOR_VERSION,
                     OMPI_RELEASE_VERSION);
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
  add(all, {"MPI", mpi_compiled(), mpi_library_version(), "", ""}, {"libmpi.so"});
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
