// SPDX-License-Identifier: BSD-3-Clause
#include "machine/gpus.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "options/transport_choice.h"
#include "serial/expect_error.h"

using namespace gradsync;

namespace {

const std::string kFakeNvml = "build/tests/libfake_nvml.so";

/// Whether the refusal of this request names each of `parts`.
void check_refused(const DeviceRequest& request, const std::vector<DeviceFacts>& ranks,
                   const std::vector<std::string>& parts) {
  const std::string text =
      error_text(ExitCode::kEnvironment, [&] { choose_device(request, ranks); });
  CAPTURE(text);
  for (const std::string& part : parts)
    CHECK(contains(text, part));
}

std::vector<GpuDevice> gpus(int first, int count) {
  std::vector<GpuDevice> all;
  for (int i = first; i < first + count; ++i)
    all.push_back({"NVIDIA H200", "GPU-" + std::to_string(i)});
  return all;
}

DeviceFacts facts(int rank, int local_rank, std::vector<GpuDevice> visible,
                  const std::string& host = "node01") {
  return {rank, local_rank, host, "13.0", "13.0", std::move(visible), {}};
}

}  // namespace

TEST_CASE("the only visible GPU is a rank's, else that of its local rank") {
  CHECK(gpu_index(0, 1, false) == 0);
  CHECK(gpu_index(3, 1, false) == 0);
  CHECK(gpu_index(0, 4, false) == 0);
  CHECK(gpu_index(3, 4, false) == 3);
  CHECK(gpu_index(2, 2, false) == -1);
  CHECK(gpu_index(0, 0, false) == -1);
}

TEST_CASE("more ranks than GPUs take them in turn where they may share one") {
  CHECK(gpu_index(2, 2, true) == 0);
  CHECK(gpu_index(7, 4, true) == 3);
  CHECK(gpu_index(5, 1, true) == 0);
  CHECK(gpu_index(0, 0, true) == -1);
  std::vector<DeviceFacts> ranks;
  for (int rank = 0; rank < 8; ++rank)
    ranks.push_back(facts(rank, rank, gpus(0, 4)));
  const auto choice = choose_device({"cuda", true}, ranks);
  CHECK(choice.cuda);
  CHECK(choice.shared);
  check_refused({"cuda"}, ranks, {"rank 4 (node01)", "4 visible GPUs for local rank 4"});
}

TEST_CASE("ranks with a GPU each compute there, wherever their hosts number them alike") {
  const auto same_host = choose_device({}, {facts(0, 0, gpus(0, 2)), facts(1, 1, gpus(0, 2))});
  CHECK(same_host.cuda);
  CHECK_FALSE(same_host.shared);
  CHECK(same_host.why.empty());
  CHECK(choose_device({"cuda"}, {facts(0, 0, gpus(0, 1)), facts(1, 1, gpus(1, 1))}).cuda);
  CHECK(choose_device({"cuda"}, {facts(0, 0, gpus(0, 1)), facts(1, 0, gpus(0, 1), "node02")}).cuda);
}

TEST_CASE("auto takes the CPU where no rank sees a GPU, and says why; cpu asks nobody") {
  DeviceFacts bare = facts(0, 0, {});
  bare.driver = "none";
  const auto choice = choose_device({}, {bare, bare});
  CHECK_FALSE(choice.cuda);
  CHECK(choice.why == "rank 0 (node01): no CUDA driver");
  CHECK_FALSE(choose_device({"cpu"}, {facts(0, 0, gpus(0, 1))}).cuda);
  bare.runtime = "none";
  CHECK(choose_device({}, {bare}).why == "rank 0 (node01): this build is without CUDA");
}

TEST_CASE("a rank without a GPU ends a run on GPUs, whether asked for or found") {
  DeviceFacts bare = facts(1, 1, {});
  bare.driver = "none";
  const std::vector<DeviceFacts> some = {facts(0, 0, gpus(0, 1)), bare};
  for (const char* device : {"auto", "cuda"})
    check_refused({device}, some,
                  {"rank 1 (node01) has no GPU to compute on: no CUDA driver", "nvidia-smi"});
  check_refused({"cuda"}, {bare}, {"rank 1 (node01)", "no CUDA driver", "--device cpu"});
  check_refused({"auto"}, {facts(2, 2, gpus(0, 2))},
                {"rank 2 (node01)", "2 visible GPUs for local rank 2", "--gpus-per-node"});
}

