#include "record/hdf5.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"

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

namespace {

std::uint64_t number_at(std::span<const unsigned char> bytes, std::size_t at) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

/// Refuses a file that is being written, and one whose superblock (HDF5 File Format Specification,
/// II.A) states addresses that it does not have: HDF5 1.10 takes a gigabyte of memory for some of
/// them before it refuses.
void require_superblock(const std::filesystem::path& path) {
  constexpr std::size_t kVersion = 8, kMost = 64;
  std::array<unsigned char, kMost> block{};
  const UniqueFd file = open_for_reading(path);
  std::size_t have = 0;
  while (const std::size_t count =
             read_some(file.get(), std::as_writable_bytes(std::span(block).subspan(have)), path))
    have += count;
  const unsigned version = block[kVersion];
  // Set while a program has the file open for writing, and left by one that was killed.
  constexpr std::size_t kConsistencyFlags = 11;
  if (version == 3 && (block[kConsistencyFlags] & 1U) != 0)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' is in use: a program has it open for writing", path.string()),
                fmt::format("close it there; where that program was killed: h5clear --status '{}'",
                            path.string()));
  const std::size_t offset_size_at = version < 2 ? 13 : 9;
  const std::size_t base_at = version == 0 ? 24 : version == 1 ? 28 : 12;
  const std::size_t end_at = base_at + 16;  // base address, another one, end of file
  if (version > 3 || block[offset_size_at] != 8 || number_at(block, base_at) != 0 ||
      number_at(block, end_at) > std::filesystem::file_size(path))
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' is a damaged HDF5 file: its superblock does not fit its {} bytes",
                            path.string(), std::filesystem::file_size(path)));
}

}  // namespace

H5Object open_hdf5_file(const std::filesystem::path& path) {
  prepare_hdf5();
  require_superblock(path);
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
