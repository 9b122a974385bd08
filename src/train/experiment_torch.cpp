// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/memory.h"
#include "base/parse.h"
#include "optim/optimizer.h"
#include "options/epoch_plan.h"
#include "options/modes.h"
#include "options/option_roles.h"
#include "stats/random.h"
#include "stats/statistics.h"
#include "train/before_training.h"
#include "train/experiment.h"

namespace gradsync {

namespace {

/// 0 to count − 1 in an order that is drawn.
std::vector<std::size_t> shuffled(std::size_t count, Draws& draws) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  draws.shuffle(order);
  return order;
}

/// Seconds of one iteration alone, or per iteration of several.
using Times = std::vector<std::vector<double>>;

/// Ratios of the times at one place of each entry to `to`.
Estimate ratio_of(const Times& entries, std::size_t place, const std::vector<double>& to) {
  std::vector<double> times_s;
  for (const auto& entry : entries)
    times_s.push_back(entry[place]);
  return paired_ratio(times_s, to);
}

constexpr double kLineEvery_s = 10;
/// Rounds that are measured before settings join.
constexpr std::int64_t kRoundsBeforeAdvice = 8;

constexpr double kNegligible = 0.01;
constexpr std::int64_t kLongestBlock = 64;

/// The options for a training of so many iterations that all count, of which nothing is kept.
TrainOptions trial_options(TrainOptions options, std::int64_t iterations) {
  options.warmup = 0;
  options.iterations = options.epochs = iterations;
  options.evaluate = EvaluateHow::kNone;
  options.checkpoint_every = 0;
  options.block = 1;
  options.block_warmup = 0;
  return options;
}

/// A training of these options that is not recorded, and of which nothing is said.
RunSetting trial_of(const RunSetting& setting, const TrainOptions& options) {
  return {.options = options,
          .data = setting.data,
          .compute = setting.compute,
          .places = setting.places,
          .clock_offset_s = setting.clock_offset_s,
          .start_s = setting.start_s,
          .gpu_uuid = setting.gpu_uuid,
          .make_graph = setting.make_graph,
          .quiet = true,
          .trial = true};
}

/// Iterations after which completing the messages is negligible, from single iterations and from
/// blocks of `length`.
double completion_of(double single_s, double block_s, std::int64_t length) {
  const auto n = static_cast<double>(length);
  return std::max(0.0, (single_s - block_s) * n / (n - 1) / block_s);
}

}  // namespace

std::vector<std::size_t> order_of_round(std::uint64_t seed, std::int64_t round, std::size_t count) {
  const std::size_t rounds = count % 2 == 0 ? count : 2 * count;
  const auto at = static_cast<std::uint64_t>(round);
  Draws draws(mix(seed, stream::kRound, at / rounds));
  const std::vector<std::size_t> members = shuffled(count, draws);
  const std::size_t row = shuffled(rounds, draws)[at % rounds];
  // 0, 1, count − 1, 2, count − 2, …: each difference modulo `count` once if that is even, and once
  // in it or its mirror image if not.
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < count; ++i)
    order.push_back(members[((i % 2 == 0 ? count - i / 2 : (i + 1) / 2) + row) % count]);
  if (row >= count) std::reverse(order.begin(), order.end());
  return order;
}