TEST_CASE("a driver older than the build's CUDA is named with both versions") {
  DeviceFacts old = facts(0, 0, {});
  old.driver = "12.8";
  check_refused({"cuda"}, {old}, {"driver is for CUDA 12.8", "needs CUDA 13.0", "580"});
  CHECK(choose_device({}, {old}).why.find("12.8") != std::string::npos);
  DeviceFacts newer = facts(0, 0, gpus(0, 1));
  newer.driver = "13.2";
  CHECK(choose_device({"cuda"}, {newer}).cuda);
}

TEST_CASE("a driver that fails is no host without a GPU, and each failure has its fix") {
  for (const auto& [error, fix] :
       {std::pair("802: system not yet initialized", "Fabric Manager"),
        std::pair("803: system has unsupported display driver", "restart"),
        std::pair("804: forward compatibility", "cuda-compat"),
        std::pair("999: unknown error", "nvidia-smi")}) {
    DeviceFacts failing = facts(0, 0, {});
    failing.error = error;
    for (const char* device : {"auto", "cuda"})
      check_refused({device}, {failing}, {"rank 0 (node01)", error, fix});
  }
}

TEST_CASE("two ranks on one GPU are refused with its UUID, or allowed for tests") {
  const std::vector<DeviceFacts> shared = {facts(0, 0, gpus(7, 1)), facts(1, 1, gpus(7, 1))};
  check_refused({"cuda"}, shared,
                {"ranks 0, 1 are on one GPU, GPU-7 (node01)", "--allow-shared-gpu"});
  const auto allowed = choose_device({"cuda", true}, shared);
  CHECK(allowed.cuda);
  CHECK(allowed.shared);
}

TEST_CASE("auto: nccl where each rank has its own GPU, else by where the ranks are") {
  const DeviceChoice cpu{false, false, "rank 0 (node01): no CUDA driver"}, own{true, false, ""},
      shared{true, true, ""};
  const RankLayout alone{1, 1}, node{1, 4}, wide{4, 1}, grid{4, 2}, fast_wide{4, 1, true},
      fast_grid{4, 2, true};
  CHECK(choose_transport("auto", cpu, alone).name == "mpi");
  CHECK(choose_transport("auto", cpu, node).name == "shm");
  CHECK(choose_transport("auto", cpu, wide).name == "tcp-ring");
  CHECK(choose_transport("auto", cpu, fast_wide).name == "mpi");
  CHECK(choose_transport("auto", cpu, grid).name == "two-level");
  CHECK(choose_transport("auto", cpu, fast_grid).name == "two-level");
  for (const RankLayout& layout : {node, wide, fast_grid}) {
    CHECK(choose_transport("auto", own, layout).name == "nccl");
    CHECK(choose_transport("auto", shared, layout).name == "mpi");
  }
}

TEST_CASE("auto takes what needs no shared memory where that has no room, and gives the reason") {
  const DeviceChoice cpu{};
  const std::string no_room = "/dev/shm on node01 has 56 KiB free of 64 KiB";
  const RankLayout node{1, 4, false, true, no_room}, grid{4, 2, false, true, no_room};
  CHECK(choose_transport("auto", cpu, node).name == "mpi");
  CHECK(choose_transport("auto", cpu, node).why == "all ranks on one node, but " + no_room);
  CHECK(choose_transport("auto", cpu, grid).name == "tcp-ring");
  CHECK(choose_transport("tcp-ring", cpu, grid).name == "tcp-ring");
  CHECK(possible_transports(cpu, node) == std::vector<std::string>{"mpi", "tcp-ring"});
  CHECK(possible_transports(cpu, grid) == std::vector<std::string>{"tcp-ring", "mpi"});
  for (const char* name : {"shm", "two-level"}) {
    const std::string text =
        error_text(ExitCode::kEnvironment, [&] { choose_transport(name, cpu, node); });
    for (const char* part : {name, "node01", "--shm-size"})
      CHECK_MESSAGE(contains(text, part), text);
  }
}

