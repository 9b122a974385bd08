#include "model/batch_norm.h"
#include "train/evaluate.h"
#include "train/norm_exchange.h"

namespace gradsync {

NormExchange::NormExchange(const std::string& how, Exchange& exchange, SyncMode& mode,
                           Replica& replica)
    : exchange_(exchange),
      replica_(replica),
      // A root that steps alone hands its buffers out with its parameters.
      broadcasts_(how == "broadcast" && !mode.root_loss()) {
  if (how == "sync")
    share_statistics(*replica.network, {[this](std::span<float> values) { mean(values); },
                                        exchange.session().size()});
}

NormExchange::~NormExchange() {
  share_statistics(*replica_.network, {});
}

void NormExchange::begin_iteration() {
  waits_.clear();
  if (broadcasts_) broadcast_buffers(exchange_, replica_);
}

void NormExchange::mean(std::span<float> values) {
  const Moment begin = exchange_.now();
  exchange_.run(Collective::all_reduce(values, Scale::kAverage), Traffic::kBuffers);
  waits_.push_back({begin, exchange_.now()});
}

}  // namespace gradsync
