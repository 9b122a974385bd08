#include <netinet/in.h>

#include <array>
#include <future>

#include <fmt/format.h>

#include "base/error.h"
#include "base/function_ref.h"
#include "transport/interfaces.h"
#include "transport/ring_connection.h"
#include "transport/ring_transport.h"

namespace gradsync {

namespace {

constexpr double kLimit_s = 30;
constexpr std::size_t kMostAddresses = 16;

/// What a rank sends the others about itself.
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

/// The lowest rank of this node. Not collective: not all ranks of a node need to be in the ring.
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

Card own_card(const Session& session) {
  Card card;
  card.world_rank = session.rank();
  card.node = node_of(session);
  session.host().copy(card.host, sizeof card.host - 1);
  for (const InterfaceAddress& own : among_networks(own_addresses(), tcp_networks())) {
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
    throw Error(ExitCode::kEnvironment,
                fmt::format("{} has no IPv4 address that {} can reach", named(to), named(from)),
                "name the network that joins the hosts (export OMPI_MCA_btl_tcp_if_include=ib0), "
                "or use --transport mpi");
  return address;
}

template <typename T>
std::vector<T> gather_all(const T& mine, int size, MPI_Comm comm) {
  std::vector<T> all(static_cast<std::size_t>(size));
  MPI_Allgather(&mine, sizeof(T), MPI_BYTE, all.data(), sizeof(T), MPI_BYTE, comm);
  return all;
}

/// An Error as it travels.
struct Failure {
  int code = 0;  ///< 0: none
  char place[96] = {}, what[512] = {}, fix[256] = {};
};

template <std::size_t N>
void copy_text(const std::string& text, char (&field)[N]) {
  field[text.copy(field, N - 1)] = 0;
}

/// One step of joining the ranks of `comm`. What fails on any of them is thrown on all: the failure
/// of the lowest rank that has one. So no rank waits for one that has given up.
void on_all(const Session& session, MPI_Comm comm, int size, FunctionRef<void()> step) {
  Failure mine;
  copy_text(session.place(), mine.place);
  try {
    step();
  } catch (...) {
    const Error error = current_error();
    mine.code = error.exit_code();
    copy_text(error.what(), mine.what);
    copy_text(error.fix(), mine.fix);
  }
  for (const Failure& one : gather_all(mine, size, comm)) {
    if (one.code == 0) continue;
    const std::string place = session.place() == one.place ? "" : fmt::format("{}: ", one.place);
    throw Error(static_cast<ExitCode>(one.code), place + one.what, one.fix);
  }
}

}  // namespace

RingTransport::RingTransport(const Session& session, MPI_Comm comm)
    : MpiRootedCollectives(comm), session_(session) {
  const int ranks = size(), next = (rank() + 1) % ranks, previous = (rank() + ranks - 1) % ranks;
  const auto cards = gather_all(own_card(session), ranks, comm);
  const auto card = [&](int r) -> const Card& { return cards[static_cast<std::size_t>(r)]; };
  RingLinks links{-1, -1, named(card(next)), named(card(previous))};
  if (ranks > 1) {
    RingSecret secret = rank() == 0 ? new_ring_secret() : RingSecret();
    MPI_Bcast(&secret, sizeof secret, MPI_BYTE, 0, comm);
    std::optional<RingListener> listener;
    on_all(session, comm, ranks,
           [&] { listener.emplace(address_for(card(previous), card(rank())), tcp_ports()); });
    const auto ports = gather_all(listener->port(), ranks, comm);
    on_all(session, comm, ranks, [&] {
      to_next_ = connect_to_ring(address_for(card(rank()), card(next)),
                                 ports[static_cast<std::size_t>(next)], links.next, kLimit_s);
    });
    on_all(session, comm, ranks, [&] {
      // Both at once: each rank's proof waits for its neighbor's challenge.
      auto accepted = std::async(std::launch::async, [&] {
        return listener->accept(secret, {previous, rank()}, links.previous, kLimit_s);
      });
      prove_ring_connection(to_next_.get(), secret, {rank(), next}, links.next, kLimit_s);
      from_previous_ = accepted.get();
    });
    links.to_next = to_next_.get();
    links.from_previous = from_previous_.get();
  }
  ring_.emplace(links, rank(), ranks);
}

template <typename T, typename W>
void RingTransport::run(std::span<T> data, double factor) {
  try {
    ring_->run<T, W>(data, factor);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kHang) throw;
    // A rank that ended now would close the connection to its other neighbor, which would then name
    // this one. The watchdog sees which ranks are gone.
    session_.end_as_lost(error.what());
  }
}

void RingTransport::all_reduce_sum(std::span<float> data, Waiting) {
  run<float, float>(data, 1);
}

void RingTransport::all_reduce_mean(std::span<float> data, Waiting) {
  run<float, float>(data, 1.0 / size());
}

void RingTransport::all_reduce_sum_bf16(std::span<std::uint16_t> data, Waiting) {
  run<Bfloat16, Bfloat16>(as_values<Bfloat16>(data), 1);
}

void RingTransport::all_reduce_sum_fp16(std::span<std::uint16_t> data, Waiting) {
  run<Float16, Float16>(as_values<Float16>(data), 1);
}

std::optional<double> RingTransport::all_reduce_mean_through(std::span<float> data, HalfType type,
                                                             Waiting) {
  const double factor = 1.0 / size();
  if (type == HalfType::kBfloat16)
    run<float, Bfloat16>(data, factor);
  else
    run<float, Float16>(data, factor);
  return ring_->cost().convert_s;
}

}  // namespace gradsync
