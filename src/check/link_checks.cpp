// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "base/parse.h"
#include "check/check.h"
#include "machine/gpus.h"
#include "machine/host.h"
#include "stats/bandwidth.h"
#include "stats/clock.h"
#include "stats/statistics.h"
#include "transport/trial_sum.h"

namespace gradsync::check {

namespace {

/// Beyond it, times of files and logs of two nodes appear in the wrong order.
constexpr double kMostApart_s = 0.5;
/// Beyond it, a straggler's wait is within the error of the clocks.
constexpr double kMostUncertain_s = 1e-3;

double wall_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Finding judge_day(const Ranks<ClockFacts>& ranks) {
  const std::string id = "clocks.time-of-day";
  std::vector<std::string> apart;
  std::set<std::string> hosts;
  double most_s = 0;
  for (const auto& rank : ranks) {
    if (!hosts.insert(rank.host).second) continue;
    const double ahead = ahead_s(rank.facts, ranks.front().facts);
    most_s = std::max(most_s, std::abs(ahead));
    if (!(std::abs(ahead) <= kMostApart_s))
      apart.push_back(fmt::format("{} is {:+.3f} s ± {} from {}", rank.host, ahead,
                                  format_duration(rank.facts.uncertainty_s), ranks.front().host));
  }
  if (hosts.size() == 1) return skipped(id, "one host");
  if (!apart.empty())
    return warned(id, first_few(apart),
                  "as root on these nodes: chronyc makestep, or systemctl restart chronyd");
  return passed(
      id, fmt::format("{} within {}", count_text(hosts.size(), "host"), format_duration(most_s)));
}

Finding judge_alignment(const Ranks<ClockFacts>& ranks) {
  const std::string id = "clocks.alignment";
  if (ranks.size() == 1) return skipped(id, "one rank");
  const auto worst = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return a.facts.uncertainty_s < b.facts.uncertainty_s;
  });
  const std::string seen = fmt::format("aligned to ± {:.1f} µs, least well {}",
                                       worst->facts.uncertainty_s * 1e6, worst->name());
  if (worst->facts.uncertainty_s <= kMostUncertain_s) return passed(id, seen);
  return warned(id, seen,
                "a slow link or a busy host: see `links` and `binding`; waits shorter than this "
                "are within the clock error");
}

}  // namespace

double ahead_s(const ClockFacts& facts, const ClockFacts& of_root) {
  return facts.wall_minus_steady_s - of_root.wall_minus_steady_s - facts.offset_s;
}

std::vector<Finding> judge_clocks(const Ranks<ClockFacts>& ranks) {
  return {judge_day(ranks), judge_alignment(ranks)};
}

CheckResult check_clocks(Job& job, const CheckOptions&) {
  const SteadyOffset reading = job.read_clock();
  const ClockFacts mine{wall_now_s() - now_s(), reading.offset_s, reading.uncertainty_s};
  return judged(job, mine,
                [](const Ranks<ClockFacts>& ranks) { return CheckResult{judge_clocks(ranks)}; });
}

