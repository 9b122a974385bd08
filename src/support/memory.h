#pragma once

#include <cstdint>
#include <optional>

namespace gradsync {

/// The largest resident set of this process so far (VmHWM of /proc/self/status), in bytes; nothing
/// where the system does not tell.
std::optional<std::int64_t> peak_resident_bytes();

/// Lets peak_resident_bytes begin anew at what is resident now. False where the system refuses.
bool reset_peak_resident();

/// Bytes that new data of all processes of this host may take: the kernel's MemAvailable, or what
/// the control group leaves where that is less; nothing where the system does not tell.
std::optional<std::int64_t> available_memory_bytes();

/// From now on memory that is freed is kept for what is allocated next. As it comes, glibc gives
/// tensors of some megabytes back to the system and takes them anew in every step, and the kernel
/// zeroes each of their pages again: a third of a step of VGG11 at a small batch. Does nothing
/// where the user has tuned malloc by MALLOC_* or GLIBC_TUNABLES.
void keep_freed_memory();

}  // namespace gradsync
