// SPDX-License-Identifier: BSD-3-Clause
#include "record/hdf5.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5_hl.h>

#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"

namespace gradsync {

namespace {

constexpr const char* kTakeAnother = "take another copy of the file, or run the job again";

herr_t take_description(unsigned position, const H5E_error2_t* error, void* text) {
  if (position == 0 && error->desc) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

struct Failure {
  std::string reason;
  bool of_system = false;  // the system could not read or write
};

// The last one. HDF5 reports a failed read or write with the system's words in the middle of
// addresses and times.
Failure last_failure() {
  std::string description;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_description, &description);
  if (description.empty()) return {"HDF5 gives no reason"};
  constexpr std::string_view kBefore = "error message = '";
  const auto begin = description.find(kBefore);
  if (begin == std::string::npos) return {description};
  const auto words = begin + kBefore.size();
  return {description.substr(words, description.find('\'', words) - words), true};
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
  return last_failure().reason;
}

void hdf5_fail(ExitCode code, const std::string& what) {
  const auto [reason, of_system] = last_failure();
  const bool is_damaged = code == ExitCode::kBadData && !of_system;
  if (code == ExitCode::kBadData && of_system) code = ExitCode::kInputOutput;
  throw Error(code, fmt::format("{}: {}", what, reason), is_damaged ? kTakeAnother : "");
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
                fmt::format("close it there; where that program was killed: h5clear --status {}",
                            shell_quoted(path.string())));
  const std::size_t offset_size_at = version < 2 ? 13 : 9;
  const std::size_t base_at = version == 0 ? 24 : version == 1 ? 28 : 12;
  const std::size_t end_at = base_at + 16;  // base address, another one, end of file
  if (version > 3 || block[offset_size_at] != 8 || number_at(block, base_at) != 0 ||
      number_at(block, end_at) > std::filesystem::file_size(path))
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' is a damaged HDF5 file: its superblock does not fit its {} bytes",
                            path.string(), std::filesystem::file_size(path)),
                kTakeAnother);
}

}  // namespace

H5Object open_hdf5_file(const std::filesystem::path& path) {
  prepare_hdf5();
  require_superblock(path);
  const H5Object access = access_list(path);
  H5Object file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id()), H5Fclose);
  if (file.id() < 0 && last_failure().of_system)
    hdf5_fail(ExitCode::kInputOutput, fmt::format("cannot read '{}'", path.string()));
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

namespace {

constexpr ExitCode kCode = ExitCode::kInputOutput;

/// Owns what HDF5 made.
H5Object made(hid_t id, H5Object::Closer closer, const std::string& what) {
  H5Object object(id, closer);
  hdf5_checked(id, kCode, what);
  return object;
}

H5Object make_space(const std::vector<hsize_t>& shape, const std::string& what) {
  H5Object space =
      made(shape.empty() ? H5Screate(H5S_SCALAR)
                         : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
           H5Sclose, what);
  return space;
}

void write_attribute(hid_t object, const std::string& name, hid_t type, hid_t memory_type,
                     const void* value, const std::string& what) {
  const H5Object space = make_space({}, what);
  H5Object attribute = made(
      H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose, what);
  hdf5_checked(H5Awrite(attribute.id(), memory_type, value), kCode, what);
  attribute.close_checked(what);
}

void write_text_attribute(hid_t object, const std::string& name, std::string_view text,
                          const std::string& what) {
  const H5Object type = hdf5_text_type(text.size());
  const std::string value = text.empty() ? std::string(1, '\0') : std::string(text);
  write_attribute(object, name, type.id(), type.id(), value.data(), what);
}

/// "quantize" of "quantize/step", "" of what is in the root.
std::string group_of(const std::string& path) {
  const auto end = path.rfind('/');
  return end == std::string::npos ? "" : path.substr(0, end);
}

hsize_t product(const std::vector<hsize_t>& shape, std::size_t from) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(std::min(from, shape.size())),
                         shape.end(), hsize_t{1}, std::multiplies<>());
}

}  // namespace

Hdf5Output::Hdf5Output(const std::filesystem::path& path, const AxisLengths& lengths)
    : path_(path.string()), lengths_(lengths), file_(create_hdf5_file(path)) {
  for (std::size_t d = 0; d < kAxes.size(); ++d)
    make_scale(static_cast<FileAxis>(d));
}

std::string Hdf5Output::named(const std::string& object) const {
  return fmt::format("cannot write /{} of '{}'", object, path_);
}

std::vector<hsize_t> Hdf5Output::shape(const DatasetSpec& spec) const {
  std::vector<hsize_t> result;
  for (const FileAxis dimension : spec.dimensions)
    result.push_back(lengths_[static_cast<std::size_t>(dimension)]);
  return result;
}

