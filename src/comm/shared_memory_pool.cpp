#include "comm/shared_memory_pool.h"

#include <filesystem>

namespace gradsync {

namespace {

/// A rank, for what else lies there.
constexpr std::size_t kSlack_bytes = std::size_t{1} << 20;

/// A window that finds no room is a fatal MPI error. Open MPI puts it into /dev/shm; what cannot be
/// seen is taken for room enough.
bool has_room(MPI_Comm node, std::size_t bytes) {
  int ranks = 1;
  MPI_Comm_size(node, &ranks);
  const std::size_t needed = (bytes + kSlack_bytes) * static_cast<std::size_t>(ranks);
  std::error_code error;
  const auto space = std::filesystem::space("/dev/shm", error);
  char room = error || space.available > needed;
  MPI_Allreduce(MPI_IN_PLACE, &room, 1, MPI_CHAR, MPI_MIN, node);
  return room != 0;
}

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
    if (!has_room(node_, bytes)) return {};
    buffers_.push_back(std::make_shared<SharedWindow>(node_, bytes, SharedAllReduce::kAlignment));
    reducer_.add_region(buffers_.back()->parts(), bytes);
  }
  return {buffers_[taken], buffers_[taken]->parts()[rank_]};
}

}  // namespace gradsync