BlockChoice choose_block(const Session& session, const std::vector<Entrant>& entrants) {
  constexpr std::int64_t kRounds = 7, kSingles = 4, kLong = 8;
  const Stopwatch watch;
  std::deque<TrainOptions> options;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const Entrant& entrant : entrants) {
    options.push_back(trial_options(entrant.setting.options, kRounds * (kSingles + kLong)));
    trainers.push_back(
        std::make_unique<Trainer>(entrant.exchange, trial_of(entrant.setting, options.back())));
  }
  Times singles;                  // by block: seconds of each iteration
  std::vector<double> settled_s;  // of the last two
  double completion = 0;
  std::vector<std::vector<double>> single_s(entrants.size()), long_s(entrants.size());
  const auto turn = [&](Trainer& trainer, std::int64_t iterations) {
    const auto block = trainer.over() ? std::nullopt : trainer.advance(iterations);
    return block ? block->time_s : kNotMeasured;
  };
  for (std::int64_t round = 0; round < kRounds; ++round)
    for (const std::size_t which :
         order_of_round(entrants.front().setting.options.seed, round, entrants.size())) {
      session.meet();
      std::vector<double> times_s;
      for (std::int64_t i = 0; i < kSingles; ++i)
        times_s.push_back(turn(*trainers[which], 1));
      const double last_s = (times_s[2] + times_s[3]) / 2;
      const bool defers = entrants[which].setting.options.overlap == Overlap::kStep;
      const double block_s = defers ? turn(*trainers[which], kLong) : kNotMeasured;
      if (round == 0) continue;  // what is done once
      singles.push_back(times_s);
      settled_s.push_back(last_s);
      single_s[which].push_back(last_s);
      long_s[which].push_back(block_s);
    }
  while (!trainers.empty())
    trainers.pop_back();
  for (std::size_t which = 0; which < entrants.size(); ++which)
    completion =
        std::fmax(completion, completion_of(median(single_s[which]), median(long_s[which]), kLong));
  BlockChoice choice;
  choice.slowed = {ratio_of(singles, 0, settled_s), ratio_of(singles, 1, settled_s)};
  for (const Estimate& slowed : choice.slowed) {
    if (!(slowed.low > 1 + kNegligible)) break;
    ++choice.warmup;
  }
  choice.completion = completion;
  // Without leading iterations that do not count rounds are taken together instead.
  for (const Entrant& entrant : entrants)
    if (choice.warmup > 0) choice.period = common_period(choice.period, entrant.setting.options);
  const auto least =
      std::clamp<std::int64_t>(std::llround(std::ceil(completion / kNegligible)), 1, kLongestBlock);
  choice.block = choice.warmup + (least + choice.period - 1) / choice.period * choice.period;
  choice.probe_s = watch.elapsed_s();
  session.broadcast(choice);
  return choice;
}

std::string block_text(const BlockChoice& choice) {
  const auto slowed = [](const Estimate& one) {
    return fmt::format("{:.3f} [{:.3f}, {:.3f}]", one.value, one.low, one.high);
  };
  std::string text = fmt::format(
      "block auto: {}{}; after a change of contender the first iteration takes {} times as long as "
      "the third and fourth, the second {} (n = {}, measured in {:.1f} s)",
      count_text(choice.block, "iteration"),
      choice.warmup > 0 ? fmt::format(", the first {} not counted", choice.warmup) : "",
      slowed(choice.slowed[0]), slowed(choice.slowed[1]), choice.slowed[0].count, choice.probe_s);
  if (choice.period > 1)
    text += fmt::format("; in each {} that count local-sgd exchanges equally often", choice.period);
  if (choice.completion > 0)
    text += fmt::format("; completing the messages takes {:.1f} % of an iteration",
                        1e2 * choice.completion);
  return text;
}

namespace {

/// The cut of the gradients that is predicted to expose least.
BucketAdvice predicted_buckets(Exchange& exchange, const RunSetting& setting) {
  const TrainOptions& options = setting.options;
  const GradientTimeline gradients =
      gradient_timeline(exchange, setting.data, setting.compute, options);
  const std::int64_t bytes = gradients.total_bytes();
  const std::string wire = mode_named(options.sync).casts ? options.wire_dtype : "fp32";
  const auto sizes = [&](std::int64_t given) {
    return given > 0 ? std::vector{given} : bucket_ladder(bytes);
  };
  return best_buckets(gradients, all_reduce_time(exchange, bytes, wire),
                      sizes(options.first_bucket_bytes), sizes(options.bucket_cap_bytes));
}

/// Rounds of single iterations of copies with some options, unrecorded.
class Trial {
 public:
  explicit Trial(const Session& session) : rounds_(session, nullptr) {}

  void add(Exchange& exchange, const RunSetting& setting, TrainOptions options) {
    options_.push_back(trial_options(std::move(options), kWarmup + kRounds));
    options_.back().warmup = kWarmup;
    settings_.push_back(trial_of(setting, options_.back()));
    rounds_.add({"", exchange, settings_.back()});
  }

