#include "record/hdf5_input.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gradsync {

namespace {

constexpr std::size_t kMostMembers = 100000;
constexpr std::size_t kLongestText = 16U << 20;
constexpr std::size_t kReadBytes = 4U << 20;
constexpr const char* kSum = "crc32c";

std::uintmax_t length_of(const std::filesystem::path& path) {
  std::error_code failure;
  const std::uintmax_t bytes = std::filesystem::file_size(path, failure);
  if (failure)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot examine '{}': {}", path.string(), failure.message()));
  return bytes;
}

/// The texts of `count` fields of `width` bytes, each without its padding.
std::vector<std::string> split_texts(const std::vector<char>& bytes, std::size_t width,
                                     std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i) {
    const char* begin = bytes.data() + i * width;
    texts.emplace_back(begin, std::find(begin, begin + width, '\0'));
  }
  return texts;
}

}  // namespace

Hdf5Input::Hdf5Input(const std::filesystem::path& path)
    : path_(path.string()), file_bytes_(length_of(path)), file_(open_hdf5_file(path)) {}

std::string Hdf5Input::named(const std::string& object) const {
  return fmt::format("/{} of '{}'", object, path_);
}

void Hdf5Input::bad(const std::string& object, const std::string& why) const {
  throw Error(ExitCode::kBadData, fmt::format("{} {}", named(object), why));
}

std::size_t Hdf5Input::row_numbers(const std::vector<std::size_t>& shape) {
  return std::accumulate(shape.begin() + 1, shape.end(), std::size_t{1}, std::multiplies<>());
}

void Hdf5Input::require_hard_links(const std::string& path) const {
  for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    H5L_info_t link{};
    if (H5Lget_info(file_.id(), part.c_str(), &link, H5P_DEFAULT) < 0) bad(path, "is missing");
    if (link.type != H5L_TYPE_HARD) bad(path, "is a link to another place, which is not followed");
    if (end == std::string::npos) return;
  }
}

H5Object Hdf5Input::open(const std::string& path) const {
  require_hard_links(path);
  return {checked(H5Dopen2(file_.id(), path.c_str(), H5P_DEFAULT), path), H5Dclose};
}

std::vector<std::size_t> Hdf5Input::shape_of(const H5Object& dataset,
                                             const std::string& path) const {
  const H5Object space(H5Dget_space(dataset.id()), H5Sclose);
  checked(space.id(), path);
  if (H5Sget_simple_extent_type(space.id()) == H5S_NULL) bad(path, "has no values");
  const int rank = checked(H5Sget_simple_extent_ndims(space.id()), path);
  std::vector<hsize_t> lengths(static_cast<std::size_t>(rank));
  checked(H5Sget_simple_extent_dims(space.id(), lengths.data(), nullptr), path);
  return {lengths.begin(), lengths.end()};
}

std::vector<std::size_t> Hdf5Input::shape(const std::string& path) const {
  return shape_of(open(path), path);
}

// Everything that could make the library take more memory than the file has bytes, or read from
// elsewhere, or return fill values for data that never was written.
void Hdf5Input::require_stored(const H5Object& dataset, const std::string& path) const {
  const H5Object list(H5Dget_create_plist(dataset.id()), H5Pclose);
  checked(list.id(), path);
  if (H5Pget_layout(list.id()) != H5D_CONTIGUOUS || H5Pget_nfilters(list.id()) != 0 ||
      H5Pget_external_count(list.id()) != 0)
    throw Error(ExitCode::kBadData,
                named(path) + " is not stored contiguously and uncompressed in the file",
                "rewrite the file with h5repack -l CONTI -f NONE");
  const H5Object type(H5Dget_type(dataset.id()), H5Tclose);
  const std::size_t item_bytes = H5Tget_size(checked(type.id(), path));
  std::uintmax_t needed = item_bytes;
  for (const std::size_t length : shape_of(dataset, path)) {
    if (length > 0 && needed > file_bytes_ / length) bad(path, "claims to be larger than the file");
    needed *= length;
  }
  if (H5Dget_storage_size(dataset.id()) != needed) bad(path, "was never written");
}

