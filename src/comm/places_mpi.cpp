// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <hdf5.h>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include "base/process.h"
#include "base/ranges.h"
#include "base/version.h"
#include "comm/places.h"
#include "machine/gpus.h"
#include "machine/host.h"
#include "record/recorded_environment.h"

namespace gradsync {

namespace {

std::string hdf5_version() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{} (compiled against {}.{}.{})", major, minor, release, H5_VERS_MAJOR,
                     H5_VERS_MINOR, H5_VERS_RELEASE);
}

/// A rank's place in fixed-size fields, as it travels to rank 0.
struct PackedPlace {
  std::int32_t rank, local_rank, threads;
  char host[64], device[96], device_uuid[48], affinity[96];
  double clock_offset_s, clock_uncertainty_s;
  std::int32_t host_processors, host_sockets, host_numa_nodes;
  std::int64_t host_memory_bytes, device_memory_bytes;
  char host_caches[64], host_network[192], device_links[192];
};

template <std::size_t N>
void copy_text(const std::string& text, char (&field)[N]) {
  field[text.copy(field, N - 1)] = 0;
}

/// A list that does not fit ends behind a whole entry, with an ellipsis.
template <std::size_t N>
void copy_list(const std::string& text, char (&field)[N]) {
  const std::string_view more = ", …";
  copy_text(text.size() < N
                ? text
                : text.substr(0, text.find_last_of(",;", N - 1 - more.size())).append(more),
            field);
}

void pack_host(PackedPlace& place) {
  const HostHardware host = host_hardware();
  place.host_processors = host.processors;
  place.host_sockets = host.sockets;
  place.host_numa_nodes = host.numa_nodes;
  place.host_memory_bytes = host.memory_bytes;
  copy_text(host.caches, place.host_caches);
  copy_list(host.network, place.host_network);
}

using Uuid = std::array<char, sizeof PackedPlace::device_uuid>;

/// UUIDs of the GPUs of the ranks on this node, by local rank.
std::vector<Uuid> uuids_on_node(const Session& session, const PackedPlace& mine) {
  Uuid uuid{};
  std::copy(std::begin(mine.device_uuid), std::end(mine.device_uuid), uuid.begin());
  return session.gather_on_node(uuid);
}

/// Needs its device_uuid. Collective, if all ranks of the node have a GPU.
void pack_gpu(const Session& session, PackedPlace& place) {
  const std::vector<Uuid> uuids = uuids_on_node(session, place);
  std::string why;
  const auto monitor = open_nvml(place.device_uuid, why);
  if (!monitor) return;
  const double bytes = monitor->read().memory_bytes;
  place.device_memory_bytes = bytes > 0 ? static_cast<std::int64_t>(bytes) : 0;
  std::string text = links_text(monitor->links());
  for (std::size_t other = 0; other < uuids.size(); ++other)
    if (const std::string path = monitor->path_to(uuids[other].data());
        !path.empty() && static_cast<int>(other) != place.local_rank)
      text += fmt::format("; {} to local rank {}", path, other);
  copy_list(text, place.device_links);
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  return "unknown";
}

namespace {

/// A bit a core; glibc's own set ends at 1024.
using CoreBits = std::array<unsigned long, 256>;

CoreBits core_bits() {
  CoreBits bits{};
  sched_getaffinity(0, sizeof bits, reinterpret_cast<cpu_set_t*>(bits.data()));
  return bits;
}

Cores cores_of(const CoreBits& bits) {
  constexpr std::size_t kBits = 8 * sizeof bits[0];
  Cores cores;
  for (std::size_t core = 0; core < bits.size() * kBits; ++core)
    if ((bits[core / kBits] >> core % kBits & 1) != 0) cores.push_back(static_cast<int>(core));
  return cores;
}

}  // namespace

CoreMask core_mask() {
  CoreMask mask{cores_of(core_bits()), ""};
  const Cores& cores = mask.cores;
  for (std::size_t first = 0, last = 0; first < cores.size(); first = ++last) {
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1)
      ++last;
    if (!mask.text.empty()) mask.text += ',';
    mask.text += last > first ? fmt::format("{}-{}", cores[first], cores[last])
                              : std::to_string(cores[first]);
  }
  return mask;
}

