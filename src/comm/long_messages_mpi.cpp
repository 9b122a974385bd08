#include <algorithm>

#include "base/function_ref.h"
#include "comm/long_messages.h"

namespace gradsync {

namespace {

constexpr int kMoveTag = 75;

void in_pieces(std::span<std::byte> data, std::size_t piece_bytes,
               FunctionRef<void(std::byte*, int)> each) {
  while (!data.empty()) {
    const auto piece = data.first(std::min(data.size(), piece_bytes));
    each(piece.data(), static_cast<int>(piece.size()));
    data = data.subspan(piece.size());
  }
}

}  // namespace

void broadcast_bytes(std::span<std::byte> data, int root, MPI_Comm comm, std::size_t piece_bytes) {
  in_pieces(data, piece_bytes,
            [&](std::byte* bytes, int count) { MPI_Bcast(bytes, count, MPI_BYTE, root, comm); });
}

void move_bytes(std::span<std::byte> data, int from, int to, MPI_Comm comm,
                std::size_t piece_bytes) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  in_pieces(data, piece_bytes, [&](std::byte* bytes, int count) {
    if (rank == from)
      MPI_Send(bytes, count, MPI_BYTE, to, kMoveTag, comm);
    else
      MPI_Recv(bytes, count, MPI_BYTE, from, kMoveTag, comm, MPI_STATUS_IGNORE);
  });
}

}  // namespace gradsync
