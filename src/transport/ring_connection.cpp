// The two ends prove to each other that they belong to the same job:
//
//   accepting   challenge a                      → connecting
//   connecting  challenge b, proof("from", a, b) → accepting
//   accepting   proof("to", a, b)                → connecting
//
// where proof is HMAC-SHA-256, with the secret, of who proves it, the ranks at both ends and the
// challenges. Who answers at a wrong address learns nothing that helps it elsewhere.
#include "transport/ring_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/error.h"
#include "stats/clock.h"

namespace gradsync {

namespace {

/// Who connects further drops the one that has waited longest.
constexpr std::size_t kMostCandidates = 64;
constexpr int kBacklog = 16;
/// TCP itself never gives a neighbor up that is late, stopped or cut off for a while: the watchdog
/// decides how long a collective may take, and ends the job with the names of the missing ranks.
constexpr int kNever_ms = INT_MAX;

using Challenge = std::array<std::byte, 32>;
using Proof = std::array<std::byte, 32>;

/// What the connecting end answers to a challenge.
struct Answer {
  Challenge challenge;
  Proof proof;
};

[[noreturn]] void throw_unreachable(const std::string& what) {
  throw Error(ExitCode::kEnvironment, what,
              "name the network that joins the hosts (export OMPI_MCA_btl_tcp_if_include=ib0), or "
              "use --transport mpi");
}

sockaddr_in socket_address(std::uint32_t address, std::uint16_t port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(address);
  in.sin_port = htons(port);
  return in;
}

UniqueFd new_socket() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) throw_unreachable(fmt::format("no socket: {}", std::strerror(errno)));
  return socket;
}

/// Small messages leave at once.
void tune(int socket) {
  const auto set = [&](int option, int value) {
    setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_NODELAY, 1);
  set(TCP_USER_TIMEOUT, kNever_ms);
}

