#pragma once

#include <vector>

#include "exchange/exchange.h"
#include "model/replica.h"
#include "options/options.h"
#include "record/run.h"

namespace gradsync {

/// The rank's network at the start, by --init. With `broadcast` rank 0's parameters and buffers
/// travel. Collective.
Replica first_replica(Exchange& exchange, const TrainOptions& options, Layout layout,
                      const torch::Device& device);

/// Whether ranks may come to hold networks that differ: each one is then tested on its own.
bool replicas_may_differ(const TrainOptions& options, int ranks);

/// Hashes and distances of every rank's network, on rank 0; other ranks get an empty row. The
/// values of rank 0 travel only where a hash differs. Collective.
ReplicaRow compare_replicas(Exchange& exchange, const Replica& replica);

/// "24b7ffe1b7d01ac3", or each one that occurs, with a blank between.
std::string distinct_hashes(const ReplicaRow& row);

}  // namespace gradsync