TEST_CASE("all transports that ranks can use, the one of auto first") {
  using Names = std::vector<std::string>;
  const DeviceChoice cpu{}, gpu{true, false, ""};
  CHECK(possible_transports(cpu, {1, 1}) == Names{"mpi", "shm", "tcp-ring"});
  CHECK(possible_transports(cpu, {1, 4}) == Names{"shm", "mpi", "tcp-ring"});
  RankLayout without_ipv4{2, 1};
  without_ipv4.ipv4 = false;
  CHECK(possible_transports(cpu, without_ipv4) == Names{"mpi"});
  CHECK(possible_transports(cpu, {3, 1}) == Names{"tcp-ring", "mpi"});
  CHECK(possible_transports(cpu, {2, 2}) == Names{"two-level", "mpi", "tcp-ring"});
  CHECK(possible_transports(gpu, {2, 2}) == Names{"nccl", "mpi"});
}

TEST_CASE("what is asked for is taken, and refused where it cannot be") {
  const DeviceChoice cpu{false, false, "rank 0 (node01): no CUDA driver"}, own{true, false, ""},
      shared{true, true, ""};
  const RankLayout node{1, 4}, nodes{2, 2};
  CHECK(choose_transport("mpi", own, node).name == "mpi");
  CHECK(choose_transport("mpi", cpu, node).name == "mpi");
  CHECK(choose_transport("nccl", shared, node).name == "nccl");
  CHECK(choose_transport("shm", cpu, node).name == "shm");
  CHECK(choose_transport("tcp-ring", cpu, nodes).name == "tcp-ring");
  CHECK(choose_transport("two-level", cpu, nodes).name == "two-level");
  const auto refusal = [](const char* name, const DeviceChoice& device, const RankLayout& layout) {
    return error_text(ExitCode::kEnvironment, [&] { choose_transport(name, device, layout); });
  };
  CHECK(contains(refusal("nccl", cpu, node), "no CUDA driver"));
  CHECK(contains(refusal("nccl", cpu, node), "--device cuda"));
  CHECK(contains(refusal("shm", cpu, nodes), "two-level"));
  CHECK(contains(refusal("tcp-ring", own, node), "--device cpu"));
}

TEST_CASE("what NVML says of a GPU, and what it does not") {
  std::string why;
  const auto monitor = open_nvml("GPU-fake", why, kFakeNvml);
  REQUIRE_MESSAGE(monitor, why);
  const GpuReading reading = monitor->read();
  CHECK(reading.memory_used_bytes == 700);
  CHECK(reading.sm_clock_hz == 1980e6);
  CHECK(reading.memory_clock_hz == 3201e6);
  CHECK(std::isnan(reading.power_w));
  CHECK(reading.temperature_c == 41);
  CHECK(reading.throttle_reasons == 0x25);
  CHECK(reading.memory_bytes == 1000);
  CHECK(reading.busy == doctest::Approx(0.93));
  CHECK(reading.memory_busy == doctest::Approx(0.41));
  CHECK(reading.energy_j == doctest::Approx(1.5));
  CHECK(monitor->uncorrected_errors() == 2);
}

