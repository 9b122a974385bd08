#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/transport.h"
#include "device/lane.h"
#include "record/run.h"

namespace gradsync::calibrate {

/// The values of one rank as an operation moves them: in host memory, or in that of its device,
/// where they are sent after they were filled and fetched from before they are read.
class OperationData {
 public:
  /// `lane` is null for host memory; it must outlive this. `memory` is the transport's own, of room
  /// for `count` values, where it has any.
  OperationData(std::size_t count, DeviceLane* lane, std::shared_ptr<std::byte> memory = {});
  ~OperationData();
  OperationData(const OperationData&) = delete;
  OperationData& operator=(const OperationData&) = delete;

  bool empty() const { return host_.empty(); }
  /// What is filled before `send` and read after `fetch`.
  std::span<float> host() { return host_; }
  std::span<const float> host() const { return host_; }
  /// What a transport moves.
  std::span<float> moved();

  /// Both return when the copy is done.
  void send();
  void fetch() const;

 private:
  void copy(void* to, const void* from) const;

  DeviceLane* lane_;
  std::vector<float> own_;
  std::shared_ptr<std::byte> memory_;
  std::span<float> host_;
  float* device_ = nullptr;
};

/// Who takes part in an operation, and with how many float32 values a rank.
struct OperationShape {
  int rank = 0, ranks = 1;
  std::size_t count = 0;
  DeviceLane* lane = nullptr;              ///< null: its data lies in host memory
  std::shared_ptr<std::byte> memory = {};  ///< of the transport's own, for `count` values; or none
};

inline constexpr int kCalibrationRoot = 0;

/// One collective with its data on this rank: filled with known values, run, and compared with what
/// must come out. Values are small whole numbers, none of them zero, that differ from place to
/// place and from rank to rank; their sums are exact in float32 up to 17,000 ranks.
class Operation {
 public:
  virtual ~Operation() = default;

  /// Fresh inputs; where a result will be written, something that is wrong.
  virtual void fill() = 0;
  /// One call. Collective.
  virtual void run(Transport& transport) = 0;
  /// How many of this rank's values are not what they must be after `calls` calls since `fill`.
  virtual std::int64_t wrong(int calls) const = 0;
  /// After so many calls the values leave float32's range and it has to be filled again.
  virtual int calls_a_fill() const { return 1 << 20; }
};

/// CalibrationRow::transport of the ring of messages over MPI, which ddp and c10d use.
inline constexpr const char* kMpiRing = "mpi-ring";

/// A collective that can be calibrated; operations.def lists them.
struct OperationEntry {
  std::string name;  ///< of --collective: "allreduce", "allreduce-ring", …
  CollectiveKind kind;
  std::string transport = "mpi";  ///< CalibrationRow::transport
  bool sums = false;              ///< redop "sum", else "none"
  int root = -1;                  ///< −1: no root
  std::unique_ptr<Operation> (*make)(const OperationShape&);
};

/// All of them, in the order of --help and of the output.
const std::vector<OperationEntry>& operations();
/// Those of `chosen` that a transport of this name has: the ring of our own is MPI's. Throws Error
/// kUsage if it has none of them.
std::vector<const OperationEntry*> operations_over(
    std::string_view transport, const std::vector<const OperationEntry*>& chosen);
/// Throws Error kUsage with the nearest name.
const OperationEntry& find_operation(const std::string& name);

/// 1 to 16: what the inputs of a rank are multiplied with.
double weight(int rank);
/// Σ weight(rank) over all ranks.
double total_weight(int ranks);
/// Where the pattern begins in what an operation moves from `rank`: no two neighbors begin alike.
std::size_t moved_from(int rank);

/// data[i] = pattern(first + i) · factor, with a pattern of 1, 2, …, 61, 1, 2, ….
void fill_pattern(std::span<float> data, std::size_t first, double factor);
/// How many values differ from that by more than `tolerance` of it; NaN does.
std::int64_t count_wrong(std::span<const float> data, std::size_t first, double factor,
                         double tolerance = 0);

#define GRADSYNC_OPERATION(id, ...) \
  std::unique_ptr<Operation> make_##id##_operation(const OperationShape&);
#include "collectives/operations.def"
#undef GRADSYNC_OPERATION

/// Bytes that one rank needs for an operation on `bytes` a rank: its data, and as much again as the
/// library may take. The root of gather and scatter holds the data of all ranks.
std::int64_t operation_memory_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks);

}  // namespace gradsync::calibrate
