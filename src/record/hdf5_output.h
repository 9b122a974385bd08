#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "record/file_axis.h"
#include "record/hdf5.h"

/// Writing parts of an HDF5 file. All functions throw Error kInputOutput naming the object.
namespace gradsync {

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
  std::array<H5Object, kAxisNames.size()> scales_;
};

}  // namespace gradsync
