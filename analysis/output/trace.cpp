// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/output/trace.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analysis/figures/rank_figures.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_number.h"
#include "base/parse.h"

namespace gradsync::report {

namespace {

/// A compression under way; zlib's own memory goes with it.
class Deflate {
 public:
  Deflate() {
    constexpr int kGzipFormat = 16, kWindowBits = 15, kMemoryLevel = 8;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipFormat + kWindowBits,
                     kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error(ExitCode::kOutOfMemory, "zlib cannot begin to compress");
  }
  ~Deflate() { deflateEnd(&stream_); }
  Deflate(const Deflate&) = delete;
  Deflate& operator=(const Deflate&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

}  // namespace

std::string gzipped(std::string_view data) {
  constexpr std::size_t kPiece = 1U << 16;
  Deflate deflate_state;
  z_stream& stream = deflate_state.stream();
  std::string result, piece(kPiece, '\0');
  int state = Z_OK;
  while (state == Z_OK) {
    // zlib counts in 32 bits: it is fed piece by piece.
    const std::size_t take = stream.avail_in == 0 ? std::min(data.size(), kPiece) : 0;
    if (take > 0) {
      // NOLINTNEXTLINE: zlib does not write to its input, whatever its type says
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
      stream.avail_in = static_cast<uInt>(take);
      data.remove_prefix(take);
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = deflate(&stream, data.empty() ? Z_FINISH : Z_NO_FLUSH);
    result.append(piece, 0, piece.size() - stream.avail_out);
  }
  if (state != Z_STREAM_END) throw Error(ExitCode::kInternal, "zlib could not compress");
  return result;
}

namespace {

constexpr double kNothing = 1e-9;   // s: below the resolution of the clock
constexpr double kRounding = 1e-6;  // s: of sums of intervals

IntervalSet collectives_of(const RankIteration& rank) {
  std::vector<Interval> intervals;
  for (const BucketTimes& bucket : rank.buckets)
    if (std::isfinite(bucket.start_s + bucket.end_s) && bucket.end_s >= bucket.start_s)
      intervals.push_back({bucket.start_s, bucket.end_s});
  return IntervalSet(intervals);
}

/// Hands out time from 0 on that lies outside `taken`.
class FreeTime {
 public:
  explicit FreeTime(IntervalSet taken) : taken_(std::move(taken)) {}

  std::vector<Interval> next(double length_s) {
    std::vector<Interval> pieces;
    for (const Interval& busy : taken_.pieces()) {
      if (length_s <= kNothing) return pieces;
      if (busy.end_s <= now_s_) continue;
      take(std::min(length_s, busy.begin_s - now_s_), pieces, length_s);
      if (length_s > kNothing) now_s_ = busy.end_s;
    }
    take(length_s, pieces, length_s);
    return pieces;
  }

 private:
  void take(double piece_s, std::vector<Interval>& pieces, double& left_s) {
    if (piece_s <= kNothing) return;
    pieces.push_back({now_s_, now_s_ + piece_s});
    now_s_ += piece_s;
    left_s -= piece_s;
  }

  IntervalSet taken_;
  double now_s_ = 0;
};

/// Whether the rank stood still in its collectives. Where what they wait for is recorded, all of
/// them must then be exposed or wait.
bool blocked(const RankIteration& rank, const IntervalSet& collectives) {
  if (rank[Phase::kHidden] > kNothing) return false;
  if (rank.buckets.empty() || std::isnan(rank.buckets.front().arrival_s)) return true;
  return collectives.measure_s() <= rank[Phase::kExposed] + rank[Phase::kWait] + kRounding;
}

}  // namespace

std::vector<PlacedPhase> place_phases(const RankIteration& rank) {
  const IntervalSet collectives = collectives_of(rank);
  FreeTime time(blocked(rank, collectives) ? collectives : IntervalSet());
  std::vector<PlacedPhase> phases;
  for (const Phase phase : {Phase::kData, Phase::kForward, Phase::kBackward})
    if (rank[phase] > kNothing) phases.push_back({phase, time.next(rank[phase])});
  const double end_s = rank[Phase::kIteration], optimizer_s = rank[Phase::kOptimizer];
  if (optimizer_s > kNothing && end_s >= optimizer_s)
    phases.push_back({Phase::kOptimizer, {{end_s - optimizer_s, end_s}}});
  return phases;
}

namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMostIterations = 10, kMostEvents = 100000;
constexpr double kMicroseconds = 1e6;
constexpr const char* kWaitName = "straggler wait";  // a name of its own: a color of its own

enum Track : std::int64_t { kIterationTrack = 1, kComputeTrack, kCommunicationTrack, kBucketTrack };

// Perfetto takes process 0 for the idle process of the system.
std::int64_t process_of(std::size_t rank) {
  return static_cast<std::int64_t>(rank) + 1;
}

double microseconds(double time_s) {
  return std::round(time_s * kMicroseconds * 1e3) / 1e3;
}

class Events {
 public:
  void name_process(std::size_t rank, const std::string& name, const std::string& label) {
    metadata("process_name", process_of(rank), 0, {{"name", name}});
    metadata("process_labels", process_of(rank), 0, {{"labels", label}});
    metadata("process_sort_index", process_of(rank), 0, {{"sort_index", rank}});
  }

  void name_track(std::size_t rank, std::int64_t track, const std::string& name) {
    metadata("thread_name", process_of(rank), track, {{"name", name}});
    metadata("thread_sort_index", process_of(rank), track, {{"sort_index", track}});
  }

  void slice(std::size_t rank, std::int64_t track, const std::string& name,
             const std::string& category, const Interval& when, ordered_json args) {
    add({{"name", name},
         {"cat", category},
         {"ph", "X"},
         {"pid", process_of(rank)},
         {"tid", track},
         {"ts", microseconds(when.begin_s)},
         {"dur", microseconds(when.length_s())},
         {"args", std::move(args)}});
  }

  const std::string& text() const { return text_; }

 private:
  void metadata(const char* what, std::int64_t process, std::int64_t track, ordered_json args) {
    add({{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", track}, {"args", std::move(args)}});
  }
  void add(const ordered_json& event) {
    text_ += (text_.empty() ? "" : ",\n") +
             event.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  }

  std::string text_;
};

/// A number for args; JSON has no NaN.
ordered_json known(bool is_known, std::int64_t value) {
  return is_known ? ordered_json(value) : ordered_json(nullptr);
}

Interval shifted(const Interval& interval, double by_s) {
  return {interval.begin_s + by_s, interval.end_s + by_s};
}

void add_iteration(Events& events, std::size_t rank, const IterationRow& row) {
  const RankIteration& here = row.ranks[rank];
  ordered_json args = {{"iteration", row.iteration + 1},
                       {"epoch", row.epoch + 1},
                       {"step", row.step + 1},
                       {"warm-up", row.warmup},
                       {"samples", known(row.samples > 0, row.samples)},
                       {"loss", number_or_null(here.loss)}};
  for (const Phase phase : {Phase::kCompute, Phase::kCommBusy, Phase::kHidden, Phase::kExposed,
                            Phase::kWait, Phase::kOther})
    args[std::string(phase_name(phase)) + "_us"] = number_or_null(kMicroseconds * here[phase]);
  args["start"] = "measured";
  events.slice(rank, kIterationTrack, fmt::format("iteration {}", row.iteration + 1), "iteration",
               {here.begin_s, here.begin_s + here[Phase::kIteration]}, std::move(args));
}

std::string start_text(Phase phase) {
  return phase == Phase::kData        ? "derived: the iteration begins with it"
         : phase == Phase::kOptimizer ? "derived: it ends with the iteration"
                                      : "derived: follows the phase before; only its length was "
                                        "measured";
}

void add_phases(Events& events, std::size_t rank, const RankIteration& here) {
  for (const PlacedPhase& placed : place_phases(here))
    for (const Interval& piece : placed.pieces)
      events.slice(rank, kComputeTrack, std::string(phase_name(placed.phase)),
                   placed.phase == Phase::kData ? "data" : "compute", shifted(piece, here.begin_s),
                   {{"start", start_text(placed.phase)},
                    {"measured_length_us", kMicroseconds * here[placed.phase]},
                    {"pieces", placed.pieces.size()}});
}

/// A collective of one rank in one iteration that was measured whole.
struct Bucket {
  std::size_t number;
  BucketShape shape;
  BucketTimes times;
  /// From when on its data could move; where that was not recorded, from its begin.
  double moving_from_s() const {
    return std::isfinite(times.arrival_s) ? times.arrival_s : times.start_s;
  }
  Interval moving() const { return {moving_from_s(), times.end_s}; }
  Interval waiting() const { return {times.start_s, moving_from_s()}; }
  Interval span() const {
    const double ready_s = times.ready_s <= times.start_s ? times.ready_s : times.start_s;
    return {ready_s, times.end_s};
  }
};

std::vector<Bucket> buckets_of(const IterationRow& row, std::size_t rank) {
  std::vector<Bucket> buckets;
  for (std::size_t b = 0; b < row.buckets.size(); ++b) {
    const BucketTimes& times = row.ranks[rank].buckets[b];
    if (std::isfinite(times.start_s + times.end_s) && times.end_s >= times.start_s)
      buckets.push_back({b, row.buckets[b], times});
  }
  std::ranges::stable_sort(buckets, [](const Bucket& a, const Bucket& b) {
    return a.span().begin_s < b.span().begin_s;
  });
  return buckets;
}

/// Slices of one track must not overlap: each goes to the first lane that is free.
class Lanes {
 public:
  std::size_t lane_for(const Interval& span) {
    std::size_t lane = 0;
    while (lane < ends_s_.size() && ends_s_[lane] > span.begin_s)
      ++lane;
    if (lane == ends_s_.size()) ends_s_.push_back(0);
    ends_s_[lane] = span.end_s;
    return lane;
  }
  std::size_t count() const { return ends_s_.size(); }

 private:
  std::vector<double> ends_s_;
};

ordered_json bucket_args(const Bucket& bucket) {
  const BucketTimes& times = bucket.times;
  ordered_json args = {{"bucket", bucket.number},
                       {"collective", collective_name(bucket.shape.kind)},
                       {"bytes", known(bucket.shape.bytes >= 0, bucket.shape.bytes)},
                       {"ready_us", number_or_null(kMicroseconds * times.ready_s)},
                       {"start_us", number_or_null(kMicroseconds * times.start_s)}};
  if (std::isfinite(times.arrival_s)) args["arrival_us"] = kMicroseconds * times.arrival_s;
  args["end_us"] = number_or_null(kMicroseconds * times.end_s);
  args["times"] = "measured, since the start of the rank's iteration";
  return args;
}

void add_bucket(Events& events, std::size_t rank, std::int64_t track, const Bucket& bucket,
                double begin_s) {
  const Interval span = bucket.span();
  events.slice(rank, track, fmt::format("bucket {}", bucket.number), "bucket",
               shifted(span, begin_s), bucket_args(bucket));
  if (bucket.times.start_s - span.begin_s > 0)
    events.slice(rank, track, "queued", "bucket",
                 shifted({span.begin_s, bucket.times.start_s}, begin_s),
                 {{"from", "last gradient there"}, {"to", "collective begun"}});
  if (bucket.waiting().length_s() > 0)
    events.slice(rank, track, kWaitName, "wait", shifted(bucket.waiting(), begin_s),
                 {{"from", "collective begun"}, {"to", "last rank there"}});
  events.slice(rank, track, "in progress", "bucket", shifted(bucket.moving(), begin_s),
               {{"collective", collective_name(bucket.shape.kind)}});
}

// Data of one rank's collectives moves for one after the other. Where a transport moves those of
// several at once, the later one is seen in the tracks of the buckets only.
void add_communication(Events& events, std::size_t rank, const IterationRow& row) {
  const double begin_s = row.ranks[rank].begin_s;
  double busy_until_s = 0;
  std::vector<Interval> moving, waiting;
  for (const Bucket& bucket : buckets_of(row, rank)) {
    waiting.push_back(bucket.waiting());
    if (bucket.moving_from_s() < busy_until_s) continue;
    busy_until_s = bucket.times.end_s;
    moving.push_back(bucket.moving());
    events.slice(rank, kCommunicationTrack,
                 bucket.shape.bytes < 0 ? std::string(collective_name(bucket.shape.kind))
                                        : fmt::format("{} {} B", collective_name(bucket.shape.kind),
                                                      bucket.shape.bytes),
                 "communication", shifted(bucket.moving(), begin_s), bucket_args(bucket));
  }
  const IntervalSet only_waiting = IntervalSet(waiting).difference(IntervalSet(moving));
  for (const Interval& wait : only_waiting.pieces())
    events.slice(rank, kCommunicationTrack, kWaitName, "wait", shifted(wait, begin_s),
                 {{"until", "the last rank is there, or data of another collective moves"}});
}

std::size_t add_buckets(Events& events, std::size_t rank, const IterationRow& row) {
  Lanes lanes;
  for (const Bucket& bucket : buckets_of(row, rank)) {
    const auto lane = static_cast<std::int64_t>(lanes.lane_for(bucket.span()));
    add_bucket(events, rank, kBucketTrack + lane, bucket, row.ranks[rank].begin_s);
  }
  return lanes.count();
}

double uncertainty_us(const Run& run, std::size_t rank) {
  if (rank == 0) return 0;
  return kMicroseconds * run.reader->info().topology[rank].clock_uncertainty_s;
}

std::string clock_text(const Run& run, std::size_t rank) {
  const double us = uncertainty_us(run, rank);
  if (rank == 0) return "the clock of all";
  return std::isfinite(us) ? fmt::format("clock within {:.3f} us of rank 0's", us)
                           : "clock not compared with rank 0's";
}

void name_rank(Events& events, const Run& run, std::size_t rank, std::size_t lanes) {
  const RankPlace& place = run.reader->info().topology[rank];
  events.name_process(rank, fmt::format("rank {} ({})", rank, place.host), clock_text(run, rank));
  events.name_track(rank, kIterationTrack, "iteration");
  events.name_track(rank, kComputeTrack, "compute (starts derived)");
  events.name_track(rank, kCommunicationTrack, "communication");
  for (std::size_t lane = 0; lane < lanes; ++lane)
    events.name_track(rank, kBucketTrack + static_cast<std::int64_t>(lane),
                      lanes == 1 ? "buckets" : fmt::format("buckets {}", lane + 1));
}

void add_rank(Events& events, const Run& run, const std::vector<IterationRow>& rows,
              std::size_t rank, std::size_t& left_out) {
  std::size_t lanes = 1;
  for (const IterationRow& row : rows) {
    const RankIteration& here = row.ranks[rank];
    if (!std::isfinite(here.begin_s + here[Phase::kIteration])) {
      ++left_out;
      continue;
    }
    add_iteration(events, rank, row);
    add_phases(events, rank, here);
    add_communication(events, rank, row);
    lanes = std::max(lanes, add_buckets(events, rank, row));
  }
  name_rank(events, run, rank, lanes);
}

/// How far each clock has gone from rank 0's between the first and the last comparison.
ordered_json clock_changes(const RunReader& run) {
  ordered_json changes = ordered_json::array();
  // Readings of two processes differ by more than drift.
  if (run.clocks().size() < 2 || !run.resumes().empty()) return changes;
  const auto &first = run.clocks().front().ranks, &last = run.clocks().back().ranks;
  for (std::size_t rank = 0; rank < std::min(first.size(), last.size()); ++rank)
    changes.push_back(number_or_null(kMicroseconds * (last[rank].offset_s - first[rank].offset_s)));
  return changes;
}

ordered_json about(const Run& run, const TraceWindow& window, std::size_t left_out) {
  ordered_json uncertainties = ordered_json::array();
  for (std::size_t rank = 0; rank < run.reader->ranks(); ++rank)
    uncertainties.push_back(number_or_null(uncertainty_us(run, rank)));
  return {{"run", run.name},
          {"run_id", run.reader->info().run_id},
          {"created", run.reader->info().created},
          {"mode", run.mode},
          {"model", run.model},
          {"ranks", run.ranks},
          {"batch_per_rank", known(run.batch_per_rank > 0, run.batch_per_rank)},
          {"status", run.status()},
          {"iterations", fmt::format("{}-{}", window.first, window.last)},
          {"clock",
           "us since the start of the run, on rank 0's clock; the others are aligned by "
           "minimum round trip at the start"},
          {"clock_uncertainty_us", std::move(uncertainties)},
          {"clock_change_until_end_us", clock_changes(*run.reader)},
          {"phases",
           "lengths of data, forward, backward and optimizer are measured, their starts "
           "are not recorded: derived from their order; all other times are measured"},
          {"rank_iterations_left_out_as_not_measured", left_out}};
}

std::size_t events_per_iteration(const RunReader& run) {
  return run.ranks() * (6 + (waits_apart(run) ? 6 : 4) * run.index().buckets);
}

TraceWindow steady_window(const Run& run) {
  const std::size_t first = std::min(run.steady.first, run.reader->iterations() - 1);
  const std::size_t most = std::clamp<std::size_t>(
      kMostEvents / std::max<std::size_t>(1, events_per_iteration(*run.reader)), 1,
      kMostIterations);
  return {first + 1, std::min(first + most, run.reader->iterations())};
}

Error bad_window(const std::string& text, const RunReader& run) {
  return {ExitCode::kUsage,
          fmt::format("--trace-iterations {}: not a range of the {} iterations of the run", text,
                      run.iterations()),
          fmt::format("A-B with 1 <= A <= B <= {}", run.iterations())};
}

}  // namespace

TraceWindow trace_window(const std::string& text, const Run& run) {
  if (run.reader->iterations() == 0)
    throw Error(ExitCode::kBadData, "the run holds no iteration to trace");
  if (text.empty()) return steady_window(run);
  const auto dash = text.find('-');
  try {
    const std::int64_t first = parse_integer(text.substr(0, dash));
    const std::int64_t last =
        dash == std::string::npos ? first : parse_integer(text.substr(dash + 1));
    if (first >= 1 && first <= last && static_cast<std::size_t>(last) <= run.reader->iterations())
      return {static_cast<std::size_t>(first), static_cast<std::size_t>(last)};
  } catch (const Error&) {
    throw bad_window(text, *run.reader);
  }
  throw bad_window(text, *run.reader);
}

std::string trace_json(const Run& run, const TraceWindow& window) {
  const auto rows = run.reader->rows(window.first - 1, window.last - window.first + 1);
  Events events;
  std::size_t left_out = 0;
  for (std::size_t rank = 0; rank < run.reader->ranks(); ++rank)
    add_rank(events, run, rows, rank, left_out);
  return "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" +
         about(run, window, left_out).dump(1, ' ', false, ordered_json::error_handler_t::replace) +
         ",\n\"traceEvents\":[\n" + events.text() + "\n]}\n";
}

void write_trace(const std::filesystem::path& path, const std::string& json) {
  write_file_atomically(path, path.extension() == ".gz" ? gzipped(json) : json);
}

}  // namespace gradsync::report
