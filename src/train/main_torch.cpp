// SPDX-License-Identifier: BSD-3-Clause
// gradsync-train: data-parallel training, measured.
//
//   mpirun -n 2 gradsync-train --model vgg11 --sync ddp --iterations 40 --output run.h5
//   mpirun -n 2 gradsync-train --epochs 30 --time-limit 3h --output run.h5 --resume auto
//   srun --mpi=pmix -n 8 gradsync-train --config run.cfg --output run.h5

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
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
#include "record/reader.h"
#include "train/advice.h"
#include "train/before_training.h"
#include "train/compute_settings.h"
#include "train/experiment.h"
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

/// Reads every byte of the data once a node, and all nodes must have the same.
DataDigest verify_data(const Session& session, const RunData& data) {
  const WatchdogTimeoutExtension reads(session.watchdog(), WatchedPhase::kData);
  DataDigest digest;
  require_same_on_nodes(session, "data set digest", [&] {
    digest = data.verify();
    return digest.combined;
  });
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
  // A run that resumes has those of before, on each rank.
  if (std::ranges::all_of(places, [&](const RankPlace& place) {
        return place.threads == static_cast<std::int32_t>(compute.threads);
      }))
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
  const WatchdogTimeoutExtension writes(exchange.session().watchdog(), WatchedPhase::kJournal);
  exchange.session().together([&] {
    for (const VerificationRow& row : rows) {
      if (setting.recorder) setting.recorder->add(row);
      if (!row.passed)
        throw Error(
            ExitCode::kCheckFailed,
            fmt::format("mode {} fails its verification: its ranks have {} parameters; largest "
                        "difference to those of allreduce: {:.1e}, tolerance {:.0e}",
                        row.mode, row.ranks_equal ? "equal" : "different", row.difference,
                        row.tolerance),
            "gradsync-check tests libraries and links; try another --transport");
    }
  });
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
  const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kJournal);
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

/// What all ranks have agreed on before anything of the machine is settled.
struct RunRequest {
  const Session& session;
  const OptionValues& values;  ///< of the job
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
  TransportChoice why_transport = {};
  std::unique_ptr<Exchange> exchange = {};
  std::unique_ptr<Recorder> recorder = {};  ///< on rank 0, if it is recorded
  CheckpointInfo description = {};          ///< likewise
  std::vector<RankPlace> places = {};
  ClockRow clocks = {};  ///< at the start
  std::optional<RunSetting> setting = {};
  std::optional<Advice> advice = {};  ///< if it joined for that
  std::int64_t joined = 0;            ///< its first round
  std::vector<LayerRow> layers = {};  ///< of the network, which all contenders have