namespace {

constexpr int kRepetitions = 8;
constexpr int kMostHostsInPairs = 12;
constexpr std::size_t kSwapped = (std::size_t{1} << 20) / sizeof(float);
constexpr double kSlow = 0.5;  ///< of the median of the links
constexpr std::size_t kLinksShown = 12;

namespace fs = std::filesystem;

std::string slot_text(const fs::path& device, const std::string& which) {
  return fmt::format("x{} {}", line_of(device / (which + "_link_width")),
                     line_of(device / (which + "_link_speed")));
}

void add_narrow(const std::string& name, const fs::path& device, bool speed_counts,
                std::vector<NarrowSlot>& narrow) {
  const auto below = [&](const std::string& what) {
    const double now = number_in(device / ("current_link_" + what));
    return now > 0 && now < number_in(device / ("max_link_" + what));
  };
  if (below("width") || (speed_counts && below("speed")))
    narrow.push_back({name, slot_text(device, "current"), slot_text(device, "max")});
}

/// The value that `number` is in `unit`, with three significant digits.
std::string three_digits(double number, const char* unit) {
  // What rounds up to the next power of ten has one digit more.
  const int whole = number > 0 ? static_cast<int>(std::floor(std::log10(number * 1.0005))) : 0;
  return fmt::format("{:.{}f} {}", number, std::clamp(2 - whole, 0, 9), unit);
}

std::int64_t wrong_sums(const std::vector<float>& values, int ranks) {
  const int factor = trial_sum::factor_of_all(ranks);
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    wrong += !(values[i] == trial_sum::value(factor, i));
  return wrong;
}

/// Shortest of a few sums of `bytes`; adds the wrong values to `wrong`.
double time_sum(Job& job, std::int64_t bytes, std::int64_t& wrong) {
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    auto values = trial_sum::values(trial_sum::factor_of(job.place().rank),
                                    static_cast<std::size_t>(bytes) / sizeof(float));
    job.meet();
    const Stopwatch watch;
    job.sum(values);
    best_s = std::min(best_s, watch.elapsed_s());
    wrong += wrong_sums(values, job.place().size);
  }
  return best_s;
}

CheckResult check_sums(Job& job) {
  SumFacts mine;
  mine.small_s = time_sum(job, kSmallSum_bytes, mine.wrong);
  mine.large_s = time_sum(job, kLargeSum_bytes, mine.wrong);
  return judged(job, mine, [](const auto& ranks) { return CheckResult{{judge_sums(ranks)}}; });
}

/// Shortest exchange of `count` values with `peer`.
double time_swap(Job& job, int peer, std::size_t count, std::int64_t& wrong) {
  using trial_sum::factor_of;
  const auto out = trial_sum::values(factor_of(job.place().rank), count);
  const auto expected = trial_sum::values(factor_of(peer), count);
  double best_s = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRepetitions; ++i) {
    std::vector<float> in(count);
    const Stopwatch watch;
    job.swap(peer, out, in);
    best_s = std::min(best_s, watch.elapsed_s());
    for (std::size_t value = 0; value < count; ++value)
      wrong += !(in[value] == expected[value]);
  }
  return best_s;
}

struct Leader {
  int rank = 0;
  std::string host;
  NominalRate nominal;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Leader, rank, host, nominal)

/// The first rank of each host, on all ranks.
std::vector<Leader> leaders(Job& job, const fs::path& sysfs) {
  std::vector<Leader> found;
  Leader mine{job.place().local_rank, "", {}};
  if (mine.rank == 0) mine.nominal = nominal_rate(sysfs);
  for (const auto& one : gather_facts(job, mine))
    if (one.facts.rank == 0) found.push_back({one.rank, one.host, one.facts.nominal});
  return nlohmann::json::parse(job.broadcast(nlohmann::json(found).dump()))
      .get<std::vector<Leader>>();
}

/// Facts of a pair: both ends measure; the first one's numbers count, and wrong values of either.
std::vector<LinkFacts> measure_links(Job& job, const std::vector<Leader>& hosts) {
  std::vector<LinkFacts> mine;
  for (const auto& [a, b] : pairs_to_measure(static_cast<int>(hosts.size()))) {
    const Leader &first = hosts[static_cast<std::size_t>(a)],
                 &second = hosts[static_cast<std::size_t>(b)];
    const int rank = job.place().rank;
    if (rank == first.rank || rank == second.rank) {
      const bool first_slower = first.nominal.rate_Bps <= second.nominal.rate_Bps;
      LinkFacts link{first.host + " and " + second.host, 0, 0, 0,
                     (first_slower ? first : second).nominal};
      const int peer = rank == first.rank ? second.rank : first.rank;
      link.latency_s = time_swap(job, peer, 1, link.wrong);
      link.bandwidth_Bps = static_cast<double>(kSwapped * sizeof(float)) /
                           time_swap(job, peer, kSwapped, link.wrong);
      if (rank == first.rank || link.wrong > 0) mine.push_back(link);
    }
    job.meet();
  }
  return mine;
}

