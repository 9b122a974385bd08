// SPDX-License-Identifier: BSD-3-Clause
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <future>

#include <fmt/format.h>

#include "base/error.h"
#include "base/function_ref.h"
#include "base/parse.h"
#include "machine/host.h"
#include "transport/interfaces.h"
#include "transport/rank_transport.h"
#include "transport/ring.h"

namespace gradsync {

namespace {

/// Runs `body` on the values of an all-reduce of has_own_all_reduce.
template <typename Body>
void with_own_values(const Collective& call, const Body& body) {
  with_values(call.receive, call.type, [&]<typename T>(std::span<T> values) {
    if constexpr (!std::is_arithmetic_v<T> || std::is_same_v<T, float>) body(values);
  });
}

/// A rank, for what else lies there: Open MPI's own segment has 4 MiB, which it takes page by page.
constexpr std::size_t kSpare_bytes = std::size_t{5} << 20;

}  // namespace

bool SharedMemoryPool::fits(MPI_Comm node) {
  return sees_room(node, SharedAllReduce::header_bytes() + SharedAllReduce::kAlignment);
}

namespace {

SharedWindow headers_on(MPI_Comm node) {
  SharedWindow window(node, SharedAllReduce::header_bytes(), SharedAllReduce::kAlignment);
  if (!window.take_pages(node))
    throw Error(ExitCode::kEnvironment, "/dev/shm has no room for the transport of shared memory",
                kSharedMemoryFix);
  return window;
}

}  // namespace

SharedMemoryPool::SharedMemoryPool(MPI_Comm node)
    : node_(node),
      rank_(rank_in(node)),
      headers_(headers_on(node)),
      reducer_(headers_.parts(), rank_) {
  MPI_Barrier(node_);
}

/// Ranks may drop a buffer at different times, so they agree on the one that is taken again: the
/// smallest that fits, unless half of it would lie idle. Contenders of one job lay their buckets
/// out a little differently, and each is to find room where the others did.
std::shared_ptr<std::byte> SharedMemoryPool::allocate(std::size_t bytes) {
  std::vector<char> free_here;
  for (const auto& buffer : buffers_)
    free_here.push_back(buffer.use_count() == 1);
  MPI_Allreduce(MPI_IN_PLACE, free_here.data(), static_cast<int>(free_here.size()), MPI_CHAR,
                MPI_MIN, node_);
  std::size_t taken = buffers_.size();
  for (std::size_t i = 0; i < buffers_.size(); ++i)
    if (const std::size_t has = buffers_[i]->bytes();
        free_here[i] && has >= bytes && has / 2 <= bytes &&
        (taken == buffers_.size() || has < buffers_[taken]->bytes()))
      taken = i;
  if (taken == buffers_.size()) {
    if (!has_room(node_, bytes, kSpare_bytes)) return {};
    auto window = std::make_shared<SharedWindow>(node_, bytes, SharedAllReduce::kAlignment);
    if (!window->take_pages(node_)) return {};
    buffers_.push_back(std::move(window));
    reducer_.add_region(buffers_.back()->parts(), bytes);
  }
  return {buffers_[taken], buffers_[taken]->parts()[static_cast<std::size_t>(rank_)]};
}

double ShmTransport::all_reduce(const Collective& call) {
  with_own_values(
      call, [&](auto values) { memory_.reducer().all_reduce(values, factor(call), call.waiting); });
  return 0;
}

bool ShmTransport::moves_half(const Collective& call, std::span<float> all) {
  SharedAllReduce& reducer = memory_.reducer();
  if (!reducer.holds(all.data(), all.size_bytes())) return false;
  reducer.finish(reducer.post(all, factor(call), /*timed=*/false, call.kind), call.waiting);
  return true;
}

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

/// Ends accept() where an error leaves the ring unfinished.
class StopAtEnd {
 public:
  explicit StopAtEnd(const std::optional<RingListener>& listener) : listener_(listener) {}
  ~StopAtEnd() {
    if (listener_) listener_->stop();
  }
  StopAtEnd(const StopAtEnd&) = delete;
  StopAtEnd& operator=(const StopAtEnd&) = delete;

 private:
  const std::optional<RingListener>& listener_;
};

}  // namespace

RingTransport::RingTransport(const Session& session, MPI_Comm comm)
    : OwnAllReduce("tcp-ring", comm), session_(session) {
  const int ranks = size(), next = (rank() + 1) % ranks, previous = (rank() + ranks - 1) % ranks;
  const auto cards = gather_all(own_card(session), ranks, comm);
  const auto card = [&](int r) -> const Card& { return cards[static_cast<std::size_t>(r)]; };
  RingLinks links{-1, -1, named(card(next)), named(card(previous))};
  if (ranks > 1) {
    RingSecret secret = rank() == 0 ? new_ring_secret() : RingSecret();
    MPI_Bcast(secret.key.data(), sizeof secret.key, MPI_BYTE, 0, comm);
    std::optional<RingListener> listener;
    std::future<UniqueFd> accepted;
    const StopAtEnd stops(listener);
    on_all(session, comm, ranks, [&] {
      listener.emplace(address_for(card(previous), card(rank())), tcp_ports());
      // From before the neighbor may connect, so that strangers take no places meanwhile.
      accepted = std::async(std::launch::async, [&] {
        return listener->accept(secret, {previous, rank()}, links.previous, 2 * kLimit_s);
      });
    });
    const auto ports = gather_all(listener->port(), ranks, comm);
    on_all(session, comm, ranks, [&] {
      to_next_ = connect_to_ring(address_for(card(rank()), card(next)),
                                 ports[static_cast<std::size_t>(next)], links.next, kLimit_s);
    });
    on_all(session, comm, ranks, [&] {
      prove_ring_connection(to_next_, secret, {rank(), next}, links.next, kLimit_s);
      from_previous_ = accepted.get();
    });
    links.to_next = to_next_.get();
    links.from_previous = from_previous_.get();
  }
  ring_.emplace(links, rank(), ranks);
}

