// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gradsync {

/// An IPv4 address of this host, in host byte order.
struct InterfaceAddress {
  std::string interface;
  std::uint32_t address = 0, mask = 0;
  /// A bridge between programs of this host (docker0, virbr0, cni0): no other host is behind it.
  bool stays_here = false;
};

/// TCP ports to listen on, in host byte order; any if there are none.
struct PortRange {
  std::uint16_t first = 0, count = 0;
};

/// Which networks to use, and which not: interfaces ("ib0") or networks ("10.1.0.0/16"), with
/// commas between.
struct NetworkNames {
  std::string include, exclude;
};

/// The network settings of a site for Open MPI, which the connections of gradsync follow as well:
/// OMPI_MCA_btl_tcp_if_include and _if_exclude, …
NetworkNames tcp_networks();
/// … OMPI_MCA_btl_tcp_port_min_v4 and _port_range_v4. Throws Error kUsage for what is no port.
PortRange tcp_ports();

/// The addresses of the interfaces that are up and running, in the kernel's order, without
/// loopback.
std::vector<InterfaceAddress> own_addresses();

/// Whether the interface `name` of `class_net` (/sys/class/net) is a bridge that nothing but
/// programs of this host is connected to: none of its ports stands on hardware, directly or through
/// others (a bond, a VLAN).
bool is_bridge_of_one_host(const std::filesystem::path& class_net, const std::string& name);

/// Addresses that connections to other hosts may use: what `names` includes, whatever it is; if it
/// includes nothing, all but what it excludes and what stays on this host.
std::vector<InterfaceAddress> among_networks(const std::vector<InterfaceAddress>& addresses,
                                             const NetworkNames& names);

/// Where a host with addresses `from` reaches one with addresses `to`: the first of `to` in a
/// network that both are in, else the first at all; 0 if there is none. Never an address that both
/// own. Both hosts come to the same.
std::uint32_t address_between(const std::vector<InterfaceAddress>& from,
                              const std::vector<InterfaceAddress>& to);

/// "10.0.0.2".
std::string address_text(std::uint32_t address);

}  // namespace gradsync