std::string text_of(const LinkFacts& link) {
  return fmt::format("{}: {}, {:.1f} µs", link.hosts, rate_text(link.bandwidth_Bps),
                     link.latency_s * 1e6);
}

/// Share of the nominal rate; NaN where that is not known.
double share_of(const LinkFacts& link) {
  return link.nominal.rate_Bps > 0 ? link.bandwidth_Bps / link.nominal.rate_Bps
                                   : std::numeric_limits<double>::quiet_NaN();
}

/// GB/s to three significant digits.
Cell rate_cell(double rate_Bps) {
  const double rate = rate_Bps / kGB;
  const int whole = rate > 0 ? static_cast<int>(std::floor(std::log10(rate))) : 0;
  return Cell::of(rate, std::clamp(2 - whole, 3, 9));
}

Table link_table(const std::vector<LinkFacts>& by_bandwidth) {
  Table table{"links", "Links between hosts, slowest first", {}, {}, {}};
  table.columns = {{"hosts", "hosts", true},     {"bandwidth_GBps", "GB/s"},
                   {"latency_us", "µs"},         {"nominal_GBps", "nominal GB/s"},
                   {"share_percent", "share %"}, {"port", "port", true}};
  for (const LinkFacts& link : by_bandwidth)
    if (table.rows.size() < kLinksShown)
      table.add({link.hosts, rate_cell(link.bandwidth_Bps), Cell::of(link.latency_s * 1e6, 1),
                 Cell::of(link.nominal.rate_Bps > 0 ? link.nominal.rate_Bps / kGB
                                                    : std::numeric_limits<double>::quiet_NaN(),
                          3),
                 Cell::of(1e2 * share_of(link), 1), link.nominal.name});
  table.notes = {
      "each way, both ways at once; 1 MiB for the bandwidth, 4 B for the latency; "
      "shortest of 8; GB = 1e9 B; nominal: of the fastest active port of the slower host, as the "
      "kernel states it"};
  return table;
}

double median_bandwidth(const std::vector<LinkFacts>& links) {
  std::vector<double> values;
  for (const LinkFacts& link : links)
    values.push_back(link.bandwidth_Bps);
  return statistics(values).median;
}

Finding judge_slowest(const std::vector<LinkFacts>& by_bandwidth) {
  const std::string id = "links.hosts";
  const LinkFacts& slowest = by_bandwidth.front();
  const double median_Bps = median_bandwidth(by_bandwidth);
  const std::string seen = fmt::format("{} links, slowest {}; median {}", by_bandwidth.size(),
                                       text_of(slowest), rate_text(median_Bps));
  if (by_bandwidth.size() > 2 && slowest.bandwidth_Bps < kSlow * median_Bps)
    return warned(id, seen,
                  "check cable, port and routes of these two (ethtool, ibstat), or exclude the "
                  "host: --exclude=HOST");
  return passed(id, seen);
}

/// The link that has the least of its nominal rate.
Finding judge_nominal(const std::vector<LinkFacts>& links, double least_share) {
  const std::string id = "links.nominal";
  const LinkFacts* worst = nullptr;
  for (const LinkFacts& link : links)
    if (link.nominal.rate_Bps > 0 && (!worst || share_of(link) < share_of(*worst))) worst = &link;
  if (!worst)
    return skipped(id, "no port states its rate in /sys/class/infiniband or /sys/class/net");
  const std::string seen = fmt::format("{} has {} each way, {:.0f} % of {} of {}", worst->hosts,
                                       rate_text(worst->bandwidth_Bps), 1e2 * share_of(*worst),
                                       rate_text(worst->nominal.rate_Bps), worst->nominal.name);
  const std::string fix =
      "see which interface MPI uses (UCX_NET_DEVICES, OMPI_MCA_btl_tcp_if_include), then cable, "
      "switch and routes; gradsync-calibrate --collective sendrecv for larger messages";
  if (least_share > 0 && share_of(*worst) < least_share) return failed(id, seen, fix);
  return least_share <= 0 && share_of(*worst) < kSlow ? warned(id, seen, fix) : passed(id, seen);
}

