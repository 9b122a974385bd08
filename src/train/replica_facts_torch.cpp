#include <algorithm>
#include <array>

#include "options/modes.h"
#include "train/replica_facts.h"

namespace gradsync {

namespace {

constexpr std::size_t kDigits = 16;
/// Far from any seed that a user counts up to, so that ranks and runs do not share one.
constexpr std::uint64_t kSeedOfRank = 0x9e3779b97f4a7c15u;

std::span<float> values_of(torch::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

void broadcast_network(Exchange& exchange, Replica& replica) {
  const torch::NoGradGuard no_grad;
  for (auto& parameter : replica.parameters)
    exchange.run(Collective::broadcast(values_of(parameter), kRoot), Traffic::kParameters);
  for (auto& buffer : replica.buffers)
    if (buffer.is_floating_point())
      exchange.run(Collective::broadcast(values_of(buffer), kRoot), Traffic::kBuffers);
}

/// |mine − rank 0's| / |rank 0's|; 0 for two empty ones.
double distance_to_root(Exchange& exchange, const torch::Tensor& mine) {
  if (mine.numel() == 0) return 0;
  torch::Tensor root = mine.clone();
  exchange.session().broadcast(std::as_writable_bytes(values_of(root)));
  const auto length = root.to(torch::kFloat64).norm().item<double>();
  const auto away = (mine.to(torch::kFloat64) - root.to(torch::kFloat64)).norm().item<double>();
  return away == 0 ? 0 : away / length;
}

using Hashes = std::array<char, 2 * kDigits>;

Hashes hashes_of(const Replica& replica) {
  Hashes hashes;
  hashes.fill(' ');
  parameter_hash(replica).copy(hashes.data(), kDigits);
  buffer_hash(replica).copy(hashes.data() + kDigits, kDigits);
  return hashes;
}

std::string text_of(const char* begin) {
  const std::string text(begin, kDigits);
  return text.substr(0, text.find(' '));
}

}  // namespace

Replica first_replica(Exchange& exchange, const TrainOptions& options, Layout layout,
                      const torch::Device& device) {
  const auto rank = static_cast<std::uint64_t>(exchange.session().rank());
  const std::uint64_t seed =
      options.init == "equal" ? options.seed : options.seed + rank * kSeedOfRank;
  Replica replica = make_replica(options.model, seed, layout, device);
  if (options.init == "broadcast") broadcast_network(exchange, replica);
  return replica;
}

bool replicas_may_differ(const TrainOptions& options, int ranks) {
  return ranks > 1 && (!mode_named(options.sync).exchanges || options.gradients_only ||
                       options.init == "per-rank");
}

ReplicaRow compare_replicas(Exchange& exchange, const Replica& replica) {
  const auto ranks =
      static_cast<std::size_t>(exchange.session().rank() == 0 ? exchange.session().size() : 0);
  exchange.await(exchange.now().mark);
  const Hashes mine = hashes_of(replica);
  std::vector<Hashes> all(ranks);
  exchange.session().gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  std::byte differ{std::any_of(all.begin(), all.end(), [&](auto& one) { return one != mine; })};
  exchange.session().broadcast(differ);
  std::array<double, 2> away = {0, 0};
  if (differ != std::byte{0})
    away = {distance_to_root(exchange, flat_parameters(replica)),
            distance_to_root(exchange, flat_buffers(replica))};
  std::vector<std::array<double, 2>> distances(ranks);
  exchange.session().gather(std::as_bytes(std::span(away)),
                            std::as_writable_bytes(std::span(distances)));
  ReplicaRow row;
  for (std::size_t rank = 0; rank < ranks; ++rank)
    row.ranks.push_back({text_of(all[rank].data()), text_of(all[rank].data() + kDigits),
                         distances[rank][0], distances[rank][1]});
  return row;
}

std::string distinct_hashes(const ReplicaRow& row) {
  std::string distinct;
  for (const RankReplica& rank : row.ranks)
    if (distinct.find(rank.parameter_hash) == std::string::npos)
      distinct += (distinct.empty() ? "" : " ") + rank.parameter_hash;
  return distinct;
}

}  // namespace gradsync
