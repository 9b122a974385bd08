// Loaded with LD_PRELOAD, stops one rank (SIGSTOP) as it enters an MPI function:
//
//   STOP_CALL=MPI_Bcast:3   the third call of MPI_Bcast on this rank
//   STOP_RANK=1             the rank, as mpirun counts (OMPI_COMM_WORLD_RANK)
//
// Every call is forwarded to the function of that name.

#include <dlfcn.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace {

/// All that is wrapped returns an int and takes up to twelve pointers or integers: passing twelve
/// on passes any smaller number on.
using Word = void*;
using Function = int (*)(Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word, Word);

bool chosen_rank() {
  const char *wanted = std::getenv("STOP_RANK"), *mine = std::getenv("OMPI_COMM_WORLD_RANK");
  return wanted && mine && std::strcmp(wanted, mine) == 0;
}

void stop_if_chosen(const char* name, long calls) {
  const char* wanted = std::getenv("STOP_CALL");
  const std::size_t length = std::strlen(name);
  if (!wanted || !chosen_rank() || std::strncmp(wanted, name, length) != 0) return;
  if (wanted[length] == ':' && std::atol(wanted + length + 1) == calls) std::raise(SIGSTOP);
}

}  // namespace

#define STOPS_IN(name)                                                                        \
  extern "C" int name(Word a, Word b, Word c, Word d, Word e, Word f, Word g, Word h, Word i, \
                      Word j, Word k, Word l) {                                               \
    static long calls = 0;                                                                    \
    static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, #name));             \
    stop_if_chosen(#name, ++calls);                                                           \
    return real(a, b, c, d, e, f, g, h, i, j, k, l);                                          \
  }

STOPS_IN(MPI_Init_thread)
STOPS_IN(MPI_Comm_dup)
STOPS_IN(MPI_Comm_split_type)
STOPS_IN(MPI_Win_allocate_shared)
STOPS_IN(MPI_Win_free)
STOPS_IN(MPI_Barrier)
STOPS_IN(MPI_Bcast)
STOPS_IN(MPI_Allreduce)
STOPS_IN(MPI_Allgather)
STOPS_IN(MPI_Gather)
STOPS_IN(MPI_Gatherv)
STOPS_IN(MPI_Send)
STOPS_IN(MPI_Recv)
STOPS_IN(MPI_Finalize)
