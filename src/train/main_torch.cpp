// SPDX-License-Identifier: BSD-3-Clause
// gradsync-train: data-parallel training, measured.
//
//   mpirun -n 2 gradsync-train --model vgg11 --sync ddp --iterations 40 --output run.h5
//   mpirun -n 2 gradsync-train --epochs 30 --time-limit 3h --output run.h5 --resume auto
//   srun --mpi=pmix -n 8 gradsync-train --config run.cfg --output run.h5

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/version.h>

#include "base/memory.h"
#include "base/parse.h"
#include "base/table.h"
#include "comm/mpi_program.h"
#include "comm/session.h"
#include "model/network.h"
#include "options/epoch_plan.h"
#include "options/option_roles.h"
#include "options/options.h"
#include "stats/estimate.h"
#include "stats/random.h"
#include "stats/statistics.h"
#include "train/before_training.h"
#include "train/compute_settings.h"
#include "train/rank_measurements.h"
#include "train/rank_state.h"
#include "train/resume.h"
#include "train/trainer.h"
#include "transport/rank_transport.h"

namespace gradsync {

namespace {

/// Prints what rank 0 says of a run before it trains: on stdout, with warnings on stderr.
void print_environment(const TrainOptions& options, const std::string& modes,
                       const DataDigest& digest, const RunData& data,
                       const ComputeSettings& compute, const std::vector<RankPlace>& places) {
  std::cout << fmt::format(
                   "{} with {}, {}, batch {} per rank, {} global{}\n", options.model, modes,
                   count_text(places.size(), "rank"), options.batch_per_rank, options.batch_global,
                   options.accumulate > 1 ? fmt::format(" in {} passes", options.accumulate) : "")
            << fmt::format("data: {}, {} training and {} test images, sha256 {}\n", digest.name,
                           data.size(Split::kTrain), data.size(Split::kTest),
                           digest.combined.substr(0, 16))
            << fmt::format("compute: {} {}, {} a rank{}\n", precision_name(compute.precision),
                           compute.layout == Layout::kNchw ? "nchw" : "nhwc",
                           count_text(compute.threads, "thread"),
                           compute.probed.empty()
                               ? ""
                               : fmt::format(" (probed: {})", fmt::join(compute.probed, ", ")));
  for (const RankPlace& place : places)
    if (place.local_rank == 0)
      std::cout << fmt::format("host {}: {}, rank {} on cores {}\n", place.host, place.device,
                               place.rank, place.affinity);
  std::cout << std::flush;
  for (const std::string& warning : compute.warnings)
    print_warning("gradsync-train", warning);
  const std::string beyond = iterations_beyond_epochs(options, data.size(Split::kTrain),
                                                      static_cast<std::int64_t>(places.size()));
  if (!beyond.empty())
    print_warning("gradsync-train", beyond + ": the run ends there; more --epochs train on");
  if (!options.set_epoch && options.epochs > 1)
    print_warning("gradsync-train", "--no-set-epoch: every epoch repeats the order of the first");
}

void print_device(const DeviceChoice& device, const TransportChoice& transport) {
  if (!device.why.empty()) std::cout << fmt::format("device: cpu; no GPU: {}\n", device.why);
  std::cout << fmt::format("transport: {} ({})\n", transport.name, transport.why) << std::flush;
  if (device.shared)
    print_warning("gradsync-train",
                  "--allow-shared-gpu: ranks share a GPU, times are not meaningful");
}

/// Each host once, "n1,n2".
std::string hosts_of(const std::vector<RankPlace>& places) {
  std::vector<std::string> hosts;
  for (const RankPlace& place : places)
    if (std::find(hosts.begin(), hosts.end(), place.host) == hosts.end())
      hosts.push_back(place.host);
  return fmt::format("{}", fmt::join(hosts, ","));
}

/// What every program records of its machine, and LibTorch's version, the data set and its digests,
/// and how the run computes.
std::vector<NamedText> provenance(const DataDigest& data, const ComputeSettings& compute) {
  std::vector<NamedText> all = machine_provenance("gradsync-train");
  const std::vector<NamedText> own = {
      {"libtorch", TORCH_VERSION},
      {"data_name", data.name},
      {"data_sha256", data.combined},
      {"precision", precision_name(compute.precision)},
      {"layout", compute.layout == Layout::kNchw ? "nchw" : "nhwc"},
      {"probed", fmt::format("{}", fmt::join(compute.probed, "; "))},
  };
  all.insert(all.end(), own.begin(), own.end());
  for (const FileDigest& file : data.files)
    all.push_back({"data_sha256." + file.file, file.sha256});
  return all;
}

constexpr int kClockRoundTrips = 50;

/// Every option as this rank has it; --output too: all ranks must mean the same run.
std::vector<NamedText> stated(const OptionValues& values) {
  std::vector<NamedText> all;
  for (const auto& [name, value] : values)
    all.push_back({name, value.value});
  return all;
}

/// Reads every byte of the data once a node, and all nodes must have the same.
DataDigest verify_data(const Session& session, const RunData& data) {
  const WatchdogTimeoutExtension reads(session.watchdog(), WatchedPhase::kData);
  DataDigest digest;
  session.together([&] {
    if (session.local_rank() == 0) digest = data.verify();
  });
  std::array<char, 64> combined;
  combined.fill(' ');
  digest.combined.copy(combined.data(), combined.size());
  session.broadcast_on_node(combined);
  require_agreement(session, {{"data set digest", {combined.data(), combined.size()}}});
  return digest;
}

/// The start of the run on rank 0's clock. A resumed run began as long ago as it had run when
/// its checkpoint was written: what lies between the two processes is left out.
double broadcast_start(const Session& session, const ResumePlan& plan) {
  double start_s = now_s() - plan.from.elapsed_s;
  session.broadcast(start_s);
  return start_s;
}

/// The values with what was settled in place of those that leave it open.
std::vector<ConfigEntry> resolved_config(const OptionValues& values, const TrainOptions& settled) {
  std::vector<ConfigEntry> config;
  for (const auto& [name, value] : values) {
    const TrainOption& option = *declared_train_option(name);
    const bool open = !option.open.empty() && value.value == option.open;
    config.push_back({name, open ? option.value.text(settled) : value.value, value.source});
  }
  return config;
}

/// The run of the options, before the settings that depend on the machine are chosen.
CheckpointInfo requested_run(const Session& session, const OptionValues& values,
                             const DataDigest& digest, const TrainOptions& options) {
  RunInfo info;
  info.config = resolved_config(values, options);
  info.provenance = provenance(digest, ComputeSettings());
  info.topology.resize(static_cast<std::size_t>(session.size()));
  return describe_run(info);
}

/// A resumed run keeps its name.
RunInfo run_info(const OptionValues& values, const std::string& command_line,
                 const DataDigest& digest, const ComputeSettings& compute,
                 const std::vector<RankPlace>& places, const TrainOptions& options,
                 const ResumePlan& plan) {
  RunInfo info;
  info.run_id = plan.resumes ? plan.from.run_id : new_uuid();
  info.created = utc_now();
  info.command_line = command_line;
  TrainOptions settled = options;
  settled.threads = compute.threads;
  info.config = resolved_config(values, settled);
  info.provenance = provenance(digest, compute);
  info.topology = places;
  return info;
}

std::unique_ptr<Recorder> make_recorder(const std::string& output, const RunInfo& info,
                                        const ResumePlan& plan) {
  if (!plan.resumes) return std::make_unique<Recorder>(output, info);
  return std::make_unique<Recorder>(output, ResumeRow{plan.from.iteration, plan.from.journal_bytes,
                                                      utc_now(), hosts_of(info.topology)});
}

/// Prints and records; throws Error kCheckFailed if a mode is not what it should be.
void verify_before_timing(Exchange& exchange, const RunSetting& setting, ProgramOutput& output) {
  const auto rows = verify_modes(exchange, setting.data, setting.options, setting.compute);
  if (exchange.session().rank() == 0) output.print(verification_table(rows));
  for (const VerificationRow& row : rows) {
    if (setting.recorder) setting.recorder->add(row);
    if (!row.passed)
      throw Error(ExitCode::kCheckFailed,
                  fmt::format("mode {} fails its verification: ranks equal: {}, difference {:.3e}, "
                              "tolerance {:.1e}",
                              row.mode, row.ranks_equal, row.difference, row.tolerance));
  }
}

/// The buckets are known, and calibrated, only after training.
void calibrate_before_training(const Session& session, Transport& transport, Watchdog& watchdog,
                               const RunSetting& setting, DeviceLane* lane) {
  calibrate_ranks(session, transport, watchdog, setting.options.calibrate_sizes, {},
                  setting.recorder, lane);
  probe_arithmetic(session, setting.compute, setting.options.tf32, setting.recorder);
  // Or the memory of the run would be that of its calibration.
  reset_peak_resident();
}

/// What a checkpoint holds the effect of already is not done again.
void check_before_training(const Session& session, Exchange& exchange, Transport& transport,
                           Watchdog& watchdog, const RunSetting& setting, ProgramOutput& output) {
  if (setting.resume->from.iteration > 0) return;
  if (setting.options.verify_modes) {
    const WatchdogTimeoutExtension checks(watchdog, WatchedPhase::kModeCheck);
    verify_before_timing(exchange, setting, output);
  }
  if (setting.options.calibrate)
    calibrate_before_training(session, transport, watchdog, setting, exchange.lane());
}

ClockOffset clock_offset(const Session& session) {
  const std::int64_t talks = session.root() ? session.size() - 1 : 1;
  const auto bytes = static_cast<std::int64_t>(talks * kClockRoundTrips * sizeof(double));
  session.ledger().add(Traffic::kControl, {bytes, bytes});
  return measure_clock_offset(session, kClockRoundTrips);
}

/// Reads the clocks again, records them and, once a job, says how far they have drifted.
void close_clocks(const Session& session, const RunSetting& setting, const ClockRow& start,
                  bool says) {
  const ClockOffset clock = clock_offset(session);
  const ClockRow end = clock_row(session, clock, "end", now_s() - setting.start_s);
  if (setting.recorder) setting.recorder->add(end);
  if (session.size() > 1 && session.root() && says)
    std::cout << drift_text(start, end) << std::endl;
}

/// An evaluation that is shared out gives each rank an image at least.
void require_test_images(const TrainOptions& options, int ranks, const RunData& data) {
  const std::int64_t images = data.size(Split::kTest);
  if (options.evaluate != EvaluateHow::kShard || replicas_may_differ(options, ranks) ||
      ranks <= images)
    return;
  throw Error(ExitCode::kUsage,
              fmt::format("{} for {}", count_text(ranks, "rank"), count_text(images, "test image")),
              "give --evaluate each-rank or none, or use a larger data set");
}

/// What can be refused before anything is measured, while the ranks still speak with one voice.
std::optional<RunData> check_request(const Session& session, TrainOptions& options) {
  std::optional<RunData> data;
  const WatchdogTimeoutExtension reads(session.watchdog(), WatchedPhase::kData);
  session.together([&] {
    resolve_batch(options, session.size());
    data.emplace(options);
    // Refuses more ranks than images.
    static_cast<void>(Sampler(data->size(Split::kTrain), session.rank(), session.size(),
                              options.batch_per_rank, options.seed));
    require_test_images(options, session.size(), *data);
    const std::int64_t images = data->size(Split::kTrain);
    require_iterations(options, images, session.size());
    if (is_script(options.model))
      require_trainable_script(options.model, network_input(options),
                               options.layout == "nhwc" ? Layout::kNhwc : Layout::kNchw,
                               pass_sizes(options, images, session.size()));
    LearningRate(options.learning_rate);
  });
  return data;
}

/// The data as the run uses them: on the device if asked for, or where that is a GPU.
DataSource data_source(const RunData& data, const TrainOptions& options,
                       const ComputeSettings& compute, DeviceLane* lane) {
  if (!data.files()) return data.draw(compute.device);
  const Cifar10& files = *data.files();
  const bool wanted = options.feed == FeedFrom::kAuto ? compute.device.is_cuda()
                                                      : options.feed == FeedFrom::kResident;
  if (!wanted) return {files, nullptr, compute.device, lane};
  const ImageType type = compute.precision == Precision::kFp32   ? ImageType::kFloat32
                         : compute.precision == Precision::kBf16 ? ImageType::kBfloat16
                                                                 : ImageType::kFloat16;
  return {files, std::make_shared<ResidentData>(files, compute.device, type), compute.device, lane};
}

/// Trains one run, with all that is measured after it on the trained network and its ranks.
void train(const Session& session, Exchange& exchange, Transport& transport, Watchdog& watchdog,
           const RunSetting& setting, ProgramOutput& output) {
  check_before_training(session, exchange, transport, watchdog, setting, output);
  Trainer trainer(exchange, setting);
  trainer.advance(kMaxIterations);
  trainer.close();
  trainer.print_summary(output);
  if (setting.options.counterfactual > 0) trainer.run_counterfactual(output);
  if (setting.options.calibrate)
    calibrate_ranks(session, transport, watchdog, {}, trainer.buckets(), setting.recorder,
                    exchange.lane());
}

/// What all ranks have agreed on before anything of the machine is settled.
struct RunRequest {
  const Session& session;
  const std::string& command_line;
  const StopRequest& stop;
  const RunData& data;
  const DataDigest& digest;
  ProgramOutput& output;
};

/// A training of the job, with its file. Its end is collective.
struct Training {
  Contender what;  ///< where what was taken for `auto` is written
  ResumePlan plan;
  Transport* transport = nullptr;
  std::unique_ptr<Exchange> exchange = {};
  std::unique_ptr<Recorder> recorder = {};  ///< on rank 0, if it is recorded
  CheckpointInfo description = {};          ///< likewise
  std::vector<RankPlace> places = {};
  ClockRow clocks = {};  ///< at the start
  std::optional<RunSetting> setting = {};
};

/// Writes into the options what was taken for `auto`.
TransportChoice settle_transport(const Session& session, TrainOptions& options,
                                 const DeviceChoice& device) {
  const RankLayout layout = rank_layout(session);
  TransportChoice chosen;
  session.together([&] { chosen = choose_transport(options.transport, device, layout); });
  options.device = device.cuda ? "cuda" : "cpu";
  options.transport = chosen.name;
  return chosen;
}

/// What a rank computes and talks with. Its ends are collective.
struct RunRanks {
  RunRanks(const Session& of, const TrainOptions& options)
      : session(of), device(session, {options.device, options.allow_shared_gpu}) {}

