#include "collectives/operation.h"

#include <cmath>
#include <utility>

#include "support/error.h"
#include "support/parse.h"

namespace gradsync::calibrate {

namespace {

constexpr std::size_t kPatternPeriod = 61;  // prime: no alignment of a buffer hides a shift by one
constexpr int kWeights = 16;

}  // namespace

const std::vector<OperationEntry>& operations() {
  static const std::vector<OperationEntry> entries = {
#define GRADSYNC_OPERATION(id, ...) {__VA_ARGS__, .make = make_##id##_operation},
#include "collectives/operations.def"
#undef GRADSYNC_OPERATION
  };
  return entries;
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
  throw Error(ExitCode::kUsage, "no collective is called " + name + did_you_mean(name, names),
              "gradsync-calibrate --help lists them");
}

double weight(int rank) {
  return 1 + rank % kWeights;
}

double total_weight(int ranks) {
  const int rounds = ranks / kWeights, rest = ranks % kWeights;
  const int sum = rounds * (kWeights * (kWeights + 1) / 2) + rest * (rest + 1) / 2;
  return sum;
}

std::size_t moved_from(int rank) {
  return 7 * static_cast<std::size_t>(rank);
}

// Counted on instead of taken modulo: gigabytes are filled and compared between the calls.
void fill_pattern(std::span<float> data, std::size_t first, double factor) {
  std::size_t next = first % kPatternPeriod;
  for (float& value : data) {
    value = static_cast<float>(static_cast<double>(next + 1) * factor);
    if (++next == kPatternPeriod) next = 0;
  }
}

std::int64_t count_wrong(std::span<const float> data, std::size_t first, double factor,
                         double tolerance) {
  std::size_t next = first % kPatternPeriod;
  std::int64_t count = 0;
  for (const float value : data) {
    const double expected = static_cast<double>(next + 1) * factor;
    count += !(std::abs(static_cast<double>(value) - expected) <= tolerance * expected);
    if (++next == kPatternPeriod) next = 0;
  }
  return count;
}

std::int64_t operation_memory_bytes(CollectiveKind kind, std::int64_t bytes, int rank, int ranks) {
  const bool holds_all = rank == kCalibrationRoot &&
                         (kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter);
  const std::int64_t own = holds_all ? (1 + ranks) * bytes : bytes;
  return own + bytes;
}

OperationData::OperationData(std::size_t count, DeviceLane* lane, std::shared_ptr<std::byte> memory)
    : lane_(lane),
      own_(memory ? 0 : count),
      memory_(std::move(memory)),
      host_(memory_ ? std::span(reinterpret_cast<float*>(memory_.get()), count) : std::span(own_)) {
  if (lane_ && count > 0)
    device_ = static_cast<float*>(lane_->device.make_memory(count * sizeof(float)));
}

OperationData::~OperationData() {
  if (device_ != nullptr) lane_->device.free_memory(device_);
}

std::span<float> OperationData::moved() {
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
  lane_->device.copy(to, from, host_.size() * sizeof(float), lane_->communication);
  lane_->ring.wait_for(lane_->ring.mark(lane_->communication));
}

}  // namespace gradsync::calibrate
