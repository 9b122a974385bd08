#include "comm/ring_transport.h"

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "comm/interfaces.h"
#include "comm/ring_connection.h"
#include "support/error.h"

namespace gradsync {

namespace {

constexpr double kPatience_s = 30;
constexpr std::size_t kMostAddresses = 16;

/// What a rank tells the others of itself.
struct Card {
  int world_rank = 0, node = 0, addresses = 0;
  char host[64] = {};
  std::array<std::uint32_t, kMostAddresses> address{}, mask{};
};

std::string named(const Card& card) {
  return fmt::format("rank {} ({})", card.world_rank, card.host);
}

std::vector<InterfaceAddress> addresses_of(const Card& card) {
  std::vector<InterfaceAddress> all;
  for (std::size_t i = 0; i < static_cast<std::size_t>(card.addresses); ++i)
    all.push_back({"", card.address[i], card.mask[i]});
  return all;
}

/// The lowest rank of this node. Asks nobody: not all ranks of a node need to be in the ring.
int node_of(const Session& session) {
  MPI_Group node = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  MPI_Comm_group(session.node(), &node);
  MPI_Comm_group(session.world(), &world);
  const int first = 0;
  int rank = 0;
  MPI_Group_translate_ranks(node, 1, &first, world, &rank);
  MPI_Group_free(&node);
  MPI_Group_free(&world);
  return rank;
}

std::string chosen_networks() {
  const char* chosen = std::getenv("OMPI_MCA_btl_tcp_if_include");
  return chosen ? chosen : "";
}

Card own_card(const Session& session) {
  Card card;
  card.world_rank = session.rank();
  card.node = node_of(session);
  session.host().copy(card.host, sizeof card.host - 1);
  for (const InterfaceAddress& own : among_networks(own_addresses(), chosen_networks())) {
    if (static_cast<std::size_t>(card.addresses) == kMostAddresses) break;
    card.address[static_cast<std::size_t>(card.addresses)] = own.address;
    card.mask[static_cast<std::size_t>(card.addresses++)] = own.mask;
  }
  return card;
}

std::uint32_t address_for(const Card& from, const Card& to) {
  if (from.node == to.node) return INADDR_LOOPBACK;
  const std::uint32_t address = address_between(addresses_of(from), addresses_of(to));
  if (address == 0)
    throw Error(
        ExitCode::kEnvironment,
        fmt::format("{} has no IPv4 address at which {} could reach it", named(to), named(from)),
        "name the network that joins the hosts (export OMPI_MCA_btl_tcp_if_include=ib0), or "
        "take --transport mpi");
  return address;
}

template <typename T>
std::vector<T> gather_all(const T& mine, int size, MPI_Comm comm) {
  std::vector<T> all(static_cast<std::size_t>(size));
  MPI_Allgather(&mine, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, comm);
  return all;
}

}  // namespace

RingTransport::RingTransport(const Session& session, MPI_Comm comm) : RootedByMpi(comm) {
  const auto at = [&](int r) { return static_cast<std::size_t>((r + size()) % size()); };
  const auto cards = gather_all(own_card(session), size(), comm);
  const Card &mine = cards[at(rank())], &next = cards[at(rank() + 1)],
             &previous = cards[at(rank() - 1)];
  RingLinks links{-1, -1, named(next), named(previous)};
  if (size() > 1) {
    RingSecret secret = rank() == 0 ? new_ring_secret() : RingSecret();
    MPI_Bcast(&secret, sizeof secret, MPI_BYTE, 0, comm);
    const RingListener listener(address_for(previous, mine));
    const auto ports = gather_all(listener.port(), size(), comm);
    to_next_ = connect_to_ring(address_for(mine, next), ports[at(rank() + 1)], secret, links.next,
                               kPatience_s);
    from_previous_ = listener.accept(secret, links.previous, kPatience_s);
    confirm_ring_connection(to_next_.get(), secret, links.next, kPatience_s);
    links.to_next = to_next_.get();
    links.from_previous = from_previous_.get();
  }
  ring_.emplace(links, rank(), size());
}

void RingTransport::all_reduce_sum(std::span<float> data, Waiting) {
  ring_->run(data, 1);
}

void RingTransport::all_reduce_mean(std::span<float> data, Waiting) {
  ring_->run(data, 1.0 / size());
}

void RingTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting) {
  ring_->run(as_values<Bfloat16>(data), 1);
}

void RingTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting) {
  ring_->run(as_values<Float16>(data), 1);
}

std::optional<double> RingTransport::all_reduce_mean_through(std::span<float> data, HalfType type,
                                                             Waiting) {
  const double factor = 1.0 / size();
  if (type == HalfType::kBfloat16)
    ring_->run<float, Bfloat16>(data, factor);
  else
    ring_->run<float, Float16>(data, factor);
  return ring_->cost().convert_s;
}

}  // namespace gradsync
