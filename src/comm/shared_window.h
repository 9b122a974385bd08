// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

#include <mpi.h>

namespace gradsync {

/// Whether this rank sees room in /dev/shm, where MPI makes windows, for a window of `bytes` a rank
/// of `node` beside `spare_bytes` a rank. What cannot be seen is taken for room enough.
bool sees_room(MPI_Comm node, std::size_t bytes, std::size_t spare_bytes = 0);

/// Whether all ranks of `node` see it. Collective over `node`.
bool has_room(MPI_Comm node, std::size_t bytes, std::size_t spare_bytes = 0);

/// Equally large pieces of memory, one a rank, that all ranks of one node map (an MPI shared
/// window): gone with the job's session folder whatever ends a rank. Making and ending are
/// collective over `node`. To be made only after has_room(): where MPI finds no room all the same,
/// one rank throws Error kEnvironment and has to end the job, since the others wait for it.
class SharedWindow {
 public:
  SharedWindow(MPI_Comm node, std::size_t bytes, std::size_t alignment);
  ~SharedWindow();
  SharedWindow(SharedWindow&& other) noexcept;
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  SharedWindow& operator=(SharedWindow&&) = delete;

  /// Gives the parts their pages; false on all ranks where one of them gets none, since the node
  /// has no room left. A file in /dev/shm takes pages when it is written: without this, two jobs
  /// could both find room, and die of a SIGBUS. A kernel before Linux 5.14 is not asked.
  /// Collective.
  bool take_pages(MPI_Comm node);

  std::size_t bytes() const { return bytes_; }
  /// The part of every rank, in order, where this process maps it; aligned as requested.
  const std::vector<std::byte*>& parts() const { return parts_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::size_t bytes_;
  std::vector<std::byte*> parts_;
};

}  // namespace gradsync
