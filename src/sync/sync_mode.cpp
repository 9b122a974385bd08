#include "sync/sync_mode.h"

namespace gradsync {

void SyncMode::restore(const std::vector<std::int64_t>& state) {
  if (state.empty()) return;
  throw Error(ExitCode::kBadData, "the checkpoint holds an order of buckets, the mode has none");
}

const std::vector<SyncEntry>& sync_modes() {
  static const std::vector<SyncEntry> entries = {
      {"none", make_none}, {"gather-scatter", make_gather_scatter}, {"allreduce", make_allreduce},
      {"ddp", make_ddp},   {"data-parallel", make_data_parallel},   {"c10d", make_c10d},
  };
  return entries;
}

std::unique_ptr<SyncMode> make_sync_mode(const std::string& name, Exchange& exchange,
                                         const SyncSettings& settings) {
  const auto& modes = sync_modes();
  for (std::size_t i = 0; i < modes.size(); ++i) {
    if (modes[i].name != name) continue;
    exchange.set_mode(static_cast<std::uint8_t>(i), name);
    exchange.set_waiting(Waiting::kSpin);
    return modes[i].make(exchange, settings);
  }
  throw Error(ExitCode::kUsage, "no synchronisation mode is called " + name,
              "gradsync-train --help lists them");
}

}  // namespace gradsync
