#include "sweep/batch_ladder.h"

#include <algorithm>

#include <fmt/format.h>

#include "sweep/cell_record.h"

namespace gradsync::sweep {

namespace {

std::string ladder_of(const GridCell& cell) {
  std::string key = fmt::format("ranks={}", cell.ranks);
  for (const auto& [name, value] : cell.options)
    if (name != "batch-per-rank" && name != "batch-global")
      key += fmt::format("\n{}={}", name, value);
  return key;
}

}  // namespace

void BatchLadders::end_at(const GridCell& cell) {
  const std::int64_t batch = batch_per_rank(cell);
  const auto [entry, is_new] = smallest_.emplace(ladder_of(cell), batch);
  if (!is_new) entry->second = std::min(entry->second, batch);
}

std::optional<std::int64_t> BatchLadders::ended_at(const GridCell& cell) const {
  const auto entry = smallest_.find(ladder_of(cell));
  if (entry == smallest_.end() || batch_per_rank(cell) < entry->second) return std::nullopt;
  return entry->second;
}

BatchLadders recorded_ladders(const std::vector<GridCell>& cells,
                              const std::filesystem::path& folder) {
  BatchLadders ladders;
  for (const auto& cell : cells) {
    const auto failure = recorded_failure(cell_files(folder, cell));
    if (failure && failure->kind == FailureKind::kOutOfMemory) ladders.end_at(cell);
  }
  return ladders;
}

std::int64_t batch_per_rank(const GridCell& cell) {
  return train_options_of(cell).batch_per_rank;
}

}  // namespace gradsync::sweep