  /// The transport that the options choose; made once for all trainings that do.
  RankTransport& transport(TrainOptions& options) {
    const TransportChoice chosen = settle_transport(session, options, device.choice());
    auto& made = transports[chosen.name];
    if (!made)
      made = std::make_unique<RankTransport>(session, session.watchdog(), chosen, device.choice(),
                                             device.lane());
    return *made;
  }

  const Session& session;
  RankDevice device;
  std::map<std::string, std::unique_ptr<RankTransport>> transports;
};

/// Checkpoints of other runs or of an abandoned branch do not stay where this run's are written.
void set_aside_others(const std::string& output, const ResumePlan& plan) {
  const auto folder = checkpoint_folder(output);
  const SetAside moved = set_aside_checkpoints(folder, plan.own);
  if (moved.checkpoints == 0) return;
  print_warning("gradsync-train",
                fmt::format("'{}' held {} of another run or of an abandoned branch of "
                            "this one, moved to '{}'",
                            folder.string(), count_text(moved.checkpoints, "checkpoint"),
                            moved.folder.string()));
}

/// Makes the recorder, on rank 0 of a run that is recorded, and what its checkpoints say of it.
/// Collective.
void open_record(const RunRequest& request, const ComputeSettings& compute,
                 const std::vector<RankPlace>& places, const std::vector<NamedText>& experiment,
                 Training& training) {
  const TrainOptions& options = training.what.options;
  request.session.together([&] {
    if (!request.session.root() || options.output.empty()) return;
    RunInfo info = run_info(training.what.values, request.command_line, request.digest, compute,
                            places, options, training.plan);
    const std::int64_t images = request.data.size(Split::kTrain);
    const EpochPlan epoch = epoch_plan(options, images, request.session.size(), 0);
    info.provenance.push_back({"train_images", std::to_string(images)});
    info.provenance.push_back({"epoch_iterations", std::to_string(epoch.iterations())});
    info.experiment = experiment;
    // The reference's run names the experiment, and is made first.
    for (NamedText& fact : info.experiment)
      if (fact.name == "id" && fact.value.empty()) fact.value = info.run_id;
    training.recorder = make_recorder(options.output, info, training.plan);
    set_aside_others(options.output, training.plan);
    training.description = describe_run(info);
  });
}

/// All ranks wait for rank 0's disk.
void publish(Exchange& exchange, Recorder* recorder, const std::string& output) {
  const WatchdogTimeoutExtension writes(exchange.session().watchdog(), WatchedPhase::kPublishing);
  if (recorder) recorder->finish(RunStatus::kComplete);
  if (recorder) std::cout << "run file: " << output << std::endl;
  std::byte done{1};
  exchange.session().broadcast(done);
}

/// Frees what all ranks must leave together.
void leave(const Session& session, std::optional<RunRanks>& ranks) {
  const WatchdogTimeoutExtension ends(session.watchdog(), WatchedPhase::kShutdown);
  const CollectiveScope watched(session.watchdog(), CollectiveKind::kBarrier);
  ranks.reset();
}

/// The contenders in the order of their blocks, drawn alike on all ranks.
std::vector<std::size_t> order_of_round(std::uint64_t seed, std::int64_t round, std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Draws draws(mix(seed, stream::kRound, static_cast<std::uint64_t>(round)));
  for (std::size_t i = count; i > 1; --i)
    std::swap(order[i - 1], order[draws.below(i)]);
  return order;
}

/// Ends the job between two blocks if a rank was asked to: each contender has a checkpoint then.
void stop_if_wanted(const Session& session, const std::vector<Training>& trainings,
                    const std::vector<std::unique_ptr<Trainer>>& trainers,
                    const StopRequest& stop) {
  // No time for checkpoints is set aside yet, but what a few of them may take.
  const Verdict verdict = agree_on_stop(*trainings.front().exchange, stop.reason(0));
  if (verdict.stop == StopReason::kNone) return;
  for (const auto& trainer : trainers)
    trainer->suspend();
  if (!session.root()) session.wait_for_abort();
  const bool recorded = !trainings.front().what.options.output.empty();
  throw Error(
      ExitCode::kStoppedEarly,
      fmt::format("stopped after {} iterations ({} at rank {}); {}",
                  trainers.front()->iterations_done(), stop_text(verdict.stop), verdict.stop_rank,
                  recorded ? "the files of all contenders are partial" : "nothing is kept"),
      recorded ? command_to_go_on(trainings.front().setting->command_line, session.size())
               : "give --output, so that a stopped experiment can be resumed");
}

/// Each contender against the reference, by the times of their blocks of one round.
Table ratio_table(const std::vector<Training>& trainings,
                  const std::vector<std::vector<double>>& rounds_s) {
  Table table{"contenders", "Contenders against " + trainings.front().what.name, {}, {}, {}};
  table.columns = {{"contender", "contender", true},
                   {"iteration_ms", "ms/iteration"},
                   {"ratio", "ratio"},
                   {"ratio_low", "low"},
                   {"ratio_high", "high"}};
  for (std::size_t which = 0; which < trainings.size(); ++which) {
    std::vector<double> times_s, logarithms;
    for (const auto& round : rounds_s) {
      times_s.push_back(round[which]);
      logarithms.push_back(std::log(round[which] / round.front()));
    }
    const Estimate ratio = paired_estimate(logarithms);
    const auto cell = [&](double logarithm) {
      return Cell::of(which == 0 ? kNotMeasured : std::exp(logarithm), 4);
    };
    table.add({trainings[which].what.name, Cell::of(1e3 * median(times_s), 3), cell(ratio.value),
               cell(ratio.low), cell(ratio.high)});
  }
  table.notes = {fmt::format(
      "{} of {} iterations after the warm-up, contenders in turn within each; low, high: 95 % "
      "interval (Wilcoxon's signed-rank test)",
      count_text(static_cast<std::int64_t>(rounds_s.size()), "round"),
      trainings.front().what.options.block)};
  return table;
}

/// Trains the contenders block by block, in an order that is drawn for each round, and prints what
/// they cost. A round in which one of them has its block already, because the job was resumed, is
/// none of the experiment. Stops between two blocks. Collective.
void train_in_turn(const Session& session, std::vector<Training>& trainings,
                   const StopRequest& stop, ProgramOutput& output) {
  const TrainOptions& options = trainings.front().what.options;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (Training& training : trainings)
    trainers.push_back(std::make_unique<Trainer>(*training.exchange, *training.setting));
  std::vector<std::vector<double>> rounds_s;  ///< by round, contender: seconds per iteration
  const auto behind = [](const auto& a, const auto& b) {
    return a->iterations_done() < b->iterations_done();
  };
  for (std::int64_t round =
           (*std::min_element(trainers.begin(), trainers.end(), behind))->iterations_done() /
           options.block;
       std::any_of(trainers.begin(), trainers.end(), [](const auto& one) { return !one->over(); });
       ++round) {
    const std::int64_t begin = round * options.block, end = begin + options.block;
    const bool whole = std::all_of(trainers.begin(), trainers.end(), [&](const auto& one) {
      return one->iterations_done() == begin && !one->over();
    });
    std::vector<double> times_s(trainers.size());
    for (const std::size_t which : order_of_round(options.seed, round, trainers.size())) {
      Trainer& trainer = *trainers[which];
      const std::int64_t left = end - trainer.iterations_done();
      if (trainer.over() || left <= 0) continue;
      stop_if_wanted(session, trainings, trainers, stop);
      session.meet();
      const std::int64_t before = trainer.iterations_done();
      times_s[which] =
          trainer.advance(left, whole ? round : kNoRound) /
          static_cast<double>(std::max<std::int64_t>(1, trainer.iterations_done() - before));
    }
    if (whole && begin >= options.warmup) rounds_s.push_back(times_s);
  }
  for (const auto& trainer : trainers)
    trainer->close();
  if (session.root()) output.print(ratio_table(trainings, rounds_s));
  while (!trainers.empty())
    trainers.pop_back();
}

std::string names_of(const std::vector<Training>& trainings) {
  std::vector<std::string> names;
  for (const Training& one : trainings)
    names.push_back(one.what.name);
  return fmt::format("{}", fmt::join(names, ","));
}

/// What the files of an experiment have in common, and which contender one holds. The experiment is
/// named by the run of its reference, which is made first.
std::vector<NamedText> experiment_of(const std::vector<Training>& trainings,
                                     const Training& training) {
  if (trainings.size() == 1) return {};
  const TrainOptions& options = training.what.options;
  return {{"id", trainings.front().description.run_id},
          {"contender", training.what.name},
          {"contenders", names_of(trainings)},
          {"block", std::to_string(options.block)},
          {"seed", std::to_string(options.seed)}};
}

/// Settles what is open of a training, opens its file and states what it needs.
void prepare(RunRanks& ranks, const RunRequest& request, const ComputeSettings& compute,
             const DataSource& source, std::vector<Training>& trainings, std::size_t which) {
  Training& training = trainings[which];
  TrainOptions& options = training.what.options;
  const Session& session = request.session;
  RankTransport& transport = ranks.transport(options);
  training.transport = &transport.get();
  training.exchange = std::make_unique<Exchange>(session, transport.get(),
                                                 verify_level(options.verify), ranks.device.lane());
  const auto buckets = settle_buckets(*training.exchange, source, compute, options);
  const double start_s = broadcast_start(session, training.plan);
  const ClockOffset clock = clock_offset(session);
  const ClockRow clocks =
      clock_row(session, clock, training.plan.resumes ? "resume" : "start", now_s() - start_s);
  training.places = gather_places(session, compute.threads, clock, ranks.device.description());
  open_record(request, compute, training.places, experiment_of(trainings, training), training);
  if (session.root() && which == 0) {
    print_environment(options, names_of(trainings), request.digest, request.data, compute,
                      training.places);
    print_device(ranks.device.choice(), transport.choice());
  }
  if (session.root() && buckets) std::cout << bucket_text(*buckets) << std::endl;
  training.clocks = clocks;
  training.setting.emplace(
      RunSetting{.options = options,
                 .data = source,
                 .compute = compute,
                 .places = training.places,
                 .clock_offset_s = clock.offset_s,
                 .start_s = start_s,
                 .recorder = training.recorder.get(),
                 .stop = trainings.size() == 1 ? &request.stop : nullptr,
                 .resume = &training.plan,
                 .description = training.description,
                 .command_line = request.command_line,
                 .gpu_uuid = compute.device.is_cuda() ? ranks.device.description().uuid : "",
                 .buckets = buckets,
                 .contender = trainings.size() > 1 ? training.what.name : "",
                 // The time that is left is the same for all.
                 .quiet = request.output.quiet() || which > 0});
  if (!training.recorder) return;
  training.recorder->add(clocks);
  // A run that resumes without a checkpoint begins at its first row, behind which layers lie.
  if (training.plan.from.iteration > 0) return;
  for (const LayerRow& layer :
       layer_flop(options.model, network_input(options), options.batch_per_rank))
    training.recorder->add(layer);
}

/// Runs everything from settled options to closed run files.
void run_on(RunRanks& ranks, const RunRequest& request, std::vector<Training>& trainings) {
  const Session& session = request.session;
  TrainOptions& first = trainings.front().what.options;
  ranks.transport(first);  // settles the device
  const ComputeSettings compute = settle_compute(session, first, ranks.device.torch());
  const DataSource source = data_source(request.data, first, compute, ranks.device.lane());
  for (std::size_t i = 0; i < trainings.size(); ++i)
    prepare(ranks, request, compute, source, trainings, i);
  if (trainings.size() == 1)
    train(session, *trainings.front().exchange, *trainings.front().transport, session.watchdog(),
          *trainings.front().setting, request.output);
  else
    train_in_turn(session, trainings, request.stop, request.output);
  for (const Training& training : trainings) {
    close_clocks(session, *training.setting, training.clocks, &training == &trainings.front());
    publish(*training.exchange, training.recorder.get(), training.what.options.output);
  }
  if (session.root()) request.output.write_json();
  // In the reverse order of their making, as control values pass them.
  while (!trainings.empty())
    trainings.pop_back();
}

/// An earlier process of the run was interrupted behind its last record.
void publish_complete(const Session& session, const std::string& output) {
  const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kPublishing);
  session.together([&] {
    if (!session.root()) return;
    finish_interrupted(output);
    std::cout << "the journal holds the complete run\nrun file: " << output << std::endl;
  });
}

/// The job on the ranks of `session`: agreement, data, verification, training, record and closing
/// table. Returns the exit code; errors end the job through the session. Collective.
int run_job(const Session& session, std::vector<Contender> wanted, const OptionValues& values,
            const std::string& command_line, const StopRequest& stop, ProgramOutput& output) {
  const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
  require_agreement(session, stated(values));
  std::optional<RunData> data;
  for (Contender& contender : wanted)
    if (auto checked = check_request(session, contender.options); !data) data = std::move(checked);
  const DataDigest digest = verify_data(session, *data);
  std::vector<Training> trainings;
  for (Contender& contender : wanted) {
    ResumePlan plan =
        plan_resume(session, contender.options,
                    requested_run(session, contender.values, digest, contender.options));
    if (plan.complete) {
      publish_complete(session, contender.options.output);
      continue;
    }
    settle_as_before(contender.options, plan);
    trainings.push_back({std::move(contender), std::move(plan)});
  }
  if (trainings.empty()) return 0;
  std::optional<RunRanks> ranks(std::in_place, session, trainings.front().what.options);
  session.abort_on_error([&] {
    // Closed by an error that ends the job, too: their journals are unlocked then.
    std::vector<Training> own = std::move(trainings);
    run_on(*ranks, {session, command_line, stop, *data, digest, output}, own);
  });
  leave(session, ranks);
  return 0;
}

}  // namespace

}  // namespace gradsync

int main(int argc, char** argv) {
  using namespace gradsync;
  keep_freed_memory();
  set_memory_fix("lower --batch-per-rank");
  StopRequest stop;
  TrainOptions options;
  std::vector<Contender> wanted;
  const MpiProgram program{train_help(),
                           train_option_table(),
                           Foreign::kReject,
                           [&](const OptionValues& values) {
                             options = train_options(values);
                             wanted = contenders(values, options);
                           },
                           [&] { return watch_limits(options); },
                           [&](const Session& session, const OptionValues& values,
                               const std::string& command_line, ProgramOutput& output) {
                             stop.begin(options.time_limit_s);
                             return run_job(session, std::move(wanted), values, command_line, stop,
                                            output);
                           }};
  return run_mpi_program(program, argc, argv);
}
