// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/trace_run.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/read/rank_timeline.h"
#include "analysis/read/run_set.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/parse.h"
#include "options/modes.h"
#include "stats/bandwidth.h"
#include "stats/statistics.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostTracedRanks = 65536;
constexpr std::size_t kMostTimes = 32U << 20;  // in memory, 32 bytes each
/// What the clocks of one host may differ by: each process converts its counter by itself.
constexpr double kSameClock_s = 1e-4;
constexpr const char* kUnknown = "unknown";
constexpr std::int64_t kUnknownTraffic = -1;  // NaN to readers of the run

// --- which ranks ---------------------------------------------------------------------------------

/// The number behind "rank" in the name of a file; -1 where there is none.
std::int64_t rank_in_name(const fs::path& path) {
  static const std::regex kRank("rank[-_.]?([0-9]{1,5})");
  std::smatch found;
  const std::string name = path.filename().string();
  return std::regex_search(name, found, kRank) ? std::stoll(found[1].str()) : -1;
}

/// Ranks of the largest group that a collective states; -1 if none does.
std::int64_t largest_group(const TraceEvents& trace) {
  std::int64_t largest = -1;
  for (const TracedCollective& one : trace.collectives)
    largest = std::max(largest, one.facts.group_ranks);
  for (const PostedCollective& one : trace.posted)
    largest = std::max(largest, one.facts.group_ranks);
  return largest;
}

/// Where the trace does not hold them: the rank of its file's name, and as many ranks as the
/// traces, that rank and the groups of its collectives ask for. The number stays unknown where
/// collectives show that there are several ranks, but not how many.
void fill_in_rank(TraceEvents& trace, std::size_t traces) {
  const bool communicates = trace.ddp || !trace.collectives.empty() || !trace.posted.empty();
  const bool of_several = traces > 1 || (communicates && !trace.data_parallel);
  if (!trace.rank && of_several)
    if (const std::int64_t named = rank_in_name(trace.path); named >= 0) trace.rank = named;
  if (!trace.rank && traces > 1)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' does not hold its rank (distributedInfo), and its name has none",
                            trace.path.string()),
                "name it rank0.json, or record it after init_process_group()");
  const std::int64_t rank = trace.rank.value_or(0);
  const std::int64_t ranks = trace.ranks.value_or(
      std::max({static_cast<std::int64_t>(traces), rank + 1, largest_group(trace)}));
  if (ranks < 1 || ranks > kMostTracedRanks || rank < 0 || rank >= ranks)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' is of rank {} of {} ranks; at most {} can be read",
                            trace.path.string(), rank, ranks, kMostTracedRanks),
                "look at distributedInfo in the trace");
  trace.rank = rank;
  if (ranks > 1 || !of_several) trace.ranks = ranks;
}

using RankTimelines = std::map<std::int64_t, RankTimeline>;

/// A collective that states no group is of all ranks, unless the job has other groups.
void settle_groups(RankTimelines& ranks) {
  for (const auto& [rank, timeline] : ranks)
    if (timeline.has_groups) return;
  for (auto& [rank, timeline] : ranks)
    for (TimelineIteration& iteration : timeline.iterations)
      for (TimelineCollective& collective : iteration.collectives)
        if (collective.facts.group_ranks < 0) collective.facts.group_ranks = timeline.ranks;
}

RankTimelines read_all(const std::vector<fs::path>& traces, const AboutToRead& about_to_read) {
  RankTimelines ranks;
  for (std::size_t i = 0; i < traces.size(); ++i) {
    if (about_to_read) about_to_read(i, traces.size());
    TraceEvents events = read_trace_events(traces[i]);
    fill_in_rank(events, traces.size());
    RankTimeline timeline = rank_timeline(std::move(events));
    if (const RankTimeline& first = ranks.empty() ? timeline : ranks.begin()->second;
        first.ranks != timeline.ranks)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}' is of a job of {}, '{}' of one of {}", first.path.string(),
                              count_text(first.ranks, "rank"), timeline.path.string(),
                              count_text(timeline.ranks, "rank")),
                  "name the traces of one job");
    const auto [same, added] = ranks.try_emplace(timeline.rank, std::move(timeline));
    if (!added)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}' and '{}' are both of rank {}", same->second.path.string(),
                              traces[i].string(), same->first),
                  "name one trace a rank; traces of one rank at different iterations are "
                  "different runs");
  }
  settle_groups(ranks);
  return ranks;
}

