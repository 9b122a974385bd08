// SPDX-License-Identifier: BSD-3-Clause
#include "transport/ring.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <climits>
#include <deque>
#include <fstream>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "serial/all_reduce_data.h"
#include "serial/expect_error.h"
#include "serial/ring_of_threads.h"
#include "stats/clock.h"

using namespace gradsync;
using namespace gradsync::test;

namespace {

constexpr double kLimit_s = 20;
constexpr RingEdge kEdge{0, 1};

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

template <typename Body>
std::string what_is_thrown(Body&& body) {
  try {
    body();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// Accepts beside this thread, which connects. What is thrown.
std::future<std::string> accepting(const RingListener& listener, const RingSecret& secret,
                                   RingEdge edge, UniqueFd& socket, double limit_s = kLimit_s) {
  return std::async(std::launch::async, [&, edge, limit_s] {
    return what_is_thrown([&] { socket = listener.accept(secret, edge, "rank 0", limit_s); });
  });
}

int limit_ms(int socket) {
  int value = 0;
  socklen_t size = sizeof value;
  REQUIRE(getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size) == 0);
  return value;
}

/// Sends what the sockets' buffers hold. Whether the connection is still there `wait_s` later.
bool outlives(int socket, double wait_s) {
  const std::vector<char> data(1 << 20);
  while (send(socket, data.data(), data.size(), MSG_NOSIGNAL) > 0) {
  }
  pollfd ended{socket, 0, 0};  // POLLERR and POLLHUP are always waited for
  return poll(&ended, 1, static_cast<int>(wait_s * 1e3)) == 0;
}

}  // namespace

TEST_CASE("a ring takes the rank that proves to know the secret, and no one who came before it") {
  const RingSecret secret = new_ring_secret();
  const RingListener listener(INADDR_LOOPBACK);
  const UniqueFd garbage = stranger(listener.port(), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const UniqueFd short_one = stranger(listener.port(), "x");
  const UniqueFd guess = stranger(listener.port(), std::string(64, '\0'));
  const UniqueFd shows_it =
      stranger(listener.port(), {reinterpret_cast<const char*>(secret.key.data()), 32});
  UniqueFd next = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 1", kLimit_s);
  UniqueFd previous;
  auto accepted = accepting(listener, secret, kEdge, previous);
  prove_ring_connection(next, secret, kEdge, "rank 1", kLimit_s);
  REQUIRE(accepted.get() == "");
  REQUIRE(send(next.get(), "hello", 5, 0) == 5);
  char text[5];
  REQUIRE(recv(previous.get(), text, 5, MSG_WAITALL) == 5);
  CHECK(std::string_view(text, 5) == "hello");
  char challenge[64];
  CHECK(recv(garbage.get(), challenge, sizeof challenge, MSG_WAITALL) <= 32);  // closed
}

TEST_CASE("strangers that say nothing do not hold a ring up, before and while it is joined") {
  std::ifstream queue("/proc/sys/net/core/somaxconn");
  int most = 0;
  queue >> most;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const rlimit before = files;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  for (const int count : {17, 64, 1000}) {
    if (count > most || files.rlim_cur < 4096) {
      MESSAGE("SKIP: ", count, " strangers need 4096 open files and such a queue of the kernel");
      continue;
    }
    const RingSecret secret = new_ring_secret();
    const RingListener listener(INADDR_LOOPBACK);
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < count; ++i)
      strangers.push_back(stranger(listener.port(), ""));
    UniqueFd previous;
    auto accepted = accepting(listener, secret, kEdge, previous, kLimit_s);
    UniqueFd next = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 1", kLimit_s);
    for (int i = 0; i < count / 2; ++i)
      strangers.push_back(stranger(listener.port(), ""));
    prove_ring_connection(next, secret, kEdge, "rank 1", kLimit_s);
    CHECK_MESSAGE(accepted.get() == "", count, " strangers");
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST_CASE("a neighbor that answers late is taken though strangers take its place meanwhile") {
  const RingSecret secret = new_ring_secret();
  const RingListener listener(INADDR_LOOPBACK);
  UniqueFd previous;
  auto accepted = accepting(listener, secret, kEdge, previous);
  std::atomic<bool> joined{false};
  std::thread flood([&] {
    std::deque<UniqueFd> open;
    while (!joined) {
      open.push_back(stranger(listener.port(), ""));
      if (open.size() > 300) open.pop_front();
    }
  });
  UniqueFd next = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 1", kLimit_s);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CHECK(what_is_thrown([&] { prove_ring_connection(next, secret, kEdge, "rank 1", kLimit_s); }) ==
        "");
  CHECK(accepted.get() == "");
  joined = true;
  flood.join();
}

namespace {

/// Takes connections and passes what comes to another port, and back.
class Relay {
 public:
  explicit Relay(std::uint16_t to) : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(listen(listener_.get(), SOMAXCONN) == 0);
    REQUIRE(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, to] {
      for (;;) {
        const UniqueFd from(accept(listener_.get(), nullptr, nullptr));
        if (!from) return;
        const UniqueFd onward = stranger(to, "");
        pass_on(from.get(), onward.get());
      }
    });
  }
  ~Relay() {
    shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::uint16_t port() const { return port_; }
  int passed_on() const { return passed_on_; }

 private:
  void pass_on(int a, int b) {
    const std::array<int, 2> ends{a, b};
    std::array<char, 256> bytes{};
    for (;;) {
      std::array<pollfd, 2> ready{{{a, POLLIN, 0}, {b, POLLIN, 0}}};
      if (poll(ready.data(), ready.size(), 5000) <= 0) return;
      for (std::size_t i = 0; i < ends.size(); ++i) {
        if (ready[i].revents == 0) continue;
        const ssize_t count = recv(ends[i], bytes.data(), bytes.size(), 0);
        if (count <= 0) return;
        passed_on_ += static_cast<int>(count);
        send(ends[1 - i], bytes.data(), static_cast<std::size_t>(count), MSG_NOSIGNAL);
      }
    }
  }

  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::atomic<int> passed_on_{0};
  std::thread thread_;
};

}  // namespace

TEST_CASE("who passes the messages of two ranks on is refused at both ends") {
  const RingSecret secret = new_ring_secret();
  const RingListener listener(INADDR_LOOPBACK);
  const Relay relay(listener.port());
  UniqueFd previous;
  auto accepted = accepting(listener, secret, kEdge, previous, 5);
  UniqueFd next = connect_to_ring(INADDR_LOOPBACK, relay.port(), "rank 1", kLimit_s);
  CHECK(contains(
      what_is_thrown([&] { prove_ring_connection(next, secret, kEdge, "rank 1", kLimit_s); }),
      "did not answer as a rank of this job"));
  CHECK(contains(accepted.get(), "no connection came from rank 0"));
  CHECK(relay.passed_on() >= 96);  // a challenge and an answer
}

TEST_CASE("who answers at a wrong address is refused, and learns nothing of the secret") {
  const RingSecret secret = new_ring_secret(), other = new_ring_secret();
  CHECK(secret.key != other.key);
  const RingListener listener(INADDR_LOOPBACK);
  UniqueFd next = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 1", kLimit_s);
  UniqueFd previous;
  auto accepted = accepting(listener, other, kEdge, previous, 1);
  const std::string text = error_text(ExitCode::kEnvironment, [&] {
    prove_ring_connection(next, secret, kEdge, "rank 1 (node02)", kLimit_s);
  });
  CHECK(contains(text, "rank 1 (node02)"));
  CHECK(contains(accepted.get(), "no connection came from rank 0"));

  int pair[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  UniqueFd end(pair[0]);
  const UniqueFd impostor(pair[1]);
  const std::string challenge(32, 'c');
  REQUIRE(send(impostor.get(), challenge.data(), challenge.size(), 0) == 32);
  error_text(ExitCode::kEnvironment,
             [&] { prove_ring_connection(end, secret, kEdge, "rank 1", 2); });
  std::string seen(1024, ' ');
  seen.resize(static_cast<std::size_t>(recv(impostor.get(), seen.data(), seen.size(), 0)));
  CHECK(seen.size() == 64);
  CHECK(!contains(seen, {reinterpret_cast<const char*>(secret.key.data()), secret.key.size()}));
}

TEST_CASE("a rank that reaches itself, or another than its neighbor, is refused") {
  const RingSecret secret = new_ring_secret();
  // Of rank 1 in a ring of three: it waits for rank 0, and reaches its own listener for rank 2's.
  const RingListener listener(INADDR_LOOPBACK);
  UniqueFd next = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 2", kLimit_s);
  UniqueFd previous;
  auto accepted = accepting(listener, secret, {0, 1}, previous, 0.5);
  CHECK(contains(
      error_text(ExitCode::kEnvironment,
                 [&] {
                   prove_ring_connection(next, secret, {1, 2}, "rank 2 (node03)", kLimit_s);
                 }),
      "rank 2 (node03) did not answer"));
  CHECK(contains(accepted.get(), "no connection came from rank 0"));
}

TEST_CASE("a neighbor that does not come, and a port where nobody listens, are named") {
  const RingSecret secret = new_ring_secret();
  std::uint16_t port = 0;
  {
    const RingListener listener(INADDR_LOOPBACK);
    port = listener.port();
    CHECK(contains(error_text(ExitCode::kEnvironment,
                              [&] { listener.accept(secret, kEdge, "rank 3 (node04)", 0.1); }),
                   "rank 3 (node04)"));
  }
  const std::string text = error_text(ExitCode::kEnvironment, [&] {
    connect_to_ring(INADDR_LOOPBACK, port, "rank 2 (node03)", kLimit_s);
  });
  CHECK(contains(text, "rank 2 (node03) at 127.0.0.1"));
  CHECK(contains(text, "--transport mpi"));
}

TEST_CASE("a listener takes a port of the range it is given, and says when none is free") {
  const RingListener first(INADDR_LOOPBACK, {20'000, 2'000});
  const RingListener second(INADDR_LOOPBACK, {first.port(), 2'000});
  CHECK(first.port() >= 20'000);
  CHECK(second.port() > first.port());
  CHECK(second.port() < first.port() + 2'000);
  CHECK(contains(error_text(ExitCode::kEnvironment,
                            [&] {
                              RingListener(INADDR_LOOPBACK, {first.port(), 1});
                            }),
                 fmt::format("cannot listen on 127.0.0.1, ports {0} to {0}", first.port())));
}

TEST_CASE("signals do not end the wait for a neighbor") {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {};
  REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
  const RingSecret secret = new_ring_secret();
  const RingListener listener(INADDR_LOOPBACK);
  UniqueFd previous;
  std::string accepted, proved;
  const auto interrupt = [](std::thread& thread) {
    for (int i = 0; i < 50; ++i) {
      pthread_kill(thread.native_handle(), SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  std::thread accepting([&] {
    accepted =
        what_is_thrown([&] { previous = listener.accept(secret, kEdge, "rank 0", kLimit_s); });
  });
  interrupt(accepting);
  UniqueFd next = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 1", kLimit_s);
  prove_ring_connection(next, secret, kEdge, "rank 1", kLimit_s);
  accepting.join();
  CHECK(accepted == "");

  UniqueFd further = connect_to_ring(INADDR_LOOPBACK, listener.port(), "rank 1", kLimit_s);
  std::thread proving([&] {
    proved =
        what_is_thrown([&] { prove_ring_connection(further, secret, kEdge, "rank 1", kLimit_s); });
  });
  interrupt(proving);
  previous = listener.accept(secret, kEdge, "rank 0", kLimit_s);
  proving.join();
  CHECK(proved == "");
  sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("a neighbor that lives and does not read is waited for") {
  const test::Connection late = test::connection(kEdge), given_up = test::connection(kEdge);
  for (const UniqueFd* end : {&late.connecting, &late.accepting})
    CHECK(limit_ms(end->get()) == INT_MAX);
  // What the limit is for: with a short one the kernel ends the connection, though the other end
  // answers all of its probes.
  const int short_ms = 200;
  REQUIRE(setsockopt(given_up.connecting.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &short_ms,
                     sizeof short_ms) == 0);
  CHECK(!outlives(given_up.connecting.get(), 30));
  CHECK(outlives(late.connecting.get(), 2));
}

namespace {

/// One case; data of type T that travels as W.
template <typename T, typename W = T>
bool check_ring_case(RingAllReduce& reducer, int rank, int ranks, std::uint64_t seed,
                     std::size_t count) {
  std::vector<T> memory(count + seed % 16);
  const std::span<T> data = std::span(memory).last(count);
  for (std::size_t i = 0; i < count; ++i)
    data[i] = entry<T>(seed, rank, i);
  const double factor = seed % 2 == 0 ? 1.0 : 1.0 / ranks;
  reducer.run<T, W>(data, factor);
  const double eps = unit_roundoff<T>() + (std::is_same_v<T, W> ? 0 : unit_roundoff<W>());
  return right<T>(data, seed, ranks, factor, eps);
}

/// Random sizes, types, wire types and alignments; `cases` on each number of ranks.
void check_random(int cases, Connection (*make)(RingEdge)) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    CAPTURE(ranks);
    const int wrong = RingOfThreads(ranks, make).run([&](RingAllReduce& reducer, int rank) {
      std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
      bool all = true;
      for (int i = 0; i < cases; ++i) {
        const std::uint64_t seed = random();
        const std::size_t count = random_count(random);
        const auto check = [&](auto type, auto wire) {
          return check_ring_case<decltype(type), decltype(wire)>(reducer, rank, ranks, seed, count);
        };
        switch (seed / 7 % 5) {
          case 0:
            all &= check(float(), float());
            break;
          case 1:
            all &= check(float(), Bfloat16());
            break;
          case 2:
            all &= check(float(), Float16());
            break;
          case 3:
            all &= check(Bfloat16(), Bfloat16());
            break;
          default:
            all &= check(Float16(), Float16());
            break;
        }
      }
      return all;
    });
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("ring all-reduce: random sizes, types, wire types and alignments on 1 to 8 ranks") {
  check_random(1250, socket_pair);
}

TEST_CASE("ring all-reduce: the same over TCP, random cases") {
  check_random(60, connection);
}

TEST_CASE("ring all-reduce: all ranks hold equal bits, also where less precision travels") {
  constexpr int kRanks = 5;
  constexpr std::size_t kCount = 300'007;
  std::vector<std::vector<float>> whole(kRanks), half(kRanks);
  RingOfThreads(kRanks).run([&](RingAllReduce& reducer, int rank) {
    const auto at = static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < kCount; ++i)
      whole[at].push_back(entry<float>(3, rank, i));
    half[at] = whole[at];
    reducer.run(std::span(whole[at]), 0.2);
    reducer.run<float, Bfloat16>(std::span(half[at]), 0.2);
    return true;
  });
  for (std::size_t r = 1; r < kRanks; ++r) {
    CHECK(whole[r] == whole[0]);
    CHECK(half[r] == half[0]);
  }
}

TEST_CASE("ring: reduce-scatter and all-gather are the halves of an all-reduce") {
  for (int ranks = 1; ranks <= 8; ++ranks)
    for (const std::size_t part : {std::size_t{0}, std::size_t{1}, std::size_t{70'001}}) {
      CAPTURE(ranks);
      CAPTURE(part);
      const std::size_t count = part * static_cast<std::size_t>(ranks);
      const int wrong = RingOfThreads(ranks).run([&](RingAllReduce& reducer, int rank) {
        std::vector<float> sum(count), halves(count);
        for (std::size_t i = 0; i < count; ++i)
          sum[i] = halves[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(rank)) % 1000);
        reducer.run(std::span(sum), 1.0);  // whole numbers: exact in any order
        reducer.reduce_scatter(halves);
        const std::size_t begin = part * static_cast<std::size_t>(rank);
        bool right = std::equal(halves.begin() + static_cast<std::ptrdiff_t>(begin),
                                halves.begin() + static_cast<std::ptrdiff_t>(begin + part),
                                sum.begin() + static_cast<std::ptrdiff_t>(begin));
        for (std::size_t i = 0; i < count; ++i)
          if (i < begin || i >= begin + part) halves[i] = -1;
        reducer.all_gather(halves);
        right = right && halves == sum;
        return right;
      });
      CHECK(wrong == 0);
    }
}

TEST_CASE("ring all-reduce: a neighbor that leaves is named by both that it was joined to") {
  constexpr std::size_t kMoreThanSocketsHold = 30'000'000;
  RingOfThreads ring(3);
  std::barrier both_have_named(2);
  std::array<std::string, 3> named;
  ring.run([&](RingAllReduce& reducer, int rank) {
    if (rank == 1) {
      ring.close(1);
      return true;
    }
    std::vector<float> data(kMoreThanSocketsHold, 1.0f);
    named[static_cast<std::size_t>(rank)] =
        error_text(ExitCode::kHang, [&] { reducer.run(std::span(data), 1.0); });
    both_have_named.arrive_and_wait();  // neither takes the other's end for that of rank 1
    return true;
  });
  CHECK(contains(named[0], "the connection to next is lost"));
  CHECK(contains(named[2], "the connection to previous is lost"));
}