H5Object Hdf5Input::open_numbers(const std::string& path, const std::vector<std::size_t>& expected,
                                 hid_t type) const {
  H5Object dataset = open(path);
  const auto found = shape_of(dataset, path);
  if (found != expected)
    bad(path, fmt::format("has the shape ({}), expected ({})", fmt::join(found, ", "),
                          fmt::join(expected, ", ")));
  const H5Object stored(H5Dget_type(dataset.id()), H5Tclose);
  if (H5Tequal(checked(stored.id(), path), type) <= 0) bad(path, "has another type than expected");
  require_stored(dataset, path);
  return dataset;
}

void Hdf5Input::read_rows(const H5Object& dataset, const std::string& path,
                          const std::vector<std::size_t>& expected, std::size_t first,
                          std::size_t count, hid_t type, void* values) const {
  if (count * row_numbers(expected) == 0) return;
  std::vector<hsize_t> block(expected.begin(), expected.end());
  block[0] = count;
  std::vector<hsize_t> start(block.size(), 0);
  start[0] = first;
  const H5Object memory(H5Screate_simple(static_cast<int>(block.size()), block.data(), nullptr),
                        H5Sclose);
  checked(memory.id(), path);
  const H5Object source(H5Dget_space(dataset.id()), H5Sclose);
  checked(source.id(), path);
  checked(H5Sselect_hyperslab(source.id(), H5S_SELECT_SET, start.data(), nullptr, block.data(),
                              nullptr),
          path);
  checked(H5Dread(dataset.id(), type, memory.id(), source.id(), H5P_DEFAULT, values), path);
}

bool Hdf5Input::has_sum(const std::string& path) const {
  return H5Aexists(open(path).id(), kSum) > 0;
}

// Files that were written before there were sums have none.
void Hdf5Input::require_sum(const H5Object& dataset, const std::string& path,
                            std::uint32_t found) const {
  if (H5Aexists(dataset.id(), kSum) <= 0) return;
  const H5Object attribute(H5Aopen(dataset.id(), kSum, H5P_DEFAULT), H5Aclose);
  const H5Object type(H5Aget_type(checked(attribute.id(), path)), H5Tclose);
  const H5Object space(H5Aget_space(attribute.id()), H5Sclose);
  if (H5Tequal(checked(type.id(), path), H5T_STD_U32LE) <= 0 ||
      H5Sget_simple_extent_npoints(checked(space.id(), path)) != 1)
    bad(path, "has a checksum of another kind");
  std::uint32_t expected = 0;
  checked(H5Aread(attribute.id(), H5T_NATIVE_UINT32, &expected), path);
  if (found != expected)
    throw Error(ExitCode::kBadData,
                fmt::format("{} is damaged: its data has the checksum {:08x}, {:08x} was written",
                            named(path), found, expected),
                "take another copy of the file, or run the job again");
}

void Hdf5Input::require_sound(const H5Object& dataset, const std::string& path,
                              const std::vector<std::size_t>& expected, hid_t type) const {
  if (sound_.contains(path)) return;
  if (H5Aexists(dataset.id(), kSum) > 0) {
    const std::size_t row_bytes =
        std::max<std::size_t>(1, row_numbers(expected) * H5Tget_size(type));
    const std::size_t most = std::max<std::size_t>(1, kReadBytes / row_bytes);
    std::vector<std::byte> block;
    std::uint32_t sum = 0;
    for (std::size_t first = 0; first < expected[0]; first += most) {
      const std::size_t count = std::min(most, expected[0] - first);
      block.resize(count * row_numbers(expected) * H5Tget_size(type));
      read_rows(dataset, path, expected, first, count, type, block.data());
      sum = crc32c(block, sum);
    }
    require_sum(dataset, path, sum);
  }
  sound_.insert(path);
}

std::vector<std::string> Hdf5Input::texts(const std::string& path, std::size_t expected) const {
  const H5Object dataset = open(path);
  if (shape_of(dataset, path) != std::vector<std::size_t>{expected})
    bad(path, fmt::format("does not hold {} texts", expected));
  const H5Object type(H5Dget_type(dataset.id()), H5Tclose);
  if (H5Tget_class(checked(type.id(), path)) != H5T_STRING || H5Tis_variable_str(type.id()) != 0)
    bad(path, "does not hold texts of fixed length");
  require_stored(dataset, path);
  const std::size_t width = H5Tget_size(type.id());
  std::vector<char> bytes(width * expected);
  read_rows(dataset, path, {expected}, 0, expected, type.id(), bytes.data());
  require_sum(dataset, path, crc32c(std::as_bytes(std::span(bytes))));
  return split_texts(bytes, width, expected);
}

