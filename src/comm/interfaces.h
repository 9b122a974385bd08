#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradsync {

/// An IPv4 address of this host, in host byte order.
struct InterfaceAddress {
  std::string interface;
  std::uint32_t address = 0, mask = 0;
};

/// The addresses of the interfaces that are up, in the kernel's order, without loopback.
std::vector<InterfaceAddress> own_addresses();

/// Those that `networks` names: interfaces ("ib0") or networks ("10.1.0.0/16"), with commas
/// between, as Open MPI's btl_tcp_if_include has them; all if it is empty.
std::vector<InterfaceAddress> among_networks(const std::vector<InterfaceAddress>& addresses,
                                             const std::string& networks);

/// Where a host with addresses `from` reaches one with addresses `to`: the first of `to` in a
/// network that both are in, else the first at all; 0 if there is none. Both hosts come to the
/// same.
std::uint32_t address_between(const std::vector<InterfaceAddress>& from,
                              const std::vector<InterfaceAddress>& to);

/// "10.0.0.2".
std::string address_text(std::uint32_t address);

}  // namespace gradsync
