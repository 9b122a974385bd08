// No port is free for the rank NO_LISTEN_RANK: what a firewall's range that is used up, or a wrong
// address, looks like to a ring. Preloaded.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

extern "C" int listen(int socket, int backlog) {
  constexpr int kOfRings = 16;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* refused = std::getenv("NO_LISTEN_RANK");
  if (backlog == kOfRings && rank && refused && std::strcmp(rank, refused) == 0) {
    errno = EADDRINUSE;
    return -1;
  }
  return static_cast<int>(syscall(SYS_listen, socket, backlog));
}
