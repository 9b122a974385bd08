// SPDX-License-Identifier: BSD-3-Clause
#include "transport/shared_all_reduce.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <functional>
#include <new>
#include <type_traits>

#include "stats/clock.h"

namespace gradsync {

namespace {

constexpr int kYields = 500, kYieldsBesideCompute = 2;
/// A sleeping thread looks again after this long even without a wake.
constexpr long kLongestSleep_ns = 20'000'000;

void pause_a_little() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Not FUTEX_PRIVATE: the ranks are processes of their own.
std::uint32_t* futex_word(std::atomic<std::uint32_t>& value) {
  static_assert(sizeof(value) == sizeof(std::uint32_t) &&
                std::atomic<std::uint32_t>::is_always_lock_free);
  return reinterpret_cast<std::uint32_t*>(&value);
}

// The arithmetic of an all-reduce over buffers that one process can read: T is float, Bfloat16
// or Float16; `buffers` are the ranks' values of that type, in order of rank, at any alignment of
// T. Sums run over the ranks in that order, in float, 16-bit types rounded once to nearest even:
// the result depends neither on slices nor on who computes it.

/// Values summed at a time: their sums stay in the first-level cache.
constexpr std::size_t kBlock = 2048;

template <typename T>
T* values(std::byte* buffer) {
  return reinterpret_cast<T*>(buffer);
}

/// The usual case, two ranks, needs no sums beside the data.
template <typename T>
void average_pair(T* __restrict a, T* __restrict b, std::size_t count, SumOf<T> factor) {
  for (std::size_t i = 0; i < count; ++i) {
    T mean;
    narrow((widen(a[i]) + widen(b[i])) * factor, mean);
    a[i] = mean;
    b[i] = mean;
  }
}

/// At most kBlock values.
template <typename T>
void average_block(std::span<std::byte* const> buffers, std::size_t first, std::span<T> mean,
                   SumOf<T> factor) {
  std::array<SumOf<T>, kBlock> sum;
  const T* head = values<T>(buffers[0]) + first;
  for (std::size_t i = 0; i < mean.size(); ++i)
    sum[i] = widen(head[i]);
  for (std::byte* buffer : buffers.subspan(1)) {
    const T* from = values<T>(buffer) + first;
    for (std::size_t i = 0; i < mean.size(); ++i)
      sum[i] += widen(from[i]);
  }
  for (std::size_t i = 0; i < mean.size(); ++i)
    narrow(sum[i] * factor, mean[i]);
}

/// buffers[r][i] = factor · Σ_r buffers[r][i] for every r and every i in [first, last).
template <typename T>
void average_slice(std::span<std::byte* const> buffers, std::size_t first, std::size_t last,
                   double factor) {
  const auto scale = static_cast<SumOf<T>>(factor);
  if (first >= last) return;
  if (buffers.size() == 2)
    return average_pair(values<T>(buffers[0]) + first, values<T>(buffers[1]) + first, last - first,
                        scale);
  std::array<T, kBlock> mean;
  for (std::size_t at = first; at < last; at += kBlock) {
    const auto block = std::span(mean).first(std::min(kBlock, last - at));
    average_block<T>(buffers, at, block, scale);
    for (std::byte* buffer : buffers)
      std::ranges::copy(block, values<T>(buffer) + at);
  }
}

/// The same in two steps, for what is summed further in between. First the sum into one buffer:
/// buffers[owner][i] = factor · Σ_r buffers[r][i] for every i in [first, last) …
template <typename T>
void gather_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                  std::size_t last, double factor = 1) {
  std::array<T, kBlock> sum;
  for (std::size_t at = first; at < last; at += kBlock) {
    const auto block = std::span(sum).first(std::min(kBlock, last - at));
    average_block<T>(buffers, at, block, static_cast<SumOf<T>>(factor));
    std::ranges::copy(block, values<T>(buffers[owner]) + at);
  }
}

template <typename T>
void copy_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                std::size_t last) {
  const T* mine = values<T>(buffers[owner]);
  for (std::size_t r = 0; r < buffers.size(); ++r)
    if (r != owner) std::copy(mine + first, mine + last, values<T>(buffers[r]) + first);
}

/// … then from it to all: buffers[r][i] = factor · buffers[owner][i].
template <typename T>
void publish_slice(std::span<std::byte* const> buffers, std::size_t owner, std::size_t first,
                   std::size_t last, double factor) {
  T* mine = values<T>(buffers[owner]);
  for (std::size_t i = first; i < last; ++i)
    narrow(widen(mine[i]) * static_cast<SumOf<T>>(factor), mine[i]);
  copy_slice<T>(buffers, owner, first, last);
}

