// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "comm/shared_window.h"
#include "machine/host.h"

namespace gradsync {

namespace {

std::size_t page_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// The least over the ranks.
bool on_all(MPI_Comm node, char value) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_CHAR, MPI_MIN, node);
  return value != 0;
}

/// Each rank's part on pages of its own, so that it is placed near the rank that first writes it.
MPI_Win allocate(MPI_Comm node, std::size_t bytes) {
  MPI_Info info = MPI_INFO_NULL;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  MPI_Win window = MPI_WIN_NULL;
  void* base = nullptr;
  MPI_Errhandler usual = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(node, &usual);
  MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN);
  const int error =
      MPI_Win_allocate_shared(static_cast<MPI_Aint>(bytes), 1, info, node, &base, &window);
  MPI_Comm_set_errhandler(node, usual);
  MPI_Errhandler_free(&usual);
  MPI_Info_free(&info);
  if (error != MPI_SUCCESS)
    throw Error(ExitCode::kEnvironment,
                fmt::format("MPI makes no window of {} a rank in {}",
                            format_bytes(static_cast<std::int64_t>(bytes)), kSharedMemory),
                kSharedMemoryFix);
  return window;
}

/// Pages lie at the same offset in every process, so all of them find the same aligned address.
std::byte* aligned(void* address, std::size_t bytes, std::size_t alignment) {
  std::size_t space = bytes + alignment;
  return static_cast<std::byte*>(std::align(alignment, bytes, address, space));
}

}  // namespace

bool sees_room(MPI_Comm node, std::size_t bytes, std::size_t spare_bytes) {
  int ranks = 1;
  MPI_Comm_size(node, &ranks);
  if (ranks == 1) return true;
  const std::size_t page = page_bytes(), parts = (bytes + 2 * page - 1) / page * page + spare_bytes;
  // MPI adds a page to a window, and asks for a twentieth more than that.
  const std::size_t needed = (parts * static_cast<std::size_t>(ranks) + 2 * page) / 20 * 21;
  std::error_code error;
  const auto space = std::filesystem::space(kSharedMemory, error);
  // A tmpfs without a limit has a capacity of 0.
  return error || space.capacity == 0 || space.available > needed;
}

bool has_room(MPI_Comm node, std::size_t bytes, std::size_t spare_bytes) {
  return on_all(node, sees_room(node, bytes, spare_bytes));
}

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

bool SharedWindow::take_pages(MPI_Comm node) {
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  const std::uintptr_t page = page_bytes();
  const auto begin = reinterpret_cast<std::uintptr_t>(parts_[static_cast<std::size_t>(rank)]);
  const std::uintptr_t first = begin / page * page;
  const bool taken =
      madvise(reinterpret_cast<void*>(first), begin - first + bytes_, MADV_POPULATE_WRITE) == 0;
  return on_all(node, taken || errno == EINVAL);
}

SharedWindow::SharedWindow(SharedWindow&& other) noexcept
    : window_(std::exchange(other.window_, MPI_WIN_NULL)),
      bytes_(other.bytes_),
      parts_(std::move(other.parts_)) {}

SharedWindow::~SharedWindow() {
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
}

}  // namespace gradsync
