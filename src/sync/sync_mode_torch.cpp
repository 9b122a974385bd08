// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "sync/sync_mode.h"

namespace gradsync {

void SyncMode::restore(const std::vector<std::int64_t>& state) {
  if (state.empty()) return;
  throw Error(ExitCode::kBadData, "the checkpoint holds an order of buckets, the mode has none");
}

namespace {

using Make = std::unique_ptr<SyncMode> (*)(Exchange&, const SyncSettings&);

constexpr Make kMakers[] = {
#define GRADSYNC_MODE(id, ...) make_##id,
#include "options/modes.def"
#undef GRADSYNC_MODE
};

}  // namespace

std::unique_ptr<SyncMode> make_sync_mode(std::string_view name, Exchange& exchange,
                                         const SyncSettings& settings) {
  const std::size_t at = mode_position(name);
  if (at == std::size(kModes))
    throw Error(ExitCode::kUsage, fmt::format("there is no synchronization mode {}", name),
                "gradsync-train --help lists them");
  exchange.log().set_mode(static_cast<std::uint8_t>(at), std::string(name));
  exchange.set_overlaps(kModes[at].overlaps || kModes[at].sleeps);
  // The part of a rank that is alone is all there is.
  const bool trivial = kModes[at].sharded && exchange.session().size() == 1;
  return kMakers[trivial ? mode_position(kNoExchange) : at](exchange, settings);
}

}  // namespace gradsync