// --- iterations that all ranks have --------------------------------------------------------------

/// An iteration of each rank that has a trace, in order of rank.
using SharedIteration = std::vector<const TimelineIteration*>;

std::vector<SharedIteration> shared_iterations(const RankTimelines& ranks,
                                               std::vector<std::string>& remarks) {
  std::map<std::int64_t, SharedIteration> by_number;
  for (const auto& [rank, timeline] : ranks)
    for (const TimelineIteration& iteration : timeline.iterations)
      by_number[iteration.number].push_back(&iteration);
  std::vector<SharedIteration> shared;
  std::vector<std::int64_t> left_out;
  for (auto& [number, iterations] : by_number)
    if (iterations.size() == ranks.size())
      shared.push_back(std::move(iterations));
    else
      left_out.push_back(number);
  if (shared.empty())
    throw Error(ExitCode::kBadData,
                fmt::format("the traces of {} have no iteration in common",
                            count_text(ranks.size(), "rank")),
                "record all ranks with one schedule of the profiler");
  if (!left_out.empty())
    remarks.push_back(fmt::format("{} that not all ranks recorded: left out",
                                  count_text(left_out.size(), "iteration")));
  return shared;
}

// --- collectives that all ranks share ------------------------------------------------------------

bool is_of_all(const TimelineCollective& collective, std::int64_t ranks) {
  return collective.facts.kind && collective.facts.group_ranks == ranks;
}

/// Collectives of all ranks, in the order in which the rank called them.
std::vector<const TimelineCollective*> common_collectives(const TimelineIteration& iteration,
                                                          std::int64_t ranks) {
  std::vector<const TimelineCollective*> common;
  for (const TimelineCollective& collective : iteration.collectives)
    if (is_of_all(collective, ranks)) common.push_back(&collective);
  return common;
}

/// The collectives of one iteration as buckets: one list a rank, of equal length.
struct SharedBuckets {
  std::vector<BucketShape> shapes;
  std::vector<std::vector<const TimelineCollective*>> ranks;
  std::size_t sized_by_others = 0;  ///< without a size in the trace of their own rank
};

bool sizes_agree(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kAllGather ||
         kind == CollectiveKind::kReduceScatter;
}

/// Payload as run files state it (stats/bandwidth.h): what a rank receives in a
/// reduce-scatter and a scatter, what it sends to one rank in an all-to-all. -1 without a size.
std::int64_t payload_bytes(const CollectiveFacts& facts, std::int64_t ranks) {
  const bool in_parts = facts.kind == CollectiveKind::kReduceScatter ||
                        facts.kind == CollectiveKind::kScatter ||
                        facts.kind == CollectiveKind::kAllToAll;
  return in_parts && facts.bytes >= 0 ? facts.bytes / ranks : facts.bytes;
}

