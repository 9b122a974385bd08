#include "comm/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

namespace gradsync {

namespace {

std::uint32_t ipv4(const sockaddr* address) {
  sockaddr_in in{};
  std::memcpy(&in, address, sizeof in);
  return ntohl(in.sin_addr.s_addr);
}

bool usable(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && entry.ifa_netmask != nullptr &&
         entry.ifa_addr->sa_family == AF_INET && (entry.ifa_flags & IFF_UP) != 0 &&
         (entry.ifa_flags & IFF_LOOPBACK) == 0;
}

/// Whether `network`, an interface's name or "10.1.0.0/16", holds the address.
bool names(std::string_view network, const InterfaceAddress& address) {
  const auto slash = network.find('/');
  if (slash == std::string_view::npos) return network == address.interface;
  in_addr base{};
  int bits = 0;
  const auto text = network.substr(slash + 1);
  if (inet_pton(AF_INET, std::string(network.substr(0, slash)).c_str(), &base) != 1 ||
      std::from_chars(text.data(), text.data() + text.size(), bits).ec != std::errc() || bits < 0 ||
      bits > 32)
    return false;
  const std::uint32_t mask = bits == 0 ? 0 : ~std::uint32_t{0} << (32 - bits);
  return (ntohl(base.s_addr) & mask) == (address.address & mask);
}

}  // namespace

std::vector<InterfaceAddress> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    if (usable(*entry))
      all.push_back({entry->ifa_name, ipv4(entry->ifa_addr), ipv4(entry->ifa_netmask)});
  return all;
}

std::vector<InterfaceAddress> among_networks(const std::vector<InterfaceAddress>& addresses,
                                             const std::string& networks) {
  if (networks.empty()) return addresses;
  std::vector<InterfaceAddress> kept;
  for (const InterfaceAddress& address : addresses) {
    std::istringstream list(networks);
    for (std::string network; std::getline(list, network, ',');)
      if (names(network, address)) {
        kept.push_back(address);
        break;
      }
  }
  return kept;
}

std::uint32_t address_between(const std::vector<InterfaceAddress>& from,
                              const std::vector<InterfaceAddress>& to) {
  for (const InterfaceAddress& there : to)
    for (const InterfaceAddress& here : from)
      if (there.mask == here.mask && (there.address & there.mask) == (here.address & here.mask))
        return there.address;
  return to.empty() ? 0 : to.front().address;
}

std::string address_text(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255,
                     address & 255);
}

}  // namespace gradsync
