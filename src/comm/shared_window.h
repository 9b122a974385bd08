#pragma once

#include <cstddef>
#include <vector>

#include <mpi.h>

namespace gradsync {

/// Equally large pieces of memory, one a rank, that all ranks of one node map (an MPI shared
/// window): gone with the job's session folder whatever ends a rank. Making and ending are
/// collective over `node`.
class SharedWindow {
 public:
  SharedWindow(MPI_Comm node, std::size_t bytes, std::size_t alignment);
  ~SharedWindow();
  SharedWindow(SharedWindow&& other) noexcept;
  SharedWindow(const SharedWindow&) = delete;
  SharedWindow& operator=(const SharedWindow&) = delete;
  SharedWindow& operator=(SharedWindow&&) = delete;

  /// Gives this process's part its pages. False where the node has no room for them; a kernel
  /// before Linux 5.14 is not asked.
  bool take_pages(int rank);

  std::size_t bytes() const { return bytes_; }
  /// The part of every rank, in order, where this process maps it; aligned as requested.
  const std::vector<std::byte*>& parts() const { return parts_; }

 private:
  MPI_Win window_ = MPI_WIN_NULL;
  std::size_t bytes_;
  std::vector<std::byte*> parts_;
};

}  // namespace gradsync