/// NVLinks of the GPU that this rank drives.
NvlinkFacts nvlink_facts(const Job& job, const CheckOptions& options) {
  const auto gpus = job.gpus();
  const int chosen = gpu_index(job.place().local_rank, gpus.size(), options.allow_shared_gpu);
  if (options.device == "cpu" || chosen < 0) return {};
  const GpuDevice& gpu = gpus[static_cast<std::size_t>(chosen)];
  const auto monitor = job.gpu_monitor(gpu.uuid);
  const GpuLinks links = monitor ? monitor->links() : GpuLinks{};
  return {gpu.name, links.nvlinks, links.all_nvlinks, links.nvlink_Bps > 0 ? links.nvlink_Bps : 0};
}

/// What all links of each kind of GPU have at the highest rate of any.
std::map<std::string, NvlinkFacts> nominal_nvlinks(const Ranks<NvlinkFacts>& ranks) {
  std::map<std::string, NvlinkFacts> nominal;
  for (const auto& rank : ranks) {
    NvlinkFacts& best = nominal[rank.facts.gpu];
    best.up = best.all = std::max({0, best.all, rank.facts.all});
    best.rate_Bps = std::max(best.rate_Bps, rank.facts.rate_Bps);
  }
  return nominal;
}

/// Share of the links and of their rate, where that is known; 1 for a GPU without NVLink.
double share_of(const NvlinkFacts& gpu, const NvlinkFacts& nominal) {
  if (nominal.up == 0 || gpu.up < 0) return 1;
  const double rate = gpu.rate_Bps > 0 ? gpu.rate_Bps / nominal.rate_Bps : 1;
  return rate * gpu.up / nominal.up;
}

std::string text_of(const NvlinkFacts& gpu) {
  const std::string links = fmt::format("{} of {} NVLinks up", gpu.up, gpu.all);
  if (!(gpu.rate_Bps > 0)) return links;
  return fmt::format("{}, {} each way", links, rate_text(gpu.up * gpu.rate_Bps));
}

/// "NVIDIA H100: 18 of 18 NVLinks up, 478 GB/s each way", of the kinds that have any.
std::vector<std::string> texts_of(const std::map<std::string, NvlinkFacts>& nominal) {
  std::vector<std::string> texts;
  for (const auto& [kind, links] : nominal)
    if (links.all > 0) texts.push_back(kind + ": " + text_of(links));
  return texts;
}

}  // namespace

Finding judge_nvlinks(const Ranks<NvlinkFacts>& ranks, double least_share) {
  const std::string id = "links.nvlink";
  // Cards without a bridge between them have links that lead nowhere.
  if (std::ranges::none_of(ranks, [](const auto& rank) { return rank.facts.up > 0; }))
    return skipped(id, "no GPU has an NVLink that is up");
  const auto nominal = nominal_nvlinks(ranks);
  std::vector<std::string> lacking, unknown;
  double least = 1;
  for (const auto& rank : ranks) {
    if (rank.facts.up < 0 && nominal.at(rank.facts.gpu).up > 0) unknown.push_back(rank.name());
    const double share = share_of(rank.facts, nominal.at(rank.facts.gpu));
    least = std::min(least, share);
    if (share < 1)
      lacking.push_back(fmt::format("{}: {}, {:.0f} % of what {} has", rank.name(),
                                    text_of(rank.facts), 1e2 * share, rank.facts.gpu));
  }
  if (lacking.empty()) {
    const std::string seen = fmt::format("{}", fmt::join(texts_of(nominal), "; "));
    if (unknown.empty()) return passed(id, seen);
    return skipped(id, fmt::format("{}; NVML does not say of {}", seen, first_few(unknown)));
  }
  const std::string fix =
      "nvidia-smi nvlink --status on that host, its kernel log (Xid 74) and Fabric Manager; cards "
      "with bridges may have links that lead nowhere";
  return least < least_share ? failed(id, first_few(lacking), fix)
                             : warned(id, first_few(lacking), fix);
}

