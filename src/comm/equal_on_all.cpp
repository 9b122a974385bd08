#include "comm/equal_on_all.h"

#include <array>

namespace gradsync {

bool equal_on_all(MPI_Comm comm, std::uint64_t value) {
  // The maximum of the complement is the complement of the minimum.
  const std::array<std::uint64_t, 2> mine = {value, ~value};
  std::array<std::uint64_t, 2> most{};
  MPI_Allreduce(mine.data(), most.data(), 2, MPI_UINT64_T, MPI_MAX, comm);
  return most[0] == ~most[1];
}

}  // namespace gradsync