std::string Hdf5Input::text(const std::string& path) const {
  const H5Object dataset = open(path);
  const H5Object type(H5Dget_type(dataset.id()), H5Tclose);
  if (!shape_of(dataset, path).empty() || H5Tget_class(checked(type.id(), path)) != H5T_STRING ||
      H5Tis_variable_str(type.id()) != 0)
    bad(path, "is not a text of fixed length");
  require_stored(dataset, path);
  std::vector<char> bytes(H5Tget_size(type.id()));
  checked(H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), path);
  require_sum(dataset, path, crc32c(std::as_bytes(std::span(bytes))));
  return split_texts(bytes, bytes.size(), 1).front();
}

bool Hdf5Input::has_attribute(const std::string& name) const {
  return H5Aexists(file_.id(), name.c_str()) > 0;
}

bool Hdf5Input::has(const std::string& path) const {
  for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
    if (H5Lexists(file_.id(), path.substr(0, end).c_str(), H5P_DEFAULT) <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::string Hdf5Input::attribute_text(hid_t object, const std::string& name) const {
  const std::string shown = "@" + name;
  const H5Object attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute) bad(shown, "is missing");
  const H5Object type(H5Aget_type(attribute.id()), H5Tclose);
  const H5Object space(H5Aget_space(attribute.id()), H5Sclose);
  checked(space.id(), shown);
  if (H5Tget_class(checked(type.id(), shown)) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 ||
      H5Sget_simple_extent_npoints(space.id()) != 1 || H5Tget_size(type.id()) > kLongestText)
    bad(shown, "is not a text of fixed length");
  std::vector<char> bytes(H5Tget_size(type.id()));
  checked(H5Aread(attribute.id(), type.id(), bytes.data()), shown);
  return split_texts(bytes, bytes.size(), 1).front();
}

std::string Hdf5Input::text_attribute(const std::string& name) const {
  return attribute_text(file_.id(), name);
}

std::int64_t Hdf5Input::number_attribute(const std::string& name) const {
  const std::string shown = "@" + name;
  const H5Object attribute(H5Aopen(file_.id(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute) bad(shown, "is missing");
  const H5Object type(H5Aget_type(attribute.id()), H5Tclose);
  const H5Object space(H5Aget_space(attribute.id()), H5Sclose);
  checked(space.id(), shown);
  if (H5Tequal(checked(type.id(), shown), H5T_STD_I64LE) <= 0 ||
      H5Sget_simple_extent_npoints(space.id()) != 1)
    bad(shown, "is not one whole number");
  std::int64_t number = 0;
  checked(H5Aread(attribute.id(), H5T_NATIVE_INT64, &number), shown);
  return number;
}

std::string Hdf5Input::source_of(const std::string& path) const {
  const H5Object dataset = open(path);
  return H5Aexists(dataset.id(), "source") > 0 ? attribute_text(dataset.id(), "source") : "";
}

std::vector<std::string> Hdf5Input::members(const std::string& path) const {
  require_hard_links(path);
  const H5Object group(H5Gopen2(file_.id(), path.c_str(), H5P_DEFAULT), H5Gclose);
  H5G_info_t info{};
  checked(H5Gget_info(checked(group.id(), path), &info), path);
  if (info.nlinks > kMostMembers) bad(path, "has too many members");
  const H5Object list(H5Gget_create_plist(group.id()), H5Pclose);
  unsigned order = 0;
  checked(H5Pget_link_creation_order(checked(list.id(), path), &order), path);
  const H5_index_t index = order & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
  std::vector<std::string> names;
  for (hsize_t i = 0; i < info.nlinks; ++i) {
    std::array<char, 1024> name{};
    checked(H5Lget_name_by_idx(group.id(), ".", index, H5_ITER_INC, i, name.data(), name.size(),
                               H5P_DEFAULT),
            path);
    names.emplace_back(name.data());
  }
  return names;
}

}  // namespace gradsync