std::vector<Cores> cores_on_node(const Session& session) {
  return each(session.gather_on_node(core_bits()), cores_of);
}

std::vector<NamedText> machine_provenance(const std::string& program) {
  const GpuStack gpu = gpu_stack();
  std::vector<NamedText> all = {
      {"program", version_text(program)},
      {"compiler", __VERSION__},
      {"mpi", fmt::format("{} (MPI {}.{})", mpi_library_version(), MPI_VERSION, MPI_SUBVERSION)},
      {"hdf5", hdf5_version()},
      {"nccl", fmt::format("{} (compiled against {})", gpu.nccl_loaded, gpu.nccl_compiled)},
      {"cuda", fmt::format("{} (compiled against {}), driver {}", gpu.cuda_loaded,
                           gpu.cuda_compiled, gpu.driver)},
  };
  const auto environment = recorded_environment();
  all.insert(all.end(), environment.begin(), environment.end());
  return all;
}

std::vector<RankPlace> gather_places(const Session& session, std::int64_t threads,
                                     const ClockOffset& clock, const GpuDevice& gpu) {
  PackedPlace mine{};
  mine.rank = session.rank();
  mine.local_rank = session.local_rank();
  mine.threads = static_cast<std::int32_t>(threads);
  copy_text(session.host(), mine.host);
  copy_text(gpu.name.empty() ? "cpu: " + cpu_name() : gpu.name, mine.device);
  copy_text(gpu.uuid, mine.device_uuid);
  copy_list(core_mask().text, mine.affinity);
  mine.clock_offset_s = clock.offset_s;
  mine.clock_uncertainty_s = clock.uncertainty_s;
  pack_host(mine);
  if (!gpu.uuid.empty()) pack_gpu(session, mine);
  std::vector<RankPlace> places;
  for (const PackedPlace& one : session.gather(mine))
    places.push_back({one.rank, one.local_rank, one.host, one.device, one.device_uuid, one.affinity,
                      one.threads, one.clock_offset_s, one.clock_uncertainty_s, one.host_processors,
                      one.host_sockets, one.host_numa_nodes, one.host_memory_bytes, one.host_caches,
                      one.host_network, one.device_memory_bytes, one.device_links});
  return places;
}

std::string new_uuid() {
  std::random_device device;
  std::array<std::uint32_t, 4> r{device(), device(), device(), device()};
  r[1] = (r[1] & 0xffff0fffu) | 0x4000u;
  r[2] = (r[2] & 0x3fffffffu) | 0x80000000u;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:04x}{:08x}", r[0], r[1] >> 16, r[1] & 0xffffu,
                     r[2] >> 16, r[2] & 0xffffu, r[3]);
}

DeviceFacts find_devices(const Session& session, bool may_share) {
  const GpuStack stack = gpu_stack();
  DeviceFacts mine{session.rank(),      session.local_rank(), session.host(), stack.driver,
                   stack.cuda_compiled, visible_gpus(),       stack.error};
  const int index = gpu_index(mine.local_rank, mine.gpus.size(), may_share);
  PackedPlace place{};
  if (index >= 0) copy_text(mine.gpus[static_cast<std::size_t>(index)].uuid, place.device_uuid);
  std::vector<std::string> others;
  for (const Uuid& uuid : uuids_on_node(session, place))
    if (uuid.front() != 0) others.emplace_back(uuid.data());
  if (index >= 0) mine.unseen = unseen_gpus(place.device_uuid, others);
  return mine;
}

namespace {

DeviceChoice agree(const Session& session, const DeviceRequest& request, const DeviceFacts& mine) {
  const auto texts = session.gather(nlohmann::json(mine).dump());
  std::string chosen;
  session.together([&] {
    if (!session.root()) return;
    std::vector<DeviceFacts> all;
    for (const std::string& text : texts)
      all.push_back(nlohmann::json::parse(text).get<DeviceFacts>());
    chosen = nlohmann::json(choose_device(request, all)).dump();
  });
  session.broadcast(chosen);
  return nlohmann::json::parse(chosen).get<DeviceChoice>();
}

}  // namespace

