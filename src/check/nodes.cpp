#include <sys/utsname.h>

#include <filesystem>
#include <fstream>

#include "check/facts.h"

namespace gradsync::check {

namespace {

namespace fs = std::filesystem;
std::string kernel() {
  utsname name{};
  return ::uname(&name) == 0 ? name.release : "unknown";
}

std::map<std::string, int> read_mtus() {
  std::map<std::string, int> mtus;
  std::error_code error;
  for (fs::directory_iterator entry("/sys/class/net", error), end; !error && entry != end;
       entry.increment(error)) {
    int mtu = 0;
    const std::string name = entry->path().filename().string();
    if (name != "lo" && std::ifstream(entry->path() / "mtu") >> mtu) mtus[name] = mtu;
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
