#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_info.h"
#include "exchange/exchange.h"
#include "train/rank_state.h"

/// A checkpoint holds what rank 0 has, and of every other rank what differs from it: equal replicas
/// are stored once, batch-norm statistics and replicas without exchange as often as there are ranks
/// (`rank3/buffers/…`). Rank 0 alone reads and writes, so it is there for all ranks or for none.
namespace gradsync {

/// Writes one. `info` is used on rank 0. Throws Error kInputOutput or kCannotCreate there.
/// With `root_only` the other ranks take the network from rank 0. Collective.
void write_checkpoint(Exchange& exchange, const std::vector<NamedTensor>& mine,
                      const CheckpointInfo& info, const std::filesystem::path& target,
                      bool root_only);

/// Gives every rank what it had; `file` is used on rank 0. Collective.
std::vector<NamedTensor> read_checkpoint(Exchange& exchange, const CheckpointFile* file);

}  // namespace gradsync