  bool begins() const { return plan.from.iteration == 0; }
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
  // The journal of a run that is resumed is read whole.
  std::optional<WatchdogTimeoutExtension> reads;
  if (training.plan.resumes) reads.emplace(request.session.watchdog(), WatchedPhase::kResume);
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

std::string names_of(const std::deque<Training>& trainings) {
  std::vector<std::string> names;
  for (const Training& one : trainings)
    names.push_back(one.what.name);
  return fmt::format("{}", fmt::join(names, ","));
}

/// What the files of an experiment have in common, and which contender one holds. The experiment is
/// named by the run of its reference, which is made first.
std::vector<NamedText> experiment_of(const std::deque<Training>& trainings,
                                     const Training& training) {
  if (trainings.size() == 1) return {};
  const TrainOptions& options = training.what.options;
  std::vector<NamedText> facts = {{"id", trainings.front().description.run_id},
                                  {"contender", training.what.name},
                                  {"contenders", names_of(trainings)},
                                  {"block", std::to_string(options.block)},
                                  {"seed", std::to_string(options.seed)}};
  if (training.advice)
    for (const NamedText& fact :
         {NamedText{"joined", std::to_string(training.joined)},
          NamedText{"against", training.advice->against},
          NamedText{"predicted", fmt::format("{:.4f}", training.advice->ratio)},
          NamedText{"predicted_low", fmt::format("{:.4f}", training.advice->low)},
          NamedText{"predicted_high", fmt::format("{:.4f}", training.advice->high)}})
      facts.push_back(fact);
  if (const double worth = training.setting->worth; worth != 1)
    facts.push_back({"worth", fmt::format("{:g}", worth)});
  return facts;
}

void require_options_of_gpus(const TrainOptions& options) {
  if (options.overlap == Overlap::kStep)
    throw Error(ExitCode::kUsage, "--overlap step is for gradients in host memory",
                "leave it out, or give --device cpu");
  if (options.optimizer.scales_loss && options.optimizer.name != "sgd")
    throw Error(ExitCode::kUsage,
                "optimizer " + options.optimizer.name + " has no loss scale on a GPU",
                "--precision bf16, or --optimizer sgd");
}

/// Settles what is open of a training, but for what contenders have in common.
void prepare(RunRanks& ranks, const RunRequest& request, const ComputeSettings& compute,
             const DataSource& source, Training& training) {
  TrainOptions& options = training.what.options;
  const Session& session = request.session;
  if (ranks.device.lane()) session.together([&] { require_options_of_gpus(options); });
  RankTransport& transport = ranks.transport(options);
  training.transport = &transport.get();
  training.why_transport = transport.choice();
  training.exchange = std::make_unique<Exchange>(session, transport.get(),
                                                 verify_level(options.verify), ranks.device.lane());
  const double start_s = broadcast_start(session, training.plan);
  const ClockOffset clock = clock_offset(session);
  training.clocks =
      clock_row(session, clock, training.plan.resumes ? "resume" : "start", now_s() - start_s);
  training.places = gather_places(session, compute.threads, clock, ranks.device.description());
  training.setting.emplace(
      RunSetting{.options = options,
                 .data = source,
                 .compute = compute,
                 .places = training.places,
                 .clock_offset_s = clock.offset_s,
                 .start_s = start_s,
                 .resume = &training.plan,
                 .command_line = request.command_line,
                 .gpu_uuid = compute.device.is_cuda() ? ranks.device.description().uuid : ""});
  const std::string buckets =
      settle_buckets(*training.exchange, *training.transport, *training.setting, options);
  if (session.root() && !buckets.empty()) std::cout << buckets << std::endl;
}

/// Opens the file of a training and states what it needs. Its options are settled.
void open(RunRanks& ranks, const RunRequest& request, std::deque<Training>& trainings,
          std::size_t which) {
  Training& training = trainings[which];
  const TrainOptions& options = training.what.options;
  RunSetting& setting = *training.setting;
  setting.worth = static_cast<double>(options.batch_global) /
                  static_cast<double>(trainings.front().what.options.batch_global);
  open_record(request, setting.compute, training.places, experiment_of(trainings, training),
              training);
  if (request.session.root() && which == 0) {
    print_environment(options, names_of(trainings), request.digest, request.data, setting.compute,
                      training.places);
    print_device(ranks.device.choice(), training.why_transport);
  }
  setting.recorder = training.recorder.get();
  setting.description = training.description;
  if (trainings.size() == 1)
    setting.stop = &request.stop;
  else
    setting.contender = training.what.name;
  // No contender may have more to do than the others: Experiment says how far the job is.
  setting.quiet = request.output.quiet() || trainings.size() > 1;
  if (!training.recorder) return;
  const WatchdogTimeoutExtension writes(request.session.watchdog(), WatchedPhase::kJournal);
  training.recorder->add(training.clocks);
  // A run that resumes without a checkpoint begins at its first row, behind which layers lie.
  if (!training.begins()) return;
  std::vector<LayerRow>& layers = trainings.front().layers;
  if (layers.empty())
    layers = layer_flop(options.model, network_input(options), options.batch_per_rank);
  for (const LayerRow& layer : layers)
    training.recorder->add(layer);
}

/// A training of a setting that joins the contenders, in passes as large as those of the first.
Training joining_training(const Session& session, const OptionValues& values,
                          const TrainOptions& first, const Advice& advice, std::int64_t round) {
  Training joined{joining(advice.contender, values), {}};
  joined.what.options.batch_per_rank = first.batch_per_rank;
  joined.what.options.batch_global = 0;
  joined.what.values["batch-global"].value = "auto";
  resolve_batch(joined.what.options, session.size());
  joined.advice = advice;
  joined.joined = round;
  return joined;
}

/// Settles --block auto for all contenders.
void settle_blocks(const RunRequest& request, std::deque<Training>& trainings) {
  const WatchdogTimeoutExtension measures(request.session.watchdog(), WatchedPhase::kCalibration);
  std::vector<Entrant> entrants;
  for (Training& training : trainings) {
    training.what.options.block = 1;
    training.what.options.block_warmup = 0;
    entrants.push_back({training.what.name, *training.exchange, *training.setting});
  }
  const BlockChoice choice = choose_block(request.session, entrants);
  for (Training& training : trainings) {
    training.what.options.block = choice.block;
    training.what.options.block_warmup = choice.warmup;
  }
  if (request.session.root()) std::cout << block_text(choice) << std::endl;
}

/// A block completes its messages before it ends: one of one iteration leaves none to the next.
void warn_of_blocks_without_overlap(const Session& session, const std::deque<Training>& trainings) {
  if (!session.root() || session.size() == 1 || trainings.size() == 1) return;
  for (const Training& training : trainings)
    if (training.what.options.overlap == Overlap::kStep && training.what.options.block == 1)
      print_warning(
          "gradsync-train",
          training.what.name +
              ": in blocks of one iteration nothing overlaps across iterations, so this is "
              "not what overlap=step costs; --block auto chooses longer ones");
}

/// Calls `calibrate` once for each transport of the trainings, with the trainings over it.
template <typename Calibrate>
void with_each_transport(std::deque<Training>& trainings, Calibrate calibrate) {
  std::vector<Transport*> done;
  for (const Training& training : trainings) {
    if (std::find(done.begin(), done.end(), training.transport) != done.end()) continue;
    done.push_back(training.transport);
    std::vector<std::size_t> over;
    for (std::size_t i = 0; i < trainings.size(); ++i)
      if (trainings[i].transport == training.transport) over.push_back(i);
    calibrate(over);
  }
}

/// --compare calibrates unless told not to.
bool asked_for_calibration(const std::deque<Training>& trainings) {
  return trainings.front().what.values.at("calibrate").source != "default";
}

/// What a checkpoint holds the effect of already is not done again. The buckets are known, and
/// calibrated, only after training.
void check_before_training(const Session& session, std::deque<Training>& trainings,
                           ProgramOutput& output) {
  Training& first = trainings.front();
  const RunSetting& setting = *first.setting;
  // What joined has no calibration of its own.
  const auto begins = [](const Training& one) { return one.begins() && !one.advice; };
  if (std::ranges::none_of(trainings, begins)) return;
  if (first.begins() && setting.options.verify_modes) {
    const WatchdogTimeoutExtension checks(session.watchdog(), WatchedPhase::kModeCheck);
    verify_before_timing(*first.exchange, setting, output);
  }
  if (!setting.options.calibrate) return;
  with_each_transport(trainings, [&](const std::vector<std::size_t>& over) {
    std::vector<Recorder*> recorders;
    for (const std::size_t which : over)
      recorders.push_back(begins(trainings[which]) ? trainings[which].recorder.get() : nullptr);
    Training& one = trainings[over.front()];
    calibrate_ranks(
        session, *one.transport,
        {.sizes = setting.options.calibrate_sizes, .print = asked_for_calibration(trainings)},
        recorders, one.exchange->lane());
    probe_arithmetic(session, setting.compute, setting.options.tf32, recorders);
  });
}

/// Until runs that are complete are published, beside what the next measurement takes.
constexpr double kPublishing_s = 5;

/// Calibrates the sizes that were exchanged; `buckets` by training. A job that is asked to stop
/// meanwhile, or has no time for another measurement, ends with what it has: its runs are complete
/// without.
void calibrate_after_training(const RunRequest& request, std::deque<Training>& trainings,
                              const std::vector<std::vector<BucketShape>>& buckets) {
  if (!trainings.front().what.options.calibrate) return;
  const Session& session = request.session;
  Stopwatch since_last;
  double longest_s = 0;
  bool stopped = false;
  const auto stops = [&](const std::string& how_far) {
    longest_s = std::max(longest_s, since_last.restart_s());
    const StopReason mine = request.stop.reason(2 * longest_s + kPublishing_s);
    const Verdict verdict = agree_on_stop(*trainings.front().exchange, mine);
    stopped = verdict.stop != StopReason::kNone;
    if (stopped && session.root())
      print_warning("gradsync-train",
                    fmt::format("{} at rank {}: {}; the runs are complete without the others",
                                stop_text(verdict.stop), verdict.stop_rank, how_far));
    return stopped;
  };
  with_each_transport(trainings, [&](const std::vector<std::size_t>& over) {
    if (stopped) return;
    std::vector<Recorder*> recorders;
    std::vector<BucketShape> all;
    for (const std::size_t which : over) {
      recorders.push_back(trainings[which].recorder.get());
      all.insert(all.end(), buckets[which].begin(), buckets[which].end());
    }
    Training& one = trainings[over.front()];
    calibrate_ranks(session, *one.transport,
                    {.buckets = all, .print = asked_for_calibration(trainings), .stops = stops},
                    recorders, one.exchange->lane());
  });
}

/// Trains one run, with all that is measured after it on the trained network and its ranks.
void train(const RunRequest& request, std::deque<Training>& trainings) {
  Trainer trainer(*trainings.front().exchange, *trainings.front().setting);
  trainings.front().plan.file.reset();  // or a checkpoint that is removed would keep its space
  trainer.advance(kMaxIterations);
  trainer.close();
  trainer.print_summary(request.output);
  calibrate_after_training(request, trainings, {trainer.buckets()});
}

/// Settings are the same where ranks exchange the same.
bool exchange_alike(const TrainOptions& a, const TrainOptions& b) {
  const auto settings = [](const TrainOptions& of) {
    return std::tie(of.sync, of.first_bucket_bytes, of.bucket_cap_bytes, of.wire_dtype, of.overlap,
                    of.transport, of.accumulate);
  };
  return settings(a) == settings(b);
}

/// Exchanges over several transports. Ends in the reverse order of their making, as control values
/// pass them.
struct Exchanges {
  Exchanges() = default;
  ~Exchanges() {
    while (!made.empty())
      made.pop_back();
  }
  Exchanges(const Exchanges&) = delete;
  Exchanges& operator=(const Exchanges&) = delete;