TEST_CASE("an instance of a GPU is found by NVML, and does not travel over NCCL by itself") {
  std::string why;
  CHECK_MESSAGE(open_nvml("GPU-part", why, kFakeNvml), why);
  const auto instance = [](int rank, const char* host) {
    return facts(rank, 0, {{"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "GPU-" + std::to_string(rank)}},
                 host);
  };
  const DeviceChoice together = choose_device({}, {instance(0, "a"), instance(1, "a")}),
                     apart = choose_device({}, {instance(0, "a"), instance(1, "b")});
  CHECK(choose_transport("auto", together, {1, 2}).name == "mpi");
  CHECK(choose_transport("auto", apart, {2, 1}).name == "nccl");
}

TEST_CASE("ranks from which the driver hides each other's GPUs do not start NCCL") {
  CHECK(unseen_gpus("GPU-fake", {"GPU-fake", "GPU-bare", "GPU-part"}, kFakeNvml).empty());
  CHECK(unseen_gpus("GPU-fake", {"GPU-fake", "GPU-7"}, kFakeNvml) ==
        std::vector<std::string>{"GPU-7"});
  CHECK(unseen_gpus("GPU-fake", {"GPU-7"}, "libno-nvml.so.1").empty());
  std::vector<DeviceFacts> ranks = {facts(0, 0, gpus(0, 1)), facts(1, 1, gpus(1, 1))};
  CHECK(choose_transport("auto", choose_device({}, ranks), {1, 2}).name == "nccl");
  ranks[0].unseen = {"GPU-1"};
  const DeviceChoice choice = choose_device({}, ranks);
  CHECK(choose_transport("mpi", choice, {1, 2}).name == "mpi");
  for (const char* name : {"auto", "nccl"}) {
    const std::string text = error_text(ExitCode::kEnvironment, [&] {
      choose_transport(name, choice, {1, 2});
    });
    for (const char* part : {"GPU-1", "rank 0 (node01)", "--gpu-bind=none", "--gpus-per-task"})
      CHECK_MESSAGE(contains(text, part), text);
  }
}

TEST_CASE("what NCCL chose is read from its log") {
  const std::string head = "node1:5183:5236 [0] NCCL INFO ";
  std::string log;
  for (const char* line :
       {"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_2:1/IB [RO]; OOB ib0:192.168.1.10<0>",
        "Using network IB", "NVLS multicast support is available on dev 0",
        "Pattern 4, crossNic 0, nChannels 16, bw 40.000000/40.000000, type NVL/PIX, sameChannels 1",
        "Pattern 1, crossNic 0, nChannels 8, bw 20.000000/20.000000, type SYS/PIX, sameChannels 1",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "Channel 00/0 : 9[1] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        "Channel 00/0 : 0[0] -> 9[1] [send] via NET/IB/3(1)/GDRDMA",
        "16 coll channels, 0 collnet channels, 8 nvls channels, 32 p2p channels, 32 p2p channels "
        "per peer",
        "AllReduce: 67108864 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"})
    log += head + line + "\n";
  CHECK(nccl_choices(log) ==
        "network IB; NET/IB/GDRDMA, P2P/CUMEM; NVLink between GPUs; 16 channels, 8 of NVLS; NVLS, "
        "SIMPLE for 67108864 B");
  CHECK(nccl_choices("Pattern 4, crossNic 0, type PHB/PIX, sameChannels 1\n") ==
        "PHB between GPUs, no NVLink");
  CHECK(nccl_choices("Pattern 4, crossNic 0, type LOC/PIX, sameChannels 1\n").empty());
  CHECK(nccl_choices(head + "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n") ==
        "SHM/direct/direct");
  CHECK(nccl_choices("").empty());
}

/// The plugin as NCCL calls it: the layouts are those of version 4 of its profiler interface.
struct NcclEvent {
  std::uint8_t type = 0;
  void* parent = nullptr;
  int rank = 0;
  struct {
    std::uint64_t number = 0;
    const char* function = nullptr;
    const void* send = nullptr;
    void* receive = nullptr;
    std::size_t count = 0;
    int root = 0;
    const char* type = nullptr;
    std::uint8_t channels = 0, warps = 0;
    const char *algorithm = nullptr, *protocol = nullptr;
  } collective;
};
struct NcclProfiler {
  const char* name;
  int (*init)(void**, int*, const char*, std::uint64_t, int, int, int, void*);
  int (*start)(void*, void**, const NcclEvent*);
  int (*stop)(void*);
  int (*record)(void*, int, void*);
  int (*end)(void*);
};

TEST_CASE("NCCL finds the program's plugin, which keeps what it chose, each once") {
  keep_nccl_choices();
  CHECK(std::string(std::getenv("NCCL_PROFILER_PLUGIN")) == "STATIC_PLUGIN");
  const auto* plugin =
      static_cast<const NcclProfiler*>(::dlsym(::dlopen(nullptr, RTLD_NOW), "ncclProfiler_v4"));
  REQUIRE(plugin != nullptr);
  void* context = nullptr;
  int wanted = 0;
  CHECK(plugin->init(&context, &wanted, nullptr, 7, 1, 8, 0, nullptr) == 0);
  CHECK(wanted == 2);  // ncclProfileColl alone: the others cost a thread, or time on the GPU
  const auto tell = [&](std::uint8_t type, const char* name, std::size_t count) {
    NcclEvent event;
    event.type = type;
    event.collective = {0, "AllReduce", nullptr, nullptr, count, 0, name, 16, 20, "NVLS", "SIMPLE"};
    void* handle = nullptr;
    CHECK(plugin->start(context, &handle, &event) == 0);
    CHECK(handle != nullptr);  // NCCL tells nothing of the collectives of a group without one
    CHECK(plugin->record(handle, 0, nullptr) == 0);
    CHECK(plugin->stop(handle) == 0);
  };
  for (int call = 0; call < 3; ++call)
    tell(2, "ncclFloat32", 1 << 20);
  tell(1, "ncclFloat32", 5);  // a group
  tell(2, "ncclOther", 5);
  CHECK(plugin->end(context) == 0);
  CHECK(kept_nccl_choices() ==
        std::vector<NcclChoice>{{"AllReduce", "ncclFloat32", 4 << 20, "NVLS", "SIMPLE", 16},
                                {"AllReduce", "ncclOther", -1, "NVLS", "SIMPLE", 16}});
}

TEST_CASE("NVML: how a GPU is connected, also where it has no NVLink") {
  std::string why;
  const auto monitor = open_nvml("GPU-fake", why, kFakeNvml),
             bare = open_nvml("GPU-bare", why, kFakeNvml);
  REQUIRE_MESSAGE(monitor, why);
  REQUIRE_MESSAGE(bare, why);
  const GpuLinks links = monitor->links(), none = bare->links();
  CHECK(links.pcie_generation == 5);
  CHECK(links.pcie_lanes == 16);
  CHECK(links.nvlinks == 3);
  CHECK(links.all_nvlinks == 4);
  CHECK(links.nvlink_Bps == doctest::Approx(26.562e9));
  CHECK(links_text(links) == "PCIe 5 x16, 3 NVLinks of 26.6 GB/s");
  CHECK(none.pcie_lanes == 16);
  CHECK(none.nvlinks == -1);
  CHECK(none.all_nvlinks == -1);
  CHECK(std::isnan(none.nvlink_Bps));
  CHECK(links_text(none) == "PCIe 5 x16");
  CHECK(std::isnan(bare->read().energy_j));
  CHECK(monitor->path_to("GPU-bare") == "NODE");
  CHECK(monitor->path_to("GPU-fake") == "X");
  CHECK(monitor->path_to("GPU-other") == "");
  CHECK(common_ancestor_name(50) == "SYS");
}

TEST_CASE("without NVML, or without the GPU, there is a reason instead of a monitor") {
  std::string why;
  CHECK_FALSE(open_nvml("GPU-fake", why, "libno-nvml.so.1"));
  CHECK(why == "libno-nvml.so.1 is not there");
  CHECK_FALSE(open_nvml("GPU-fake", why, "libm.so.6"));
  CHECK(why == "libm.so.6 is no NVML");
  CHECK_FALSE(open_nvml("GPU-other", why, kFakeNvml));
  CHECK(why == "NVML knows no GPU GPU-other: error 6");
}

TEST_CASE("reasons for lower clocks are named; what is no loss is not") {
  CHECK(throttle_names(0x4 | 0x40) == "power cap, thermal slowdown (hardware)");
  CHECK(throttle_names(0x1 | 0x2 | 0x100).empty());
  CHECK(throttle_names(-1).empty());
}