template <typename T>
T random_bytes() {
  T bytes;
  static_assert(sizeof bytes <= 256, "getrandom gives that much at once");
  if (getrandom(&bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    throw Error(ExitCode::kInternal,
                fmt::format("no random bytes from the system: {}", std::strerror(errno)));
  return bytes;
}

Proof proof_of(const char* role, const RingSecret& secret, RingEdge edge,
               const Challenge& accepting, const Challenge& connecting) {
  std::string text = fmt::format("{} {} {} ", role, edge.from, edge.to);
  for (const Challenge* one : {&accepting, &connecting})
    text.append(reinterpret_cast<const char*>(one->data()), one->size());
  Proof proof;
  unsigned size = proof.size();
  if (HMAC(EVP_sha256(), secret.key.data(), static_cast<int>(secret.key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(),
           reinterpret_cast<unsigned char*>(proof.data()), &size) == nullptr)
    throw Error(ExitCode::kInternal, "OpenSSL computes no HMAC-SHA-256");
  return proof;
}

bool equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

/// Whether a socket is ready before the deadline. A signal does not end the wait.
bool ready_until(std::span<pollfd> sockets, double deadline_s) {
  for (;;) {
    const double left_s = deadline_s - now_s();
    if (left_s <= 0) return false;
    const int ready =
        poll(sockets.data(), sockets.size(), static_cast<int>(std::ceil(left_s * 1e3)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool ready_until(int socket, short events, double deadline_s) {
  pollfd one{socket, events, 0};
  return ready_until({&one, 1}, deadline_s);
}

enum class Received { kAll, kPart, kNothingMore };

/// Receives what has come of `bytes`, of which `have` are there already.
Received receive_some(int socket, std::span<std::byte> bytes, std::size_t& have) {
  while (have < bytes.size()) {
    const ssize_t count = recv(socket, bytes.data() + have, bytes.size() - have, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return Received::kPart;
    if (count <= 0) return Received::kNothingMore;
    have += static_cast<std::size_t>(count);
  }
  return Received::kAll;
}

template <typename T>
std::span<std::byte> bytes_of(T& value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

template <typename T>
bool receive_until(int socket, T& value, double deadline_s) {
  std::size_t have = 0;
  for (;;) {
    const Received received = receive_some(socket, bytes_of(value), have);
    if (received != Received::kPart) return received == Received::kAll;
    if (!ready_until(socket, POLLIN, deadline_s)) return false;
  }
}

/// Few bytes on a new connection: they fit into the socket's buffer.
template <typename T>
bool send_whole(int socket, const T& value) {
  return send(socket, &value, sizeof value, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
}

/// A connection that has come and has yet to prove whose it is.
class Candidate {
 public:
  Candidate(UniqueFd socket, const sockaddr_in& from)
      : socket_(std::move(socket)), from_(from), challenge_(random_bytes<Challenge>()) {
    refused_ = !send_whole(socket_.get(), challenge_);
  }

  int socket() const { return socket_.get(); }
  bool refused() const { return refused_; }

  /// Takes what has come of its answer. The connection once it has proved to be the neighbor's.
  std::optional<UniqueFd> proved(const RingSecret& secret, RingEdge edge) {
    const Received received = receive_some(socket_.get(), bytes_of(answer_), have_);
    if (received == Received::kPart) return {};
    const auto proof = [&](const char* role) {
      return proof_of(role, secret, edge, challenge_, answer_.challenge);
    };
    refused_ = received == Received::kNothingMore || !equal(answer_.proof, proof("from")) ||
               !send_whole(socket_.get(), proof("to"));
    if (refused_) return {};
    return std::move(socket_);
  }

  void tell_ignored() const {
    print_warning(
        "gradsync",
        fmt::format("ignored a connection from {}:{} that does not know this job's secret",
                    address_text(ntohl(from_.sin_addr.s_addr)), ntohs(from_.sin_port)));
  }

 private:
  UniqueFd socket_;
  sockaddr_in from_;
  Challenge challenge_;
  Answer answer_{};
  std::size_t have_ = 0;
  bool refused_ = false;
};

/// Those that wait at a listener.
class Candidates {
 public:
  explicit Candidates(int listener) : listener_(listener) {}
  /// Who is still there when the neighbor has come is a stranger.
  ~Candidates() {
    for (const Candidate& one : waiting_)
      one.tell_ignored();
  }
  Candidates(const Candidates&) = delete;
  Candidates& operator=(const Candidates&) = delete;

  /// Whether a connection or data has arrived before the deadline.
  bool wait_until(double deadline_s) {
    std::vector<pollfd> sockets = {{listener_, POLLIN, 0}};
    for (const Candidate& one : waiting_)
      sockets.push_back({one.socket(), POLLIN, 0});
    return ready_until(sockets, deadline_s);
  }

  void admit() {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    UniqueFd socket(accept4(listener_, reinterpret_cast<sockaddr*>(&from), &size,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return;
    if (waiting_.size() == kMostCandidates) {
      waiting_.front().tell_ignored();
      waiting_.erase(waiting_.begin());
    }
    waiting_.emplace_back(std::move(socket), from);
  }

  /// The neighbor's connection, if its proof has come; drops those whose proof is wrong.
  std::optional<UniqueFd> proved(const RingSecret& secret, RingEdge edge) {
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      auto socket = one->proved(secret, edge);
      if (one->refused()) one->tell_ignored();
      one = socket || one->refused() ? waiting_.erase(one) : one + 1;
      if (socket) return socket;
    }
    return {};
  }

 private:
  int listener_;
  std::vector<Candidate> waiting_;
};

/// 0, or the error for which a connection that has been begun did not come about.
int outcome_of_connect(int socket, double deadline_s) {
  if (!ready_until(socket, POLLOUT, deadline_s)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

/// 0, or the error for which the socket cannot listen there.
int listen_at(int socket, std::uint32_t address, std::uint16_t port) {
  const sockaddr_in at = socket_address(address, port);
  // Or connections of an earlier job would keep the ports of a small range for a minute.
  const int again = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &again, sizeof again);
  const bool listens = bind(socket, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 &&
                       listen(socket, kBacklog) == 0;
  return listens ? 0 : errno;
}

}  // namespace

RingSecret new_ring_secret() {
  return random_bytes<RingSecret>();
}

RingListener::RingListener(std::uint32_t address, PortRange ports) {
  int error = EADDRINUSE;
  for (std::uint32_t i = 0; error == EADDRINUSE && i < std::max<std::uint32_t>(ports.count, 1);
       ++i) {
    socket_ = new_socket();
    error = listen_at(socket_.get(), address, static_cast<std::uint16_t>(ports.first + i));
  }
  sockaddr_in at{};
  socklen_t size = sizeof at;
  if (error == 0 && getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    error = errno;
  if (error != 0) {
    const std::string where = ports.count == 0 ? ""
                                               : fmt::format(", ports {} to {}", ports.first,
                                                             ports.first + ports.count - 1);
    throw_unreachable(fmt::format("cannot listen on {}{}: {}", address_text(address), where,
                                  std::strerror(error)));
  }
  port_ = ntohs(at.sin_port);
}

UniqueFd RingListener::accept(const RingSecret& secret, RingEdge edge, const std::string& previous,
                              double limit_s) const {
  const double deadline_s = now_s() + limit_s;
  Candidates candidates(socket_.get());
  while (candidates.wait_until(deadline_s)) {
    candidates.admit();
    if (auto socket = candidates.proved(secret, edge)) {
      tune(socket->get());
      return std::move(*socket);
    }
  }
  throw_unreachable(fmt::format("no connection came from {} within {:.0f} s", previous, limit_s));
}

UniqueFd connect_to_ring(std::uint32_t address, std::uint16_t port, const std::string& next,
                         double limit_s) {
  UniqueFd socket = new_socket();
  const sockaddr_in to = socket_address(address, port);
  int error = 0;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    error = errno == EINPROGRESS || errno == EINTR
                ? outcome_of_connect(socket.get(), now_s() + limit_s)
                : errno;
  if (error != 0)
    throw_unreachable(fmt::format("cannot connect to {} at {}:{}: {}", next, address_text(address),
                                  port, std::strerror(error)));
  tune(socket.get());
  return socket;
}

void prove_ring_connection(int socket, const RingSecret& secret, RingEdge edge,
                           const std::string& next, double limit_s) {
  const double deadline_s = now_s() + limit_s;
  Challenge theirs;
  Answer answer{random_bytes<Challenge>(), {}};
  Proof proof;
  const auto proves = [&] {
    if (!receive_until(socket, theirs, deadline_s)) return false;
    answer.proof = proof_of("from", secret, edge, theirs, answer.challenge);
    return send_whole(socket, answer) && receive_until(socket, proof, deadline_s) &&
           equal(proof, proof_of("to", secret, edge, theirs, answer.challenge));
  };
  if (!proves()) throw_unreachable(fmt::format("{} did not answer as a rank of this job", next));
}

}  // namespace gradsync
