#include "transport/ring_all_reduce.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include "base/error.h"
#include "stats/clock.h"

namespace gradsync {

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

/// One all-reduce of one rank: two streams of 2(n − 1) steps, a chunk each.
///
/// In step s a rank sends chunk rank − s and receives chunk rank − s − 1; in the first n − 1 steps
/// it adds what comes to its own, in the others it takes it over. So what is sent in step s + 1 is
/// what came in step s, and may go as far as that has come.
template <typename T, typename W>
class Pass {
 public:
  Pass(const RingLinks& links, int rank, int size, std::span<T> data, double factor,
       std::vector<std::byte>& outgoing, std::vector<std::byte>& incoming)
      : links_(links),
        rank_(rank),
        size_(size),
        data_(data),
        factor_(static_cast<SumOf<T>>(factor)),
        outgoing_(outgoing),
        incoming_(incoming) {}

  void run() {
    while (out_.step < steps() || in_.step < steps() || !pending_.empty()) {
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

  int steps() const { return 2 * (size_ - 1); }
  bool adds(int step) const { return step < size_ - 1; }

  std::span<T> chunk(int index) const {
    const auto part = static_cast<std::size_t>(((index % size_) + size_) % size_);
    const auto parts = static_cast<std::size_t>(size_);
    const std::size_t begin = data_.size() * part / parts, end = data_.size() * (part + 1) / parts;
    return data_.subspan(begin, end - begin);
  }

  /// Values of the step's chunk that are ready to be sent.
  std::size_t ready(int step) const {
    if (step == 0 || in_.step >= step) return chunk(rank_ - step).size();
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
    while (pending_.empty() && out_.step < steps()) {
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
    while (in_.step < steps()) {
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
    const bool receiving = in_.step < steps();
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
  if (size_ == 1) {
    for (T& value : data)
      narrow(widen(value) * static_cast<SumOf<T>>(factor), value);
    return 0;
  }
  Pass<T, W> pass(links_, rank_, size_, data, factor, outgoing_, incoming_);
  pass.run();
  return pass.convert_s();
}

template double RingAllReduce::run<float, float>(std::span<float>, double);
template double RingAllReduce::run<float, Bfloat16>(std::span<float>, double);
template double RingAllReduce::run<float, Float16>(std::span<float>, double);
template double RingAllReduce::run<double, double>(std::span<double>, double);
template double RingAllReduce::run<Bfloat16, Bfloat16>(std::span<Bfloat16>, double);
template double RingAllReduce::run<Float16, Float16>(std::span<Float16>, double);

}  // namespace gradsync
