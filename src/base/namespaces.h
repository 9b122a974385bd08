#pragma once

#include <cstdint>
#include <string>

namespace gradsync {

/// The number of the kernel's namespace of a kind ("pid", "user", "mnt") that a process is in; 0
/// where it cannot be read. Processes in different ones of kind "pid" have process numbers that say
/// nothing to each other.
std::uint64_t namespace_of(const char* kind, const std::string& process = "self");

/// Namespaces that the kernel starts with (PROC_PID_INIT_INO, PROC_USER_INIT_INO).
inline constexpr std::uint64_t kFirstPidNamespace = 0xEFFFFFFC, kFirstUserNamespace = 0xEFFFFFFD;

}  // namespace gradsync
