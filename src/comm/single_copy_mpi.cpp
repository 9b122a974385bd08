#include <cstdlib>
#include <string>

#include <mpi.h>

#include "base/process.h"
#include "comm/single_copy.h"

namespace gradsync {

namespace {

constexpr const char* kVariable = "btl_vader_single_copy_mechanism";

/// The name of the value that a variable of MPI has, one of a list; empty if there is none.
std::string value_of(const char* variable) {
  int index = 0;
  if (MPI_T_cvar_get_index(variable, &index) != MPI_SUCCESS) return {};
  int name_length = 0, text_length = 0, verbosity = 0, bind = 0, scope = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum values = MPI_T_ENUM_NULL;
  if (MPI_T_cvar_get_info(index, nullptr, &name_length, &verbosity, &type, &values, nullptr,
                          &text_length, &bind, &scope) != MPI_SUCCESS ||
      type != MPI_INT || values == MPI_T_ENUM_NULL)
    return {};
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  int count = 0, value = 0, items = 0;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return {};
  const bool read = count == 1 && MPI_T_cvar_read(handle, &value) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  int no_length = 0;
  if (!read || MPI_T_enum_get_info(values, &items, nullptr, &no_length) != MPI_SUCCESS) return {};
  for (int item = 0; item < items; ++item) {
    char name[64] = {};
    int length = sizeof name, number = 0;
    MPI_T_enum_get_item(values, item, &number, name, &length);
    if (number == value) return name;
  }
  return {};
}

}  // namespace

std::uint64_t cma_namespace() {
  int provided = 0;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return 0;
  const std::string mechanism = value_of(kVariable);
  MPI_T_finalize();
  // Open MPI 4.1 says "emulated" where it meant "cma" and found other user namespaces. What a user
  // asked for works.
  const char* asked = std::getenv("OMPI_MCA_btl_vader_single_copy_mechanism");
  const bool meant = mechanism == "emulated" && asked == nullptr;
  return mechanism == "cma" || meant ? namespace_of("user") : 0;
}

}  // namespace gradsync
