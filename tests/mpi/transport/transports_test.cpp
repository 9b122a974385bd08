// SPDX-License-Identifier: BSD-3-Clause
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/error.h"
#include "base/numbers.h"
#include "comm/places.h"
#include "comm/session.h"
#include "mpi/ranks.h"
#include "options/transport_choice.h"
#include "transport/rank_transport.h"
#include "transport/trial_sum.h"

using namespace gradsync;

namespace {

float whole(int ranks, std::size_t i) {
  return trial_sum::value(trial_sum::factor_of_all(ranks), i);
}

void fill(std::span<float> data, int rank) {
  std::ranges::copy(trial_sum::values(trial_sum::factor_of(rank), data.size()), data.begin());
}

std::int64_t wrong(std::span<const float> data, int ranks, float factor) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < data.size(); ++i)
    count += !(std::abs(data[i] - factor * whole(ranks, i)) <= 1e-4f);
  return count;
}

std::span<float> values(const std::shared_ptr<std::byte>& memory, std::size_t count) {
  return {reinterpret_cast<float*>(memory.get()), count};
}

/// Sums and means of `data` as the transport makes them, compared with what must come out.
void check_sums(Transport& transport, std::span<float> data) {
  const int rank = transport.rank(), ranks = transport.size();
  for (const Waiting waiting : {Waiting::kSpin, Waiting::kSleep}) {
    CAPTURE(data.size());
    fill(data, rank);
    transport.run(Collective::all_reduce(data, Scale::kSum, waiting));
    CHECK(wrong(data, ranks, 1) == 0);
    fill(data, rank);
    transport.run(Collective::all_reduce(data, Scale::kAverage, waiting));
    CHECK(wrong(data, ranks, 1.0f / static_cast<float>(ranks)) == 0);
  }
}

/// Both kinds of 16 bits; the values and their sums are exact in 11 bits for few ranks.
void check_sums_in_16_bits(Transport& transport, std::span<std::uint16_t> data) {
  const auto value = [](int rank, std::size_t i) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 5));
  };
  const int ranks = transport.size();
  for (const bool bf16 : {true, false})
    for (const Waiting waiting : {Waiting::kSpin, Waiting::kSleep}) {
      for (std::size_t i = 0; i < data.size(); ++i)
        data[i] = bf16 ? to_bf16(value(transport.rank(), i)) : to_fp16(value(transport.rank(), i));
      transport.run({.type = bf16 ? ValueType::kBfloat16 : ValueType::kFloat16,
                     .receive = std::as_writable_bytes(data),
                     .waiting = waiting});
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < data.size(); ++i) {
        const float sum = value(ranks * (ranks + 1) / 2 - 1, i);
        wrong += (bf16 ? from_bf16(data[i]) : from_fp16(data[i])) != sum;
      }
      CHECK(wrong == 0);
    }
}

/// What the kernel's file says behind this name; empty if it does not have it.
std::string value_in(const char* path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name))
      return line.substr(line.find_first_not_of(" \t", line.find(':') + 1));
  return {};
}

constexpr std::size_t kCounts[] = {0, 1, 64, 65, 1025, 65'537, 3'000'017};
constexpr std::size_t kMost = 3'000'017;

void check_rooted(Transport& transport) {
  const int rank = transport.rank(), ranks = transport.size();
  std::vector<float> mine(1000), all(rank == 0 ? 1000 * static_cast<std::size_t>(ranks) : 0);
  fill(mine, rank);
  transport.run(Collective::gather(mine, all, 0));
  std::vector<float> back(1000);
  transport.run(Collective::scatter(all, back, 0));
  CHECK(back == mine);
  transport.run(Collective::reduce(mine, 0));
  if (rank == 0) CHECK(wrong(mine, ranks, 1) == 0);
  transport.run(Collective::broadcast(std::span(mine), 0));
  CHECK(wrong(mine, ranks, 1) == 0);
}

}  // namespace

