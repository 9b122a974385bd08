// SPDX-License-Identifier: BSD-3-Clause
// The two ends prove to each other that they belong to the same job:
//
//   accepting   challenge a                      → connecting
//   connecting  challenge b, proof("from", a, b) → accepting
//   accepting   proof("to", a, b)                → connecting
//
// where proof is HMAC-SHA-256, with the secret, of who proves it, the ranks, addresses and ports at
// both ends, and the challenges. Who answers at a wrong address learns nothing that helps it
// elsewhere: a host that passes the messages on has other addresses.
#include "transport/ring.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <iostream>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/error.h"
#include "base/parse.h"
#include "stats/clock.h"

namespace gradsync {

namespace {

/// All that Linux admits by default.
constexpr int kBacklog = 4095;
/// Who connects further takes the place of any one.
constexpr std::size_t kMostCandidates = 256;
/// With so many, a further one is admitted each kBetweenCrowd only: the neighbor, if it is among
/// them, has a while to answer.
constexpr std::size_t kCrowd = 64;
constexpr auto kBetweenCrowd = std::chrono::milliseconds(1);
constexpr std::size_t kNamed = 5;
/// How often a connection that was closed is made again. One that is refused is closed as well.
constexpr int kMostAgain = 32;
constexpr auto kBeforeAgain = std::chrono::milliseconds(10);
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

std::string text_of(const sockaddr_in& end) {
  return fmt::format("{}:{}", address_text(ntohl(end.sin_addr.s_addr)), ntohs(end.sin_port));
}

/// The address of this end of a connection, or of the other one; 0.0.0.0:0 where it has none.
sockaddr_in end_of(int socket, bool other) {
  sockaddr_in end{};
  socklen_t size = sizeof end;
  const auto get = other ? getpeername : getsockname;
  const bool known = get(socket, reinterpret_cast<sockaddr*>(&end), &size) == 0;
  return known && end.sin_family == AF_INET ? end : sockaddr_in{};
}

/// A connection as both of its ends see it.
struct Link {
  RingEdge edge;
  sockaddr_in connecting, accepting;
};

Proof proof_of(const char* role, const RingSecret& secret, const Link& link,
               const Challenge& accepting, const Challenge& connecting) {
  std::string text = fmt::format("{} {} {} {} {} ", role, link.edge.from, link.edge.to,
                                 text_of(link.connecting), text_of(link.accepting));
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
  const sockaddr_in& from() const { return from_; }
  bool refused() const { return refused_; }

  /// Takes what has come of its answer. The connection once it has proved to be the neighbor's.
  std::optional<UniqueFd> proved(const RingSecret& secret, RingEdge edge) {
    const Received received = receive_some(socket_.get(), bytes_of(answer_), have_);
    if (received == Received::kPart) return {};
    const Link link{edge, from_, end_of(socket_.get(), false)};
    const auto proof = [&](const char* role) {
      return proof_of(role, secret, link, challenge_, answer_.challenge);
    };
    refused_ = received == Received::kNothingMore || !equal(answer_.proof, proof("from")) ||
               !send_whole(socket_.get(), proof("to"));
    if (refused_) return {};
    return std::move(socket_);
  }

 private:
  UniqueFd socket_;
  sockaddr_in from_;
  Challenge challenge_;
  Answer answer_{};
  std::size_t have_ = 0;
  bool refused_ = false;
};

/// Connections that wait at a listener.
class Candidates {
 public:
  explicit Candidates(int listener) : listener_(listener) {}
  /// Who is still there when the neighbor has come is a stranger.
  ~Candidates() {
    for (const Candidate& one : waiting_)
      ignore(one);
    if (ignored_ == 0) return;
    print_warning("gradsync", fmt::format("ignored {} without this job's secret, from {}{}",
                                          count_text(ignored_, "connection"),
                                          fmt::join(named_, ", "), ignored_ > kNamed ? ", …" : ""));
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

  /// Takes the next connection there is. False after RingListener::stop().
  bool admit() {
    if (waiting_.size() >= kCrowd) std::this_thread::sleep_for(kBetweenCrowd);
    sockaddr_in from{};
    socklen_t size = sizeof from;
    UniqueFd socket(accept4(listener_, reinterpret_cast<sockaddr*>(&from), &size,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) return errno != EINVAL;
    if (waiting_.size() == kMostCandidates) {
      const auto any = static_cast<std::ptrdiff_t>(random_bytes<std::uint32_t>() % kMostCandidates);
      ignore(waiting_[static_cast<std::size_t>(any)]);
      waiting_.erase(waiting_.begin() + any);
    }
    waiting_.emplace_back(std::move(socket), from);
    return true;
  }

  /// The neighbor's connection, if its proof has come; drops those whose proof is wrong.
  std::optional<UniqueFd> proved(const RingSecret& secret, RingEdge edge) {
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      auto socket = one->proved(secret, edge);
      if (one->refused()) ignore(*one);
      one = socket || one->refused() ? waiting_.erase(one) : one + 1;
      if (socket) return socket;
    }
    return {};
  }

 private:
  void ignore(const Candidate& one) {
    if (ignored_++ < kNamed) named_.push_back(text_of(one.from()));
  }

  int listener_;
  std::vector<Candidate> waiting_;
  std::size_t ignored_ = 0;
  std::vector<std::string> named_;
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

RingSecret::~RingSecret() {
  OPENSSL_cleanse(key.data(), key.size());
}

RingSecret new_ring_secret() {
  RingSecret secret;
  secret.key = random_bytes<decltype(secret.key)>();
  return secret;
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
  while (candidates.wait_until(deadline_s) && candidates.admit()) {
    if (auto socket = candidates.proved(secret, edge)) {
      tune(socket->get());
      return std::move(*socket);
    }
  }
  throw_unreachable(fmt::format("no connection came from {} within {:.0f} s", previous, limit_s));
}

void RingListener::stop() const {
  shutdown(socket_.get(), SHUT_RDWR);
}

namespace {

UniqueFd connected(const sockaddr_in& to, const std::string& next, double limit_s) {
  UniqueFd socket = new_socket();
  int error = 0;
  if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    error = errno == EINPROGRESS || errno == EINTR
                ? outcome_of_connect(socket.get(), now_s() + limit_s)
                : errno;
  if (error != 0)
    throw_unreachable(
        fmt::format("cannot connect to {} at {}: {}", next, text_of(to), std::strerror(error)));
  tune(socket.get());
  return socket;
}

/// Whether the other end proved who it is; nothing where the connection ended before.
std::optional<bool> proves(int socket, const RingSecret& secret, const Link& link,
                           double deadline_s) {
  Challenge theirs;
  Answer answer{random_bytes<Challenge>(), {}};
  Proof proof;
  if (!receive_until(socket, theirs, deadline_s)) return {};
  answer.proof = proof_of("from", secret, link, theirs, answer.challenge);
  if (!send_whole(socket, answer) || !receive_until(socket, proof, deadline_s)) return {};
  return equal(proof, proof_of("to", secret, link, theirs, answer.challenge));
}

}  // namespace

UniqueFd connect_to_ring(std::uint32_t address, std::uint16_t port, const std::string& next,
                         double limit_s) {
  return connected(socket_address(address, port), next, limit_s);
}

void prove_ring_connection(UniqueFd& socket, const RingSecret& secret, RingEdge edge,
                           const std::string& next, double limit_s) {
  const double deadline_s = now_s() + limit_s;
  const sockaddr_in to = end_of(socket.get(), true);
  for (int again = 0;; ++again) {
    const Link link{edge, end_of(socket.get(), false), to};
    const auto proved = proves(socket.get(), secret, link, deadline_s);
    if (proved && *proved) return;
    const double left_s = deadline_s - now_s();
    if (proved || left_s <= 0 || to.sin_family != AF_INET || again == kMostAgain)
      throw_unreachable(fmt::format("{} did not answer as a rank of this job", next));
    std::this_thread::sleep_for(kBeforeAgain);
    socket = connected(to, next, left_s);
  }
}

namespace {

/// What is converted or added at a time: stays in the second-level cache.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10;
/// The thread is not woken for less, where more is to come.
constexpr std::size_t kWorthWaking_bytes = std::size_t{64} << 10;

[[noreturn]] void throw_lost(const std::string& neighbor, const std::string& why) {
  throw Error(
      ExitCode::kHang, fmt::format("the connection to {} is lost: {}", neighbor, why),
      "check whether that rank is still running (its own message comes first) and whether the "
      "network between the two hosts is up: gradsync-check");
}

void make_non_blocking(int socket) {
  const int flags = fcntl(socket, F_GETFL, 0);
  if (flags < 0 || fcntl(socket, F_SETFL, flags | O_NONBLOCK) < 0)
    throw Error(ExitCode::kInternal,
                fmt::format("a socket cannot be set to non-blocking: {}", std::strerror(errno)));
}

/// Bytes sent or received, 0 where that would have waited.
std::size_t moved(ssize_t result, const std::string& neighbor) {
  if (result >= 0) return static_cast<std::size_t>(result);
  if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
    throw_lost(neighbor, std::strerror(errno));
  return 0;
}

/// Steps of a Pass: from `first` to before `last`.
struct Steps {
  int first, last;
};

/// One all-reduce of one rank: two streams of 2(n − 1) steps, a chunk each; or some of them: the
/// first n − 1 are a reduce-scatter, the others an all-gather.
///
/// In step s a rank sends chunk rank − s and receives chunk rank − s − 1; in the first n − 1 steps
/// it adds what comes to its own, in the others it takes it over. So what is sent in step s + 1 is
/// what came in step s, and may go as far as that has come.
template <typename T, typename W>
class Pass {
 public:
  Pass(const RingLinks& links, int rank, int size, std::span<T> data, double factor,
       std::vector<std::byte>& outgoing, std::vector<std::byte>& incoming, Steps steps)
      : links_(links),
        rank_(rank),
        size_(size),
        data_(data),
        factor_(static_cast<SumOf<T>>(factor)),
        outgoing_(outgoing),
        incoming_(incoming),
        steps_(steps),
        out_{steps.first, 0},
        in_{steps.first, 0} {}

  void run() {
    while (out_.step < steps_.last || in_.step < steps_.last || !pending_.empty()) {
      const bool sent = send_some(), received = receive_some();
      if (!sent && !received) sleep();
    }
  }

  double convert_s() const { return convert_s_; }

 private:
  static constexpr bool kConverts = !std::is_same_v<T, W>;

  struct Position {
    int step = 0;
    std::size_t done = 0;  ///< values of the step's chunk
  };

  bool adds(int step) const { return step < size_ - 1; }

  std::span<T> chunk(int index) const {
    const auto part = static_cast<std::size_t>(((index % size_) + size_) % size_);
    const auto parts = static_cast<std::size_t>(size_);
    const std::size_t begin = data_.size() * part / parts, end = data_.size() * (part + 1) / parts;
    return data_.subspan(begin, end - begin);
  }

  /// Values of the step's chunk that are ready to be sent.
  std::size_t ready(int step) const {
    if (step == steps_.first || in_.step >= step) return chunk(rank_ - step).size();
    return in_.step == step - 1 ? in_.done : 0;
  }

  bool send_some() {
    bool any = false;
    while (take_piece()) {
      const std::size_t bytes =
          moved(send(links_.to_next, pending_.data(), pending_.size(), MSG_NOSIGNAL), links_.next);
      if (bytes == 0) break;
      pending_ = pending_.subspan(bytes);
      any = true;
    }
    return any;
  }

  /// Whether there is something to send now.
  bool take_piece() {
    while (pending_.empty() && out_.step < steps_.last) {
      const auto whole = chunk(rank_ - out_.step);
      const std::size_t values = ready(out_.step) - out_.done;
      if (values > 0) {
        pending_ = as_wire(whole.subspan(out_.done, values));
      } else if (out_.done == whole.size()) {
        out_ = {out_.step + 1, 0};
      } else {
        return false;
      }
    }
    return !pending_.empty();
  }

  /// The front of `values` as it travels, and counts it as taken.
  std::span<const std::byte> as_wire(std::span<const T> values) {
    if constexpr (!kConverts) {
      out_.done += values.size();
      return std::as_bytes(values);
    } else {
      const std::size_t count = std::min(values.size(), kPieceBytes / sizeof(W));
      const double begin_s = now_s();
      auto* words = reinterpret_cast<W*>(outgoing_.data());
      for (std::size_t i = 0; i < count; ++i)
        narrow(widen(values[i]), words[i]);
      convert_s_ += now_s() - begin_s;
      out_.done += count;
      return std::span<const std::byte>(outgoing_).first(count * sizeof(W));
    }
  }

  /// Whether anything has come, or a step has ended.
  bool receive_some() {
    bool any = false;
    while (in_.step < steps_.last) {
      const auto whole = chunk(rank_ - in_.step - 1);
      if (in_.done == whole.size()) {
        in_ = {in_.step + 1, 0};
        any = true;
        continue;
      }
      const std::span<T> rest = whole.subspan(in_.done);
      const bool straight = !kConverts && !adds(in_.step);
      std::byte* to = straight ? reinterpret_cast<std::byte*>(rest.data()) : incoming_.data();
      const std::size_t room =
          straight ? rest.size_bytes() : std::min(kPieceBytes, rest.size() * sizeof(W));
      const std::size_t bytes = receive(to + held_, room - held_);
      if (bytes == 0) break;
      any = true;
      take_in(rest, bytes, straight);
    }
    return any;
  }

  std::size_t receive(std::byte* to, std::size_t bytes) {
    const ssize_t result = recv(links_.from_previous, to, bytes, 0);
    if (result == 0) throw_lost(links_.previous, "closed by that rank");
    return moved(result, links_.previous);
  }

  /// `bytes` more have come; a value may be cut in two, its front is kept.
  void take_in(std::span<T> rest, std::size_t bytes, bool straight) {
    held_ += bytes;
    const std::size_t count = held_ / sizeof(W), left = held_ % sizeof(W);
    if (!straight) {
      add_or_take(rest.first(count), reinterpret_cast<const W*>(incoming_.data()));
      std::memmove(incoming_.data(), incoming_.data() + count * sizeof(W), left);
    }
    held_ = left;
    in_.done += count;
  }

  void add_or_take(std::span<T> to, const W* words) {
    const double begin_s = kConverts ? now_s() : 0;
    if (!adds(in_.step))
      for (std::size_t i = 0; i < to.size(); ++i)
        narrow(widen(words[i]), to[i]);
    else if (in_.step < size_ - 2)
      for (std::size_t i = 0; i < to.size(); ++i)
        narrow(widen(words[i]) + widen(to[i]), to[i]);
    else
      complete(to, words);
    if (kConverts) convert_s_ += now_s() - begin_s;
  }

  /// The last addition: what this rank now owns is the result, as all will have it.
  void complete(std::span<T> to, const W* words) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      W result;
      narrow((widen(words[i]) + widen(to[i])) * factor_, result);
      narrow(widen(result), to[i]);
    }
  }

  void sleep() {
    const bool receiving = in_.step < steps_.last;
    if (receiving) ask_to_wake();
    pollfd sockets[2] = {{receiving ? links_.from_previous : -1, POLLIN, 0},
                         {pending_.empty() ? -1 : links_.to_next, POLLOUT, 0}};
    poll(sockets, 2, -1);
  }

  /// What comes in a step never waits for what this rank has yet to receive in it, so waiting for
  /// more of it stops nobody.
  void ask_to_wake() {
    const std::size_t rest = (chunk(rank_ - in_.step - 1).size() - in_.done) * sizeof(W) - held_;
    const int bytes = static_cast<int>(std::min(rest, kWorthWaking_bytes));
    if (bytes == woken_at_) return;
    setsockopt(links_.from_previous, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
    woken_at_ = bytes;
  }

  const RingLinks& links_;
  int rank_, size_;
  std::span<T> data_;
  SumOf<T> factor_;
  std::vector<std::byte>&outgoing_, &incoming_;
  Steps steps_;
  Position out_, in_;
  std::span<const std::byte> pending_;  ///< taken, not sent yet
  std::size_t held_ = 0;                ///< bytes of values that have not come whole
  int woken_at_ = 0;
  double convert_s_ = 0;
};

}  // namespace

RingAllReduce::RingAllReduce(RingLinks links, int rank, int size)
    : links_(std::move(links)),
      rank_(rank),
      size_(size),
      outgoing_(kPieceBytes),
      incoming_(kPieceBytes) {
  if (size_ == 1) return;
  make_non_blocking(links_.to_next);
  make_non_blocking(links_.from_previous);
}

template <typename T, typename W>
double RingAllReduce::run(std::span<T> data, double factor) {
  // Half's range ends at 65,504, which a sum of many ranks may pass: scaled before it travels.
  double scale_s = 0;
  if (factor != 1 && (size_ == 1 || std::is_same_v<W, Float16>)) {
    const double begin_s = now_s();
    for (T& value : data)
      narrow(widen(value) * static_cast<SumOf<T>>(factor), value);
    scale_s = now_s() - begin_s;
    factor = 1;
  }
  if (size_ == 1) return 0;
  Pass<T, W> pass(links_, rank_, size_, data, factor, outgoing_, incoming_, {0, 2 * (size_ - 1)});
  pass.run();
  return scale_s + pass.convert_s();
}

// A rank completes the chunk of the next one: with the place of the one before, its own.
void RingAllReduce::reduce_scatter(std::span<float> data, double factor) {
  if (size_ == 1) return;
  Pass<float, float>(links_, rank_ - 1, size_, data, factor, outgoing_, incoming_, {0, size_ - 1})
      .run();
}

void RingAllReduce::all_gather(std::span<float> data) {
  if (size_ == 1) return;
  Pass<float, float>(links_, rank_ - 1, size_, data, 1, outgoing_, incoming_,
                     {size_ - 1, 2 * (size_ - 1)})
      .run();
}

template double RingAllReduce::run<float, float>(std::span<float>, double);
template double RingAllReduce::run<float, Bfloat16>(std::span<float>, double);
template double RingAllReduce::run<float, Float16>(std::span<float>, double);
template double RingAllReduce::run<Bfloat16, Bfloat16>(std::span<Bfloat16>, double);
template double RingAllReduce::run<Float16, Float16>(std::span<Float16>, double);

}  // namespace gradsync
