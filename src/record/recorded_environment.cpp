// SPDX-License-Identifier: BSD-3-Clause
#include "record/recorded_environment.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/parse.h"
#include "base/ranges.h"

extern char** environ;

namespace gradsync {

namespace {

/// Names with a blank between.
constexpr std::string_view kRecorded[] = {
    // Slurm: the job, its place in an array, and where its ranks are.
    "SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID SLURM_CLUSTER_NAME SLURM_CPUS_ON_NODE "
    "SLURM_CPUS_PER_GPU SLURM_CPUS_PER_TASK SLURM_CPU_BIND SLURM_CPU_BIND_LIST "
    "SLURM_CPU_BIND_TYPE SLURM_CPU_FREQ_REQ SLURM_DISTRIBUTION SLURM_GPUS SLURM_GPUS_ON_NODE "
    "SLURM_GPUS_PER_NODE SLURM_GPUS_PER_TASK SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_HINT SLURM_JOBID "
    "SLURM_JOB_CPUS_PER_NODE SLURM_JOB_GPUS SLURM_JOB_ID SLURM_JOB_NAME SLURM_JOB_NODELIST "
    "SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS SLURM_JOB_RESERVATION "
    "SLURM_LAUNCH_NODE_IPADDR SLURM_MEM_BIND SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU "
    "SLURM_MEM_PER_NODE SLURM_MPI_TYPE SLURM_NETWORK SLURM_NNODES SLURM_NODELIST SLURM_NPROCS "
    "SLURM_NTASKS SLURM_NTASKS_PER_CORE SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE "
    "SLURM_NTASKS_PER_SOCKET SLURM_RESTART_COUNT SLURM_STEPID SLURM_STEP_GPUS SLURM_STEP_ID "
    "SLURM_STEP_NODELIST SLURM_STEP_NUM_NODES SLURM_STEP_NUM_TASKS SLURM_STEP_TASKS_PER_NODE "
    "SLURM_SWITCHES SLURM_TASKS_PER_NODE SLURM_THREADS_PER_CORE SLURM_TOPOLOGY_ADDR "
    "SLURM_TRES_PER_TASK",
    // Open MPI.
    "OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_SIZE OMPI_MCA_btl "
    "OMPI_MCA_btl_base_warn_component_unused OMPI_MCA_btl_openib_allow_ib "
    "OMPI_MCA_btl_openib_if_include OMPI_MCA_btl_tcp_if_exclude OMPI_MCA_btl_tcp_if_include "
    "OMPI_MCA_btl_tcp_links OMPI_MCA_btl_vader_single_copy_mechanism OMPI_MCA_coll "
    "OMPI_MCA_coll_hcoll_enable OMPI_MCA_coll_tuned_allreduce_algorithm "
    "OMPI_MCA_coll_tuned_bcast_algorithm OMPI_MCA_coll_tuned_use_dynamic_rules "
    "OMPI_MCA_hwloc_base_binding_policy OMPI_MCA_mpi_cuda_support OMPI_MCA_mpi_leave_pinned "
    "OMPI_MCA_mpi_yield_when_idle OMPI_MCA_mtl OMPI_MCA_opal_common_ucx_tls "
    "OMPI_MCA_opal_cuda_support OMPI_MCA_osc OMPI_MCA_plm OMPI_MCA_pml OMPI_MCA_pml_ucx_devices "
    "OMPI_MCA_pml_ucx_tls OMPI_MCA_rmaps_base_mapping_policy OMPI_MCA_rmaps_base_oversubscribe "
    "OMPI_MCA_rmaps_base_ranking_policy PRTE_MCA_hwloc_default_binding_policy "
    "PRTE_MCA_rmaps_default_mapping_policy",
    // MPICH, Cray MPICH and Intel MPI.
    "FI_PROVIDER FI_TCP_IFACE I_MPI_ADJUST_ALLREDUCE I_MPI_FABRICS I_MPI_OFI_PROVIDER I_MPI_PIN "
    "I_MPI_PIN_DOMAIN I_MPI_PIN_PROCESSOR_LIST I_MPI_THREAD_YIELD MPICH_GPU_SUPPORT_ENABLED "
    "MPICH_MAX_THREAD_SAFETY MPICH_OFI_NIC_POLICY MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM "
    "MPI_LOCALNRANKS PMI_SIZE",
    // UCX.
    "UCX_IB_GID_INDEX UCX_IB_GPU_DIRECT_RDMA UCX_IB_SL UCX_IB_TRAFFIC_CLASS UCX_MAX_EAGER_RAILS "
    "UCX_MAX_RNDV_RAILS UCX_MEMTYPE_CACHE UCX_NET_DEVICES UCX_PROTO_ENABLE UCX_RNDV_SCHEME "
    "UCX_RNDV_THRESH UCX_SOCKADDR_TLS_PRIORITY UCX_TLS UCX_ZCOPY_THRESH",
    // NCCL.
    "NCCL_ALGO NCCL_BUFFSIZE NCCL_COLLNET_ENABLE NCCL_CROSS_NIC NCCL_CUMEM_ENABLE NCCL_DEBUG "
    "NCCL_DEBUG_SUBSYS NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_DISABLE NCCL_IB_GID_INDEX NCCL_IB_HCA "
    "NCCL_IB_QPS_PER_CONNECTION NCCL_IB_SL NCCL_IB_TC NCCL_IB_TIMEOUT NCCL_LAUNCH_MODE "
    "NCCL_MAX_CTAS NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MIN_NCHANNELS NCCL_NET "
    "NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ NCCL_NET_PLUGIN NCCL_NSOCKS_PERTHREAD NCCL_NTHREADS "
    "NCCL_NVLS_ENABLE NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_PROTO NCCL_SHM_DISABLE "
    "NCCL_SOCKET_FAMILY NCCL_SOCKET_IFNAME NCCL_SOCKET_NTHREADS NCCL_TOPO_FILE NCCL_TUNER_PLUGIN",
    // CUDA and its libraries.
    "CUBLAS_WORKSPACE_CONFIG CUDA_CACHE_DISABLE CUDA_DEVICE_MAX_CONNECTIONS CUDA_DEVICE_ORDER "
    "CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_MPS_ACTIVE_THREAD_PERCENTAGE "
    "CUDA_VISIBLE_DEVICES NVIDIA_TF32_OVERRIDE PYTORCH_CUDA_ALLOC_CONF",
    // Threads.
    "GOMP_CPU_AFFINITY GOMP_SPINCOUNT KMP_AFFINITY KMP_BLOCKTIME MKL_DYNAMIC MKL_NUM_THREADS "
    "OMP_DYNAMIC OMP_MAX_ACTIVE_LEVELS OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_SCHEDULE "
    "OMP_STACKSIZE OMP_THREAD_LIMIT OMP_WAIT_POLICY",
    // Memory.
    "GLIBC_TUNABLES MALLOC_ARENA_MAX MALLOC_MMAP_THRESHOLD_ MALLOC_TOP_PAD_ "
    "MALLOC_TRIM_THRESHOLD_ THP_MEM_ALLOC_ENABLE",
    // HDF5.
    "HDF5_DISABLE_VERSION_CHECK HDF5_USE_FILE_LOCKING",
};

}  // namespace

bool may_record(const std::string& name) {
  return std::ranges::any_of(
      kRecorded, [&](std::string_view names) { return contains(split_list(names, ' '), name); });
}

std::vector<NamedText> recorded_environment() {
  std::vector<NamedText> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos && may_record(text.substr(0, equals)))
      all.push_back({"env." + text.substr(0, equals), text.substr(equals + 1)});
  }
  return all;
}

