// SPDX-License-Identifier: BSD-3-Clause
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/ranges.h>

#include "base/parse.h"
#include "check/check.h"

namespace gradsync::check {

namespace {

const std::string kOpenMpi = "Open MPI";
/// Open MPI's launcher and its programs both load this one.
const std::string kMpiLibrary = "libopen-pal.so";

bool is_open_mpi(const LaunchFacts& facts) {
  return facts.mpi_library.find(kOpenMpi) != std::string::npos;
}

std::string how_to_start(int ranks) {
  return fmt::format("srun --mpi=pmix -n {0} gradsync-check …, or mpirun -n {0} gradsync-check …",
                     ranks);
}

/// Reason why a process is rank 0 of 1 where there should be more.
std::string why_alone(const LaunchFacts& facts) {
  const Launcher& launcher = facts.launcher;
  if (launcher.name.empty()) return "it was started without srun or mpirun";
  return fmt::format("{} started it, but {} does not find the other ranks: no PMIx, or another MPI",
                     launcher.name, facts.mpi_library);
}

Finding judge_size(const LaunchFacts& facts, const CheckOptions& options) {
  const Launcher& launcher = facts.launcher;
  const std::string id = "launch.ranks";
  if (facts.ranks == 1 && launcher.ranks > 1)
    return failed(id,
                  fmt::format("this is rank 0 of 1, but {} says {}: {}", launcher.ranks_from,
                              count_text(launcher.ranks, "rank"), why_alone(facts)),
                  how_to_start(launcher.ranks));
  if (launcher.ranks > 1 && facts.ranks != launcher.ranks)
    return failed(id,
                  fmt::format("{} by MPI, {} by {}", count_text(facts.ranks, "rank"),
                              launcher.ranks, launcher.ranks_from),
                  how_to_start(launcher.ranks));
  if (options.ranks > 0 && facts.ranks != options.ranks)
    return failed(
        id, fmt::format("{}, --ranks says {}", count_text(facts.ranks, "rank"), options.ranks),
        how_to_start(options.ranks));
  const std::string by = launcher.name.empty() ? "without a launcher" : "by " + launcher.name;
  return passed(id,
                fmt::format("{} {}, {}", count_text(facts.ranks, "rank"), by, facts.mpi_library));
}

Finding judge_library(const LaunchFacts& facts) {
  const std::string id = "launch.mpi";
  const bool open_mpi = is_open_mpi(facts);
  const std::string& by = facts.launcher.name;
  if (by.empty()) return skipped(id, "no launcher");
  if ((by == "mpirun" && !open_mpi) || (by == "mpiexec" && open_mpi))
    return failed(id, fmt::format("started by {} of another MPI than {}", by, facts.mpi_library),
                  "start with the mpirun of the MPI in use (`make status` says which), or build "
                  "with the other: make MPICXX=…");
  if (facts.mpi_path.empty() || facts.launcher_path.empty())
    return skipped(
        id, "the libraries of the launcher cannot be read, or are those outside of a container");
  if (facts.mpi_path != facts.launcher_path)
    return warned(id,
                  fmt::format("the launcher runs on {}, the ranks on {}", facts.launcher_path,
                              facts.mpi_path),
                  "load one MPI only: same module, same PATH and LD_LIBRARY_PATH");
  return passed(id, "launcher and ranks use the same MPI");
}

Finding judge_pmix(const LaunchFacts& facts) {
  const std::string id = "launch.pmix";
  if (facts.launcher.name != "srun") return skipped(id, "not started by srun");
  if (facts.launcher.pmix) return passed(id, "srun gives PMIx");
  const bool all = facts.ranks >= facts.launcher.ranks;
  if (all && !is_open_mpi(facts)) return passed(id, "srun connects the ranks without PMIx");
  if (!all) return failed(id, "srun without PMIx", kSrunFix);
  return warned(id, "srun without PMIx; the ranks were connected by other means", kSrunFix);
}

}  // namespace

std::vector<Finding> judge_launch(const LaunchFacts& facts, const CheckOptions& options) {
  return {judge_size(facts, options), judge_library(facts), judge_pmix(facts)};
}

CheckResult check_launch(Job& job, const CheckOptions& options) {
  if (job.place().rank != 0) return {};
  LaunchFacts facts{job.launcher(), job.place().size, "", "", ""};
  for (const Library& library : job.libraries())
    if (library.name == "MPI") facts.mpi_library = library.loaded;
  facts.mpi_path = loaded_path(kMpiLibrary);
  facts.launcher_path = path_in_ancestors(kMpiLibrary);
  return {judge_launch(facts, options)};
}

namespace {

struct Host {
  std::string name;
  std::vector<int> ranks;
  std::set<std::string> cores;
};

std::vector<Host> hosts_of(const Ranks<RankFacts>& ranks) {
  std::vector<Host> hosts;
  for (const auto& one : ranks) {
    auto host = std::find_if(hosts.begin(), hosts.end(),
                             [&](const Host& known) { return known.name == one.host; });
    if (host == hosts.end()) host = hosts.insert(host, {one.host, {}, {}});
    host->ranks.push_back(one.rank);
    host->cores.insert(one.facts.cores);
  }
  return hosts;
}

Table host_table(const std::vector<Host>& hosts) {
  Table table{"hosts", "Hosts", {}, {}, {}};
  table.columns = {{"host", "host", true},
                   {"ranks", "ranks"},
                   {"numbers", "rank numbers", true},
                   {"cores", "cores of the ranks", true}};
  for (const Host& host : hosts)
    table.add({host.name, Cell::count(static_cast<double>(host.ranks.size())),
               fmt::format("{}", fmt::join(host.ranks, " ")),
               fmt::format("{}", fmt::join(host.cores, " | "))});
  return table;
}

/// The hosts that do not have `expected` ranks, with what they have.
std::vector<std::string> others(const std::vector<Host>& hosts, std::size_t expected) {
  std::vector<std::string> texts;
  for (const Host& host : hosts)
    if (host.ranks.size() != expected)
      texts.push_back(fmt::format("{} has {}", host.name, host.ranks.size()));
  return texts;
}

Finding judge_hosts(const std::vector<Host>& hosts, const CheckOptions& options) {
  const std::string id = "ranks.per-node";
  const auto asked = static_cast<std::size_t>(options.ranks_per_node);
  const std::string fix =
      "give --nodes and --ntasks-per-node both to sbatch or srun (the latter alone is only a "
      "maximum); mpirun --map-by ppr:N:node";
  if (asked > 0) {
    const auto wrong = others(hosts, asked);
    if (!wrong.empty())
      return failed(id, fmt::format("--ranks-per-node says {}: {}", asked, first_few(wrong)), fix);
  }
  const std::size_t first = hosts.front().ranks.size();
  const auto uneven = others(hosts, first);
  if (!uneven.empty())
    return warned(id,
                  fmt::format("hosts have different numbers of ranks: {} has {}, {}",
                              hosts.front().name, first, first_few(uneven)),
                  fix);
  const std::string of_each = count_text(first, "rank");
  return passed(id, hosts.size() == 1 ? "1 host with " + of_each
                                      : fmt::format("{} with {} each",
                                                    count_text(hosts.size(), "host"), of_each));
}

}  // namespace

CheckResult judge_ranks(const Ranks<RankFacts>& ranks, const CheckOptions& options) {
  const auto hosts = hosts_of(ranks);
  return {{judge_hosts(hosts, options)}, {host_table(hosts)}};
}

CheckResult check_ranks(Job& job, const CheckOptions& options) {
  const RankFacts mine{job.place().local_rank, job.place().cores};
  return judged(job, mine, [&](const auto& ranks) { return judge_ranks(ranks, options); });
}

namespace {

namespace fs = std::filesystem;
std::string kernel() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "unknown";
}

std::map<std::string, int> read_mtus() {
  std::map<std::string, int> mtus;
  for (const fs::path& interface : entries_of("/sys/class/net")) {
    int mtu = 0;
    const std::string name = interface.filename().string();
    if (name != "lo" && std::ifstream(interface / "mtu") >> mtu) mtus[name] = mtu;
  }
  return mtus;
}

/// Values of `value` that differ from the first host's.
template <typename Value>
Finding judge_equal(const std::string& id, const Ranks<NodeFacts>& hosts, Value&& value,
                    const std::string& fix) {
  std::vector<std::string> others;
  for (const auto& host : hosts)
    if (value(host.facts) != value(hosts.front().facts))
      others.push_back(fmt::format("{} has {}", host.host, value(host.facts)));
  const std::string first =
      fmt::format("{} has {}", hosts.front().host, value(hosts.front().facts));
  if (others.empty()) return passed(id, first + ", as all others");
  return warned(id, first + ", " + first_few(others), fix);
}

/// Interfaces that both hosts have, with different MTUs.
Finding judge_mtus(const Ranks<NodeFacts>& hosts) {
  const std::string id = "nodes.mtu";
  std::vector<std::string> others;
  for (const auto& [name, mtu] : hosts.front().facts.mtu_of)
    for (const auto& host : hosts) {
      const auto theirs = host.facts.mtu_of.find(name);
      if (theirs != host.facts.mtu_of.end() && theirs->second != mtu)
        others.push_back(fmt::format("{}: {} B on {}, {} B on {}", name, mtu, hosts.front().host,
                                     theirs->second, host.host));
    }
  if (others.empty()) return passed(id, "interfaces of one name have one MTU");
  return warned(id, first_few(others),
                "ip link set dev NAME mtu BYTES as root; large messages may hang between them");
}

}  // namespace

std::vector<Finding> judge_nodes(const Ranks<NodeFacts>& ranks) {
  Ranks<NodeFacts> hosts;
  for (const auto& rank : ranks)
    if (rank.facts.looked) hosts.push_back(rank);
  if (hosts.size() == 1) return {skipped("nodes", "one host")};
  const std::string fix =
      "request nodes of one type (--constraint); the slowest determines the iteration time";
  return {judge_equal(
              "nodes.cpu", hosts, [](const NodeFacts& facts) { return facts.cpu; }, fix),
          judge_equal(
              "nodes.kernel", hosts, [](const NodeFacts& facts) { return facts.kernel; },
              "install the same image on all nodes"),
          judge_mtus(hosts)};
}

CheckResult check_nodes(Job& job, const CheckOptions&) {
  NodeFacts mine;
  if (job.place().local_rank == 0) mine = {true, job.place().cpu, kernel(), read_mtus()};
  return judged(job, mine,
                [](const Ranks<NodeFacts>& ranks) { return CheckResult{judge_nodes(ranks)}; });
}

}  // namespace gradsync::check
