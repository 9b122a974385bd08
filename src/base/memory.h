// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gradsync {

/// The largest resident set of this process so far (VmHWM of /proc/self/status), in bytes; nothing
/// where the system does not report it.
std::optional<std::int64_t> peak_resident_bytes();

/// Sets peak_resident_bytes to the memory that is resident now. False where the system refuses.
bool reset_peak_resident();

/// Bytes that new data of all processes of this host may take: the kernel's MemAvailable, or what
/// the limit of a control group around this process leaves where that is less; nothing where the
/// system does not report it. Cached files and slabs that the kernel gives back are not in use.
/// `root` holds proc and sys.
std::optional<std::int64_t> available_memory_bytes(const std::filesystem::path& root = "/");

/// Sets how memory is allocated from now on; called before the first tensor, while no other thread
/// runs.
///
/// Freed memory is kept for later allocations. By default glibc returns tensors of some megabytes
/// to the system and requests them again in every step, and the kernel zeroes each of their pages
/// again: a third of a step of VGG11 at a small batch. Left alone where the user has tuned malloc
/// by MALLOC_* or GLIBC_TUNABLES.
///
/// Tensors of 2 MiB and more lie in huge pages where the system grants them (LibTorch's
/// THP_MEM_ALLOC_ENABLE, unless it is set): which 4 KiB pages a contender got by chance, and how
/// they share the caches, else makes it faster or slower than its equal as long as the job lasts.
void tune_allocation();

/// So many zeros in pages of their own, which return to the system with the last owner. Throws
/// std::bad_alloc.
std::shared_ptr<std::byte> own_pages(std::size_t bytes);

/// Returns to the system what is freed now.
void return_freed_memory();

/// How tells_out_of_memory learns whether the memory of the device that this process computes on is
/// nearly all in use; null: it computes on none. Called while an error is handled, so it may not
/// throw.
void ask_device_memory(bool (*nearly_full)());

/// Whether an error's text says that memory ran out, of the host or of a GPU, in the words of
/// LibTorch's allocators, CUDA, its driver, cuBLAS, cuDNN, NCCL or MPI. Most of them throw an error
/// of one class for all that can go wrong, so their words are all there is to go by. cuDNN's search
/// for an algorithm hides what made each of them fail: no algorithm counts as no memory where the
/// device's memory is nearly all in use.
bool tells_out_of_memory(std::string_view text);

/// The folders of the control groups that hold this process and have `controller` ("memory",
/// "cpu"), as far as they can be seen: its own first, then those around it, whose limits hold as
/// well. Of cgroup v2, and of v1 where the controller is mounted as that. In a container the
/// outermost one that can be seen is the container's own. `root` holds proc and sys.
std::vector<std::filesystem::path> control_groups(const std::string& controller,
                                                  const std::filesystem::path& root = "/");

}  // namespace gradsync
