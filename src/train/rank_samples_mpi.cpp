#include "train/rank_samples.h"

namespace gradsync {

std::int64_t most_of_ranks(Exchange& exchange, std::int64_t mine) {
  std::vector<std::int64_t> all(exchange.rank() == 0 ? static_cast<std::size_t>(exchange.size())
                                                     : 0);
  exchange.control().gather(std::as_bytes(std::span(&mine, 1)),
                            std::as_writable_bytes(std::span(all)));
  std::int64_t most = all.empty() ? 0 : *std::max_element(all.begin(), all.end());
  exchange.control().broadcast(std::as_writable_bytes(std::span(&most, 1)));
  return most;
}

}  // namespace gradsync
