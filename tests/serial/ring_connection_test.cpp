#include "comm/ring_connection.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include "comm/interfaces.h"
#include "serial/expect_error.h"

using namespace gradsync;

namespace {

constexpr double kPatience_s = 20;

/// A stranger: connects and sends `bytes`; the connection stays open while the result lives.
UniqueFd stranger(std::uint16_t port, std::string_view bytes) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  REQUIRE(connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  REQUIRE(send(socket.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return socket;
}

}  // namespace

TEST_CASE("a ring takes the rank that knows the secret, and no one who came before it") {
  const RingSecret secret = new_ring_secret();
  const RingListener listener(INADDR_LOOPBACK);
  const UniqueFd garbage = stranger(listener.port(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const UniqueFd short_one = stranger(listener.port(), "x");
  const UniqueFd guess = stranger(listener.port(), std::string(32, '\0'));
  const UniqueFd next =
      connect_to_ring(INADDR_LOOPBACK, listener.port(), secret, "rank 1", kPatience_s);
  const UniqueFd previous = listener.accept(secret, "rank 0", kPatience_s);
  confirm_ring_connection(next.get(), secret, "rank 1", kPatience_s);
  REQUIRE(send(next.get(), "hello", 5, 0) == 5);
  char text[5];
  REQUIRE(recv(previous.get(), text, 5, MSG_WAITALL) == 5);
  CHECK(std::string_view(text, 5) == "hello");
  char byte;
  CHECK(recv(garbage.get(), &byte, 1, 0) <= 0);  // closed
}

TEST_CASE("secrets differ, and a listener that answers with another one is refused") {
  const RingSecret secret = new_ring_secret(), other = new_ring_secret();
  CHECK(secret.of_connecting != other.of_connecting);
  CHECK(secret.of_connecting != secret.of_accepting);
  const RingListener listener(INADDR_LOOPBACK);
  const RingSecret half{secret.of_connecting, other.of_accepting};
  const UniqueFd next =
      connect_to_ring(INADDR_LOOPBACK, listener.port(), secret, "rank 1", kPatience_s);
  const UniqueFd previous = listener.accept(half, "rank 0", kPatience_s);
  const std::string text = error_text(ExitCode::kEnvironment, [&] {
    confirm_ring_connection(next.get(), secret, "rank 1 (node02)", kPatience_s);
  });
  CHECK(contains(text, "rank 1 (node02)"));
}

TEST_CASE("a neighbour that does not come, and a port where nobody listens, are named") {
  const RingSecret secret = new_ring_secret();
  std::uint16_t port = 0;
  {
    const RingListener listener(INADDR_LOOPBACK);
    port = listener.port();
    CHECK(contains(error_text(ExitCode::kEnvironment,
                              [&] { listener.accept(secret, "rank 3 (node04)", 0.1); }),
                   "rank 3 (node04)"));
  }
  const std::string text = error_text(ExitCode::kEnvironment, [&] {
    connect_to_ring(INADDR_LOOPBACK, port, secret, "rank 2 (node03)", kPatience_s);
  });
  CHECK(contains(text, "rank 2 (node03) at 127.0.0.1"));
  CHECK(contains(text, "--transport mpi"));
}

TEST_CASE("the address between two hosts is in a network that both are in") {
  const auto ip = [](std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    return a << 24 | b << 16 | c << 8 | d;
  };
  const std::uint32_t mask = 0xffffff00;
  const std::vector<InterfaceAddress> here = {{"eth0", ip(10, 0, 0, 1), mask},
                                              {"ib0", ip(192, 168, 7, 1), mask}};
  const std::vector<InterfaceAddress> there = {{"eth0", ip(10, 0, 9, 2), mask},
                                               {"ib0", ip(192, 168, 7, 2), mask}};
  CHECK(address_text(address_between(here, there)) == "192.168.7.2");
  CHECK(address_between({here[0]}, {there[0]}) == there[0].address);  // through a router
  CHECK(address_between(here, {}) == 0);
  CHECK(among_networks(here, "").size() == 2);
  CHECK(among_networks(here, "lo,ib0").at(0).interface == "ib0");
  CHECK(among_networks(here, "10.0.0.0/16").at(0).interface == "eth0");
  CHECK(among_networks(here, "10.1.0.0/16,nonsense/99").empty());
}