TEST_CASE("shm: sums and means of all sizes, in its own memory and elsewhere" *
          test::many_ranks()) {
  ShmTransport transport(test::session().node());
  const auto memory = transport.allocate(kMost * sizeof(float));
  std::vector<float> elsewhere(kMost);
  for (const std::size_t count : kCounts) {
    if (memory) check_sums(transport, values(memory, count));  // else there is no room
    check_sums(transport, std::span(elsewhere).first(count));
  }
  check_rooted(transport);
  std::vector<std::uint16_t> narrow(65'537);
  check_sums_in_16_bits(transport, narrow);
}

TEST_CASE("ranks of one host are one node" * test::many_ranks()) {
  const Session& session = test::session();
  const RankLayout layout = rank_layout(session);
  CHECK(layout.nodes == 1);
  CHECK(layout.fewest_ranks_a_node == session.size());
}

TEST_CASE("what a run records of its MPI, its own identity and the cores of a rank" *
          test::once()) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string version = mpi_library_version();
  CHECK(version.size() > 4);
  // Its words; MPICH aligns them with tabs.
  const auto without_blanks = [](std::string words) {
    std::erase_if(words, [](char c) { return c == ' ' || c == '\t'; });
    return words;
  };
  CHECK(without_blanks(text).starts_with(without_blanks(version)));
  CHECK(version.find_first_of(",\n\t") == std::string::npos);
  CHECK(version.find("  ") == std::string::npos);

  const std::regex random_uuid(
      "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  std::set<std::string> uuids;
  for (int i = 0; i < 100; ++i)
    CHECK(std::regex_match(*uuids.insert(new_uuid()).first, random_uuid));
  CHECK(uuids.size() == 100);

  cpu_set_t before;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  Cores cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &before)) continue;
    cores.push_back(core);
    cpu_set_t one = {};
    CPU_SET(core, &one);
    REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(core_mask().text == std::to_string(core));
    CHECK(core_mask().cores == Cores{core});
  }
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  CHECK(core_mask().cores == cores);
  CHECK(cores_on_node(test::session()).at(static_cast<std::size_t>(test::session().local_rank())) ==
        cores);
  CHECK(core_mask().text == value_in("/proc/self/status", "Cpus_allowed_list"));
  const std::string cpu = value_in("/proc/cpuinfo", "model name");
  CHECK(cpu_name() == (cpu.empty() ? "unknown" : cpu));
}

TEST_CASE("an identity draws each of its parts, and the cores are those that the kernel allows") {
  int alike = 0;
  for (int i = 0; i < 100; ++i) {
    const std::string one = new_uuid();
    alike += one.substr(9, 4) == one.substr(19, 4) ? 1 : 0;
  }
  CHECK(alike < 10);
  CHECK(core_mask().text == value_in("/proc/self/status", "Cpus_allowed_list"));
}

TEST_CASE("texts of all ranks come to rank 0 in order, and each byte is counted once") {
  const Session& session = test::session();
  const bool root = session.root();
  const auto counted = [&](std::size_t length) {
    const auto at = static_cast<std::size_t>(Traffic::kControl);
    const RankTraffic before = session.ledger().total();
    const auto texts = session.gather(std::string(length, root ? 'r' : 'o'));
    CHECK(texts.size() == (root ? static_cast<std::size_t>(session.size()) : 0));
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
      CHECK(texts[rank] == std::string(length, rank == 0 ? 'r' : 'o'));
    const RankTraffic& after = session.ledger().total();
    return LinkBytes{after.sent_bytes[at] - before.sent_bytes[at],
                     after.received_bytes[at] - before.received_bytes[at]};
  };
  const LinkBytes few = counted(3), more = counted(10);
  CHECK(more.sent - few.sent == (root ? 0 : 7));
  CHECK(more.received - few.received == (root ? 7 * (session.size() - 1) : 0));
  CHECK((root ? few.sent : few.received) == 0);
}

TEST_CASE("transports: a calibration row records the name that the table has" *
          test::several_ranks()) {
  for (const char* name : {"mpi", "shm", "tcp-ring"})
    CHECK(test::Ranks(name).transport.name() == find_transport(name)->name);
}