std::vector<NarrowSlot> narrow_slots(const fs::path& sysfs) {
  std::vector<NarrowSlot> narrow;
  for (const char* kind : {"class/infiniband", "class/net"})
    for (const fs::path& entry : entries_of(sysfs / kind))
      add_narrow(entry.filename().string(), entry / "device", true, narrow);
  for (const fs::path& device : entries_of(sysfs / "bus/pci/devices"))
    if (line_of(device / "vendor") == "0x10de" && line_of(device / "class").starts_with("0x03"))
      add_narrow("GPU " + device.filename().string(), device, false, narrow);
  return narrow;
}

std::string rate_text(double rate_Bps) {
  if (!(rate_Bps < 0.9995e9)) return three_digits(rate_Bps / 1e9, "GB/s");
  return rate_Bps < 0.9995e6 ? three_digits(rate_Bps / 1e3, "kB/s")
                             : three_digits(rate_Bps / 1e6, "MB/s");
}

Finding judge_slots(const Ranks<SlotFacts>& ranks) {
  std::vector<std::string> narrow;
  for (const auto& rank : ranks)
    for (const NarrowSlot& slot : rank.facts.narrow)
      narrow.push_back(
          fmt::format("{}: {} has {} of {}", rank.host, slot.device, slot.now, slot.largest));
  if (narrow.empty()) return passed("links.pcie", "no device has fewer lanes than it could use");
  return warned("links.pcie", first_few(narrow),
                "reseat the card or use another slot (lspci -vv, LnkSta against LnkCap)");
}

std::vector<std::pair<int, int>> pairs_to_measure(int hosts) {
  std::vector<std::pair<int, int>> pairs;
  const bool all = hosts <= kMostHostsInPairs;
  for (int a = 0; all && a < hosts; ++a)
    for (int b = a + 1; b < hosts; ++b)
      pairs.emplace_back(a, b);
  for (int a = 0; !all && a < hosts; ++a)
    pairs.emplace_back(std::min(a, (a + 1) % hosts), std::max(a, (a + 1) % hosts));
  return pairs;
}

Finding judge_sums(const Ranks<SumFacts>& ranks) {
  const std::string id = "links.sum";
  if (ranks.size() == 1) return skipped(id, "one rank");
  std::vector<std::string> wrong;
  double small_s = 0, large_s = 0;
  for (const auto& rank : ranks) {
    small_s = std::max(small_s, rank.facts.small_s);
    large_s = std::max(large_s, rank.facts.large_s);
    if (rank.facts.wrong != 0)
      wrong.push_back(fmt::format("{}: {} wrong values", rank.name(), rank.facts.wrong));
  }
  if (!wrong.empty())
    return failed(id, "sums over all ranks are wrong: " + first_few(wrong),
                  "do not use results of these ranks; try another MPI version or transport (mpirun "
                  "--mca btl self,tcp), then exclude hosts one by one");
  const double bus_Bps = busbw(CollectiveKind::kAllReduce, static_cast<double>(kLargeSum_bytes),
                               static_cast<int>(ranks.size()), large_s);
  return passed(id, fmt::format("allreduce over {} is right: {} in {:.0f} µs, {} in {:.2f} "
                                "ms ({} busbw)",
                                count_text(ranks.size(), "rank"), format_bytes(kSmallSum_bytes),
                                small_s * 1e6, format_bytes(kLargeSum_bytes), large_s * 1e3,
                                rate_text(bus_Bps)));
}

CheckResult judge_links(const std::vector<LinkFacts>& links, double least_share) {
  const std::string id = "links.hosts";
  if (links.empty()) return {{skipped(id, "one host")}};
  std::vector<std::string> wrong;
  for (const LinkFacts& link : links)
    if (link.wrong != 0)
      wrong.push_back(fmt::format("{}: {} wrong values", link.hosts, link.wrong));
  if (!wrong.empty())
    return {{failed(id, "received data differs from what was sent: " + first_few(wrong),
                    "exclude one of the two hosts (--exclude=HOST) and have its link checked")}};
  auto by_bandwidth = links;
  std::sort(by_bandwidth.begin(), by_bandwidth.end(),
            [](const auto& a, const auto& b) { return a.bandwidth_Bps < b.bandwidth_Bps; });
  return {{judge_slowest(by_bandwidth), judge_nominal(by_bandwidth, least_share)},
          {link_table(by_bandwidth)}};
}

