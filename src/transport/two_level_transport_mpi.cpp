#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "transport/two_level_transport.h"

namespace gradsync {

namespace {

/// Ranks of the smallest node.
int fewest_ranks_a_node(MPI_Comm world, MPI_Comm node) {
  int ranks = 1;
  MPI_Comm_size(node, &ranks);
  MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_INT, MPI_MIN, world);
  return ranks;
}

template <typename T>
std::span<std::uint16_t> as_bits(std::span<T> values) {
  static_assert(sizeof(T) == sizeof(std::uint16_t));
  return {reinterpret_cast<std::uint16_t*>(values.data()), values.size()};
}

}  // namespace

TwoLevelTransport::TwoLevelTransport(MPI_Comm world, MPI_Comm node, const MakeLane& make_lane)
    : MpiRootedCollectives(world), lanes_(fewest_ranks_a_node(world, node)), memory_(node) {
  const bool in_lane = memory_.rank() < lanes_;
  MPI_Comm_split(world, in_lane ? memory_.rank() : MPI_UNDEFINED, rank(), &lane_comm_);
  lane_ = make_lane(lane_comm_);
}

TwoLevelTransport::~TwoLevelTransport() {
  lane_.reset();
  if (lane_comm_ != MPI_COMM_NULL) MPI_Comm_free(&lane_comm_);
}

void TwoLevelTransport::all_reduce_sum(std::span<float> data, Waiting waiting) {
  all_reduce<float>(data, 1, waiting,
                    [&](std::span<float> slice) { lane_->all_reduce_sum(slice, waiting); });
}

void TwoLevelTransport::all_reduce_mean(std::span<float> data, Waiting waiting) {
  all_reduce<float>(data, 1.0 / size(), waiting,
                    [&](std::span<float> slice) { lane_->all_reduce_sum(slice, waiting); });
}

void TwoLevelTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting waiting) {
  all_reduce<Bfloat16>(as_values<Bfloat16>(data), 1, waiting, [&](std::span<Bfloat16> slice) {
    lane_->all_reduce_sum_bf16(as_bits(slice), waiting);
  });
}

void TwoLevelTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting waiting) {
  all_reduce<Float16>(as_values<Float16>(data), 1, waiting, [&](std::span<Float16> slice) {
    lane_->all_reduce_sum_fp16(as_bits(slice), waiting);
  });
}

template <typename T>
void TwoLevelTransport::all_reduce(std::span<T> data, double factor, Waiting waiting,
                                   FunctionRef<void(std::span<T>)> across) {
  if (data.empty()) return;
  SharedAllReduce& reducer = memory_.reducer();
  if (reducer.holds(data.data(), data.size_bytes()))
    return reducer.all_reduce_across(data, factor, waiting, lanes_, across);
  const std::span<T> copy = staging<T>(data.size());
  std::copy(data.begin(), data.end(), copy.begin());
  reducer.all_reduce_across(copy, factor, waiting, lanes_, across);
  std::copy(copy.begin(), copy.end(), data.begin());
}

/// Grows on all ranks at once, since all ask for the same.
template <typename T>
std::span<T> TwoLevelTransport::staging(std::size_t count) {
  if (count * sizeof(T) > staging_bytes_) {
    staging_ = memory_.allocate(count * sizeof(T));
    if (!staging_)
      throw Error(
          ExitCode::kOutOfMemory,
          fmt::format("/dev/shm has no space for {} per rank of this host",
                      format_bytes(static_cast<std::int64_t>(count * sizeof(T)))),
          "give --transport tcp-ring or mpi, or make /dev/shm larger (docker run --shm-size)");
    staging_bytes_ = count * sizeof(T);
  }
  return {reinterpret_cast<T*>(staging_.get()), count};
}

}  // namespace gradsync