double RingTransport::all_reduce(const Collective& call) {
  double convert_s = 0;
  watching([&] {
    with_own_values(call, [&]<typename T>(std::span<T> values) {
      if constexpr (std::is_same_v<T, float>)
        convert_s =
            call.wire == ValueType::kBfloat16  ? ring_->run<T, Bfloat16>(values, factor(call))
            : call.wire == ValueType::kFloat16 ? ring_->run<T, Float16>(values, factor(call))
                                               : ring_->run<T, T>(values, factor(call));
      else
        ring_->run<T, T>(values, factor(call));
    });
  });
  return convert_s;
}

bool RingTransport::moves_half(const Collective& call, std::span<float> all) {
  watching([&] {
    call.kind == CollectiveKind::kReduceScatter ? ring_->reduce_scatter(all, factor(call))
                                                : ring_->all_gather(all);
  });
  return true;
}

/// Runs what throws where a neighbor is lost.
void RingTransport::watching(FunctionRef<void()> body) {
  try {
    body();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kHang) throw;
    // A rank that ended now would close the connection to its other neighbor, which would then name
    // this one. The watchdog sees which ranks are gone.
    session_.end_as_lost(error.what());
  }
}

namespace {

/// Ranks of the smallest node.
int fewest_ranks_a_node(MPI_Comm world, MPI_Comm node) {
  int ranks = 1;
  MPI_Comm_size(node, &ranks);
  MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_INT, MPI_MIN, world);
  return ranks;
}

}  // namespace

TwoLevelTransport::TwoLevelTransport(MPI_Comm world, MPI_Comm node, const MakeLane& make_lane)
    : OwnAllReduce("two-level", world),
      world_(world),
      lanes_(fewest_ranks_a_node(world, node)),
      memory_(node) {
  const bool in_lane = memory_.rank() < lanes_;
  MPI_Comm_split(world, in_lane ? memory_.rank() : MPI_UNDEFINED, rank(), &lane_comm_);
  lane_ = make_lane(lane_comm_);
}

TwoLevelTransport::~TwoLevelTransport() {
  lane_.reset();
  if (lane_comm_ != MPI_COMM_NULL) MPI_Comm_free(&lane_comm_);
}

/// On all nodes or on none, since the ranks of a lane have to cut what they exchange alike.
std::shared_ptr<std::byte> TwoLevelTransport::allocate(std::size_t bytes) {
  auto memory = memory_.allocate(bytes);
  char has = memory != nullptr;
  MPI_Allreduce(MPI_IN_PLACE, &has, 1, MPI_CHAR, MPI_MIN, world_);
  return has ? memory : nullptr;
}

double TwoLevelTransport::all_reduce(const Collective& call) {
  if (call.receive.empty()) return 0;
  if (memory_.reducer().holds(call.receive.data(), call.receive.size())) {
    reduce_here(call);
    return 0;
  }
  const std::span<std::byte> shared = staging(call.receive.size());
  for (std::size_t at = 0; at < call.receive.size(); at += shared.size()) {
    const std::span<std::byte> part =
        call.receive.subspan(at, std::min(shared.size(), call.receive.size() - at));
    Collective piece = call;
    piece.receive = shared.first(part.size());
    std::copy(part.begin(), part.end(), piece.receive.begin());
    reduce_here(piece);
    std::copy(piece.receive.begin(), piece.receive.end(), part.begin());
  }
  return 0;
}

/// All-reduce of data in the node's shared memory.
void TwoLevelTransport::reduce_here(const Collective& call) {
  with_own_values(call, [&]<typename T>(std::span<T> values) {
    const auto across = [&](std::span<T> slice) {
      lane_->run(
          {.type = call.type, .receive = std::as_writable_bytes(slice), .waiting = call.waiting});
    };
    memory_.reducer().all_reduce_across<T>(values, factor(call), call.waiting, lanes_, across);
  });
}

/// Shared memory for data that lies elsewhere: so much, or what the node has for certain. Grows on
/// all ranks at once, since all ask for the same.
std::span<std::byte> TwoLevelTransport::staging(std::size_t bytes) {
  if (bytes > staging_bytes_ && !staging_is_full_) {
    auto more = allocate(bytes);
    staging_is_full_ = more == nullptr;
    if (more) {
      staging_ = std::move(more);
      staging_bytes_ = bytes;
    }
  }
  if (bytes <= staging_bytes_) return {staging_.get(), bytes};
  return memory_.reducer().staging();
}

}  // namespace gradsync