  const Experiment& run() {
    for (std::int64_t round = 0; round < kWarmup + kRounds; ++round)
      rounds_.run_round();
    return rounds_;
  }

 private:
  static constexpr std::int64_t kRounds = 8, kWarmup = 2;

  std::deque<TrainOptions> options_;
  std::deque<RunSetting> settings_;
  Experiment rounds_;
};

/// Time of an iteration with the buckets of one set of options over those of another.
Estimate tried(Exchange& exchange, Transport& transport, const RunSetting& setting,
               const TrainOptions& above, const TrainOptions& below) {
  const Session& session = exchange.session();
  const auto another = [&] {
    return std::make_unique<Exchange>(session, transport, verify_level(setting.options.verify),
                                      exchange.lane());
  };
  const std::unique_ptr<Exchange> one = another(), other = another();
  Estimate ratio;
  // While the exchanges stand, whose threads may be moving messages.
  session.abort_on_error([&] {
    Trial trial(session);
    trial.add(*one, setting, above);
    trial.add(*other, setting, below);
    ratio = trial.run().ratio(0, 1);
  });
  session.broadcast(ratio);
  return ratio;
}

}  // namespace

std::string settle_buckets(Exchange& exchange, Transport& transport, const RunSetting& setting,
                           TrainOptions& options) {
  if (options.first_bucket_bytes > 0 && options.bucket_cap_bytes > 0) return {};
  TrainOptions usual = options;
  if (usual.first_bucket_bytes == 0) usual.first_bucket_bytes = kDefaultFirstBucketBytes;
  if (usual.bucket_cap_bytes == 0) usual.bucket_cap_bytes = kDefaultBucketCapBytes;
  const Mode& mode = mode_named(options.sync);
  if (!mode.overlaps || mode.sharded || options.overlap != Overlap::kBackward ||
      exchange.session().size() == 1) {
    options = usual;
    return {};
  }
  if (exchange.lane())
    throw Error(ExitCode::kUsage, "--bucket-cap auto measures ranks on CPUs, and these are on GPUs",
                "give sizes; after a run, table what-if of gradsync-report names the best cap");
  const WatchdogTimeoutExtension measures(exchange.session().watchdog(),
                                          WatchedPhase::kCalibration);
  const Stopwatch watch;
  const BucketAdvice best = predicted_buckets(exchange, setting);
  options.first_bucket_bytes = best.first_bucket_bytes;
  options.bucket_cap_bytes = best.bucket_cap_bytes;
  const Estimate ratio = tried(exchange, transport, setting, options, usual);
  const auto sizes = [](const TrainOptions& of) {
    return fmt::format("{}, the first {}", format_bytes(of.bucket_cap_bytes),
                       format_bytes(of.first_bucket_bytes));
  };
  const std::string text = fmt::format(
      "{} ({}, the least predicted exposure: {:.2f} ms) took {:.3f} [{:.3f}, {:.3f}] of the "
      "iteration of {} in {}, measured in {:.1f} s",
      sizes(options), count_text(best.buckets, "bucket"), 1e3 * best.exposed_s, ratio.value,
      ratio.low, ratio.high, sizes(usual), count_text(ratio.count, "round"), watch.elapsed_s());
  if (!(ratio.value < 1)) options = usual;
  return fmt::format("bucket cap auto: {}; {}", sizes(options), text);
}

BlockTime tried_briefly(Exchange& exchange, const RunSetting& setting, TrainOptions options) {
  Trial trial(exchange.session());
  trial.add(exchange, setting, std::move(options));
  BlockTime medians = trial.run().medians(0);
  exchange.session().broadcast(medians);
  return medians;
}

namespace {

/// What trainings hold, without their activations, and what there is for them.
struct Room {
  std::vector<std::int64_t> held_bytes;  ///< of each training on a rank
  std::int64_t ranks = 1;                ///< that share what there is
  std::optional<std::int64_t> available_bytes;