TEST_CASE("ring: sums and means of all sizes" * test::many_ranks()) {
  RingTransport transport(test::session(), test::session().world());
  std::vector<float> memory(kMost);
  for (const std::size_t count : kCounts)
    check_sums(transport, std::span(memory).first(count));
  check_rooted(transport);
  std::vector<std::uint16_t> narrow(65'537);
  check_sums_in_16_bits(transport, narrow);
}

TEST_CASE("reduce-scatter and all-gather in place and apart, whatever moves them" *
          test::many_ranks()) {
  for (const char* name : {"mpi", "shm", "tcp-ring", "two-level"}) {
    CAPTURE(name);
    test::Ranks ranks(name);
    for (const Waiting waiting : {Waiting::kSpin, Waiting::kSleep})
      for (const bool apart : {false, true})
        for (const std::size_t count : {1U, 1000U, 100'003U}) {
          CAPTURE(apart);
          CAPTURE(count);
          std::vector<float> all(count * static_cast<std::size_t>(ranks.size)), elsewhere(count);
          fill(all, ranks.rank);
          const std::size_t begin = count * static_cast<std::size_t>(ranks.rank);
          const std::span<float> one =
              apart ? std::span(elsewhere) : std::span(all).subspan(begin, count);
          Collective sum = Collective::reduce_scatter(all, one);
          sum.waiting = waiting;
          ranks.transport.run(sum);
          std::int64_t wrong_sums = 0;
          for (std::size_t i = 0; i < count; ++i)
            wrong_sums += one[i] != whole(ranks.size, begin + i);
          CHECK(wrong_sums == 0);
          Collective gather =
              Collective::all_gather(std::as_bytes(one), std::as_writable_bytes(std::span(all)));
          gather.waiting = waiting;
          ranks.transport.run(gather);
          CHECK(wrong(all, ranks.size, 1) == 0);
        }
  }
}

TEST_CASE("two levels: sums and means of all sizes, over MPI and over rings" * test::many_ranks()) {
  // Ranks 0 and 1, 2 and 3 … stand for nodes; 0 to 2 and the rest for nodes of unequal size.
  const Session& session = test::session();
  const auto over_mpi = [](MPI_Comm lane) -> std::unique_ptr<Transport> {
    return lane == MPI_COMM_NULL ? nullptr : std::make_unique<MpiTransport>(lane);
  };
  const auto over_rings = [&](MPI_Comm lane) -> std::unique_ptr<Transport> {
    return lane == MPI_COMM_NULL ? nullptr : std::make_unique<RingTransport>(session, lane);
  };
  for (const MakeLane& make_lane : {MakeLane(over_mpi), MakeLane(over_rings)})
    for (const int node_of : {session.rank() / 2, session.rank() / 3}) {
      MPI_Comm node = MPI_COMM_NULL;
      MPI_Comm_split(session.world(), node_of, session.rank(), &node);
      {
        TwoLevelTransport transport(session.world(), node, make_lane);
        const auto memory = transport.allocate(kMost * sizeof(float));
        std::vector<float> elsewhere(kMost);
        for (const std::size_t count : kCounts) {
          if (memory) check_sums(transport, values(memory, count));  // else there is no room
          check_sums(transport, std::span(elsewhere).first(count));
        }
        check_rooted(transport);
      }
      MPI_Comm_free(&node);
    }
}

TEST_CASE("shm: memory that all ranks have let go is taken again, other memory is not") {
  ShmTransport transport(test::session().node());
  auto first = transport.allocate(4096);
  const std::byte* address = first.get();
  const auto second = transport.allocate(4096);
  CHECK(second.get() != address);
  // The last rank keeps it: nobody may take it again.
  auto kept = transport.rank() == transport.size() - 1 ? first : nullptr;
  first.reset();
  first = transport.allocate(4096);
  CHECK(first.get() != address);
  kept.reset();
  const auto again = transport.allocate(4096);
  CHECK(again.get() == address);
}

TEST_CASE("shm: memory of about the size is taken again, of twice the size not") {
  ShmTransport transport(test::session().node());
  auto first = transport.allocate(1 << 20);
  const std::byte* address = first.get();
  first.reset();
  auto much_less = transport.allocate(100'000);
  CHECK(much_less.get() != address);
  first = transport.allocate((1 << 20) - 1000);
  CHECK(first.get() == address);
  first.reset();
  CHECK(transport.allocate((1 << 20) + 1).get() != address);
}

TEST_CASE("ring: a mean in half precision is within its range wherever the values are" *
          test::several_ranks()) {
  RingTransport transport(test::session(), test::session().world());
  std::vector<float> values(1000, 60'000);
  Collective mean = Collective::all_reduce(values, Scale::kAverage);
  mean.wire = ValueType::kFloat16;
  transport.run(mean);
  CHECK(*std::ranges::max_element(values) == doctest::Approx(60'000).epsilon(0.001));
  CHECK(*std::ranges::min_element(values) == doctest::Approx(60'000).epsilon(0.001));
}

TEST_CASE("shm: what is allocated has its pages before anybody writes to it") {
  ShmTransport transport(test::session().node());
  constexpr std::size_t kBytes = std::size_t{4} << 20;
  const auto memory = transport.allocate(kBytes);
  REQUIRE(memory);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(memory.get()) / page * page;
  std::vector<unsigned char> resident(kBytes / page);
  REQUIRE(mincore(reinterpret_cast<void*>(first), kBytes, resident.data()) == 0);
  CHECK(std::count_if(resident.begin(), resident.end(), [](unsigned char one) {
          return one % 2 == 1;
        }) == static_cast<std::ptrdiff_t>(resident.size()));
}

TEST_CASE("messages longer than MPI counts travel in pieces" * test::several_ranks()) {
  const Session& session = test::session();
  const auto byte_at = [](std::size_t i) { return static_cast<std::byte>(i % 251); };
  std::vector<std::byte> expected(1'007);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = byte_at(i);
  for (const std::size_t piece :
       {std::size_t{1}, std::size_t{100}, expected.size(), kPiece_bytes}) {
    CAPTURE(piece);
    auto data = session.root() ? expected : std::vector<std::byte>(expected.size());
    broadcast_bytes(data, 0, session.world(), piece);
    CHECK((data == expected));
    auto moved = session.root() ? expected : std::vector<std::byte>(expected.size());
    if (session.rank() < 2) move_bytes(moved, 0, 1, session.world(), piece);
    CHECK((session.rank() > 1 || moved == expected));
  }
}

TEST_CASE("ring: what fails on one rank is thrown on all, with that rank's name" *
          test::several_ranks()) {
  constexpr const char* kPort = "OMPI_MCA_btl_tcp_port_min_v4";
  const Session& session = test::session();
  const int last = session.size() - 1;
  if (session.rank() == last) setenv(kPort, "none", 1);
  std::string what;
  try {
    RingTransport(session, session.world());
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kUsage);
    what = error.what();
  }
  unsetenv(kPort);
  CHECK(what.find("OMPI_MCA_btl_tcp_port_min_v4 = none is not a number") != std::string::npos);
  const std::string named = "rank " + std::to_string(last) + " (";
  CHECK((session.rank() == last || what.starts_with(named)));
  // And nobody waits for anybody: the next one is joined.
  RingTransport transport(session, session.world());
  std::vector<float> data(1000);
  check_sums(transport, data);
}

namespace {

/// What was broadcast as bytes, while it is there.
std::set<std::string>* broadcasts = nullptr;

}  // namespace

/// In place of MPI's, by its profiling interface.
extern "C" int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  const int code = PMPI_Bcast(data, count, type, root, comm);
  if (broadcasts != nullptr && type == MPI_BYTE)
    broadcasts->insert(
        std::string(static_cast<const char*>(data), static_cast<std::size_t>(count)));
  return code;
}

TEST_CASE("ring: each has a secret of its own" * test::several_ranks()) {
  std::set<std::string> secrets;
  broadcasts = &secrets;
  for (int i = 0; i < 2; ++i)
    RingTransport(test::session(), test::session().world());
  broadcasts = nullptr;
  CHECK(secrets.size() == 2);
}

TEST_CASE("what the root chose is counted on its way to each rank" * test::several_ranks()) {
  const Session& session = test::session();
  const auto at = static_cast<std::size_t>(Traffic::kControl);
  const RankTraffic before = session.ledger().total();
  const std::string why = agree_on_gpus(session, {}).choice.why;
  const auto received = session.ledger().total().received_bytes[at] - before.received_bytes[at];
  // The reason and its frame, beside which all else is numbers.
  if (!session.root()) CHECK(received > static_cast<std::int64_t>(why.size()) + 24);
}
