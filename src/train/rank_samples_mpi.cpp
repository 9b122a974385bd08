#include "train/rank_samples.h"

namespace gradsync {

std::int64_t most_of_ranks(Exchange& exchange, std::int64_t mine) {
  return static_cast<std::int64_t>(exchange.session().max(static_cast<double>(mine)));
}

}  // namespace gradsync