RankGpu agree_on_gpus(const Session& session, const DeviceRequest& request) {
  RankGpu mine;
  if (request.device == "cpu") return mine;
  const DeviceFacts facts = find_devices(session, request.allow_shared_gpu);
  mine.choice = agree(session, request, facts);
  if (!mine.choice.cuda) return mine;
  mine.index = gpu_index(facts.local_rank, facts.gpus.size(), request.allow_shared_gpu);
  mine.description = facts.gpus[static_cast<std::size_t>(mine.index)];
  return mine;
}

namespace {

constexpr int kClockTag = 11;

using Clock = std::function<double()>;

ClockOffset ask_root(MPI_Comm comm, int round_trips, const Clock& clock) {
  ClockOffset best{0, std::numeric_limits<double>::infinity()};
  for (int i = 0; i < round_trips; ++i) {
    double root_s = 0;
    const double sent_s = clock();
    MPI_Send(&sent_s, 1, MPI_DOUBLE, 0, kClockTag, comm);
    MPI_Recv(&root_s, 1, MPI_DOUBLE, 0, kClockTag, comm, MPI_STATUS_IGNORE);
    const double received_s = clock();
    const double half_s = (received_s - sent_s) / 2;
    if (half_s < best.uncertainty_s) best = {root_s - (sent_s + half_s), half_s};
  }
  return best;
}

void answer(MPI_Comm comm, int rank, int round_trips, const Clock& clock) {
  for (int i = 0; i < round_trips; ++i) {
    double theirs_s = 0;
    MPI_Recv(&theirs_s, 1, MPI_DOUBLE, rank, kClockTag, comm, MPI_STATUS_IGNORE);
    const double mine_s = clock();
    MPI_Send(&mine_s, 1, MPI_DOUBLE, rank, kClockTag, comm);
  }
}

}  // namespace

ClockOffset measure_clock_offset(const Session& session, int round_trips,
                                 const std::function<double()>& clock) {
  const int rank = session.rank();
  MPI_Comm comm = session.world();
  ClockOffset mine;
  for (int other = 1; other < session.size(); ++other) {
    const CollectiveScope watched(session.watchdog(), CollectiveKind::kBarrier);
    if (rank == 0) answer(comm, other, round_trips, clock);
    if (rank == other) mine = ask_root(comm, round_trips, clock);
    MPI_Barrier(comm);
  }
  return mine;
}

namespace {

constexpr const char* kVariable = "btl_vader_single_copy_mechanism";

/// The name of the value that a variable of MPI has, one of a list; empty if there is none.
std::string value_of(const char* variable) {
  int index = 0;
  if (MPI_T_cvar_get_index(variable, &index) != MPI_SUCCESS) return {};
  int name_length = 0, text_length = 0, verbosity = 0, bind = 0, scope = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum values = MPI_T_ENUM_NULL;
  if (MPI_T_cvar_get_info(index, nullptr, &name_length, &verbosity, &type, &values, nullptr,
                          &text_length, &bind, &scope) != MPI_SUCCESS ||
      type != MPI_INT || values == MPI_T_ENUM_NULL)
    return {};
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0, value = 0, items = 0;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return {};
  const bool read = count == 1 && MPI_T_cvar_read(handle, &value) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  int no_length = 0;
  if (!read || MPI_T_enum_get_info(values, &items, nullptr, &no_length) != MPI_SUCCESS) return {};
  for (int item = 0; item < items; ++item) {
    char name[64] = {};
    int length = sizeof name, number = 0;
    MPI_T_enum_get_item(values, item, &number, name, &length);
    if (number == value) return name;
  }
  return {};
}

}  // namespace

std::uint64_t cma_namespace() {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return 0;
  const std::string mechanism = value_of(kVariable);
  MPI_T_finalize();
  // Open MPI 4.1 says "emulated" where it meant "cma" and found other user namespaces. What a user
  // asked for works.
  const char* asked = std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  const bool meant = mechanism == "emulated" && asked == nullptr;
  return mechanism == "cma" || meant ? namespace_of("user") : 0;
}

}  // namespace gradsync
