#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/shared_window.h"

namespace gradsync {

namespace {

/// Each rank's part on pages of its own, so that it is placed near the rank that first writes it.
MPI_Win allocate(MPI_Comm node, std::size_t bytes) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  MPI_Win window = MPI_WIN_NULL;
  void* base = nullptr;
  MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, info, node, &base, &window);
  MPI_Info_free(&info);
  return window;
}

/// Pages lie at the same offset in every process, so all of them find the same aligned address.
std::byte* aligned(void* address, std::size_t bytes, std::size_t alignment) {
  std::size_t space = bytes + alignment;
  return static_cast<std::byte*>(std::align(alignment, bytes, address, space));
}

}  // namespace

SharedWindow::SharedWindow(MPI_Comm node, std::size_t bytes, std::size_t alignment)
    : window_(allocate(node, bytes + alignment)), bytes_(bytes) {
  int ranks = 1;
  MPI_Comm_size(node, &ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    MPI_Aint size = 0;
    int unit = 0;
    void* address = nullptr;
    MPI_Win_shared_query(window_, rank, &size, &unit, &address);
    parts_.push_back(aligned(address, bytes, alignment));
  }
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif

bool SharedWindow::take_pages(int rank) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(parts_[static_cast<std::size_t>(rank)]);
  const std::uintptr_t first = begin / page * page;
  const bool taken =
      madvise(reinterpret_cast<void*>(first), begin - first + bytes_, MADV_POPULATE_WRITE) == 0;
  return taken || errno == EINVAL;
}

SharedWindow::SharedWindow(SharedWindow&& other) noexcept
    : window_(std::exchange(other.window_, MPI_WIN_NULL)),
      bytes_(other.bytes_),
      parts_(std::move(other.parts_)) {}

SharedWindow::~SharedWindow() {
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
}

}  // namespace gradsync