/// Nothing if the ranks did not call the same collectives in one order.
std::optional<SharedBuckets> shared_buckets(const SharedIteration& iteration, std::int64_t ranks) {
  SharedBuckets buckets;
  for (const TimelineIteration* one : iteration)
    buckets.ranks.push_back(common_collectives(*one, ranks));
  const auto& first = buckets.ranks.front();
  for (const TimelineCollective* collective : first)
    buckets.shapes.push_back({payload_bytes(collective->facts, ranks), *collective->facts.kind});
  for (const auto& other : buckets.ranks) {
    if (other.size() != first.size()) return std::nullopt;
    for (std::size_t b = 0; b < first.size(); ++b) {
      const CollectiveFacts& facts = other[b]->facts;
      BucketShape& shape = buckets.shapes[b];
      if (facts.kind != shape.kind) return std::nullopt;
      const std::int64_t bytes = payload_bytes(facts, ranks);
      const bool both_known = bytes >= 0 && shape.bytes >= 0;
      if (sizes_agree(shape.kind) && both_known && bytes != shape.bytes) return std::nullopt;
      shape.bytes = std::max(shape.bytes, bytes);
    }
  }
  // A size that only some ranks know is that of all.
  for (std::size_t b = 0; b < buckets.shapes.size(); ++b)
    for (const auto& rank : buckets.ranks)
      buckets.sized_by_others += buckets.shapes[b].bytes >= 0 && rank[b]->facts.bytes < 0 ? 1 : 0;
  return buckets;
}

// --- clocks --------------------------------------------------------------------------------------

/// Seconds to add to the clock of a rank to read that of the first one.
struct ClockOffset {
  double offset_s = 0, uncertainty_s = 0;
  bool known = true;
};

/// What the collectives of two ranks say of their clocks: no rank has a result before the other
/// began.
class ClockBounds {
 public:
  void add(const Interval& first, const Interval& other) {
    low_s_ = std::max(low_s_, first.begin_s - other.end_s);
    high_s_ = std::min(high_s_, first.end_s - other.begin_s);
    ends_s_.push_back(first.end_s - other.end_s);
  }

  ClockOffset offset() const {
    if (ends_s_.empty()) return {0, kNotMeasured, true};
    if (low_s_ <= kSameClock_s && high_s_ >= -kSameClock_s)
      return {0, std::max(std::abs(low_s_), std::abs(high_s_)), true};
    if (low_s_ > high_s_) return {0, kNotMeasured, false};
    const double offset_s = std::clamp(median(ends_s_), low_s_, high_s_);
    return {offset_s, std::max(offset_s - low_s_, high_s_ - offset_s), true};
  }

 private:
  double low_s_ = -std::numeric_limits<double>::infinity();
  double high_s_ = std::numeric_limits<double>::infinity();
  std::vector<double> ends_s_;
};

/// On the clock of the rank, since the origin of the first rank's trace.
Interval on_own_clock(const Interval& when, const TimelineIteration& iteration,
                      std::int64_t origin_ns, std::int64_t first_origin_ns) {
  const double shift_s =
      static_cast<double>(origin_ns - first_origin_ns) * 1e-9 + iteration.begin_s;
  return {when.begin_s + shift_s, when.end_s + shift_s};
}

/// Whether every rank needs what every other one gives.
bool binds_all(CollectiveKind kind) {
  return sizes_agree(kind) || kind == CollectiveKind::kBarrier;
}

// --- step numbers --------------------------------------------------------------------------------

/// "host" of "host_1234.1712195495.pt.trace.json", as tensorboard_trace_handler names files.
std::string host_of(const fs::path& path) {
  static const std::regex kName("(.+)_[0-9]+\\.[0-9]+\\.pt\\.trace\\.json(\\.gz)?");
  std::smatch found;
  const std::string name = path.filename().string();
  return std::regex_match(name, found, kName) ? printable(found[1].str()) : kUnknownHost;
}

/// What collectives say of the clocks of two ranks, if iteration N of the first is N + shift of the
/// other. Nothing if they share no such iteration or none of their collectives binds all ranks.
std::optional<ClockOffset> clocks_if(const RankTimeline& first, const RankTimeline& other,
                                     std::int64_t shift) {
  ClockBounds bounds;
  bool bound = false;
  for (const TimelineIteration& iteration : first.iterations)
    for (const TimelineIteration& same : other.iterations) {
      if (same.number != iteration.number + shift) continue;
      const auto shared = shared_buckets({&iteration, &same}, first.ranks);
      if (!shared) return std::nullopt;
      for (std::size_t b = 0; b < shared->shapes.size(); ++b) {
        if (!binds_all(shared->shapes[b].kind)) continue;
        bounds.add(
            on_own_clock(shared->ranks[0][b]->when, iteration, first.origin_ns, first.origin_ns),
            on_own_clock(shared->ranks[1][b]->when, same, other.origin_ns, first.origin_ns));
        bound = true;
      }
    }
  return bound ? std::optional(bounds.offset()) : std::nullopt;
}