void Hdf5Output::make_group(const std::string& path) {
  if (path.empty() || !groups_.insert(path).second) return;
  make_group(group_of(path));
  const std::string what = named(path);
  const H5Object list = made(H5Pcreate(H5P_GROUP_CREATE), H5Pclose, what);
  hdf5_checked(H5Pset_link_creation_order(list.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
               kCode, what);
  H5Object group = made(H5Gcreate2(file_.id(), path.c_str(), H5P_DEFAULT, list.id(), H5P_DEFAULT),
                        H5Gclose, what);
  group.close_checked(path);
}

H5Object Hdf5Output::make_dataset(const DatasetSpec& spec, hid_t file_type, hid_t memory_type,
                                  const void* fill) {
  make_group(group_of(spec.path));
  const std::string what = named(spec.path);
  const H5Object list = made(H5Pcreate(H5P_DATASET_CREATE), H5Pclose, what);
  if (fill) hdf5_checked(H5Pset_fill_value(list.id(), memory_type, fill), kCode, what);
  const H5Object space = make_space(shape(spec), what);
  H5Object dataset = made(H5Dcreate2(file_.id(), spec.path.c_str(), file_type, space.id(),
                                     H5P_DEFAULT, list.id(), H5P_DEFAULT),
                          H5Dclose, what);
  write_text_attribute(dataset.id(), "units", spec.units, what);
  write_text_attribute(dataset.id(), "long_name", spec.long_name, what);
  attach_scales(dataset, spec);
  return dataset;
}

void Hdf5Output::attach_scales(const H5Object& dataset, const DatasetSpec& spec) {
  for (std::size_t axis = 0; axis < spec.dimensions.size(); ++axis) {
    const H5Object& scale = scales_[static_cast<std::size_t>(spec.dimensions[axis])];
    if (!scale) continue;  // the data set becomes that scale itself
    hdf5_checked(H5DSattach_scale(dataset.id(), scale.id(), static_cast<unsigned>(axis)), kCode,
                 named(spec.path));
  }
}

void Hdf5Output::make_scale(FileAxis dimension) {
  const auto which = static_cast<std::size_t>(dimension);
  const DatasetSpec spec{
      std::string(kAxes[which].name), {dimension}, "1", std::string(kAxes[which].long_name)};
  std::vector<std::int64_t> numbers(lengths_[which]);
  std::iota(numbers.begin(), numbers.end(), 0);
  H5Object scale = make_dataset<std::int64_t>(spec);
  write_rows<std::int64_t>(scale, spec, 0, numbers);
  hdf5_checked(H5DSset_scale(scale.id(), spec.path.c_str()), kCode, named(spec.path));
  scales_[which] = std::move(scale);
}

void Hdf5Output::write_rows(const H5Object& dataset, const DatasetSpec& spec, hid_t memory_type,
                            hsize_t first, std::size_t count, const void* values) {
  if (count == 0) return;
  const std::string what = named(spec.path);
  std::vector<hsize_t> block = shape(spec);
  block[0] = count / product(block, 1);
  std::vector<hsize_t> start(block.size(), 0);
  start[0] = first;
  const H5Object memory = make_space(block, what);
  const H5Object target = make_space(shape(spec), what);
  hdf5_checked(H5Sselect_hyperslab(target.id(), H5S_SELECT_SET, start.data(), nullptr, block.data(),
                                   nullptr),
               kCode, what);
  hdf5_checked(H5Dwrite(dataset.id(), memory_type, memory.id(), target.id(), H5P_DEFAULT, values),
               kCode, what);
}

void Hdf5Output::write(const DatasetSpec& spec, const std::vector<std::string>& texts) {
  std::size_t width = 1;
  for (const std::string& text : texts)
    width = std::max(width, text.size());
  std::vector<char> padded(width * texts.size(), '\0');
  for (std::size_t i = 0; i < texts.size(); ++i)
    std::memcpy(padded.data() + i * width, texts[i].data(), texts[i].size());
  const H5Object type = hdf5_text_type(width);
  H5Object dataset = make_dataset(spec, type.id(), type.id(), nullptr);
  write_rows(dataset, spec, type.id(), 0, texts.size(), padded.data());
  close(dataset, spec.path, crc32c(std::as_bytes(std::span(padded))));
}

void Hdf5Output::write_text(const std::string& path, std::string_view text,
                            std::string_view long_name, std::string_view source) {
  const std::string what = named(path);
  const H5Object type = hdf5_text_type(text.size());
  const std::string value = text.empty() ? std::string(1, '\0') : std::string(text);
  H5Object dataset =
      make_dataset({path, {}, "1", std::string(long_name)}, type.id(), type.id(), nullptr);
  hdf5_checked(H5Dwrite(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, value.data()),
               kCode, what);
  if (!source.empty()) write_text_attribute(dataset.id(), "source", source, what);
  close(dataset, path, crc32c(std::as_bytes(std::span(value))));
}

void Hdf5Output::close(H5Object& dataset, const std::string& path, std::uint32_t sum) {
  static_assert(std::endian::native == std::endian::little, "the sum is of the bytes in the file");
  write_attribute(dataset.id(), "crc32c", H5T_STD_U32LE, H5T_NATIVE_UINT32, &sum, named(path));
  dataset.close_checked(path);
}

void Hdf5Output::set_attribute(const std::string& name, std::string_view text) {
  write_text_attribute(file_.id(), name, text, named("@" + name));
}

void Hdf5Output::set_attribute(const std::string& name, std::int64_t number) {
  write_attribute(file_.id(), name, H5T_STD_I64LE, H5T_NATIVE_INT64, &number, named("@" + name));
}

void Hdf5Output::close() {
  for (std::size_t d = 0; d < scales_.size(); ++d)
    scales_[d].close_checked(fmt::format("/{} of '{}'", kAxes[d].name, path_));
  file_.close_checked(fmt::format("'{}'", path_));
}

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
    texts.push_back(printable({begin, std::find(begin, begin + width, '\0')}));
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
  throw Error(ExitCode::kBadData, fmt::format("{} {}", named(object), why), kTakeAnother);
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
  const H5Object space = owned(H5Dget_space(dataset.id()), H5Sclose, path);
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
  const H5Object list = owned(H5Dget_create_plist(dataset.id()), H5Pclose, path);
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
  const H5Object memory = owned(
      H5Screate_simple(static_cast<int>(block.size()), block.data(), nullptr), H5Sclose, path);
  const H5Object source = owned(H5Dget_space(dataset.id()), H5Sclose, path);
  checked(H5Sselect_hyperslab(source.id(), H5S_SELECT_SET, start.data(), nullptr, block.data(),
                              nullptr),
          path);
  checked(H5Dread(dataset.id(), type, memory.id(), source.id(), H5P_DEFAULT, values), path);
}

