#include "comm/ring_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <iostream>
#include <span>

#include <fmt/format.h>
#include <openssl/crypto.h>

#include "comm/interfaces.h"
#include "support/error.h"
#include "timing/clock.h"

namespace gradsync {

namespace {

/// A stranger that connects and is silent holds a rank up no longer than this.
constexpr double kHelloPatience_s = 2;
/// A neighbour whose host has gone is noticed after idle + interval · probes = 11 s.
constexpr int kIdle_s = 5, kInterval_s = 2, kProbes = 3, kUnacknowledged_ms = 11'000;

using Proof = std::array<std::byte, 32>;

[[noreturn]] void throw_unreachable(const std::string& what) {
  throw Error(ExitCode::kEnvironment, what,
              "name the network that joins the hosts (export OMPI_MCA_btl_tcp_if_include=ib0), or "
              "take --transport mpi");
}

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  in.sin_port = htons(port);
  return in;
}

UniqueFd new_socket() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) throw_unreachable(fmt::format("no socket: {}", std::strerror(errno)));
  return socket;
}

void set(int socket, int level, int option, int value) {
  setsockopt(socket, level, option, &value, sizeof value);
}

/// Small messages leave at once, and a peer whose host is gone is noticed.
void tune(int socket) {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, kIdle_s);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, kInterval_s);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledged_ms);
}

bool readable_until(int socket, double deadline_s) {
  pollfd wait{socket, POLLIN, 0};
  const double left_s = deadline_s - now_s();
  return left_s > 0 && poll(&wait, 1, static_cast<int>(std::ceil(left_s * 1e3))) > 0;
}

bool read_proof(int socket, Proof& proof, double deadline_s) {
  std::size_t have = 0;
  while (have < proof.size()) {
    if (!readable_until(socket, deadline_s)) return false;
    const ssize_t bytes = recv(socket, proof.data() + have, proof.size() - have, 0);
    if (bytes <= 0) return false;
    have += static_cast<std::size_t>(bytes);
  }
  return true;
}

bool shows(int socket, const Proof& expected, double deadline_s) {
  Proof proof;
  return read_proof(socket, proof, deadline_s) &&
         CRYPTO_memcmp(proof.data(), expected.data(), proof.size()) == 0;
}

bool show(int socket, const Proof& proof) {
  return send(socket, proof.data(), proof.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(proof.size());
}

void set_send_patience(int socket, double patience_s) {
  const timeval patience{static_cast<time_t>(std::ceil(patience_s)), 0};
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

}  // namespace

RingSecret new_ring_secret() {
  RingSecret secret;
  static_assert(sizeof secret <= 256, "getrandom gives that much at once");
  if (getrandom(&secret, sizeof secret, 0) != static_cast<ssize_t>(sizeof secret))
    throw Error(ExitCode::kInternal,
                fmt::format("no random bytes from the system: {}", std::strerror(errno)));
  return secret;
}

RingListener::RingListener(std::uint32_t address) : socket_(new_socket()) {
  sockaddr_in at = socket_address(address, 0);
  socklen_t size = sizeof at;
  if (bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), size) != 0 ||
      listen(socket_.get(), 16) != 0 ||
      getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw_unreachable(
        fmt::format("cannot listen on {}: {}", address_text(address), std::strerror(errno)));
  port_ = ntohs(at.sin_port);
}

UniqueFd RingListener::accept(const RingSecret& secret, const std::string& previous,
                              double patience_s) const {
  const double deadline_s = now_s() + patience_s;
  while (readable_until(socket_.get(), deadline_s)) {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    UniqueFd socket(
        accept4(socket_.get(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    if (!socket) continue;
    if (shows(socket.get(), secret.of_connecting,
              std::min(deadline_s, now_s() + kHelloPatience_s)) &&
        show(socket.get(), secret.of_accepting)) {
      tune(socket.get());
      return socket;
    }
    std::cerr << fmt::format(
        "gradsync: ignored a connection from {}:{} that does not know this job's secret\n",
        address_text(ntohl(from.sin_addr.s_addr)), ntohs(from.sin_port));
  }
  throw_unreachable(
      fmt::format("no connection came from {} within {:.0f} s", previous, patience_s));
}

UniqueFd connect_to_ring(std::uint32_t address, std::uint16_t port, const RingSecret& secret,
                         const std::string& next, double patience_s) {
  UniqueFd socket = new_socket();
  set_send_patience(socket.get(), patience_s);
  const sockaddr_in to = socket_address(address, port);
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0 ||
      !show(socket.get(), secret.of_connecting))
    throw_unreachable(fmt::format("cannot connect to {} at {}:{}: {}", next, address_text(address),
                                  port, std::strerror(errno == EINPROGRESS ? ETIMEDOUT : errno)));
  set_send_patience(socket.get(), 0);
  tune(socket.get());
  return socket;
}

void confirm_ring_connection(int socket, const RingSecret& secret, const std::string& next,
                             double patience_s) {
  if (!shows(socket, secret.of_accepting, now_s() + patience_s))
    throw_unreachable(fmt::format("{} did not answer as a rank of this job", next));
}

}  // namespace gradsync