bool is_one_clock(const std::optional<ClockOffset>& clocks) {
  return clocks && clocks->known && clocks->offset_s == 0;
}

/// By how much a rank numbers its steps higher than the first one: another number than 0 only if
/// their clocks agree with it and without it do not. On different hosts clocks may differ by an
/// iteration; there both must have recorded equally long, from the step that it says.
std::int64_t number_shift(const RankTimeline& first, const RankTimeline& other) {
  const bool shares =
      std::ranges::any_of(first.iterations, [&](const TimelineIteration& iteration) {
        return std::ranges::count(other.iterations, iteration.number, &TimelineIteration::number);
      });
  const auto as_numbered = clocks_if(first, other, 0);
  if (shares && (!as_numbered || is_one_clock(as_numbered))) return 0;
  const std::int64_t begun_apart =
      other.iterations.front().number - first.iterations.front().number;
  if (begun_apart != 0 && first.iterations.size() == other.iterations.size() &&
      is_one_clock(clocks_if(first, other, begun_apart)))
    return begun_apart;
  if (host_of(first.path) == kUnknownHost || host_of(first.path) != host_of(other.path)) return 0;
  for (std::int64_t by = 1; by < std::ssize(first.iterations); ++by)
    for (const std::int64_t shift : {by, -by})
      if (is_one_clock(clocks_if(first, other, shift))) return shift;
  return 0;
}

/// Numbers the steps of all ranks as the first one does.
void settle_numbers(RankTimelines& ranks, std::vector<std::string>& remarks) {
  const RankTimeline& first = ranks.begin()->second;
  for (auto& [rank, timeline] : ranks) {
    const std::int64_t shift = number_shift(first, timeline);
    if (shift == 0) continue;
    for (TimelineIteration& iteration : timeline.iterations)
      iteration.number -= shift;
    remarks.push_back(fmt::format(
        "rank {} numbers its steps {} {} than rank {} at the same time: matched by their times",
        rank, std::abs(shift), shift > 0 ? "higher" : "lower", first.rank));
  }
}

// --- the run -------------------------------------------------------------------------------------

class RunMaker {
 public:
  RunMaker(RankTimelines timelines, TracedJob job)
      : timelines_(std::move(timelines)), job_(std::move(job)) {
    settle_numbers(timelines_, remarks_);
    for (const auto& [rank, timeline] : timelines_)
      present_.push_back(&timeline);
    ranks_ = present_.front()->ranks;
  }

  std::unique_ptr<RunReader> make() {
    iterations_ = shared_iterations(timelines_, remarks_);
    match_collectives();
    align_clocks();
    decide_arrivals();
    add_remarks_of_traces();
    describe();
    for (std::size_t i = 0; i < iterations_.size(); ++i)
      run_->add(row(i));
    return std::move(run_);
  }

 private:
  bool all_present() const { return present_.size() == static_cast<std::size_t>(ranks_); }

  void match_collectives() {
    std::size_t differ = 0;
    for (const SharedIteration& iteration : iterations_) {
      auto shared = shared_buckets(iteration, ranks_);
      differ += shared ? 0 : 1;
      buckets_.push_back(shared.value_or(SharedBuckets{}));
    }
    require_memory();
    matched_ = differ == 0;
    if (!matched_)
      remarks_.push_back(fmt::format(
          "in {} the ranks called different collectives: their times count as communication, and "
          "are not shown one by one",
          count_text(differ, "iteration")));
  }