  std::int64_t rank_bytes() const {
    return std::accumulate(held_bytes.begin(), held_bytes.end(), std::int64_t{0});
  }
  /// How many of the first trainings fit.
  std::size_t fitting() const {
    std::size_t count = 0;
    for (std::int64_t held = 0; count < held_bytes.size(); ++count)
      if ((held += ranks * held_bytes[count]) > available_bytes.value_or(held)) break;
    return count;
  }
};

/// All trainings have the model and the optimizer of the first.
Room look_for_room(const Session& session, const std::vector<const TrainOptions*>& trainings,
                   const ComputeSettings& compute) {
  // What is left is read before the network is made that tells what is needed.
  return_freed_memory();
  session.meet();
  const bool on_device = compute.device.is_cuda();
  Room room{{},
            on_device ? 1 : session.local_size(),
            on_device ? free_device_bytes() : available_memory_bytes()};
  session.meet();
  const TrainOptions& first = *trainings.front();
  Replica replica = make_replica(first.model, first.seed, compute.layout);
  const auto moments =
      static_cast<double>(make_optimizer(replica, first.optimizer)->moment_names().size());
  const double copy_bytes = sizeof(float) * static_cast<double>(replica.parameter_count());
  for (const TrainOptions* options : trainings) {
    const Mode& mode = mode_named(options->sync);
    const double share = 1.0 / session.size();
    // Parameters, gradients, and as much again that is exchanged.
    const double copies =
        3 * (mode.each_pass ? share : 1) + mode.kept_copies + moments * (mode.sharded ? share : 1);
    room.held_bytes.push_back(std::llround(copies * copy_bytes));
  }
  return room;
}

}  // namespace

std::int64_t room_for(const Session& session, const TrainOptions& options,
                      const ComputeSettings& compute) {
  const Room room = look_for_room(session, {&options}, compute);
  const std::int64_t here = room.available_bytes
                                ? *room.available_bytes / (room.ranks * room.rank_bytes())
                                : kMaxIterations;
  return -std::llround(session.max(-static_cast<double>(here)));
}

void require_room(const Session& session, const std::vector<const TrainOptions*>& trainings,
                  const ComputeSettings& compute) {
  const Room room = look_for_room(session, trainings, compute);
  const std::string needed = format_bytes(room.ranks * room.rank_bytes()),
                    contenders =
                        count_text(static_cast<std::int64_t>(trainings.size()), "contender");
  if (session.root())
    std::cout << fmt::format(
                     "memory: {} hold {} a rank (parameters, gradients, optimizer), {} on "
                     "this {}{}\n",
                     contenders, format_bytes(room.rank_bytes()), needed,
                     compute.device.is_cuda() ? "device" : "host",
                     room.available_bytes
                         ? fmt::format(" of {} free", format_bytes(*room.available_bytes))
                         : "")
              << std::flush;
  session.together([&] {
    const std::size_t fitting = room.fitting();
    if (fitting == trainings.size()) return;
    throw Error(
        ExitCode::kOutOfMemory,
        fmt::format("{} need {} on {}, which has {} left: the first {} would fit", contenders,
                    needed, session.host(), format_bytes(*room.available_bytes), fitting),
        "name fewer, or train them one by one: gradsync-sweep with interleave = no");
  });
}

Experiment::~Experiment() {
  // In the reverse order of their making, as control values pass them.
  while (!members_.empty())
    members_.pop_back();
}

void Experiment::add(const Entrant& entrant) {
  members_.push_back({entrant, std::make_unique<Trainer>(entrant.exchange, entrant.setting), {}});
}

/// Iterations that a member has trained when the next round begins.
std::int64_t Experiment::begin_of(const Member& member) const {
  return (round_ - member.what.joined) * options().block;
}

