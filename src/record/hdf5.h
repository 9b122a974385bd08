#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <hdf5.h>

#include "base/error.h"

/// HDF5's C interface with owners and checks. Every failure is an Error that carries HDF5's own
/// innermost reason; nothing is printed by the library itself.
namespace gradsync {

/// Owns one HDF5 identifier of any kind; move-only. The destructor closes it and ignores failure:
/// where a close can lose data (files, written data sets) call `close_checked`.
class H5Object {
 public:
  using Closer = herr_t (*)(hid_t);

  H5Object() = default;
  H5Object(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~H5Object() { reset(); }
  H5Object(H5Object&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), closer_(other.closer_) {}
  H5Object& operator=(H5Object&& other) noexcept {
    reset();
    id_ = std::exchange(other.id_, H5I_INVALID_HID);
    closer_ = other.closer_;
    return *this;
  }
  H5Object(const H5Object&) = delete;
  H5Object& operator=(const H5Object&) = delete;

  hid_t id() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
  /// Closes it. Throws Error kInputOutput naming `what` if HDF5 could not. The identifier is given
  /// up either way: a second attempt on a file that failed to close may crash in the library.
  void close_checked(std::string_view what);

 private:
  void reset() {
    if (id_ >= 0) closer_(std::exchange(id_, H5I_INVALID_HID));
  }

  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

/// HDF5's reason for the last failure of this thread, e.g. "No space left on device".
std::string hdf5_reason();

/// Throws Error `code`: "<what>: <HDF5's reason>".
[[noreturn]] void hdf5_fail(ExitCode code, const std::string& what);

/// `result` if HDF5 says it is good, that is, not negative.
template <typename Result>
Result hdf5_checked(Result result, ExitCode code, const std::string& what) {
  if (result < 0) hdf5_fail(code, what);
  return result;
}

/// Makes a file of the 1.10 format. It must not exist. Throws Error kCannotCreate.
H5Object create_hdf5_file(const std::filesystem::path& path);

/// Opens a file for reading, without a lock: run files never change once they have their name.
/// Throws Error kBadData if it is no HDF5 file, is damaged or is open for writing.
H5Object open_hdf5_file(const std::filesystem::path& path);

/// Turns off HDF5's handler at exit and its printing of errors; the functions above call it.
/// The handler crashes the process if a file could not be written (full disk), and every file here
/// is closed by its owner.
void prepare_hdf5();

/// The type of `Number` in memory and, little-endian, in the file.
template <typename Number>
hid_t hdf5_memory_type() {
  if constexpr (std::is_same_v<Number, double>) return H5T_NATIVE_DOUBLE;
  if constexpr (std::is_same_v<Number, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<Number, std::int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::is_same_v<Number, std::uint8_t>) return H5T_NATIVE_UINT8;
}
template <typename Number>
hid_t hdf5_file_type() {
  if constexpr (std::is_same_v<Number, double>) return H5T_IEEE_F64LE;
  if constexpr (std::is_same_v<Number, std::int64_t>) return H5T_STD_I64LE;
  if constexpr (std::is_same_v<Number, std::int32_t>) return H5T_STD_I32LE;
  if constexpr (std::is_same_v<Number, std::uint8_t>) return H5T_STD_U8LE;
}

/// A fixed-length, NUL-padded UTF-8 text of `bytes` bytes (at least 1).
H5Object hdf5_text_type(std::size_t bytes);

}  // namespace gradsync
