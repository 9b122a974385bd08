// SPDX-License-Identifier: BSD-3-Clause
#include "calibrate/operation.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/transport_choice.h"

namespace gradsync::calibrate {

namespace {

constexpr std::size_t kPatternPeriod = 61;  // prime: no alignment of a buffer hides a shift by one
constexpr int kWeights = 16;
constexpr std::string_view kMpiRingText =
    "gradsync's ring over MPI, whose waits sleep; ddp uses it";

}  // namespace

std::string transport_text(const std::string& transport) {
  if (transport == kMpiRing) return std::string(kMpiRingText);
  const TransportTraits* known = find_transport(transport);
  return known ? std::string(known->text) : transport;
}

std::string transport_of_text(const std::string& text) {
  if (text == kMpiRingText) return kMpiRing;
  for (const TransportTraits& one : kTransports)
    if (one.text == text) return std::string(one.name);
  return text;
}

std::vector<const OperationEntry*> operations_over(
    std::string_view transport, const std::vector<const OperationEntry*>& chosen) {
  std::vector<const OperationEntry*> there;
  for (const OperationEntry* entry : chosen)
    if (transport == "mpi" || entry->transport != kMpiRing) there.push_back(entry);
  if (there.empty())
    throw Error(ExitCode::kUsage, "the chosen collectives are MPI's own",
                "give --transport mpi, or --collective allreduce");
  return there;
}

const OperationEntry& find_operation(const std::string& name) {
  std::vector<std::string> names;
  for (const OperationEntry& entry : operations()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw no_such("collective", name, names);
}

bool in_place(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast ||
         kind == CollectiveKind::kReduce;
}

std::string_view name_of(ValueType type) {
  for (const DataType& one : kDataTypes)
    if (one.type == type) return one.name;
  return "byte";
}

ValueType find_data_type(const std::string& name) {
  std::vector<std::string> names;
  for (const DataType& one : kDataTypes) {
    if (one.name == name) return one.type;
    names.emplace_back(one.name);
  }
  names.emplace_back("all");
  throw no_such("type", name, names);
}

double weight(int rank, ValueType type) {
  return value_bytes(type) < 4 ? 1 : 1 + rank % kWeights;
}

double total_weight(int ranks, ValueType type) {
  if (type == ValueType::kInt8) return 1;
  if (value_bytes(type) < 4) return ranks;
  const int rounds = ranks / kWeights, rest = ranks % kWeights;
  const int sum = rounds * (kWeights * (kWeights + 1) / 2) + rest * (rest + 1) / 2;
  return sum;
}

// Each of the additions rounds to nearest.
double sum_tolerance(int ranks, ValueType type) {
  if (type != ValueType::kBfloat16 && type != ValueType::kFloat16) return 0;
  const double exact_up_to = type == ValueType::kBfloat16 ? 0x1p8 : 0x1p11;
  return kPatternPeriod * total_weight(ranks, type) <= exact_up_to ? 0 : ranks / exact_up_to;
}

double growth_log2(ValueType type) {
  constexpr double kFloat = 100;  // float32 ends at 2^128
  return type == ValueType::kFloat32 || type == ValueType::kFloat64 ? kFloat : 0;
}

std::size_t moved_from(int rank) {
  return 7 * static_cast<std::size_t>(rank);
}

namespace {

template <typename T>
void store(double value, T& to) {
  if constexpr (std::is_integral_v<T>)
    to = static_cast<T>(value);
  else
    narrow(static_cast<SumOf<T>>(value), to);
}

template <typename T>
double read(T value) {
  if constexpr (std::is_integral_v<T>)
    return value;
  else
    return static_cast<double>(widen(value));
}

// Counted on instead of taken modulo: gigabytes are filled and compared between the calls.
template <typename T>
void fill_typed(std::span<T> data, std::size_t first, double factor) {
  std::size_t next = first % kPatternPeriod;
  for (T& value : data) {
    store(static_cast<double>(next + 1) * factor, value);
    if (++next == kPatternPeriod) next = 0;
  }
}

template <typename T>
std::int64_t count_typed(std::span<const T> data, std::size_t first, double factor,
                         double tolerance) {
  std::size_t next = first % kPatternPeriod;
  std::int64_t count = 0;
  for (const T value : data) {
    const double expected = static_cast<double>(next + 1) * factor;
    count += !(std::abs(read(value) - expected) <= tolerance * expected);
    if (++next == kPatternPeriod) next = 0;
  }
  return count;
}

}  // namespace

void fill_pattern(std::span<std::byte> data, ValueType type, std::size_t first, double factor) {
  with_values(data, type, [&](auto values) { fill_typed(values, first, factor); });
}

std::int64_t count_wrong(std::span<const std::byte> data, ValueType type, std::size_t first,
                         double factor, double tolerance) {
  return with_values(data, type,
                     [&](auto values) { return count_typed(values, first, factor, tolerance); });
}

std::int64_t operation_memory_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks) {
  std::int64_t own = bytes;
  if (kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter)
    own += rank == kCalibrationRoot ? ranks * bytes : 0;
  else if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter)
    own += ranks * bytes;
  else if (kind == CollectiveKind::kAllToAll)
    own = 2 * ranks * bytes;
  else if (kind == CollectiveKind::kSendReceive)
    own = 2 * bytes;
  return own + bytes;
}

OperationData::OperationData(std::size_t count, ValueType type, DeviceLane* lane,
                             std::shared_ptr<std::byte> memory)
    : type_(type), lane_(lane), memory_(std::move(memory)) {
  const std::size_t bytes = count * static_cast<std::size_t>(value_bytes(type));
  if (!memory_) own_.resize(bytes);
  host_ = memory_ ? std::span(memory_.get(), bytes) : std::span(own_);
  if (lane_ && bytes > 0) device_ = static_cast<std::byte*>(lane_->device.make_memory(bytes));
}

OperationData::~OperationData() {
  if (device_ != nullptr) lane_->device.free_memory(device_);
}

std::span<std::byte> OperationData::part(int index, int parts) const {
  const std::size_t bytes = host_.size() / static_cast<std::size_t>(parts);
  return host_.subspan(static_cast<std::size_t>(index) * bytes, bytes);
}

void OperationData::fill(std::size_t first, double factor, int index, int parts) {
  fill_pattern(part(index, parts), type_, first, factor);
}

std::int64_t OperationData::wrong(std::size_t first, double factor, double tolerance, int index,
                                  int parts) const {
  return count_wrong(part(index, parts), type_, first, factor, tolerance);
}

// MPI's sums of int8 wrap or saturate, as its vector unit does.
void OperationData::share_sums(int ranks, int rank) {
  if (type_ != ValueType::kInt8) return;
  for (std::size_t i = 0; i < host_.size(); ++i)
    if (i % static_cast<std::size_t>(ranks) != static_cast<std::size_t>(rank)) host_[i] = {};
}

void OperationData::spoil() {
  std::ranges::fill(host_, std::byte{0xff});
}

std::span<std::byte> OperationData::moved() {
  return lane_ ? std::span(device_, host_.size()) : host_;
}

void OperationData::send() {
  copy(device_, host_.data());
}

void OperationData::fetch() const {
  copy(host_.data(), device_);
}

void OperationData::copy(void* to, const void* from) const {
  if (device_ == nullptr) return;
  lane_->device.copy(to, from, host_.size(), lane_->communication);
  lane_->ring.wait_for(lane_->ring.mark(lane_->communication));
}

}  // namespace gradsync::calibrate
