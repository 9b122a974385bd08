#include "record/hdf5.h"

#include <algorithm>

#include <fmt/format.h>

#include "support/file.h"

namespace gradsync {

namespace {

herr_t take_description(unsigned position, const H5E_error2_t* error, void* text) {
  if (position == 0 && error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

// HDF5 reports a failed write with the system's words in the middle of addresses and times.
std::string system_words(const std::string& description) {
  constexpr std::string_view kBefore = "error message = '";
  const auto begin = description.find(kBefore);
  if (begin == std::string::npos) return description;
  const auto words = begin + kBefore.size();
  return description.substr(words, description.find('\'', words) - words);
}

H5Object access_list(const std::filesystem::path& path) {
  H5Object list(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  const std::string what = fmt::format("cannot prepare access to '{}'", path.string());
  hdf5_checked(list.id(), ExitCode::kInternal, what);
  hdf5_checked(H5Pset_fclose_degree(list.id(), H5F_CLOSE_STRONG), ExitCode::kInternal, what);
  hdf5_checked(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_V110),
               ExitCode::kInternal, what);
#if H5_VERSION_GE(1, 10, 7)
  hdf5_checked(H5Pset_file_locking(list.id(), false, true), ExitCode::kInternal, what);
#endif
  return list;
}

}  // namespace

void H5Object::close_checked(std::string_view what) {
  if (closer_(std::exchange(id_, H5I_INVALID_HID)) < 0)
    hdf5_fail(ExitCode::kInputOutput, fmt::format("cannot finish {}", what));
}

std::string hdf5_reason() {
  std::string description;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_description, &description);
  return description.empty() ? "HDF5 gives no reason" : system_words(description);
}

void hdf5_fail(ExitCode code, const std::string& what) {
  throw Error(code, fmt::format("{}: {}", what, hdf5_reason()));
}

void prepare_hdf5() {
  // Before anything else of HDF5, or the handler is installed already.
  static const bool once = [] {
    H5dont_atexit();
    H5open();
    return true;
  }();
  static_cast<void>(once);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

H5Object create_hdf5_file(const std::filesystem::path& path) {
  prepare_hdf5();
  const H5Object access = access_list(path);
  H5Object file(H5Fcreate(path.c_str(), H5F_ACC_EXCL, H5P_DEFAULT, access.id()), H5Fclose);
  hdf5_checked(file.id(), creation_failure(), fmt::format("cannot create '{}'", path.string()));
  return file;
}

H5Object open_hdf5_file(const std::filesystem::path& path) {
  prepare_hdf5();
  const H5Object access = access_list(path);
  H5Object file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  hdf5_checked(file.id(), ExitCode::kBadData,
               fmt::format("'{}' is a damaged HDF5 file", path.string()));
  return file;
}

H5Object hdf5_text_type(std::size_t bytes) {
  const std::string what = "cannot make a text type";
  H5Object type(H5Tcopy(H5T_C_S1), H5Tclose);
  hdf5_checked(type.id(), ExitCode::kInternal, what);
  hdf5_checked(H5Tset_size(type.id(), std::max<std::size_t>(bytes, 1)), ExitCode::kInternal, what);
  hdf5_checked(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), ExitCode::kInternal, what);
  hdf5_checked(H5Tset_cset(type.id(), H5T_CSET_UTF8), ExitCode::kInternal, what);
  return type;
}

}  // namespace gradsync
