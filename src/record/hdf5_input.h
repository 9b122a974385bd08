#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "record/hdf5.h"

/// Reading parts of an HDF5 file that may be damaged, foreign or hostile: every object is checked
/// for presence, kind, type, rank and shape, and its size against the file's length, before memory
/// is taken. All functions throw Error kBadData naming the file and the object.
namespace gradsync {

class Hdf5Input {
 public:
  explicit Hdf5Input(const std::filesystem::path& path);

  /// As given, for messages.
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

  /// All rows.
  template <typename Number>
  std::vector<Number> numbers(const std::string& path,
                              const std::vector<std::size_t>& expected) const {
    return rows<Number>(path, expected, 0, expected.at(0));
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
  static std::size_t row_numbers(const std::vector<std::size_t>& shape);
  [[noreturn]] void bad(const std::string& object, const std::string& why) const;
  template <typename Result>
  Result checked(Result result, const std::string& object) const {
    return hdf5_checked(result, ExitCode::kBadData, "cannot read " + named(object));
  }
  std::string named(const std::string& object) const;

  std::string path_;
  std::uintmax_t file_bytes_;
  H5Object file_;
  mutable std::set<std::string> sound_;  ///< data sets that were checked as a whole
};

}  // namespace gradsync