CheckResult check_links(Job& job, const CheckOptions& options) {
  CheckResult result = check_sums(job);
  const CheckResult pairs =
      judged(job, measure_links(job, leaders(job, options.sysfs)), [&](const auto& ranks) {
        std::vector<LinkFacts> links;
        for (const auto& rank : ranks)
          links.insert(links.end(), rank.facts.begin(), rank.facts.end());
        return judge_links(links, options.least_link);
      });
  SlotFacts mine;
  if (job.place().local_rank == 0) mine = {true, narrow_slots(options.sysfs)};
  const CheckResult slots =
      judged(job, mine, [](const auto& ranks) { return CheckResult{{judge_slots(ranks)}}; });
  const CheckResult nvlinks =
      judged(job, nvlink_facts(job, options), [&](const Ranks<NvlinkFacts>& ranks) {
        return CheckResult{{judge_nvlinks(ranks, options.least_link)}};
      });
  for (const CheckResult* more : {&pairs, &slots, &nvlinks})
    result.findings.insert(result.findings.end(), more->findings.begin(), more->findings.end());
  result.tables = pairs.tables;
  return result;
}

namespace {

/// Why no communicator of NCCL's can be made of these ranks; empty: it can.
std::string nccl_obstacle(const Ranks<DeviceFacts>& ranks, const CheckOptions& options) {
  if (!options.may_use_nccl()) return "--transport " + options.transport;
  std::vector<DeviceFacts> all;
  for (const auto& rank : ranks)
    all.push_back(rank.facts);
  try {
    const DeviceChoice choice = choose_device({options.device, options.allow_shared_gpu}, all);
    if (!choice.cuda) return choice.why.empty() ? "--device cpu" : choice.why;
    if (choice.shared) return "ranks share a GPU";
    if (choice.instances) return "instances of a GPU (MIG), which NCCL refuses";
    return choice.apart;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Finding judge_nccl(const Ranks<NcclTrial>& ranks) {
  const std::string id = "nccl.sum";
  std::vector<std::string> wrong;
  double time_s = 0;
  for (const auto& rank : ranks) {
    if (!rank.facts.right) wrong.push_back(rank.name());
    time_s = std::max(time_s, rank.facts.time_s);
  }
  if (!wrong.empty())
    return failed(id, "wrong values of an allreduce on " + first_few(wrong),
                  "NCCL_P2P_DISABLE=1, then NCCL_NVLS_ENABLE=0 and NCCL_IB_DISABLE=1, show which "
                  "way is broken; --transport mpi does without NCCL");
  const std::string& chosen = ranks.front().facts.chosen;
  const std::string more = chosen.empty() ? "" : "; " + chosen;
  if (ranks.size() == 1) return passed(id, "a communicator of one rank" + more);
  const auto n = static_cast<double>(ranks.size());
  constexpr auto kBytes = static_cast<double>(kNcclTrialBytes);
  return passed(
      id, fmt::format("64 MiB over {} in {:.2f} ms, busbw {}{}", count_text(ranks.size(), "rank"),
                      1e3 * time_s, rate_text(busbw(CollectiveKind::kAllReduce, kBytes, n, time_s)),
                      more));
}

CheckResult check_nccl_sum(Job& job, const CheckOptions& options) {
  const DeviceFacts mine = job.devices(options.allow_shared_gpu);
  const auto ranks = gather_facts(job, mine);
  const std::string why = job.broadcast(ranks.empty() ? "" : nccl_obstacle(ranks, options));
  if (!why.empty()) return ranks.empty() ? CheckResult{} : CheckResult{{skipped("nccl.sum", why)}};
  const int index = gpu_index(mine.local_rank, mine.gpus.size(), options.allow_shared_gpu);
  return judged(job, job.sum_on_gpus(index),
                [](const Ranks<NcclTrial>& trials) { return CheckResult{{judge_nccl(trials)}}; });
}

}  // namespace gradsync::check