  void require_memory() const {
    std::size_t times = 0;
    for (const SharedBuckets& buckets : buckets_)
      times += static_cast<std::size_t>(ranks_) * (8 + buckets.shapes.size());
    if (times > kMostTimes)
      throw Error(
          ExitCode::kBadData,
          fmt::format("{} iterations of {} ranks do not fit memory", iterations_.size(), ranks_),
          "record fewer iterations: schedule(active=10)");
  }

  void align_clocks() {
    offsets_.assign(present_.size(), {});
    for (std::size_t at = 1; at < present_.size(); ++at) {
      ClockBounds bounds;
      for (std::size_t i = 0; i < iterations_.size(); ++i)
        for (std::size_t b = 0; b < buckets_[i].shapes.size(); ++b)
          if (binds_all(buckets_[i].shapes[b].kind))
            bounds.add(on_clock(i, 0, buckets_[i].ranks[0][b]->when),
                       on_clock(i, at, buckets_[i].ranks[at][b]->when));
      offsets_[at] = bounds.offset();
      remark_on_clock(*present_[at], offsets_[at]);
    }
  }

  void remark_on_clock(const RankTimeline& timeline, const ClockOffset& clock) {
    if (!clock.known)
      remarks_.push_back(fmt::format(
          "the clocks of rank {} and rank {} contradict each other: one ends collectives before "
          "the other begins them; straggler wait is n/a",
          present_.front()->rank, timeline.rank));
    else if (clock.offset_s != 0)
      remarks_.push_back(fmt::format(
          "the clock of rank {} differs from that of rank {} by {:.3f} ms, within {:.3f} ms: "
          "aligned by the ends of common collectives",
          timeline.rank, present_.front()->rank, -1e3 * clock.offset_s, 1e3 * clock.uncertainty_s));
  }

  void decide_arrivals() {
    const bool clocks_known = std::ranges::all_of(offsets_, &ClockOffset::known);
    // Which of DataParallel's GPUs came last is not in the trace of their process.
    arrivals_known_ = all_present() && clocks_known && matched_ && present_.front()->ranks_known &&
                      !data_parallel();
    if (!all_present())
      remarks_.push_back(fmt::format(
          "no trace of {} of {} ranks: their numbers are missing, and straggler wait is a part of "
          "communication",
          static_cast<std::size_t>(ranks_) - present_.size(), ranks_));
  }

  /// Counts over all ranks and iterations.
  std::size_t count(const std::function<bool(const TimelineCollective&)>& which) const {
    std::size_t found = 0;
    for (const SharedIteration& iteration : iterations_)
      for (const TimelineIteration* one : iteration)
        found += static_cast<std::size_t>(std::ranges::count_if(one->collectives, which));
    return found;
  }

  void add_remarks_of_traces() {
    std::set<std::string> said;
    for (const RankTimeline* timeline : present_)
      for (const std::string& remark : timeline->remarks)
        if (said.insert(remark).second)
          remarks_.push_back(
              fmt::format("{}: {}", printable(timeline->path.filename().string()), remark));
    if (iterations_.size() == 1)
      remarks_.emplace_back(
          "one iteration: it counts, since the profiler's schedule warms up before");
    if (!present_.front()->ranks_known)
      remarks_.emplace_back(
          "the number of ranks is not in the trace (distributedInfo): the one rank is shown, and "
          "straggler wait is a part of communication");
    communicates_ = (ranks_ == 1 && present_.front()->ranks_known) ||
                    count([](const auto&) { return true; }) > 0;
    if (!communicates_)
      remarks_.push_back(fmt::format(
          "no collective in the traces of a job of {}: communication is n/a",
          present_.front()->ranks_known ? count_text(ranks_, "rank") : "several ranks"));
    const std::size_t apart = count([&](const auto& one) { return !is_of_all(one, ranks_); });
    if (apart > 0)
      remarks_.push_back(fmt::format(
          "{} of some ranks only, of a group that the trace does not state, or of a "
          "kind that run files do not name (send, receive): their times count as communication, "
          "with straggler wait, and are not shown one by one",
          count_text(apart, "collective")));
    std::size_t unsized = count([](const auto& one) { return one.facts.bytes < 0; });
    for (const SharedBuckets& buckets : buckets_)
      unsized -= buckets.sized_by_others;
    if (unsized > 0)
      remarks_.push_back(
          fmt::format("{} without a size, so without a bandwidth: record with "
                      "profile(record_shapes=True)",
                      count_text(unsized, "collective")));
  }

