#include "record/hdf5_output.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include <fmt/format.h>
#include <hdf5_hl.h>

namespace gradsync {

namespace {

constexpr ExitCode kCode = ExitCode::kInputOutput;

H5Object make_space(const std::vector<hsize_t>& shape, const std::string& what) {
  H5Object space(shape.empty()
                     ? H5Screate(H5S_SCALAR)
                     : H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                 H5Sclose);
  hdf5_checked(space.id(), kCode, what);
  return space;
}

void write_attribute(hid_t object, const std::string& name, hid_t type, hid_t memory_type,
                     const void* value, const std::string& what) {
  const H5Object space = make_space({}, what);
  H5Object attribute(H5Acreate2(object, name.c_str(), type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                     H5Aclose);
  hdf5_checked(attribute.id(), kCode, what);
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
  for (std::size_t d = 0; d < kAxisNames.size(); ++d)
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
  const H5Object list(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
  hdf5_checked(list.id(), kCode, what);
  hdf5_checked(H5Pset_link_creation_order(list.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED),
               kCode, what);
  H5Object group(H5Gcreate2(file_.id(), path.c_str(), H5P_DEFAULT, list.id(), H5P_DEFAULT),
                 H5Gclose);
  hdf5_checked(group.id(), kCode, what);
  group.close_checked(path);
}

H5Object Hdf5Output::make_dataset(const DatasetSpec& spec, hid_t file_type, hid_t memory_type,
                                  const void* fill) {
  make_group(group_of(spec.path));
  const std::string what = named(spec.path);
  const H5Object list(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  hdf5_checked(list.id(), kCode, what);
  if (fill) hdf5_checked(H5Pset_fill_value(list.id(), memory_type, fill), kCode, what);
  const H5Object space = make_space(shape(spec), what);
  H5Object dataset(H5Dcreate2(file_.id(), spec.path.c_str(), file_type, space.id(), H5P_DEFAULT,
                              list.id(), H5P_DEFAULT),
                   H5Dclose);
  hdf5_checked(dataset.id(), kCode, what);
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
      std::string(kAxisNames[which]), {dimension}, "1", std::string(kAxisLongNames[which])};
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
    scales_[d].close_checked(fmt::format("/{} of '{}'", kAxisNames[d], path_));
  file_.close_checked(fmt::format("'{}'", path_));
}

}  // namespace gradsync
