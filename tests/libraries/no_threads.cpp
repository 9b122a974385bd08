// SPDX-License-Identifier: BSD-3-Clause
// An MPI that lets only the thread call it that has started it. Preloaded.
#include <dlfcn.h>

extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  constexpr int kFunneled = 1;
  using Function = int (*)(int*, char***, int, int*);
  const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "MPI_Init_thread"));
  const int result = next(argc, argv, required, provided);
  *provided = kFunneled;
  return result;
}