  Interval on_clock(std::size_t iteration, std::size_t at, const Interval& when) const {
    return on_own_clock(when, *iterations_[iteration][at], present_[at]->origin_ns,
                        present_.front()->origin_ns);
  }

  // --- what describes the run ---

  std::string mode() const {
    const bool ddp = std::ranges::any_of(present_, &RankTimeline::ddp);
    if (data_parallel()) return std::string(kTracedDataParallel.name);
    if (ranks_ == 1 && present_.front()->ranks_known) return std::string(kNoExchange);
    return ddp ? std::string(kTracedDdp.name) : "pytorch";
  }

  bool data_parallel() const { return ranks_ == 1 && present_.front()->data_parallel; }

  /// Named, else that of the folder that the traces are in.
  std::string model() const {
    if (!job_.model.empty()) return printable(job_.model);
    const std::string folder =
        fs::absolute(present_.front()->path).lexically_normal().parent_path().filename().string();
    return folder.empty() ? "traces" : printable(folder);
  }

  RankPlace place_of(std::int64_t rank, std::map<std::string, std::int32_t>& on_host) const {
    RankPlace place;
    place.rank = static_cast<std::int32_t>(rank);
    place.host = kUnknownHost;  // and no device
    const auto found = timelines_.find(rank);
    if (found == timelines_.end()) return place;
    const RankTimeline& timeline = found->second;
    place.host = host_of(timeline.path);
    place.local_rank = on_host[place.host]++;
    place.device = timeline.device.empty() ? "cpu" : timeline.device;
    const ClockOffset& clock =
        offsets_[static_cast<std::size_t>(std::distance(timelines_.begin(), found))];
    place.clock_offset_s = clock.known ? clock.offset_s : kNotMeasured;
    place.clock_uncertainty_s = clock.uncertainty_s;
    return place;
  }

  std::int64_t start_ns() const {
    return present_.front()->origin_ns + std::llround(1e9 * iterations_.front()[0]->begin_s);
  }