  std::vector<std::pair<std::string, std::unique_ptr<Exchange>>> made;
};

/// The fastest of the contenders that step by averaged gradients and whose parts were measured,
/// null if there is none, and its medians; the same on all ranks. Collective.
std::pair<const Training*, BlockTime> fastest_of(const Session& session,
                                                 const std::deque<Training>& trainings,
                                                 const Experiment& experiment) {
  std::pair<const Training*, BlockTime> fastest;
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    BlockTime own = experiment.medians(i);
    session.broadcast(own);
    const Contender& what = trainings[i].what;
    const Mode& mode = mode_named(what.options.sync);
    if (what.control || !mode.exchanges || !mode.changes.empty()) continue;
    if (!std::isfinite(own.time_s + own.part_s(CostPart::kExposed))) continue;
    if (fastest.first && own.time_s >= fastest.second.time_s) continue;
    fastest = {&trainings[i], own};
  }
  return fastest;
}

/// Predictions of the settings that no contender has, by rising ratio. Collective.
std::vector<Advice> predictions(RunRanks& ranks, const RunRequest& request,
                                const std::deque<Training>& trainings, const Training& fastest,
                                const BlockTime& medians) {
  const Session& session = request.session;
  const WatchdogTimeoutExtension measures(session.watchdog(), WatchedPhase::kCalibration);
  TrainOptions plain =
      joining_training(session, request.values, trainings.front().what.options, {"ddp"}, 0)
          .what.options;
  ranks.transport(plain);
  if (plain.first_bucket_bytes == 0) plain.first_bucket_bytes = kDefaultFirstBucketBytes;
  if (plain.bucket_cap_bytes == 0) plain.bucket_cap_bytes = kDefaultBucketCapBytes;
  Exchanges exchanges;
  const auto over = [&](const std::string& transport) -> Exchange& {
    for (const auto& [name, made] : exchanges.made)
      if (name == transport) return *made;
    TrainOptions other = fastest.what.options;
    other.transport = transport;
    exchanges.made.emplace_back(transport,
                                std::make_unique<Exchange>(session, ranks.transport(other).get(),
                                                           verify_level(other.verify)));
    return *exchanges.made.back().second;
  };
  // Medians of iterations as large as those that are predicted.
  BlockTime basis = medians;
  const double part = static_cast<double>(plain.batch_global) /
                      static_cast<double>(trainings.front().what.options.batch_global);
  basis.time_s *= part;
  for (double& time_s : basis.parts_s)
    time_s *= part;
  std::vector<Advice> all;
  // While the exchanges stand, whose threads may be moving messages.
  session.abort_on_error([&] {
    all = advise({fastest.what.options, basis, plain}, fastest.setting->data,
                 fastest.setting->compute, over,
                 [&](Exchange& exchange, const TrainOptions& options) {
                   return tried_briefly(exchange, *fastest.setting, options);
                 });
  });
  std::erase_if(all, [&](const Advice& one) {
    TrainOptions options = joining(one.contender, request.values).options;
    if (options.transport == "auto") options.transport = plain.transport;
    return std::ranges::any_of(trainings, [&](const Training& training) {
      return exchange_alike(training.what.options, options);
    });
  });
  return all;
}

