#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "support/file.h"

namespace gradsync {

/// What the two ends of a connection of one job know and nobody else: each shows its half, so
/// neither takes a stranger for a rank.
struct RingSecret {
  std::array<std::byte, 32> of_connecting, of_accepting;
};

/// From the system's random source.
RingSecret new_ring_secret();

/// A socket on which one rank waits for its neighbour.
class RingListener {
 public:
  /// On this address only, any port. Throws Error kEnvironment.
  explicit RingListener(std::uint32_t address);

  std::uint16_t port() const { return port_; }

  /// The connection of the rank that shows the secret; every other one is closed, and said on
  /// stderr. Throws Error kEnvironment naming `previous` when it does not come in time.
  UniqueFd accept(const RingSecret& secret, const std::string& previous, double patience_s) const;

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
};

/// Connects to a RingListener and shows the secret; whether the other end knows it too is told by
/// `confirm`. Throws Error kEnvironment naming `next`.
UniqueFd connect_to_ring(std::uint32_t address, std::uint16_t port, const RingSecret& secret,
                         const std::string& next, double patience_s);

/// Reads the answer of the rank that accepted. Throws Error kEnvironment naming `next`.
void confirm_ring_connection(int socket, const RingSecret& secret, const std::string& next,
                             double patience_s);

}  // namespace gradsync