/// result[i] = factor · Σ_r buffers[r][i]. `result` overlaps none of them.
template <typename T>
void average_into(std::span<std::byte* const> buffers, std::span<T> result, double factor) {
  for (std::size_t at = 0; at < result.size(); at += kBlock)
    average_block<T>(buffers, at, result.subspan(at, std::min(kBlock, result.size() - at)),
                     static_cast<SumOf<T>>(factor));
}

/// Two of them fit into a second-level cache together with their results.
constexpr std::size_t kStagingBytes = std::size_t{256} << 10;
/// Slices end on cache lines where the buffers begin on one.
constexpr std::size_t kLineBytes = 64;
/// A rank reads the times of an operation after at most kMostInFlight more; until then no other
/// rank can be further ahead than twice as many.
constexpr std::uint32_t kTimesKept = 4 * SharedAllReduce::kMostInFlight;

std::size_t slice_begin(std::size_t count, std::size_t rank, std::size_t ranks,
                        std::size_t values_a_line) {
  if (rank == ranks) return count;
  return count * rank / ranks / values_a_line * values_a_line;
}

}  // namespace

void SharedCounter::raise_to(std::uint32_t value) {
  // Sequentially consistent, and so is the sleeper's announcement: one of the two sees the other.
  value_.store(value);
  if (sleepers_.load() > 0)
    syscall(SYS_futex, futex_word(value_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

int SpinBudget::spins(Waiting waiting) const {
  return waiting == Waiting::kSpin ? spins_ : std::min(spins_, kBesideCompute);
}

void SpinBudget::paid(int spins) {
  if (2 * spins > spins_) spins_ = std::min(kMost, 2 * spins_);
}

void SpinBudget::wasted() {
  spins_ = std::max(kFewest, spins_ / 2);
}

void SharedCounter::wait_for(std::uint32_t wanted, Waiting waiting, SpinBudget& budget) {
  if (reached(wanted)) return;
  if (const int spins = spins_until(wanted, budget.spins(waiting)); spins >= 0)
    return budget.paid(spins);
  budget.wasted();
  const int yields = waiting == Waiting::kSpin ? kYields : kYieldsBesideCompute;
  for (int i = 0; i < yields; ++i) {
    sched_yield();
    if (reached(wanted)) return;
  }
  sleep_until(wanted);
}

int SharedCounter::spins_until(std::uint32_t wanted, int most) const {
  for (int spins = 0; spins < most; ++spins) {
    if (reached(wanted)) return spins;
    pause_a_little();
  }
  return -1;
}

void SharedCounter::sleep_until(std::uint32_t wanted) {
  const timespec longest{0, kLongestSleep_ns};
  sleepers_.fetch_add(1);
  for (std::uint32_t seen = value_.load(); static_cast<std::int32_t>(seen - wanted) < 0;
       seen = value_.load())
    syscall(SYS_futex, futex_word(value_), FUTEX_WAIT, seen, &longest, nullptr, 0);
  sleepers_.fetch_sub(1);
}

/// What a rank shows the others. Counters: how many operations it has posted, of how many it has
/// reduced its slice.
struct SharedAllReduce::Header {
  alignas(kAlignment) SharedCounter posted;
  alignas(kAlignment) SharedCounter reduced;
  /// Where the data of the operations under way begins.
  alignas(kAlignment) std::array<Place, kMostInFlight> place;
  /// When this rank reduced its slice, where that is timed.
  alignas(kAlignment) std::array<Interval, kTimesKept> reduced_at;
  /// A small operation's number, and what it has to sum: the first values come with the counter's
  /// own cache line.
  struct alignas(kAlignment) Small {
    SharedCounter written;
    std::array<std::byte, kSmallBytes> data;
  };
  /// For even and for odd numbers: when one is written again, all ranks have come to the operation
  /// between, so none reads it any more.
  std::array<Small, 2> small;
  alignas(kAlignment) std::array<std::array<std::byte, kStagingBytes>, 2> staging;
};

std::size_t SharedAllReduce::header_bytes() {
  return sizeof(Header);
}

SharedAllReduce::SharedAllReduce(std::vector<std::byte*> headers, int rank)
    : rank_(static_cast<std::size_t>(rank)), buffers_(headers.size()) {
  add_region(std::move(headers), sizeof(Header));
  new (regions_[0].parts[rank_]) Header;
}

SharedAllReduce::Header& SharedAllReduce::header(std::size_t rank) const {
  return *std::launder(reinterpret_cast<Header*>(regions_[0].parts[rank]));
}

void SharedAllReduce::add_region(std::vector<std::byte*> parts, std::size_t bytes) {
  regions_.push_back({std::move(parts), bytes});
}

/// Region 0 means: in none that was added.
SharedAllReduce::Place SharedAllReduce::place_of(const void* data, std::size_t bytes) const {
  const auto* at = static_cast<const std::byte*>(data);
  for (std::size_t i = regions_.size() - 1; i > 0; --i) {
    const std::byte* begin = regions_[i].parts[rank_];
    if (std::less_equal<>()(begin, at) &&
        std::less_equal<>()(at + bytes, begin + regions_[i].bytes))
      return {i, static_cast<std::size_t>(at - begin)};
  }
  return {0, static_cast<std::size_t>(at - regions_[0].parts[rank_])};
}

bool SharedAllReduce::holds(const void* data, std::size_t bytes) const {
  return place_of(data, bytes).region > 0;
}

std::span<std::byte> SharedAllReduce::staging() {
  return header(rank_).staging[0];
}

template <typename T>
constexpr SharedAllReduce::Type SharedAllReduce::type_of() {
  if (std::is_same_v<T, Bfloat16>) return Type::kBfloat16;
  return std::is_same_v<T, Float16> ? Type::kFloat16 : Type::kFloat;
}

template <typename T>
void SharedAllReduce::all_reduce(std::span<T> data, double factor, Waiting waiting) {
  if (data.empty()) return;
  if (data.size_bytes() <= kSmallBytes) return reduce_small(data, factor, waiting);
  if (!holds(data.data(), data.size_bytes())) return reduce_staged(data, factor, waiting);
  finish(post(data, factor), waiting);
}

template <typename T>
void SharedAllReduce::reduce_small(std::span<T> data, double factor, Waiting waiting) {
  ++small_;
  const std::size_t side = small_ % 2;
  std::memcpy(header(rank_).small[side].data.data(), data.data(), data.size_bytes());
  header(rank_).small[side].written.raise_to(small_);
  for (std::size_t r = 0; r < ranks(); ++r)
    header(r).small[side].written.wait_for(small_, waiting, spinning_);
  for (std::size_t r = 0; r < ranks(); ++r)
    buffers_[r] = header(r).small[side].data.data();
  average_into(buffers_, data, factor);
}

/// While one half of the staging space is reduced, the other is filled.
template <typename T>
void SharedAllReduce::reduce_staged(std::span<T> data, double factor, Waiting waiting) {
  constexpr std::size_t kChunk = kStagingBytes / sizeof(T);
  auto& staging = header(rank_).staging;
  std::span<T> before;
  std::uint32_t number = 0;
  const auto take_out = [&](std::size_t side) {
    finish(number, waiting);
    std::memcpy(before.data(), staging[side].data(), before.size_bytes());
  };
  std::size_t side = 0;
  for (std::size_t at = 0; at < data.size(); at += kChunk, side = 1 - side) {
    const auto chunk = data.subspan(at, std::min(kChunk, data.size() - at));
    std::memcpy(staging[side].data(), chunk.data(), chunk.size_bytes());
    const auto posted =
        post(std::span(reinterpret_cast<T*>(staging[side].data()), chunk.size()), factor);
    if (!before.empty()) take_out(1 - side);
    before = chunk;
    number = posted;
  }
  take_out(1 - side);
}

template <typename T>
std::uint32_t SharedAllReduce::post(std::span<T> data, double factor, bool timed,
                                    CollectiveKind kind) {
  Header& mine = header(rank_);
  const std::uint32_t number = posted_ + 1;
  finish(number - kMostInFlight, Waiting::kSleep);
  in_flight_[number % kMostInFlight] = {kind, type_of<T>(), data.size(), factor, timed};
  mine.place[number % kMostInFlight] = place_of(data.data(), data.size_bytes());
  posted_ = number;
  mine.posted.raise_to(number);
  return number;
}

void SharedAllReduce::progress() {
  while (reduced_ != posted_ && all_posted(reduced_ + 1))
    reduce_next();
}

std::uint32_t SharedAllReduce::finished() const {
  std::uint32_t behind = 0;
  for (std::size_t r = 0; r < ranks(); ++r)
    behind = std::max(behind, posted_ - header(r).reduced.value());
  return posted_ - behind;
}

void SharedAllReduce::finish(std::uint32_t number, Waiting waiting) {
  while (static_cast<std::int32_t>(number - reduced_) > 0) {
    wait_for_all_posted(reduced_ + 1, waiting);
    reduce_next();
  }
  for (std::size_t r = 0; r < ranks(); ++r)
    header(r).reduced.wait_for(number, waiting, spinning_);
}

PostedTimes SharedAllReduce::times(std::uint32_t number) const {
  const auto of = [&](std::size_t rank) { return header(rank).reduced_at[number % kTimesKept]; };
  PostedTimes times{of(rank_), of(rank_)};
  for (std::size_t r = 0; r < ranks(); ++r) {
    times.last.begin_s = std::max(times.last.begin_s, of(r).begin_s);
    times.last.end_s = std::max(times.last.end_s, of(r).end_s);
  }
  return times;
}

bool SharedAllReduce::all_posted(std::uint32_t number) const {
  for (std::size_t r = 0; r < ranks(); ++r)
    if (!header(r).posted.reached(number)) return false;
  return true;
}

std::byte* SharedAllReduce::part_at(std::size_t rank, const Place& place) const {
  return regions_[place.region].parts[rank] + place.offset;
}

/// The first operation whose slice this rank has not reduced yet; all ranks have posted it.
void SharedAllReduce::reduce_next() {
  const std::uint32_t number = reduced_ + 1;
  const Posted& posted = in_flight_[number % kMostInFlight];
  const double begin_s = posted.timed ? now_s() : 0;
  locate_buffers(number);
  switch (posted.type) {
    case Type::kFloat:
      do_my_slice<float>(posted);
      break;
    case Type::kBfloat16:
      do_my_slice<Bfloat16>(posted);
      break;
    case Type::kFloat16:
      do_my_slice<Float16>(posted);
      break;
  }
  if (posted.timed) header(rank_).reduced_at[number % kTimesKept] = {begin_s, now_s()};
  mark_reduced(number);
}

void SharedAllReduce::wait_for_all_posted(std::uint32_t number, Waiting waiting) {
  for (std::size_t r = 0; r < ranks(); ++r)
    header(r).posted.wait_for(number, waiting, spinning_);
}

void SharedAllReduce::locate_buffers(std::uint32_t number) {
  for (std::size_t r = 0; r < ranks(); ++r)
    buffers_[r] = part_at(r, header(r).place[number % kMostInFlight]);
}

void SharedAllReduce::mark_reduced(std::uint32_t number) {
  reduced_ = number;
  header(rank_).reduced.raise_to(number);
}

template <typename T>
void SharedAllReduce::do_my_slice(const Posted& posted) {
  const bool is_half = posted.kind != CollectiveKind::kAllReduce;
  const auto edge = [&](std::size_t rank) {
    return slice_begin(posted.count, rank, ranks(), is_half ? 1 : kLineBytes / sizeof(T));
  };
  const std::size_t first = edge(rank_), last = edge(rank_ + 1);
  if (posted.kind == CollectiveKind::kReduceScatter)
    gather_slice<T>(buffers_, rank_, first, last, posted.factor);
  else if (is_half)
    copy_slice<T>(buffers_, rank_, first, last);
  else
    average_slice<T>(buffers_, first, last, posted.factor);
}

template <typename T>
void SharedAllReduce::all_reduce_across(std::span<T> data, double factor, Waiting waiting,
                                        int lanes, FunctionRef<void(std::span<T>)> across) {
  finish(posted_, waiting);
  const std::uint32_t number = post(data, factor);
  wait_for_all_posted(number, waiting);
  locate_buffers(number);
  if (rank_ < static_cast<std::size_t>(lanes)) {
    const auto edge = [&](std::size_t lane) {
      return slice_begin(data.size(), lane, static_cast<std::size_t>(lanes),
                         kLineBytes / sizeof(T));
    };
    const std::size_t first = edge(rank_), last = edge(rank_ + 1);
    gather_slice<T>(buffers_, rank_, first, last);
    across(data.subspan(first, last - first));
    publish_slice<T>(buffers_, rank_, first, last, factor);
  }
  mark_reduced(number);
  finish(number, waiting);
}

template void SharedAllReduce::all_reduce_across<float>(std::span<float>, double, Waiting, int,
                                                        FunctionRef<void(std::span<float>)>);
template void SharedAllReduce::all_reduce_across<Bfloat16>(std::span<Bfloat16>, double, Waiting,
                                                           int,
                                                           FunctionRef<void(std::span<Bfloat16>)>);
template void SharedAllReduce::all_reduce_across<Float16>(std::span<Float16>, double, Waiting, int,
                                                          FunctionRef<void(std::span<Float16>)>);
template void SharedAllReduce::all_reduce<float>(std::span<float>, double, Waiting);
template void SharedAllReduce::all_reduce<Bfloat16>(std::span<Bfloat16>, double, Waiting);
template void SharedAllReduce::all_reduce<Float16>(std::span<Float16>, double, Waiting);
template std::uint32_t SharedAllReduce::post<float>(std::span<float>, double, bool, CollectiveKind);
template std::uint32_t SharedAllReduce::post<Bfloat16>(std::span<Bfloat16>, double, bool,
                                                       CollectiveKind);
template std::uint32_t SharedAllReduce::post<Float16>(std::span<Float16>, double, bool,
                                                      CollectiveKind);

}  // namespace gradsync