/// Whether the file of a setting is there already, which rank 0 reports. The same on all ranks.
bool is_taken(const Session& session, const OptionValues& values, const Advice& one) {
  const std::string output = joining(one.contender, values).options.output;
  std::byte taken{0};
  if (session.root() && !output.empty()) {
    try {
      require_new_run(output);
    } catch (const Error& error) {
      taken = std::byte{1};
      std::cout << fmt::format("advice: {} is not tried: {}", one.contender, error.what())
                << std::endl;
    }
  }
  session.broadcast(taken);
  return taken != std::byte{0};
}

/// The settings that --advise lets join the contenders; prints what is predicted of them. The same
/// on all ranks. Collective.
std::vector<Advice> settings_to_try(RunRanks& ranks, const RunRequest& request,
                                    const std::deque<Training>& trainings,
                                    const Experiment& experiment) {
  constexpr std::int64_t kByDefault = 2;
  const Session& session = request.session;
  const TrainOptions& first = trainings.front().what.options;
  const auto most = static_cast<std::size_t>(first.advise >= 0 ? first.advise : kByDefault);
  const auto say = [&](const std::string& text) {
    if (session.root()) std::cout << "advice: " << text << std::endl;
  };
  // What joined a job that was stopped continues, and nothing else joins.
  if (most == 0 || session.size() == 1 || trainings.back().advice) return {};
  if (ranks.device.lane()) {
    say("none, since only ranks on CPUs are modeled");
    return {};
  }
  if (first.overlap != Overlap::kBackward) {
    say("none, since only messages that overlap with the backward pass are modeled");
    return {};
  }
  const auto [fastest, medians] = fastest_of(session, trainings, experiment);
  if (!fastest) {
    say("none, since no contender that averages gradients was measured in parts");
    return {};
  }
  const std::int64_t room =
      room_for(session, fastest->what.options, trainings.front().setting->compute);
  if (room == 0) {
    say("none, since no other contender fits into the memory that is left");
    return {};
  }
  std::vector<Advice> all = predictions(ranks, request, trainings, *fastest, medians);
  const std::size_t predicted = all.size();
  const Advice best = all.empty() ? Advice() : all.front();
  std::erase_if(all,
                [](const Advice& one) { return !(one.ratio <= 1 - kLeastGain && one.high < 1); });
  if (all.empty() && predicted > 0)
    say(
        fmt::format("no setting is surely predicted to be {:g} % faster than {}; the best of {}, "
                    "{}: {:.3f} [{:.3f}, {:.3f}] of its iteration",
                    1e2 * kLeastGain, fastest->what.name, predicted, best.contender, best.ratio,
                    best.low, best.high));
  std::vector<Advice> chosen;
  for (Advice& one : all) {
    if (chosen.size() == std::min(most, static_cast<std::size_t>(room))) break;
    if (is_taken(session, request.values, one)) continue;
    one.against = fastest->what.name;
    chosen.push_back(one);
    say(
        fmt::format("{}{} is predicted to take {:.3f} [{:.3f}, {:.3f}] of the iteration of {}; it "
                    "joins",
                    one.contender, other_training_text(one.contender), one.ratio, one.low, one.high,
                    one.against));
  }
  return chosen;
}