void Experiment::run(const std::function<void()>& after_first_rounds, ProgramOutput& output) {
  // Ranks wait for each other between two blocks, too.
  const WatchdogTimeoutExtension trains(session_.watchdog(), WatchedPhase::kTraining);
  const auto ended = [&] {
    return std::all_of(members_.begin(), members_.end(), [](const Member& one) {
      return one.what.joined > 0 || one.trainer->over();
    });
  };
  round_ = kMaxIterations;
  for (const Member& one : members_)
    if (!one.trainer->over() || ended())
      round_ = std::min(round_, one.what.joined + one.trainer->iterations_done() / options().block);
  // Where one was ended before the job was resumed, all end.
  std::int64_t last_round = kMaxIterations;
  for (const Member& one : members_)
    if (one.what.joined == 0 && one.trainer->was_ended())
      last_round = std::min(last_round, one.trainer->iterations_done() / options().block);
  bool asked = false;
  moved_before_ = session_.ledger().total();
  const Stopwatch since_start;
  Stopwatch since_line;
  first_round_ = round_;
  for (Member& one : members_)
    one.trainer->begins_after(moved_before_);  // what others trained is none of its own
  while (!ended() && !known_ && round_ < last_round) {
    run_round();
    if (session_.root() && !output.quiet() && since_line.elapsed_s() >= kLineEvery_s) {
      since_line.restart_s();
      std::cerr << fmt::format(
          "round {} of at most {}, {:.1f} s a round\n", round_,
          members_.front().trainer->iterations() / options().block,
          since_start.elapsed_s() / static_cast<double>(round_ - first_round_));
    }
    known_ = known_well();
    if (rounds_ < kRoundsBeforeAdvice || std::exchange(asked, true) || ended()) continue;
    const WatchdogTimeoutExtension prepares(session_.watchdog(), WatchedPhase::kStartUp);
    after_first_rounds();
  }
  const bool may_stop = stop_ && !ended() && options().evaluate != EvaluateHow::kNone;
  for (Member& one : members_) {
    if (may_stop && !one.trainer->over()) stop_if_wanted(&one);
    one.trainer->end_here();
  }
  for (Member& one : members_)
    one.trainer->close();
  if (session_.root()) output.print(ratio_table());
}

void Experiment::run_round() {
  const bool whole = std::all_of(members_.begin(), members_.end(), [&](const Member& one) {
    // One that has ended before, with the images of its epochs, takes no part.
    const std::int64_t done = one.trainer->iterations_done();
    const std::int64_t begin = std::max<std::int64_t>(0, begin_of(one));  // 0 until it joins
    return one.trainer->over() ? done <= begin : done == begin;
  });
  std::vector<std::optional<BlockTime>> blocks(members_.size());
  for (const std::size_t which : order_of_round(options().seed, round_, members_.size())) {
    Trainer& trainer = *members_[which].trainer;
    const std::int64_t left =
        begin_of(members_[which]) + options().block - trainer.iterations_done();
    trainer.begins_after(moved_before_);
    if (trainer.over() || left <= 0) continue;
    if (stop_) stop_if_wanted(trainer.evaluates_within(left) ? &members_[which] : nullptr);
    session_.meet();
    const Stopwatch watch;
    blocks[which] = trainer.advance(left, whole ? round_ : kNoRound);
    longest_block_s_ = std::max(longest_block_s_, watch.elapsed_s());
  }
  for (std::size_t which = 0; whole && which < members_.size(); ++which) {
    Member& one = members_[which];
    // One that the end of its training cut short is no block of the experiment.
    const std::int64_t end = begin_of(one) + options().block;
    if (blocks[which] && one.trainer->iterations_done() == end) one.blocks[round_] = *blocks[which];
  }
  ++round_;
  rounds_ = static_cast<std::int64_t>(members_.front().blocks.size());
  session_.broadcast(rounds_);
}

/// Whether --until is reached, which is asked at few numbers of rounds.
bool Experiment::known_well() const {
  if (options().until_percent == 0 || !looks_after(static_cast<std::size_t>(rounds_))) return false;
  std::byte known{1};
  for (std::size_t which = 1; session_.root() && which < members_.size(); ++which)
    if (!(1e2 * relative_half_width(ratio(which, 0)) <= options().until_percent))
      known = std::byte{0};
  session_.broadcast(known);
  return known != std::byte{0};
}

