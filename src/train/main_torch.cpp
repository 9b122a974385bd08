// SPDX-License-Identifier: BSD-3-Clause
// gradsync-train: data-parallel training, measured.
//
//   mpirun -n 2 gradsync-train --model vgg11 --sync ddp --iterations 40 --output run.h5
//   mpirun -n 2 gradsync-train --epochs 30 --time-limit 3h --output run.h5 --resume auto
//   srun --mpi=pmix -n 8 gradsync-train --config run.cfg --output run.h5

#include <algorithm>
#include <array>
#include <iostream>
#include <optional>

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
void print_environment(const TrainOptions& options, const DataDigest& digest, const RunData& data,
                       const ComputeSettings& compute, const std::vector<RankPlace>& places) {
  std::cout << fmt::format(
                   "{} with {}, {}, batch {} per rank, {} global{}\n", options.model, options.sync,
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

/// Reads the clocks again, records them and says how far they have drifted.
void close_clocks(const Session& session, const RunSetting& setting, const ClockRow& start) {
  const ClockOffset clock = clock_offset(session);
  const ClockRow end = clock_row(session, clock, "end", now_s() - setting.start_s);
  if (setting.recorder) setting.recorder->add(end);
  if (session.size() > 1 && session.root()) std::cout << drift_text(start, end) << std::endl;
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

/// Trains, with all that is measured after it on the trained network and its ranks.
void train(const Session& session, Exchange& exchange, Transport& transport, Watchdog& watchdog,
           const RunSetting& setting, ProgramOutput& output) {
  check_before_training(session, exchange, transport, watchdog, setting, output);
  Trainer trainer(exchange, setting);
  trainer.run(output);
  if (setting.options.counterfactual > 0) trainer.run_counterfactual(output);
  if (setting.options.calibrate)
    calibrate_ranks(session, transport, watchdog, {}, trainer.buckets(), setting.recorder,
                    exchange.lane());
}

/// What all ranks have agreed on before anything of the machine is settled.
struct RunRequest {
  const Session& session;
  TrainOptions& options;  ///< where what was taken for `auto` is written
  const OptionValues& values;
  const std::string& command_line;
  const StopRequest& stop;
  const RunData& data;
  const DataDigest& digest;
  const ResumePlan& plan;
  ProgramOutput& output;
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
  RunRanks(const Session& session, TrainOptions& options)
      : device(session, {options.device, options.allow_shared_gpu}),
        chosen(settle_transport(session, options, device.choice())),
        transports(session, session.watchdog(), chosen, device.choice(), device.lane()),
        exchange(session, transports.get(), verify_level(options.verify), device.lane()) {}

  RankDevice device;
  TransportChoice chosen;
  RankTransport transports;
  Exchange exchange;
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

/// The recorder, on rank 0 of a run that is recorded; fills in what its checkpoints say of it.
/// Collective.
std::unique_ptr<Recorder> open_record(const RunRequest& request, const ComputeSettings& compute,
                                      const std::vector<RankPlace>& places,
                                      CheckpointInfo& description) {
  std::unique_ptr<Recorder> recorder;
  request.session.together([&] {
    if (!request.session.root() || request.options.output.empty()) return;
    RunInfo info = run_info(request.values, request.command_line, request.digest, compute, places,
                            request.options, request.plan);
    const std::int64_t images = request.data.size(Split::kTrain);
    const EpochPlan epoch = epoch_plan(request.options, images, request.session.size(), 0);
    info.provenance.push_back({"train_images", std::to_string(images)});
    info.provenance.push_back({"epoch_iterations", std::to_string(epoch.iterations())});
    recorder = make_recorder(request.options.output, info, request.plan);
    set_aside_others(request.options.output, request.plan);
    description = describe_run(info);
  });
  return recorder;
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

/// Runs everything from settled options to a closed run file.
void run_on(RunRanks& ranks, const RunRequest& request) {
  const Session& session = request.session;
  const ComputeSettings compute = settle_compute(session, request.options, ranks.device.torch());
  const DataSource source =
      data_source(request.data, request.options, compute, ranks.device.lane());
  const auto buckets = settle_buckets(ranks.exchange, source, compute, request.options);
  const double start_s = broadcast_start(session, request.plan);
  const ClockOffset clock = clock_offset(session);
  const ClockRow clocks =
      clock_row(session, clock, request.plan.resumes ? "resume" : "start", now_s() - start_s);
  const auto places = gather_places(session, compute.threads, clock, ranks.device.description());
  CheckpointInfo description;
  const auto recorder = open_record(request, compute, places, description);
  if (session.root()) {
    print_environment(request.options, request.digest, request.data, compute, places);
    print_device(ranks.device.choice(), ranks.transports.choice());
    if (buckets) std::cout << bucket_text(*buckets) << std::endl;
  }
  const RunSetting setting{
      .options = request.options,
      .data = source,
      .compute = compute,
      .places = places,
      .clock_offset_s = clock.offset_s,
      .start_s = start_s,
      .recorder = recorder.get(),
      .stop = &request.stop,
      .resume = &request.plan,
      .description = description,
      .command_line = request.command_line,
      .gpu_uuid = compute.device.is_cuda() ? ranks.device.description().uuid : "",
      .buckets = buckets,
      .quiet = request.output.quiet()};
  if (recorder) recorder->add(clocks);
  // A run that resumes without a checkpoint begins at its first row, behind which layers lie.
  if (recorder && request.plan.from.iteration == 0)
    for (const LayerRow& layer : layer_flop(request.options.model, network_input(request.options),
                                            request.options.batch_per_rank))
      recorder->add(layer);
  train(session, ranks.exchange, ranks.transports.get(), session.watchdog(), setting,
        request.output);
  close_clocks(session, setting, clocks);
  publish(ranks.exchange, recorder.get(), request.options.output);
  if (session.root()) request.output.write_json();
}

/// An earlier process of the run was interrupted behind its last record.
int publish_complete(const Session& session, const std::string& output) {
  const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kPublishing);
  session.together([&] {
    if (!session.root()) return;
    finish_interrupted(output);
    std::cout << "the journal holds the complete run\nrun file: " << output << std::endl;
  });
  return 0;
}

/// A whole training run on the ranks of `session`: agreement, data, verification, training, record
/// and closing table. Returns the exit code; errors end the job through the session. Collective.
int run_training(const Session& session, TrainOptions options, const OptionValues& values,
                 const std::string& command_line, const StopRequest& stop, ProgramOutput& output) {
  const WatchdogTimeoutExtension starts(session.watchdog(), WatchedPhase::kStartUp);
  require_agreement(session, stated(values));
  const std::optional<RunData> data = check_request(session, options);
  const DataDigest digest = verify_data(session, *data);
  const ResumePlan plan =
      plan_resume(session, options, requested_run(session, values, digest, options));
  if (plan.complete) return publish_complete(session, options.output);
  settle_as_before(options, plan);
  std::optional<RunRanks> ranks(std::in_place, session, options);
  session.abort_on_error([&] {
    run_on(*ranks, {session, options, values, command_line, stop, *data, digest, plan, output});
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
  const MpiProgram program{train_help(),
                           train_option_table(),
                           Foreign::kReject,
                           [&](const OptionValues& values) { options = train_options(values); },
                           [&] { return watch_limits(options); },
                           [&](const Session& session, const OptionValues& values,
                               const std::string& command_line, ProgramOutput& output) {
                             stop.begin(options.time_limit_s);
                             return run_training(session, options, values, command_line, stop,
                                                 output);
                           }};
  return run_mpi_program(program, argc, argv);
}
