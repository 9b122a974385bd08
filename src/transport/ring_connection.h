#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/file.h"
#include "transport/interfaces.h"

namespace gradsync {

/// A secret that only the ranks of one job have. It never travels over a ring's connections: each
/// end proves to the other that it knows it (HMAC-SHA-256 of random numbers of both ends).
struct RingSecret {
  std::array<std::byte, 32> key;
};

/// From the system's random source.
RingSecret new_ring_secret();

/// Which connection of the ring this is, by the ranks at its ends. It is part of the proofs: a rank
/// that reaches itself, or another rank than its neighbor, is refused.
struct RingEdge {
  int from = 0, to = 0;
};

/// A socket on which one rank waits for its neighbor.
class RingListener {
 public:
  /// On this address only, on a port of `ports`, on any if there are none. Throws Error
  /// kEnvironment.
  explicit RingListener(std::uint32_t address, PortRange ports = {});

  std::uint16_t port() const { return port_; }

  /// The connection of the rank that proves to be `edge.from`; every other one is closed, and said
  /// on stderr. Strangers do not hold it up, however many and silent. Throws Error kEnvironment
  /// naming `previous` when it does not come in time.
  UniqueFd accept(const RingSecret& secret, RingEdge edge, const std::string& previous,
                  double limit_s) const;

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

/// Connects to a RingListener. Throws Error kEnvironment naming `next`.
UniqueFd connect_to_ring(std::uint32_t address, std::uint16_t port, const std::string& next,
                         double limit_s);

/// At the end that connected: proves to be `edge.from`, and has the other one prove to be
/// `edge.to`. Throws Error kEnvironment naming `next`.
void prove_ring_connection(int socket, const RingSecret& secret, RingEdge edge,
                           const std::string& next, double limit_s);

}  // namespace gradsync
