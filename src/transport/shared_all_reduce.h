// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "transport/transport.h"

namespace gradsync {

/// How long a rank spins for another one before it lets others run: as long as that has paid
/// lately. Where ranks share cores, or wait for one that computes, it soon does not; that some of
/// the others run beside it, and come at once, does not make it longer.
class SpinBudget {
 public:
  int spins(Waiting waiting) const;
  /// The other came after so many spins.
  void paid(int spins);
  /// It did not come.
  void wasted();

 private:
  static constexpr int kMost = 2000, kFewest = 4, kBesideCompute = 50;
  int spins_ = kMost;
};

/// A number that only its own rank raises and the other ranks of the node wait for. Lives in memory
/// that all of them map, on a cache line that it shares with nothing but what it announces. It
/// wraps: two values are compared by their difference, so at most 2^31 − 1 may lie between what is
/// awaited and what is there.
class SharedCounter {
 public:
  std::uint32_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(std::uint32_t wanted) const {
    return static_cast<std::int32_t>(value() - wanted) >= 0;
  }

  /// By its own rank only. A reader of the new value sees all earlier writes. Wakes
  /// the ranks that sleep; costs no system call where none does.
  void raise_to(std::uint32_t value);

  /// Returns once the counter has reached `wanted`. Spins for a moment (kSpin: some microseconds;
  /// kSleep: less, since the core has other work), then lets others run, then sleeps in the kernel:
  /// it never takes a core for long, whatever the number of ranks on it.
  void wait_for(std::uint32_t wanted, Waiting waiting, SpinBudget& budget);

 private:
  /// Spins until then; -1 if that takes more than `most`.
  int spins_until(std::uint32_t wanted, int most) const;
  void sleep_until(std::uint32_t wanted);

  std::atomic<std::uint32_t> value_{0}, sleepers_{0};
};

/// All-reduce among ranks that map each other's memory: the gradients stay where they are, rank r
/// sums slice r of all ranks' buffers and writes the mean back into all of them, so that each byte
/// is read once and written once (the scheme of hybrid MPI+MPI collectives, Zhou et al., arXiv
/// 2007.11496). A reduce-scatter writes its slice into rank r's own buffer alone, an all-gather
/// copies rank r's slice into the others'. Up to kSmallBytes, each rank writes its values beside
/// its counter and sums everybody's: one step, no second meeting. Sums run over ranks in order
/// whatever the path, so all ranks hold equal bits.
///
/// Knows no MPI: a region is a piece of memory of each rank, all equally large, as this process
/// maps them. The ranks add the same regions and call the same operations in the same order.
class SharedAllReduce {
 public:
  static constexpr std::size_t kSmallBytes = 512;
  static constexpr std::uint32_t kMostInFlight = 64;
  static constexpr std::size_t kAlignment = 128;

  /// What the first region holds: counters and staging space.
  static std::size_t header_bytes();

  /// `headers` is the first region, aligned to kAlignment; this rank's part is made here. All ranks
  /// must have made theirs before the first operation: the caller sees to it (a barrier).
  SharedAllReduce(std::vector<std::byte*> headers, int rank);

  /// Adds a region of `bytes` a rank, for good. Data in it is reduced where it lies; other data
  /// passes through the staging space.
  void add_region(std::vector<std::byte*> parts, std::size_t bytes);
  /// Whether [data, data + bytes) lies in this rank's part of an added region.
  bool holds(const void* data, std::size_t bytes) const;

  /// This rank's staging space, where no operation is under way: for all_reduce_across.
  std::span<std::byte> staging();

  /// data = factor · Σ over ranks, in place. Of float, Bfloat16 or Float16.
  template <typename T>
  void all_reduce(std::span<T> data, double factor, Waiting waiting);

  /// The same where the ranks are those of one node among several: the first `lanes` ranks each sum
  /// a slice of what the node's ranks hold, hand it to `across`, which sums it over the nodes, and
  /// then publish it, times `factor`, to all ranks of the node. An added region, or the staging
  /// space, holds `data`.
  /// `across` is called once on each of the first `lanes` ranks, with its slice, maybe empty.
  template <typename T>
  void all_reduce_across(std::span<T> data, double factor, Waiting waiting, int lanes,
                         FunctionRef<void(std::span<T>)> across);

  /// Says that `data`, which an added region holds, is ready to be reduced. Returns its number, for
  /// `finish`. Waits only where kMostInFlight are under way already. `timed`: `times` will be
  /// asked. For a reduce-scatter, and an all-gather, which has no factor, `data` holds all ranks'
  /// equal parts.
  template <typename T>
  std::uint32_t post(std::span<T> data, double factor, bool timed = false,
                     CollectiveKind kind = CollectiveKind::kAllReduce);
  /// Sums this rank's slices of what all ranks have posted by now; never waits. Called now and
  /// then, it spares `finish` the work.
  void progress();
  /// The number up to which every rank has done its part.
  std::uint32_t finished() const;
  /// Returns when the posted data of that number, and all before it, holds the result.
  void finish(std::uint32_t number, Waiting waiting);
  /// When the ranks did their parts of a timed operation that is finished. Requires that this rank
  /// has posted at most kMostInFlight since.
  PostedTimes times(std::uint32_t number) const;

 private:
  struct Header;
  struct Region {
    std::vector<std::byte*> parts;  ///< of each rank
    std::size_t bytes = 0;
  };
  /// Where data of a rank lies, in words that mean the same to all.
  struct Place {
    std::size_t region = 0, offset = 0;
  };
  enum class Type : std::uint8_t { kFloat, kBfloat16, kFloat16 };
  struct Posted {
    CollectiveKind kind = CollectiveKind::kAllReduce;
    Type type = Type::kFloat;
    std::size_t count = 0;
    double factor = 1;
    bool timed = false;
  };

  template <typename T>
  static constexpr Type type_of();
  template <typename T>
  void reduce_small(std::span<T> data, double factor, Waiting waiting);
  template <typename T>
  void reduce_staged(std::span<T> data, double factor, Waiting waiting);
  void locate_buffers(std::uint32_t number);
  void mark_reduced(std::uint32_t number);
  void wait_for_all_posted(std::uint32_t number, Waiting waiting);
  template <typename T>
  void do_my_slice(const Posted& posted);
  void reduce_next();
  bool all_posted(std::uint32_t number) const;
  Header& header(std::size_t rank) const;
  std::size_t ranks() const { return regions_[0].parts.size(); }
  std::byte* part_at(std::size_t rank, const Place& place) const;
  Place place_of(const void* data, std::size_t bytes) const;

  std::size_t rank_;
  std::vector<Region> regions_;  ///< the headers first
  std::uint32_t posted_ = 0, reduced_ = 0, small_ = 0;
  std::array<Posted, kMostInFlight> in_flight_;
  std::vector<std::byte*> buffers_;  ///< of the operation at hand, one a rank
  SpinBudget spinning_;
};

}  // namespace gradsync