/// What was predicted of the settings that joined, and what was measured.
Table advice_table(const std::deque<Training>& trainings, const Experiment& experiment) {
  Table table{"advice", "Advice, tried", {}, {}, {}};
  table.columns = {
      {"contender", "contender", true}, {"against", "against", true}, {"predicted", "predicted"},
      {"predicted_low", "low"},         {"predicted_high", "high"},   {"measured", "measured"},
      {"measured_low", "low"},          {"measured_high", "high"},    {"rounds", "rounds"}};
  for (std::size_t i = 0; i < trainings.size(); ++i) {
    if (!trainings[i].advice) continue;
    const Advice& advice = *trainings[i].advice;
    std::size_t against = 0;
    while (against < trainings.size() && trainings[against].what.name != advice.against)
      ++against;
    if (against == trainings.size()) continue;  // complete since an earlier start
    const Estimate measured = experiment.ratio(i, against);
    table.add({advice.contender, advice.against, Cell::of(advice.ratio, 3), Cell::of(advice.low, 3),
               Cell::of(advice.high, 3), Cell::of(measured.value, 3), Cell::of(measured.low, 3),
               Cell::of(measured.high, 3), Cell::count(static_cast<double>(measured.count))});
  }
  table.notes = {
      "ratios of iterations; predicted: low and high allow for the error of the model; measured: "
      "95 % interval within the rounds they share"};
  return table;
}

