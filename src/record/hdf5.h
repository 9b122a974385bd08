// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <hdf5.h>

#include "base/error.h"
#include "base/hash.h"
#include "record/schema.h"

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

/// Throws Error `code`: "<what>: <HDF5's reason>"; kInputOutput in place of kBadData where it was
/// the system that could not read.
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

/// Writing parts of an HDF5 file. All functions throw Error kInputOutput naming the object.

/// A file being written: its scales and what is needed to make data sets over them.
class Hdf5Output {
 public:
  /// Makes the file and its dimension scales 0, 1, 2, … of the given lengths.
  Hdf5Output(const std::filesystem::path& path, const AxisLengths& lengths);

  const AxisLengths& lengths() const { return lengths_; }

  /// A group that keeps its members in the order they are made, unless it is there; and those it is
  /// in. Data sets make theirs.
  void make_group(const std::string& path);

  /// A contiguous data set with scales, `units` and `long_name`; its fill value is NaN, −1 or 255.
  template <typename Number>
  H5Object make_dataset(const DatasetSpec& spec) {
    Number fill = std::numeric_limits<Number>::has_quiet_NaN
                      ? std::numeric_limits<Number>::quiet_NaN()
                      : static_cast<Number>(-1);
    return make_dataset(spec, hdf5_file_type<Number>(), hdf5_memory_type<Number>(), &fill);
  }

  /// Writes rows `first` … of a data set; `values` holds whole rows.
  template <typename Number>
  void write_rows(const H5Object& dataset, const DatasetSpec& spec, hsize_t first,
                  std::span<const Number> values) {
    write_rows(dataset, spec, hdf5_memory_type<Number>(), first, values.size(), values.data());
  }

  /// A data set and all its values.
  template <typename Number>
  void write(const DatasetSpec& spec, const std::vector<Number>& values) {
    H5Object dataset = make_dataset<Number>(spec);
    write_rows<Number>(dataset, spec, 0, values);
    close(dataset, spec.path, crc32c(std::as_bytes(std::span(values))));
  }
  void write(const DatasetSpec& spec, const std::vector<std::string>& texts);

  /// A text without dimensions, with an optional attribute `source`.
  void write_text(const std::string& path, std::string_view text, std::string_view long_name,
                  std::string_view source = {});

  /// Closes a data set, with the CRC-32C of all its bytes in the order of its rows as the attribute
  /// `crc32c`: the library's own checksums cover all of the file but the data.
  void close(H5Object& dataset, const std::string& path, std::uint32_t sum);

  /// Attributes of the root.
  void set_attribute(const std::string& name, std::string_view text);
  void set_attribute(const std::string& name, std::int64_t number);

  /// Flushes and closes: the file is whole only when this returns.
  void close();

 private:
  H5Object make_dataset(const DatasetSpec& spec, hid_t file_type, hid_t memory_type,
                        const void* fill);
  void write_rows(const H5Object& dataset, const DatasetSpec& spec, hid_t memory_type,
                  hsize_t first, std::size_t count, const void* values);
  void make_scale(FileAxis dimension);
  void attach_scales(const H5Object& dataset, const DatasetSpec& spec);
  std::vector<hsize_t> shape(const DatasetSpec& spec) const;
  std::string named(const std::string& object) const;

  std::string path_;
  AxisLengths lengths_;
  std::set<std::string> groups_;
  H5Object file_;
  std::array<H5Object, kAxes.size()> scales_;
};

/// Reading parts of an HDF5 file that may be damaged, foreign or hostile: every object is checked
/// for presence, kind, type, rank and shape, and its size against the file's length, before memory
/// is taken. All functions throw Error kBadData naming the file and the object.

class Hdf5Input {
 public:
  explicit Hdf5Input(const std::filesystem::path& path);

  /// The path as it was given, for messages.
  const std::string& path() const { return path_; }

  /// Whether the data set carries the CRC-32C of its data. What is read of one that does is checked
  /// against it; a part of it the first time, with all the rest.
  bool has_sum(const std::string& path) const;

  /// Text and number attributes of the root.
  std::string text_attribute(const std::string& name) const;
  std::int64_t number_attribute(const std::string& name) const;
  bool has_attribute(const std::string& name) const;

  /// Whether there is a link of this name; for what files of earlier releases lack.
  bool has(const std::string& path) const;

  /// The names of a group's members in the order they were made.
  std::vector<std::string> members(const std::string& group) const;

  /// The shape of a data set of numbers or texts.
  std::vector<std::size_t> shape(const std::string& path) const;

  /// Rows `first` … `first + count` of a data set that must have the shape `expected` and this
  /// type.
  template <typename Number>
  std::vector<Number> rows(const std::string& path, const std::vector<std::size_t>& expected,
                           std::size_t first, std::size_t count) const {
    const H5Object dataset = open_numbers(path, expected, hdf5_file_type<Number>());
    std::vector<Number> values(row_numbers(expected) * count);
    read_rows(dataset, path, expected, first, count, hdf5_memory_type<Number>(), values.data());
    if (first == 0 && count == expected.at(0))
      require_sum(dataset, path, crc32c(std::as_bytes(std::span(values))));
    else
      require_sound(dataset, path, expected, hdf5_memory_type<Number>());
    return values;
  }

  std::vector<std::string> texts(const std::string& path, std::size_t expected) const;
  /// A text without dimensions.
  std::string text(const std::string& path) const;
  /// The attribute `source` of a data set, or "".
  std::string source_of(const std::string& path) const;

 private:
  H5Object open(const std::string& path) const;
  H5Object open_numbers(const std::string& path, const std::vector<std::size_t>& expected,
                        hid_t type) const;
  void read_rows(const H5Object& dataset, const std::string& path,
                 const std::vector<std::size_t>& expected, std::size_t first, std::size_t count,
                 hid_t type, void* values) const;
  void require_sum(const H5Object& dataset, const std::string& path, std::uint32_t found) const;
  void require_sound(const H5Object& dataset, const std::string& path,
                     const std::vector<std::size_t>& expected, hid_t type) const;
  void require_hard_links(const std::string& path) const;
  void require_stored(const H5Object& dataset, const std::string& path) const;
  std::vector<std::size_t> shape_of(const H5Object& dataset, const std::string& path) const;
  std::string attribute_text(hid_t object, const std::string& name) const;
  /// The text of an array that HDF5 has filled.
  std::string counted_text(const std::vector<char>& bytes, const std::string& object) const;
  static std::size_t row_numbers(const std::vector<std::size_t>& shape);
  [[noreturn]] void bad(const std::string& object, const std::string& why) const;
  template <typename Result>
  Result checked(Result result, const std::string& object) const {
    return hdf5_checked(result, ExitCode::kBadData, "cannot read " + named(object));
  }
  H5Object owned(hid_t id, H5Object::Closer closer, const std::string& object) const {
    return {checked(id, object), closer};
  }
  std::string named(const std::string& object) const;

  std::string path_;
  std::uintmax_t file_bytes_;
  H5Object file_;
  /// Bytes of the texts read so far: many names of one text would take more memory than the file
  /// has.
  mutable std::uintmax_t text_bytes_ = 0;
  mutable std::set<std::string> sound_;  ///< data sets that were checked as a whole
};

}  // namespace gradsync
