// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "machine/gpus.h"
#include "options/modes.h"

namespace gradsync {

/// What moves tensors between ranks; its code is a class in src/transport.
struct TransportTraits {
  std::string_view name;  ///< of --transport, in run files and calibration rows
  std::string_view text;  ///< for gradsync-calibrate
  bool host_memory, gpu_memory;
  /// Where values lie at least whose reduce-scatters and allgathers it moves itself.
  Halves moves_halves = Halves::kNone;
};

/// Every transport, in the order of --help.
inline constexpr TransportTraits kTransports[] = {
    {"mpi", "MPI's own, whose waits spin", true, true},
    {"nccl", "nccl", false, true},
    {"shm", "shared memory of the node", true, false, Halves::kShared},
    {"tcp-ring", "a ring over TCP connections of the job", true, false, Halves::kInPlace},
    {"two-level", "shared memory on each node, one ring per local rank between nodes", true, false},
};

/// Null for a name that --transport does not take, and for `auto`.
const TransportTraits* find_transport(std::string_view name);

/// What moves the tensors between the ranks, and why.
struct TransportChoice {
  std::string name;  ///< mpi | nccl | shm | tcp-ring | two-level
  std::string why;
};

/// Values of --transport: auto and the transports, in the order of --help.
const std::vector<std::string>& transport_names();

/// What --help says of them.
std::string transport_help();

/// Where the ranks are.
struct RankLayout {
  int nodes = 1;
  int fewest_ranks_a_node = 1;
  bool fast_network = false;  ///< every node has an adapter that MPI drives better than TCP can
  bool ipv4 = true;           ///< every node has an IPv4 address that a ring may use
  std::string no_room = {};   ///< which node has too little shared memory; empty: none

  /// Whether MPI is what moves data between the nodes best.
  bool prefers_mpi() const { return fast_network || !ipv4; }
  int fewest_ranks() const { return nodes * fewest_ranks_a_node; }
};

/// `requested` is --transport. `auto` takes, where every rank has a GPU of its own, nccl; on other
/// GPUs mpi; for host memory on one node shm; on several nodes of several ranks two-level; else
/// mpi over a fast network, or without IPv4, and tcp-ring over Ethernet. Where shared memory has no
/// room, it takes what does without. The same machines give the same choice, so runs can be
/// repeated. Throws Error kEnvironment for nccl without GPUs, for transports of host memory with
/// them or where ranks of a host hide theirs, for shm where the ranks are not all on one node, and
/// for shared memory without room.
TransportChoice choose_transport(const std::string& requested, const DeviceChoice& device,
                                 const RankLayout& layout);

/// Every transport that can move data between these ranks, the one of `auto` first.
std::vector<std::string> possible_transports(const DeviceChoice& device, const RankLayout& layout);

}  // namespace gradsync
