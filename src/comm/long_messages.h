#pragma once

#include <cstddef>
#include <span>

#include <mpi.h>

namespace gradsync {

/// MPI counts in int: what is longer travels in pieces of at most this.
constexpr std::size_t kPiece_bytes = std::size_t{1} << 30;

/// MPI_Bcast of any length. Collective over `comm`.
void broadcast_bytes(std::span<std::byte> data, int root, MPI_Comm comm,
                     std::size_t piece_bytes = kPiece_bytes);

/// Moves `data`, of any length, from rank `from` to rank `to`; both call it.
void move_bytes(std::span<std::byte> data, int from, int to, MPI_Comm comm,
                std::size_t piece_bytes = kPiece_bytes);

}  // namespace gradsync
