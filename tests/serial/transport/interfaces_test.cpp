// SPDX-License-Identifier: BSD-3-Clause
#include "transport/interfaces.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "serial/expect_error.h"
#include "serial/test_folder.h"

using namespace gradsync;

namespace {

namespace fs = std::filesystem;

using Host = std::vector<InterfaceAddress>;

std::uint32_t ip(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return a << 24 | b << 16 | c << 8 | d;
}

constexpr std::uint32_t k16 = 0xffff0000, k24 = 0xffffff00;

InterfaceAddress ethernet(std::uint32_t network, std::uint32_t host) {
  return {"eth0", ip(10, 0, network, host), k24};
}

/// What Docker makes on every host alike.
const InterfaceAddress kDocker{"docker0", ip(172, 17, 0, 1), k16};

std::string between(const Host& from, const Host& to) {
  return address_text(address_between(from, to));
}

std::string names_of(const Host& host) {
  std::string names;
  for (const InterfaceAddress& one : host)
    names += names.empty() ? one.interface : "," + one.interface;
  return names;
}

/// While it lives, a variable has this value.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// In network and mount namespaces of its own, with `commands` done: what own_addresses() names,
/// each after a space. Empty where that is not allowed.
std::string seen_in_namespace(const std::string& commands) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const bool alone = unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                       mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0 &&
                       std::system(commands.c_str()) == 0;
    std::string seen;
    if (alone) {
      seen = "addresses:";
      for (const InterfaceAddress& one : own_addresses())
        seen += fmt::format(" {}{}", one.interface, one.stays_here ? " (bridge)" : "");
    }
    _exit(write(ends[1], seen.data(), seen.size()) == static_cast<ssize_t>(seen.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string seen(4096, ' ');
  const ssize_t bytes = read(ends[0], seen.data(), seen.size());
  close(ends[0]);
  waitpid(child, nullptr, 0);
  seen.resize(static_cast<std::size_t>(std::max<ssize_t>(bytes, 0)));
  return seen;
}

}  // namespace

TEST_CASE("the address between two hosts is in a network that both are in") {
  const Host here = {{"eth0", ip(10, 0, 0, 1), k24}, {"ib0", ip(192, 168, 7, 1), k24}};
  const Host there = {{"eth0", ip(10, 0, 9, 2), k24}, {"ib0", ip(192, 168, 7, 2), k24}};
  CHECK(between(here, there) == "192.168.7.2");
  CHECK(between({here[0]}, {there[0]}) == "10.0.9.2");  // through a router
  CHECK(address_between(here, {}) == 0);
}

TEST_CASE("an address that both hosts own is none between them") {
  CHECK(between({ethernet(1, 1), kDocker}, {ethernet(2, 1), kDocker}) == "10.0.2.1");
  CHECK(between({kDocker, ethernet(1, 1)}, {kDocker, ethernet(2, 1)}) == "10.0.2.1");
  CHECK(between({kDocker, ethernet(1, 1)}, {kDocker, ethernet(1, 2)}) == "10.0.1.2");
  CHECK(address_between({kDocker}, {kDocker}) == 0);
  // Neither is a network of both what only the one that would connect shares.
  const InterfaceAddress other{"docker0", ip(172, 17, 0, 9), k16};
  CHECK(between({kDocker, ethernet(1, 1)}, {kDocker, other, ethernet(2, 1)}) == "172.17.0.9");
}

TEST_CASE("sixteen hosts with bridges of their own reach each other by Ethernet") {
  std::vector<Host> hosts;
  for (std::uint32_t i = 1; i <= 16; ++i)
    hosts.push_back({kDocker,
                     {"virbr0", ip(192, 168, 122, 1), k24},
                     {"podman0", ip(10, 88, 0, 1), k16},
                     ethernet(i, 1)});
  for (std::size_t i = 0; i < hosts.size(); ++i)
    CHECK(between(hosts[i], hosts[(i + 1) % 16]) == fmt::format("10.0.{}.1", (i + 1) % 16 + 1));
}

TEST_CASE("link-local addresses are used where there are no others") {
  const auto host = [](std::uint32_t network) {
    return Host{{"usb0", ip(169, 254, network, 7), k16}, ethernet(network, 1)};
  };
  CHECK(between(among_networks(host(3), {}), among_networks(host(9), {})) == "10.0.9.1");
  CHECK(names_of(among_networks({host(3)[0]}, {})) == "usb0");
  CHECK(names_of(among_networks(host(3), {"usb0", ""})) == "usb0");  // asked for
}

TEST_CASE("networks that are named are taken or left out as Open MPI does") {
  Host host = {{"eth0", ip(10, 0, 0, 1), k24}, {"ib0", ip(192, 168, 7, 1), k24}, kDocker};
  host[2].stays_here = true;
  const auto among = [&](const char* include, const char* exclude) {
    return names_of(among_networks(host, {include, exclude}));
  };
  CHECK(among("", "") == "eth0,ib0");
  CHECK(among("lo,ib0", "") == "ib0");
  CHECK(among("10.0.0.0/16", "") == "eth0");
  CHECK(among("10.1.0.0/16,nonsense/99", "") == "");
  CHECK(among("0.0.0.0/0", "") == "eth0,ib0,docker0");
  CHECK(among("10.0.0.0/-1", "") == "");
  CHECK(among("", "eth0") == "ib0");
  CHECK(among("", "127.0.0.1/8,192.168.0.0/16") == "eth0");
  CHECK(among("docker0", "") == "docker0");  // asked for
  CHECK(among("ib0", "ib0") == "ib0");       // Open MPI knows one of them at a time
}

TEST_CASE("networks and ports come from Open MPI's variables") {
  CHECK(tcp_networks().include == "");
  CHECK(tcp_ports().count == 0);
  const Variable include("OMPI_MCA_btl_tcp_if_include", "ib0"),
      exclude("OMPI_MCA_btl_tcp_if_exclude", "eth1");
  CHECK(tcp_networks().include == "ib0");
  CHECK(tcp_networks().exclude == "eth1");
  {
    const Variable minimum("OMPI_MCA_btl_tcp_port_min_v4", "46000"),
        range("OMPI_MCA_btl_tcp_port_range_v4", "100");
    CHECK(tcp_ports().first == 46'000);
    CHECK(tcp_ports().count == 100);
  }
  {
    const Variable minimum("OMPI_MCA_btl_tcp_port_min_v4", "65000");
    CHECK(tcp_ports().first == 65'000);
    CHECK(tcp_ports().count == 536);
  }
  for (const char* text : {"0", "65536", "-1", "4x", ""}) {
    const Variable minimum("OMPI_MCA_btl_tcp_port_min_v4", text);
    if (*text == 0)
      CHECK(tcp_ports().count == 0);
    else
      CHECK(contains(refusal([] { tcp_ports(); }), "OMPI_MCA_btl_tcp_port_min_v4"));
  }
}

TEST_CASE("a bridge without hardware behind it ends at its host") {
  const TestFolder net;
  const auto make = [&](const char* path) { fs::create_directories(net / path); };
  make("eth0/device");
  make("veth7");
  make("docker0/bridge");
  make("docker0/lower_veth7");
  make("virbr0/bridge");
  make("br0/bridge");
  make("br0/lower_veth7");
  make("br0/lower_bond0");
  make("bond0/lower_vlan5");
  make("vlan5/lower_eth0");
  for (const char* name : {"docker0", "virbr0"})
    CHECK(is_bridge_of_one_host(net.path(), name));
  for (const char* name : {"br0", "bond0", "eth0", "veth7", "gone"})
    CHECK(!is_bridge_of_one_host(net.path(), name));
}

TEST_CASE("interfaces that are down, or without a carrier, are none of this host's addresses") {
  const std::string seen = seen_in_namespace(
      "{ ip link add wire type veth peer name other && ip addr add 10.1.0.1/24 dev wire &&"
      "  ip link set wire up && ip link set other up &&"
      "  ip link add loose type veth peer name end && ip addr add 10.2.0.1/24 dev loose &&"
      "  ip link set loose up &&"  // its other end is down: no carrier
      "  ip link add unused type veth peer name idle && ip addr add 10.3.0.1/24 dev unused &&"
      "  ip link add empty type bridge && ip addr add 10.4.0.1/24 dev empty && ip link set empty "
      "up &&"
      "  ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 &&"
      "  ip link set docker0 up && ip link add v1 type veth peer name v2 &&"
      "  ip link set v1 master docker0 && ip link set v1 up && ip link set v2 up &&"
      "  ip link set lo up && sleep 0.2; } >/dev/null 2>&1");
  if (seen.empty())
    MESSAGE("SKIP: interfaces that are down: needs the right to make network namespaces, and ip");
  else
    CHECK(seen == "addresses: wire empty (bridge) docker0 (bridge)");
}
