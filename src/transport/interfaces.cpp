// SPDX-License-Identifier: BSD-3-Clause
#include "transport/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "base/launcher.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

const fs::path kClassNet = "/sys/class/net";
constexpr unsigned kUsable = IFF_UP | IFF_RUNNING;
constexpr int kPorts = 65'536;
/// Open MPI's own default for btl_tcp_port_min_v4.
constexpr int kFirstPort = 1024;

std::uint32_t ipv4(const sockaddr* address) {
  sockaddr_in in{};
  std::memcpy(&in, address, sizeof in);
  return ntohl(in.sin_addr.s_addr);
}

bool usable(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && entry.ifa_netmask != nullptr &&
         entry.ifa_addr->sa_family == AF_INET && (entry.ifa_flags & kUsable) == kUsable &&
         (entry.ifa_flags & IFF_LOOPBACK) == 0;
}

/// Interfaces that `name` stands on: ports of a bridge, members of a bond, the carrier of a VLAN.
std::vector<std::string> below(const fs::path& class_net, const std::string& name) {
  constexpr std::string_view kLower = "lower_";
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(class_net / name, error), end; !error && entry != end;
       entry.increment(error))
    if (const std::string link = entry->path().filename().string(); link.starts_with(kLower))
      names.push_back(link.substr(kLower.size()));
  return names;
}

bool stands_on_hardware(const fs::path& class_net, const std::string& name) {
  std::error_code ignored;
  if (fs::exists(class_net / name / "device", ignored)) return true;
  const auto lower = below(class_net, name);
  return std::ranges::any_of(
      lower, [&](const std::string& one) { return stands_on_hardware(class_net, one); });
}

/// Value of a variable that holds a number from `least` to 65535; `otherwise` if it is not set.
int port_number(const char* name, int least, int otherwise) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least ||
      number >= kPorts)
    throw Error(ExitCode::kUsage,
                fmt::format("environment: {} = {} is not a number from {} to {}", name, text, least,
                            kPorts - 1),
                fmt::format("unset {}, or set it to what the hosts' firewall lets through", name));
  return number;
}

/// Whether `network`, an interface's name or "10.1.0.0/16", holds the address.
bool is_named_by(std::string_view network, const InterfaceAddress& address) {
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

/// Whether one of the networks, with commas between, holds the address.
bool in_list(const std::string& networks, const InterfaceAddress& address) {
  std::istringstream list(networks);
  for (std::string network; std::getline(list, network, ',');)
    if (is_named_by(network, address)) return true;
  return false;
}

bool owns(const std::vector<InterfaceAddress>& host, std::uint32_t address) {
  return std::ranges::any_of(host,
                             [&](const InterfaceAddress& own) { return own.address == address; });
}

bool same_network(const InterfaceAddress& a, const InterfaceAddress& b) {
  return a.mask == b.mask && (a.address & a.mask) == (b.address & b.mask);
}

}  // namespace

NetworkNames tcp_networks() {
  return {variable("OMPI_MCA_btl_tcp_if_include"), variable("OMPI_MCA_btl_tcp_if_exclude")};
}

PortRange tcp_ports() {
  constexpr const char* kMinimum = "OMPI_MCA_btl_tcp_port_min_v4";
  constexpr const char* kRange = "OMPI_MCA_btl_tcp_port_range_v4";
  if (variable(kMinimum).empty() && variable(kRange).empty()) return {};
  const int first = port_number(kMinimum, 1, kFirstPort);
  const int count = std::min(port_number(kRange, 1, kPorts - 1), kPorts - first);
  return {static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(count)};
}

std::vector<InterfaceAddress> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next)
    if (usable(*entry))
      all.push_back({entry->ifa_name, ipv4(entry->ifa_addr), ipv4(entry->ifa_netmask),
                     is_bridge_of_one_host(kClassNet, entry->ifa_name)});
  return all;
}

bool is_bridge_of_one_host(const fs::path& class_net, const std::string& name) {
  std::error_code ignored;
  return fs::exists(class_net / name / "bridge", ignored) && !stands_on_hardware(class_net, name);
}

namespace {

/// Whether it is in 169.254.0.0/16 (RFC 3927).
bool is_link_local(const InterfaceAddress& address) {
  return address.address >> 16 == 0xA9FE;
}

}  // namespace

std::vector<InterfaceAddress> among_networks(const std::vector<InterfaceAddress>& addresses,
                                             const NetworkNames& names) {
  const auto usable_for_others = [&](const InterfaceAddress& address) {
    if (!names.include.empty()) return in_list(names.include, address);
    return !address.stays_here && !in_list(names.exclude, address);
  };
  std::vector<InterfaceAddress> kept;
  std::ranges::copy_if(addresses, std::back_inserter(kept), usable_for_others);
  // All hosts are in this network, most of them alone: the link to a board's controller is.
  if (names.include.empty() && !std::ranges::all_of(kept, is_link_local))
    std::erase_if(kept, is_link_local);
  return kept;
}

std::uint32_t address_between(const std::vector<InterfaceAddress>& from,
                              const std::vector<InterfaceAddress>& to) {
  std::uint32_t first = 0;
  for (const InterfaceAddress& there : to) {
    if (owns(from, there.address)) continue;
    if (first == 0) first = there.address;
    for (const InterfaceAddress& here : from)
      if (!owns(to, here.address) && same_network(here, there)) return there.address;
  }
  return first;
}

std::string address_text(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, address >> 16 & 255, address >> 8 & 255,
                     address & 255);
}

}  // namespace gradsync
