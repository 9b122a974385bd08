#pragma once

#include "transport/mpi_transport.h"

namespace gradsync {

/// What the transports share whose all-reduce is their own: everything with a root goes by MPI.
class MpiRootedCollectives : public Transport {
 public:
  /// Collective over `comm`.
  explicit MpiRootedCollectives(MPI_Comm comm) : rooted_(comm) {}

  int rank() const override { return rooted_.rank(); }
  int size() const override { return rooted_.size(); }

  void reduce_sum(std::span<float> data, int root) override { rooted_.reduce_sum(data, root); }
  void broadcast(std::span<std::byte> data, int root) override { rooted_.broadcast(data, root); }
  void gather(std::span<const float> one, std::span<float> all, int root) override {
    rooted_.gather(one, all, root);
  }
  void scatter(std::span<const float> all, std::span<float> one, int root) override {
    rooted_.scatter(all, one, root);
  }

 private:
  MpiTransport rooted_;
};

}  // namespace gradsync