/// Trains all contenders in turn, and those that --advise adds.
void compare(RunRanks& ranks, const RunRequest& request, std::deque<Training>& trainings) {
  const Session& session = request.session;
  std::vector<std::vector<BucketShape>> buckets;
  {
    Experiment experiment(session, &request.stop);
    const auto add = [&](Training& training) {
      experiment.add({training.what.name, *training.exchange, *training.setting, training.joined});
      training.plan.file.reset();
    };
    for (Training& training : trainings)
      add(training);
    const auto try_advice = [&] {
      const RunSetting& first = *trainings.front().setting;
      for (const Advice& one : settings_to_try(ranks, request, trainings, experiment)) {
        Training& joined = trainings.emplace_back(
            joining_training(session, request.values, first.options, one, experiment.next_round()));
        joined.what.options.block = first.options.block;
        joined.what.options.block_warmup = first.options.block_warmup;
        prepare(ranks, request, first.compute, first.data, joined);
        open(ranks, request, trainings, trainings.size() - 1);
        add(joined);
      }
    };
    experiment.run(try_advice, request.output);
    if (session.root() && trainings.back().advice)
      request.output.print(advice_table(trainings, experiment));
    for (std::size_t i = 0; i < trainings.size(); ++i)
      buckets.push_back(experiment.training(i).buckets());
  }
  calibrate_after_training(request, trainings, buckets);
}

