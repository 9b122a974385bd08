// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "machine/lane.h"
#include "record/run.h"
#include "transport/transport.h"

namespace gradsync::calibrate {

/// The values of one rank as an operation moves them: in host memory, or in that of its device,
/// where they are sent after they were filled and fetched from before they are read.
class OperationData {
 public:
  /// `lane` is null for host memory; it must outlive this. `memory` is the transport's own, of room
  /// for `count` values, where it has any.
  OperationData(std::size_t count, ValueType type, DeviceLane* lane,
                std::shared_ptr<std::byte> memory = {});
  ~OperationData();
  OperationData(const OperationData&) = delete;
  OperationData& operator=(const OperationData&) = delete;

  bool empty() const { return host_.empty(); }
  /// fill_pattern and count_wrong of part `index` of `parts` equal ones, in host memory.
  void fill(std::size_t first, double factor, int index = 0, int parts = 1);
  std::int64_t wrong(std::size_t first, double factor, double tolerance = 0, int index = 0,
                     int parts = 1) const;
  /// Leaves each int8 value to one of the ranks, since sums over more exceed its range.
  void share_sums(int ranks, int rank);
  /// Values that no operation gives.
  void spoil();
  /// What a transport moves.
  std::span<std::byte> moved();
  /// Both return when the copy is done.
  void send();
  void fetch() const;

 private:
  void copy(void* to, const void* from) const;

  std::span<std::byte> part(int index, int parts) const;

  ValueType type_;
  DeviceLane* lane_;
  std::vector<std::byte> own_;
  std::shared_ptr<std::byte> memory_;
  std::span<std::byte> host_;
  std::byte* device_ = nullptr;
};

/// Who takes part in an operation, and with how many values a rank.
struct OperationShape {
  int rank = 0, ranks = 1;
  std::size_t count = 0;
  ValueType type = ValueType::kFloat32;
  DeviceLane* lane = nullptr;              ///< null: its data lies in host memory
  std::shared_ptr<std::byte> memory = {};  ///< of the transport's own, for `count` values; or none
};

inline constexpr int kCalibrationRoot = 0;

/// One collective with its data on this rank: filled with known values, run, and compared with what
/// must come out. Values are small whole numbers, none of them zero, that differ from place to
/// place and from rank to rank; their sums are exact in float32 up to 17,000 ranks, in 16 bits
/// up to rounding. Of int8, one rank contributes to each sum.
class Operation {
 public:
  virtual ~Operation() = default;

  /// Fresh inputs; where a result will be written, something that is wrong.
  virtual void fill() = 0;
  /// One call over `transport`. Collective.
  virtual void run(Transport& transport) = 0;
  /// How many of this rank's values are not what they must be after `calls` calls since `fill`.
  virtual std::int64_t wrong(int calls) const = 0;
  /// After so many calls the values leave the range of their type and it has to be filled again; 1:
  /// a stream of calls leaves it, and its result cannot be compared.
  virtual int calls_a_fill() const { return 1 << 20; }
};

/// CalibrationRow::transport of the ring of messages over MPI, which ddp and c10d use.
inline constexpr const char* kMpiRing = "mpi-ring";

/// A transport as gradsync-calibrate prints it, and back; what is not known stays as it is.
std::string transport_text(const std::string& transport);
std::string transport_of_text(const std::string& text);

/// A collective that can be calibrated; operations() lists them.
struct OperationEntry {
  std::string name;  ///< of --collective: "allreduce", "allreduce-ring", …
  CollectiveKind kind;
  std::string transport = "mpi";  ///< CalibrationRow::transport
  bool sums = false;              ///< redop "sum", else "none"
  int root = -1;                  ///< −1: no root
  bool in_training = true;        ///< of a mode: gradsync-train --calibrate measures it
  std::unique_ptr<Operation> (*make)(const OperationShape&);
};

/// All of them, in the order of --help and of the output (collectives.cpp).
const std::vector<OperationEntry>& operations();
/// The placement that it measures, as nccl-tests distinguishes them: all-reduce, broadcast and
/// reduce are in place.
bool in_place(CollectiveKind kind);
/// Operations of `chosen` that a transport of this name has; only MPI has the ring of our own.
/// Throws Error kUsage if it has none of them.
std::vector<const OperationEntry*> operations_over(
    std::string_view transport, const std::vector<const OperationEntry*>& chosen);
/// Throws Error kUsage with the nearest name.
const OperationEntry& find_operation(const std::string& name);

/// 1 to 16: what the inputs of a rank are multiplied with. 1 for types of 8 and 16 bits.
double weight(int rank, ValueType type = ValueType::kFloat32);
/// Σ weight(rank) over the ranks that contribute to a sum.
double total_weight(int ranks, ValueType type = ValueType::kFloat32);
/// How far a sum over the ranks may be off, relative to it: 0 where it is exact.
double sum_tolerance(int ranks, ValueType type);
/// How many doublings the values of a type leave room for, beside sums over many ranks.
double growth_log2(ValueType type);
/// Where the pattern begins in what an operation moves from `rank`: no two neighbors begin alike.
std::size_t moved_from(int rank);

/// data[i] = pattern(first + i) · factor, with a pattern of 1, 2, …, 61, 1, 2, ….
void fill_pattern(std::span<std::byte> data, ValueType type, std::size_t first, double factor);
/// How many values differ from that by more than `tolerance` of it; NaN does.
std::int64_t count_wrong(std::span<const std::byte> data, ValueType type, std::size_t first,
                         double factor, double tolerance = 0);

/// A type that --datatype takes.
struct DataType {
  std::string_view name;  ///< nccl-tests'
  ValueType type;
};
inline constexpr std::array<DataType, 6> kDataTypes = {{{"float", ValueType::kFloat32},
                                                        {"half", ValueType::kFloat16},
                                                        {"bfloat16", ValueType::kBfloat16},
                                                        {"double", ValueType::kFloat64},
                                                        {"int8", ValueType::kInt8},
                                                        {"int32", ValueType::kInt32}}};
std::string_view name_of(ValueType type);
/// Throws Error kUsage with the nearest name.
ValueType find_data_type(const std::string& name);

/// Bytes that one rank needs for an operation on `bytes` a rank: its data, and as much again as the
/// library may take. The root of gather and scatter, and every rank of the kinds between all ranks,
/// holds the data of all ranks.
std::int64_t operation_memory_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks);

}  // namespace gradsync::calibrate
