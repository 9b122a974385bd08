// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace gradsync {

/// Sizes of buckets that PyTorch's DDP takes.
inline constexpr std::int64_t kDefaultFirstBucketBytes = 1 << 20;
inline constexpr std::int64_t kDefaultBucketCapBytes = 25 << 20;

/// Where the values of reduce-scatters and allgathers lie: in place, and in memory of the
/// transport.
enum class Halves { kApart, kInPlace, kShared, kNone };

/// What a synchronization mode does, for trainer, sweep and report. The modes stand in modes.def.
struct Mode {
  std::string_view name;   ///< of --sync and in run files
  bool exchanges = true;   ///< gradients, between ranks
  bool overlaps = false;   ///< sends buckets during the backward pass
  bool sleeps = false;     ///< while messages are under way, although nothing overlaps them
  bool casts = false;      ///< --wire-dtype
  bool defers = false;     ///< --overlap step
  bool rooted = false;     ///< through rank 0 with MPI's own collectives, whatever the transport
  bool root_only = false;  ///< rank 0 computes the loss of all ranks' outputs and steps alone
  bool capturable = true;  ///< its iteration can be a CUDA graph
  bool local = false;      ///< there are iterations without an exchange
  bool sharded = false;    ///< each rank has the averages of its part of the gradients only
  bool each_pass = false;  ///< exchanges all in each pass of an accumulated iteration
  /// Copies of the parameters that a rank keeps for what it sends, at most.
  int kept_copies = 0;
  Halves halves = Halves::kApart;
  /// What the ranks step by in place of averaged gradients; empty: by those, up to rounding.
  std::string_view changes = {};
  std::string_view color;        ///< in plots
  std::string_view marker = {};  ///< there, a path of SVG around 0 0; empty: a circle
};

// Okabe and Ito, "Color Universal Design" (2008): eight colors that people with any kind of color
// vision distinguishes.
inline constexpr Mode kModes[] = {
#define GRADSYNC_MODE(id, ...) {__VA_ARGS__},
#include "options/modes.def"
#undef GRADSYNC_MODE
};

/// The mode of a run file that another version wrote.
inline constexpr Mode kUnknownMode = {
    .name = "",
    .color = "#56b4e9",
    .marker = "M-1.2-4h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8v-2.4h2.8z"};

/// PyTorch's DistributedDataParallel, in runs that gradsync-report makes of traces.
inline constexpr Mode kTracedDdp = {.name = "pytorch-ddp",
                                    .overlaps = true,
                                    .color = "#f0e442",
                                    .marker = "M-1.7-4.4h3.4v8.8h-3.4z"};
/// PyTorch's DataParallel likewise: one process with several GPUs.
inline constexpr Mode kTracedDataParallel = {.name = "pytorch-data-parallel", .color = "#e69f00"};

/// The mode that exchanges nothing.
inline constexpr std::string_view kNoExchange = "none";

/// The place in the table; its size for a mode that is not in it.
constexpr std::size_t mode_position(std::string_view name) {
  const auto named = [&](const Mode& mode) { return mode.name == name; };
  return static_cast<std::size_t>(std::find_if(std::begin(kModes), std::end(kModes), named) -
                                  std::begin(kModes));
}

/// kUnknownMode for a mode that this version does not know.
constexpr const Mode& mode_named(std::string_view name) {
  for (const Mode* traced : {&kTracedDdp, &kTracedDataParallel})
    if (name == traced->name) return *traced;
  const std::size_t at = mode_position(name);
  return at < std::size(kModes) ? kModes[at] : kUnknownMode;
}

static_assert(!mode_named(kNoExchange).exchanges);

}  // namespace gradsync