/// Runs everything from settled options to closed run files.
void run_on(RunRanks& ranks, const RunRequest& request, std::deque<Training>& trainings) {
  const Session& session = request.session;
  TrainOptions& first = trainings.front().what.options;
  ranks.transport(first);  // settles the device
  const ComputeSettings compute =
      settle_compute(session, first, ranks.device.torch(), fast_bf16(ranks.device.torch()));
  const DataSource source = data_source(request.data, first, compute, ranks.device.lane());
  if (trainings.size() > 1) {
    std::vector<const TrainOptions*> options;
    for (const Training& training : trainings)
      options.push_back(&training.what.options);
    require_room(session, options, compute);
  }
  for (Training& training : trainings)
    prepare(ranks, request, compute, source, training);
  if (trainings.size() > 1 && first.block == 0) settle_blocks(request, trainings);
  // One whose file the job did not come to before it was killed is a contender like the others.
  for (Training& training : trainings)
    if (training.what.options.block == 0) {
      training.what.options.block = first.block;
      training.what.options.block_warmup = first.block_warmup;
    }
  warn_of_blocks_without_overlap(session, trainings);
  for (std::size_t i = 0; i < trainings.size(); ++i)
    open(ranks, request, trainings, i);
  check_before_training(session, trainings, request.output);
  // Or the memory of the run would be that of what was done before it.
  return_freed_memory();
  reset_peak_resident();
  if (trainings.size() == 1)
    train(request, trainings);
  else
    compare(ranks, request, trainings);
  for (const Training& training : trainings)
    close_clocks(session, *training.setting, training.clocks, &training == &trainings.front());
  {
    const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kJournal);
    for (const Training& training : trainings)
      for (const NcclChoice& choice : kept_nccl_choices())
        if (training.recorder) training.recorder->add(choice);
    // All at once: a job that is resumed has no contender again that was complete.
    for (const Training& training : trainings)
      if (training.recorder) training.recorder->end(RunStatus::kComplete);
  }
  for (const Training& training : trainings)
    publish(*training.exchange, training.recorder.get(), training.what.options.output);
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
    if (holds_complete_run(output)) {
      finish_interrupted(output);
      std::cout << "the journal holds the complete run\n";
    }
    std::cout << "run file: " << output << std::endl;
  });
}

/// A setting that joined an experiment, and its first round.
struct Joined {
  Advice advice;
  std::int64_t round = 0;
};