  std::string created() const {
    constexpr std::int64_t kYear2001_s = 1000000000, kYear2096_s = 4000000000;
    const std::int64_t at_s = start_ns() / 1000000000;
    if (at_s < kYear2001_s || at_s > kYear2096_s) return kUnknown;
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(at_s)));
  }

  /// The same traces give the same identity.
  std::string identity() const {
    Sha256 digest;
    for (const RankTimeline* one : present_)
      digest.update(fmt::format("{} {} {} {};", one->rank, one->ranks, one->origin_ns,
                                one->iterations.size()));
    const std::string hex = digest.hex();
    return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                       hex.substr(16, 4), hex.substr(20, 12));
  }

  void describe() {
    RunInfo info;
    info.run_id = identity();
    info.created = created();
    info.command_line = "torch.profiler";
    info.schema = arrivals_known_ ? kRunSchema : 1;
    const std::string source = "trace";
    info.config = {
        {"model", model(), job_.model.empty() ? source : "command line"},
        {"sync", mode(), source},
        {"transport", present_.front()->backend.empty() ? kUnknown : present_.front()->backend,
         source},
        {"iterations", std::to_string(iterations_.size()), source}};
    if (job_.batch_per_rank > 0)
      info.config.push_back(
          {"batch-per-rank", std::to_string(job_.batch_per_rank), "command line"});
    info.provenance = {{"source", std::string(kTracesSource)}};
    for (std::size_t i = 0; i < remarks_.size(); ++i)
      info.provenance.push_back({fmt::format("{}{}", kRemarkPrefix, i + 1), remarks_[i]});
    std::map<std::string, std::int32_t> on_host;
    for (std::int64_t rank = 0; rank < ranks_; ++rank)
      info.topology.push_back(place_of(rank, on_host));
    run_->set(std::move(info));
  }

  // --- rows ---

  IterationRow row(std::size_t i) const {
    IterationRow row;
    row.iteration = row.step = iterations_[i][0]->number;
    row.samples = job_.batch_per_rank * ranks_;
    row.buckets = buckets_[i].shapes;
    row.ranks.resize(static_cast<std::size_t>(ranks_));
    for (RankIteration& rank : row.ranks) {
      rank.buckets.resize(row.buckets.size());
      rank.traffic_bytes.fill(kUnknownTraffic);
    }
    const std::vector<double> arrivals = arrivals_s(i);
    for (std::size_t at = 0; at < present_.size(); ++at)
      fill(row.ranks[static_cast<std::size_t>(present_[at]->rank)], i, at, arrivals);
    return row;
  }

  /// A moment of an iteration on the clock of the first rank.
  double on_common_clock(std::size_t i, std::size_t at, double time_s) const {
    return on_clock(i, at, {time_s, time_s}).begin_s + offsets_[at].offset_s;
  }

  /// When the last rank came to each bucket, on the clock of the first rank.
  std::vector<double> arrivals_s(std::size_t i) const {
    std::vector<double> last_s;
    for (std::size_t b = 0; b < buckets_[i].shapes.size(); ++b) {
      last_s.push_back(-std::numeric_limits<double>::infinity());
      for (std::size_t at = 0; at < present_.size(); ++at)
        last_s[b] =
            std::max(last_s[b], on_common_clock(i, at, buckets_[i].ranks[at][b]->when.begin_s));
    }
    return last_s;
  }

  void fill(RankIteration& rank, std::size_t i, std::size_t at,
            const std::vector<double>& arrivals) const {
    const TimelineIteration& iteration = *iterations_[i][at];
    const double begin_s = on_common_clock(i, at, 0);
    rank.begin_s = begin_s - on_common_clock(0, 0, 0);
    for (std::size_t b = 0; b < rank.buckets.size(); ++b) {
      const TimelineCollective& own = *buckets_[i].ranks[at][b];
      rank.buckets[b] = {own.ready_s, own.when.begin_s, own.when.end_s};
      if (arrivals_known_)
        rank.buckets[b].arrival_s =
            std::clamp(arrivals[b] - begin_s, own.when.begin_s, own.when.end_s);
    }
    rank[Phase::kIteration] = iteration.length_s;
    count_traffic(rank, i, at);
    fill_split(rank, iteration);
  }

  /// A category with a collective whose size or ranks are unknown is unknown.
  void count_traffic(RankIteration& rank, std::size_t i, std::size_t at) const {
    const auto bytes_of = [&](const std::optional<CollectiveKind>& kind) -> std::int64_t& {
      const Traffic category =
          kind == CollectiveKind::kBroadcast ? Traffic::kBuffers : Traffic::kGradients;
      return rank.traffic_bytes[static_cast<std::size_t>(category)];
    };
    if (!communicates_) return;
    rank.traffic_bytes.fill(0);
    const std::vector<BucketShape>& shapes = buckets_[i].shapes;
    for (const BucketShape& shape : shapes)
      bytes_of(shape.kind) +=
          traffic_bytes(shape.kind, std::max<std::int64_t>(shape.bytes, 0),
                        static_cast<int>(present_[at]->rank), static_cast<int>(ranks_), 0);
    for (const BucketShape& shape : shapes)
      if (shape.bytes < 0) bytes_of(shape.kind) = kUnknownTraffic;
    for (const TimelineCollective& collective : iterations_[i][at]->collectives)
      if (shapes.empty() || !is_of_all(collective, ranks_))
        bytes_of(collective.facts.kind) = kUnknownTraffic;
  }

  void fill_split(RankIteration& rank, const TimelineIteration& iteration) const {
    std::vector<Interval> moving = iteration.carried, waiting;
    for (const BucketTimes& bucket : rank.buckets) {
      const double moves_s = std::isfinite(bucket.arrival_s) ? bucket.arrival_s : bucket.start_s;
      moving.push_back({moves_s, bucket.end_s});
      waiting.push_back({bucket.start_s, moves_s});
    }
    for (const TimelineCollective& collective : iteration.collectives)
      if (rank.buckets.empty() || !is_of_all(collective, ranks_)) moving.push_back(collective.when);
    const IterationSplit split =
        split_iteration(iteration.compute, moving, waiting, iteration.length_s);
    rank[Phase::kCompute] = split.compute_s;
    fill_phases(rank, iteration, std::move(moving), waiting);
    if (!communicates_) return;
    rank[Phase::kCommBusy] = split.comm_busy_s;
    rank[Phase::kHidden] = split.hidden_s;
    rank[Phase::kExposed] = split.exposed_s;
    if (arrivals_known_) rank[Phase::kWait] = split.wait_s;
    rank[Phase::kOther] = split.other_s;
  }

  /// Phases without what counts as exposed communication or straggler wait in them.
  static void fill_phases(RankIteration& rank, const TimelineIteration& iteration,
                          std::vector<Interval> moving, const std::vector<Interval>& waiting) {
    moving.insert(moving.end(), waiting.begin(), waiting.end());
    const IntervalSet apart =
        IntervalSet(std::move(moving)).difference(IntervalSet(iteration.compute));
    const auto fill = [&](Phase phase, const std::optional<IntervalSet>& when) {
      if (when) rank[phase] = when->difference(apart).measure_s();
    };
    fill(Phase::kData, iteration.data);
    fill(Phase::kForward, iteration.forward);
    fill(Phase::kBackward, iteration.backward);
    fill(Phase::kOptimizer, iteration.optimizer);
  }

  RankTimelines timelines_;
  TracedJob job_;
  std::int64_t ranks_ = 1;
  std::vector<const RankTimeline*> present_;  ///< in order of rank
  std::vector<SharedIteration> iterations_;
  std::vector<SharedBuckets> buckets_;  ///< of each iteration
  std::vector<ClockOffset> offsets_;    ///< of each present rank
  bool matched_ = true, arrivals_known_ = true, communicates_ = true;
  std::vector<std::string> remarks_;
  std::unique_ptr<RunInMemory> run_ = std::make_unique<RunInMemory>();
};

}  // namespace

bool is_trace_name(const fs::path& path) {
  const std::string name = path.filename().string();
  return (name.ends_with(".json") || name.ends_with(".json.gz")) && !name.ends_with(".failed.json");
}

std::vector<fs::path> find_traces(const std::vector<std::string>& places) {
  std::vector<fs::path> found;
  for (const std::string& place : places) {
    if (std::error_code loop; !fs::is_directory(place, loop)) {
      found.emplace_back(place);
      continue;
    }
    const std::size_t before = found.size();
    for (const auto& entry : fs::directory_iterator(place))
      if (std::error_code loop; entry.is_regular_file(loop) && is_trace_name(entry.path()))
        found.push_back(entry.path());
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end());
  }
  if (found.empty())
    throw Error(ExitCode::kNoInput,
                fmt::format("no trace (*.json, *.json.gz) in {}", fmt::join(places, ", ")),
                "name the traces that torch.profiler wrote, one a rank");
  return found;
}

std::unique_ptr<RunReader> run_of_traces(const std::vector<fs::path>& traces, const TracedJob& job,
                                         const AboutToRead& about_to_read) {
  return RunMaker(read_all(traces, about_to_read), job).make();
}

}  // namespace gradsync::report
