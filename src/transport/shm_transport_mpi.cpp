#include <filesystem>

#include "transport/shm_transport.h"

namespace gradsync {

std::uint32_t ShmTransport::post(std::span<float> data) {
  return memory_.reducer().post(data, 1.0 / size(), /*timed=*/true);
}

Progress ShmTransport::progress() {
  SharedAllReduce& reducer = memory_.reducer();
  const std::uint32_t own = reducer.progress();
  return {own, reducer.finished()};
}

void ShmTransport::finish(std::uint32_t number, Waiting waiting) {
  memory_.reducer().finish(number, waiting);
}

PostedTimes ShmTransport::times(std::uint32_t number) {
  return memory_.reducer().times(number);
}

void ShmTransport::all_reduce_sum(std::span<float> data, Waiting waiting) {
  memory_.reducer().all_reduce(data, 1, waiting);
}

void ShmTransport::all_reduce_mean(std::span<float> data, Waiting waiting) {
  memory_.reducer().all_reduce(data, 1.0 / size(), waiting);
}

void ShmTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) {
  memory_.reducer().all_reduce(as_values<Bfloat16>(data), 1, waiting);
}

void ShmTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) {
  memory_.reducer().all_reduce(as_values<Float16>(data), 1, waiting);
}

namespace {

/// A rank, for what else lies there: Open MPI's own segment has 4 MiB, which it takes page by page.
constexpr std::size_t kSlack_bytes = std::size_t{5} << 20;

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

/// Whether all ranks of the node have pages for their parts. A file in /dev/shm takes them when it
/// is written: without this, two jobs could both be told that there is room, and die of a SIGBUS.
bool take_pages(MPI_Comm node, SharedWindow& window) {
  char taken = window.take_pages(rank_in(node));
  MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_CHAR, MPI_MIN, node);
  return taken != 0;
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
    auto window = std::make_shared<SharedWindow>(node_, bytes, SharedAllReduce::kAlignment);
    if (!take_pages(node_, *window)) return {};
    buffers_.push_back(std::move(window));
    reducer_.add_region(buffers_.back()->parts(), bytes);
  }
  return {buffers_[taken], buffers_[taken]->parts()[rank_]};
}

}  // namespace gradsync