/// The settings that had joined the experiment that is resumed: what their files beside the
/// reference's say. The same on all ranks. Collective.
std::vector<Joined> joined_before(const Session& session, const std::filesystem::path& reference) {
  namespace fs = std::filesystem;
  const WatchdogTimeoutExtension reads(session.watchdog(), WatchedPhase::kResume);
  std::string lines;
  session.together([&] {
    const fs::path journal = journal_path(reference);
    const fs::path& known = fs::exists(journal) ? journal : reference;
    if (!session.root() || !fs::exists(known)) return;
    const auto facts_of = [](const fs::path& path) {
      std::map<std::string, std::string> facts;
      const auto run = open_run(path);
      for (const NamedText& fact : run->info().experiment)
        facts[fact.name] = fact.value;
      return facts;
    };
    const std::string id = facts_of(known)["id"];
    const fs::path ending = reference.extension();
    for (const fs::directory_entry& entry :
         fs::directory_iterator(fs::absolute(reference).parent_path())) {
      // A run that was stopped has left a partial file beside the journal.
      const bool is_journal = entry.path().string().ends_with(journal_path(ending).string());
      if (!is_journal &&
          (entry.path().extension() != ending || fs::exists(journal_path(entry.path()))))
        continue;
      try {
        auto facts = facts_of(entry.path());
        if (facts["id"] == id && !facts["against"].empty())
          lines += fmt::format("{};{};{};{};{};{}\n", facts["contender"], facts["joined"],
                               facts["against"], facts["predicted"], facts["predicted_low"],
                               facts["predicted_high"]);
      } catch (const Error&) {
        continue;  // no run, or damaged: plan_resume() names those that matter
      }
    }
  });
  session.broadcast(lines);
  std::vector<Joined> all;
  for (const std::string& line : split_list(lines, '\n')) {
    const std::vector<std::string> parts = split_list(line, ';');
    if (parts.size() == 6)
      all.push_back({{parts[0], parse_number(parts[3]), parse_number(parts[4]),
                      parse_number(parts[5]), parts[2]},
                     parse_integer(parts[1])});
  }
  return all;
}

/// The job on the ranks of `session`: agreement, data, verification, training, record and closing
/// table. Returns the exit code; errors end the job through the session. Collective.
int run_job(const Session& session, std::vector<Contender> wanted, const OptionValues& values,
            const std::string& command_line, const StopRequest& stop, ProgramOutput& output) {
  const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
  require_agreement(session, named_values(values));  // --output too: one run
  std::optional<RunData> data;
  for (Contender& contender : wanted)
    if (auto checked = check_request(session, contender.options); !data) data = std::move(checked);
  const DataDigest digest = verify_data(session, *data);
  const TrainOptions first = wanted.front().options;
  std::deque<Training> asked, trainings;
  for (Contender& contender : wanted)
    asked.push_back({std::move(contender), {}});
  if (!first.compare.empty() && first.resume == "auto")
    for (const Joined& one : joined_before(session, first.output)) {
      asked.push_back(joining_training(session, values, first, one.advice, one.round));
      asked.back().what.options.resume = first.resume;
    }
  for (Training& training : asked) {
    TrainOptions& options = training.what.options;
    training.plan = plan_resume(session, options,
                                requested_run(session, training.what.values, digest, options));
    if (training.plan.complete) {
      publish_complete(session, options.output);
      continue;
    }
    settle_as_before(options, training.plan);
    trainings.push_back(std::move(training));
  }
  if (trainings.empty()) {
    if (session.root()) output.write_json();
    return 0;
  }
  std::optional<RunRanks> ranks(std::in_place, session, trainings.front().what.options);
  // The exchanges stay: threads of theirs may be moving messages.
  const auto unlock_journals = [&] {
    for (Training& training : trainings)
      training.recorder.reset();
  };
  session.abort_on_error([&] {
    const BeforeLeaving unlocks(session, unlock_journals);
    try {
      run_on(*ranks, {session, values, command_line, stop, *data, digest, output}, trainings);
    } catch (...) {
      unlock_journals();
      throw;
    }
  });
  leave(session, ranks);
  return 0;
}

/// Throws unless the run can be written where it is to go. Whether one that resumes may continue
/// there is known once its journal is read.
void require_output(const TrainOptions& options) {
  if (options.output.empty()) return;
  if (options.resume == "no") return require_new_run(options.output);
  require_writable(options.output);
}

}  // namespace

}  // namespace gradsync

int main(int argc, char** argv) {
  using namespace gradsync;
  tune_allocation();
  keep_nccl_choices();
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
                           [&] {
                             for (const Contender& one : wanted)
                               require_output(one.options);
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
