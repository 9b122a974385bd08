// SPDX-License-Identifier: BSD-3-Clause
#include "options/transport_choice.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/ranges.h"
#include "machine/host.h"

namespace gradsync {

namespace {

void require_gpus(const DeviceChoice& device) {
  if (device.cuda) return;
  throw Error(ExitCode::kEnvironment,
              "--transport nccl transfers GPU memory, but the ranks compute on CPUs" +
                  (device.why.empty() ? "" : " (" + device.why + ")"),
              "give --device cuda, or leave --transport out");
}

void require_host_memory(const std::string& transport, const DeviceChoice& device) {
  if (!device.cuda) return;
  throw Error(ExitCode::kEnvironment,
              "--transport " + transport + " transfers host memory, but the ranks compute on GPUs",
              "give --transport nccl or mpi, or --device cpu");
}

}  // namespace

const std::vector<std::string>& transport_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all = {"auto"};
    for (const TransportTraits& transport : kTransports)
      all.emplace_back(transport.name);
    return all;
  }();
  return names;
}

const TransportTraits* find_transport(std::string_view name) {
  for (const TransportTraits& transport : kTransports)
    if (transport.name == name) return &transport;
  return nullptr;
}

std::string transport_help() {
  return "transport of tensors between ranks; auto: nccl where each rank has a GPU, mpi where they "
         "share GPUs; on CPUs shm on one node, two-level on nodes of several ranks each, else mpi "
         "over InfiniBand and similar networks, tcp-ring over Ethernet. two-level is for "
         "allreduce, tcp-ring for reduce-scatter and allgather of sharded modes too, shm for those "
         "of zero1; other collectives use MPI. "
         "shm: shared memory of the ranks of one node; tcp-ring: TCP connections of the job; "
         "two-level: shm on each node, one ring per local rank between nodes";
}

namespace {

TransportChoice for_host_memory(const RankLayout& layout) {
  if (layout.fewest_ranks() == 1) return {"mpi", "one rank"};
  const std::string but = layout.no_room.empty() ? "" : ", but " + layout.no_room;
  if (layout.nodes == 1) return {but.empty() ? "shm" : "mpi", "all ranks on one node" + but};
  if (layout.fewest_ranks_a_node > 1 && but.empty()) return {"two-level", "nodes of several ranks"};
  if (layout.fast_network) return {"mpi", "nodes on a fast network" + but};
  if (!layout.ipv4) return {"mpi", "nodes without IPv4" + but};
  return {"tcp-ring", "nodes on Ethernet" + but};
}

}  // namespace

TransportChoice choose_transport(const std::string& requested, const DeviceChoice& device,
                                 const RankLayout& layout) {
  if (const TransportTraits* transport = find_transport(requested)) {
    if (!transport->host_memory) require_gpus(device);
    if (!transport->gpu_memory) require_host_memory(requested, device);
  }
  if (requested == "shm" && layout.nodes > 1)
    throw Error(ExitCode::kEnvironment,
                "--transport shm is for ranks of one node, and these are on several",
                "give --transport two-level");
  if ((requested == "shm" || requested == "two-level") && !layout.no_room.empty())
    throw Error(ExitCode::kEnvironment,
                fmt::format("--transport {} has no room: {}", requested, layout.no_room),
                kSharedMemoryFix);
  if (device.cuda && !device.apart.empty() && requested != "mpi")
    throw Error(ExitCode::kEnvironment, device.apart + ": NCCL would fail in its first collective",
                kUnreachableFix);
  if (requested != "auto") return {requested, "asked for"};
  if (!device.cuda) return for_host_memory(layout);
  if (device.shared) return {"mpi", "ranks share a GPU"};
  if (device.instances) return {"mpi", "instances of a GPU (MIG), which NCCL refuses"};
  return {"nccl", "one GPU per rank"};
}

std::vector<std::string> possible_transports(const DeviceChoice& device, const RankLayout& layout) {
  std::vector<std::string> names = {choose_transport("auto", device, layout).name};
  const auto add = [&](const std::string& name) { add_once(names, name); };
  add("mpi");
  if (device.cuda) return names;
  if (layout.nodes == 1 && layout.no_room.empty()) add("shm");
  if (layout.nodes == 1 || layout.ipv4) add("tcp-ring");
  if (layout.nodes > 1 && layout.fewest_ranks_a_node > 1 && layout.no_room.empty())
    add("two-level");
  return names;
}

}  // namespace gradsync
