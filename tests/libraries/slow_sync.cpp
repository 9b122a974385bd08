// Loaded with LD_PRELOAD, a slow disk: fsync takes $SLOW_FSYNC_S seconds and fdatasync
// $SLOW_FDATASYNC_S, which may be fractions. Of the ranks of a run only rank 0 calls them.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

int slowly(const char* variable, const char* name, int file) {
  if (const char* seconds = std::getenv(variable)) {
    const double wait_s = std::atof(seconds);
    timespec left{
        static_cast<time_t>(wait_s),
        static_cast<long>(1e9 * (wait_s - static_cast<double>(static_cast<time_t>(wait_s))))};
    while (nanosleep(&left, &left) != 0) {
    }
  }
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, name))(file);
}

}  // namespace

extern "C" int fsync(int file) {
  return slowly("SLOW_FSYNC_S", "fsync", file);
}

extern "C" int fdatasync(int file) {
  return slowly("SLOW_FDATASYNC_S", "fdatasync", file);
}