namespace {

using Json = nlohmann::json;

/// "lr = 0.1"; one list may be shorter.
std::string stated_at(const Json& values, std::size_t i) {
  if (i >= values.size()) return "nothing more";
  return fmt::format("{} = {}", values[i][0].get<std::string>(), values[i][1].get<std::string>());
}

/// The first place where the two differ, or the length of both.
std::size_t first_difference(const Json& a, const Json& b) {
  const std::size_t most = std::max(a.size(), b.size());
  for (std::size_t i = 0; i < most; ++i)
    if (i >= a.size() || i >= b.size() || a[i] != b[i]) return i;
  return most;
}

}  // namespace

std::string packed_statement(const std::string& host, const std::vector<NamedText>& stated) {
  Json json = {{"host", host}, {"values", Json::array()}};
  for (const NamedText& one : stated)
    json["values"].push_back({one.name, one.value});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Error> disagreement(const std::vector<std::string>& statements) {
  const Json first = Json::parse(statements[0]);
  for (std::size_t rank = 1; rank < statements.size(); ++rank) {
    if (statements[rank] == statements[0]) continue;
    const Json other = Json::parse(statements[rank]);
    const Json &a = first["values"], &b = other["values"];
    const std::size_t at = first_difference(a, b);
    if (at == std::max(a.size(), b.size())) continue;
    return Error(ExitCode::kRanksDisagree,
                 fmt::format("ranks disagree: rank 0 ({}) has {}, rank {} ({}) has {}",
                             first["host"].get<std::string>(), stated_at(a, at), rank,
                             other["host"].get<std::string>(), stated_at(b, at)),
                 "start every rank with the same program, options and data");
  }
  return {};
}

}  // namespace gradsync