bool Hdf5Input::has_sum(const std::string& path) const {
  return checked(H5Aexists(open(path).id(), kSum), path) > 0;
}

// Files that were written before there were sums have none.
void Hdf5Input::require_sum(const H5Object& dataset, const std::string& path,
                            std::uint32_t found) const {
  if (checked(H5Aexists(dataset.id(), kSum), path) == 0) return;
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
                kTakeAnother);
}

void Hdf5Input::require_sound(const H5Object& dataset, const std::string& path,
                              const std::vector<std::size_t>& expected, hid_t type) const {
  if (sound_.contains(path)) return;
  if (checked(H5Aexists(dataset.id(), kSum), path) > 0) {
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

std::string Hdf5Input::counted_text(const std::vector<char>& bytes,
                                    const std::string& object) const {
  text_bytes_ += bytes.size();
  if (text_bytes_ > file_bytes_) bad(object, "and the texts before it are larger than the file");
  return split_texts(bytes, bytes.size(), 1).front();
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
  return counted_text(bytes, path);
}

bool Hdf5Input::has_attribute(const std::string& name) const {
  return checked(H5Aexists(file_.id(), name.c_str()), "@" + name) > 0;
}

bool Hdf5Input::has(const std::string& path) const {
  for (std::size_t end = path.find('/');; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (checked(H5Lexists(file_.id(), part.c_str(), H5P_DEFAULT), part) == 0) return false;
    // What lies behind another link would be looked for in another file; `open` refuses it.
    H5L_info_t link{};
    if (H5Lget_info(file_.id(), part.c_str(), &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD)
      return true;
    if (end == std::string::npos) return true;
  }
}

std::string Hdf5Input::attribute_text(hid_t object, const std::string& name) const {
  const std::string shown = "@" + name;
  const H5Object attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute) bad(shown, "is missing");
  const H5Object type(H5Aget_type(attribute.id()), H5Tclose);
  const H5Object space = owned(H5Aget_space(attribute.id()), H5Sclose, shown);
  if (H5Tget_class(checked(type.id(), shown)) != H5T_STRING || H5Tis_variable_str(type.id()) != 0 ||
      H5Sget_simple_extent_npoints(space.id()) != 1 || H5Tget_size(type.id()) > kLongestText)
    bad(shown, "is not a text of fixed length");
  std::vector<char> bytes(H5Tget_size(type.id()));
  checked(H5Aread(attribute.id(), type.id(), bytes.data()), shown);
  return counted_text(bytes, shown);
}

std::string Hdf5Input::text_attribute(const std::string& name) const {
  return attribute_text(file_.id(), name);
}

std::int64_t Hdf5Input::number_attribute(const std::string& name) const {
  const std::string shown = "@" + name;
  const H5Object attribute(H5Aopen(file_.id(), name.c_str(), H5P_DEFAULT), H5Aclose);
  if (!attribute) bad(shown, "is missing");
  const H5Object type(H5Aget_type(attribute.id()), H5Tclose);
  const H5Object space = owned(H5Aget_space(attribute.id()), H5Sclose, shown);
  if (H5Tequal(checked(type.id(), shown), H5T_STD_I64LE) <= 0 ||
      H5Sget_simple_extent_npoints(space.id()) != 1)
    bad(shown, "is not one whole number");
  std::int64_t number = 0;
  checked(H5Aread(attribute.id(), H5T_NATIVE_INT64, &number), shown);
  return number;
}

std::string Hdf5Input::source_of(const std::string& path) const {
  const H5Object dataset = open(path);
  return checked(H5Aexists(dataset.id(), "source"), path) > 0
             ? attribute_text(dataset.id(), "source")
             : "";
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
