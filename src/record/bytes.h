#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace gradsync {

static_assert(std::endian::native == std::endian::little,
              "the journal is little-endian and written without conversion");

/// Appends numbers to a block of bytes, little-endian, without padding.
class ByteWriter {
 public:
  template <typename Number>
  void put(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    const auto* begin = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), begin, begin + sizeof value);
  }

  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Takes numbers from the front of a block of bytes. One that is not there reads as 0 and turns
/// `complete()` off for good, so a decoder checks once, before it uses any count it has read.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename Number>
  Number get() {
    static_assert(std::is_arithmetic_v<Number>);
    Number value{};
    if (rest_.size() < sizeof value) {
      complete_ = false;
      rest_ = {};
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_ = rest_.subspan(sizeof value);
    return value;
  }

  bool complete() const { return complete_; }
  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool complete_ = true;
};

}  // namespace gradsync
