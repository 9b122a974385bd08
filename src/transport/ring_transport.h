#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "comm/session.h"
#include "transport/mpi_transport.h"
#include "transport/ring_all_reduce.h"

namespace gradsync {

/// Transport over TCP connections of the job's own: all-reduce by RingAllReduce, the rooted
/// collectives by MPI. Between hosts it listens only where its neighbor will come from, between
/// ranks of a node on the loopback interface, and only until the ring is closed.
class RingTransport : public MpiRootedCollectives {
 public:
  /// Joins the ranks of `comm`, in their order, to a ring, over the networks that Open MPI is set
  /// to use (tcp_networks), or any that neighbors share. What fails on one rank is thrown on all:
  /// Error kEnvironment when two ranks cannot reach each other, kUsage for ports that are none.
  /// Collective over `comm`.
  RingTransport(const Session& session, MPI_Comm comm);

  std::string_view name() const override { return "tcp-ring"; }

  void all_reduce_sum(std::span<float> data, Waiting waiting) override;
  void all_reduce_mean(std::span<float> data, Waiting waiting) override;
  void all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) override;
  void all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) override;
  std::optional<double> all_reduce_mean_through(std::span<float> data, HalfType type,
                                                Waiting waiting) override;

 private:
  /// A connection that is lost ends the job.
  template <typename T, typename W>
  void run(std::span<T> data, double factor);

  const Session& session_;
  UniqueFd to_next_, from_previous_;
  std::optional<RingAllReduce> ring_;
};

}  // namespace gradsync