/// Ends the job between two blocks if a rank was asked to: each member has a checkpoint then.
/// `evaluates`: who comes to an evaluation next.
void Experiment::stop_if_wanted(const Member* evaluates) {
  const Entrant& first = members_.front().what;
  double needed_s = longest_block_s_;
  for (const Member& one : members_)
    needed_s += one.trainer->needed_to_suspend_s(&one == evaluates);
  const Verdict verdict = agree_on_stop(first.exchange, stop_->reason(needed_s));
  if (verdict.stop == StopReason::kNone) return;
  for (Member& one : members_)
    one.trainer->suspend();
  if (!session_.root()) session_.wait_for_abort();
  const bool recorded = !options().output.empty();
  throw Error(ExitCode::kStoppedEarly,
              fmt::format("stopped after {} iterations ({} at rank {}); {}",
                          members_.front().trainer->iterations_done(), stop_text(verdict.stop),
                          verdict.stop_rank,
                          recorded ? "the files of all contenders are partial" : "nothing is kept"),
              recorded ? command_to_go_on(first.setting.command_line, session_.size())
                       : "give --output, so that a stopped experiment can be resumed");
}

std::int64_t Experiment::Member::rounds_per_exchange() const {
  const TrainOptions& options = what.setting.options;
  return gradsync::rounds_per_exchange(common_period(1, options), options.block,
                                       options.block_warmup);
}

Estimate Experiment::ratio(std::size_t which, std::size_t to) const {
  const Member &one = members_[which], &other = members_[to];
  std::vector<double> above_s, below_s;
  for (const auto& [above, below] :
       paired_blocks(one.blocks, other.blocks,
                     std::lcm(one.rounds_per_exchange(), other.rounds_per_exchange()))) {
    above_s.push_back(above.time_s);
    below_s.push_back(below.time_s);
  }
  return paired_ratio(above_s, below_s);
}

BlockTime Experiment::medians(std::size_t which) const {
  const Member& member = members_[which];
  const auto blocks = paired_blocks(member.blocks, member.blocks, member.rounds_per_exchange());
  const auto of = [&](auto value) {
    std::vector<double> times_s;
    for (const auto& [block, same] : blocks)
      times_s.push_back(value(block));
    return median(times_s);
  };
  BlockTime medians;
  medians.time_s = of([](const BlockTime& block) { return block.time_s; });
  for (std::size_t part = 0; part < kCostParts.size(); ++part)
    medians.parts_s[part] = of([=](const BlockTime& block) { return block.parts_s[part]; });
  return medians;
}

Table Experiment::ratio_table() const {
  Table table{"contenders", "Contenders against " + members_.front().what.name, {}, {}, {}};
  table.columns = {{"contender", "contender", true},
                   {"iteration_ms", "ms/iteration"},
                   {"ratio", "ratio"},
                   {"ratio_low", "low"},
                   {"ratio_high", "high"},
                   {"rounds", "rounds"}};
  const std::string beyond = iterations_beyond_epochs(
      options(), members_.front().what.setting.data.size(Split::kTrain), session_.size());
  if (!beyond.empty()) table.title += "; " + beyond;
  for (std::size_t which = 0; which < members_.size(); ++which) {
    const Estimate to_first = which == 0 ? Estimate() : ratio(which, 0);
    table.add({members_[which].what.name, Cell::of(1e3 * medians(which).time_s, 3),
               Cell::of(to_first.value, 4), Cell::of(to_first.low, 4), Cell::of(to_first.high, 4),
               Cell::of(static_cast<double>(members_[which].blocks.size()), 0)});
  }
  table.notes = {fmt::format(
      "contenders in turn, {} at a time after the warm-up, as long as on the rank that the others "
      "waited for; low, high: 95 % interval (Wilcoxon's signed-rank test)",
      count_text(options().block - options().block_warmup, "iteration"))};
  if (first_round_ > 0)
    table.notes.push_back(
        fmt::format("resumed: rounds from {} on; gradsync-report has all", first_round_));
  for (const Member& one : members_)
    if (const std::string text = other_training_text(one.what.name); !text.empty())
      table.notes.push_back(one.what.name + text);
  if (options().until_percent > 0)
    table.notes.push_back(fmt::format("--until {:g}%: {}", options().until_percent,
                                      known_ ? "reached" : "not reached"));
  return table;
}

}  // namespace gradsync
