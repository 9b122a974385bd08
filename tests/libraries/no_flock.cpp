// SPDX-License-Identifier: BSD-3-Clause
// A file system without locks, by LD_PRELOAD: flock fails with the error number in FLOCK_ERRNO.
#include <cerrno>
#include <cstdlib>

extern "C" int flock(int, int) {
  const char* number = std::getenv("FLOCK_ERRNO");
  errno = number == nullptr ? ENOLCK : std::atoi(number);
  return -1;
}
