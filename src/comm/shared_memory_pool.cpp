#include "comm/shared_memory_pool.h"

namespace gradsync {

namespace {

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}

}  // namespace

SharedMemoryPool::SharedMemoryPool(MPI_Comm node)
    : node_(node),
      rank_(static_cast<std::size_t>(rank_in(node))),
      headers_(node, SharedAllReduce::header_bytes(), SharedAllReduce::kAlignment),
      reducer_(headers_.parts(), static_cast<int>(rank_)) {
  MPI_Barrier(node_);
}

/// Ranks may drop a buffer at different times, so they agree on the one that is taken again.
std::shared_ptr<std::byte> SharedMemoryPool::allocate(std::size_t bytes) {
  std::vector<char> free_here;
  for (const auto& buffer : buffers_)
    free_here.push_back(buffer.use_count() == 1 && buffer->bytes() == bytes);
  free_here.push_back(1);  // stands for a new one
  MPI_Allreduce(MPI_IN_PLACE, free_here.data(), static_cast<int>(free_here.size()), MPI_CHAR,
                MPI_MIN, node_);
  std::size_t taken = 0;
  while (!free_here[taken])
    ++taken;
  if (taken == buffers_.size()) {
    buffers_.push_back(std::make_shared<SharedWindow>(node_, bytes, SharedAllReduce::kAlignment));
    reducer_.add_region(buffers_.back()->parts(), bytes);
  }
  return {buffers_[taken], buffers_[taken]->parts()[rank_]};
}

}  // namespace gradsync
