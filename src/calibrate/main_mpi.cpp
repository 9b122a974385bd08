// SPDX-License-Identifier: BSD-3-Clause
// gradsync-calibrate: what the collectives of training reach on these ranks.
//
//   mpirun -n 2 gradsync-calibrate -b 1KiB -e 64MiB -f 2
//   mpirun -n 4 gradsync-calibrate --sizes-from run.h5 --output calibration.h5

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>

#include <fmt/format.h>

#include "base/cli/program_output.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/parse.h"
#include "base/process.h"
#include "calibrate/calibrate_options.h"
#include "calibrate/calibrator.h"
#include "calibrate/printer.h"
#include "comm/mpi_program.h"
#include "comm/places.h"
#include "comm/session.h"
#include "machine/device.h"
#include "record/recorder.h"
#include "transport/rank_transport.h"

namespace gradsync::calibrate {

namespace {

constexpr std::int64_t kThreads = 1;

RunInfo run_info(const OptionValues& values, const std::string& command_line,
                 const std::vector<RankPlace>& places) {
  RunInfo info;
  info.run_id = new_uuid();
  info.created = utc_now();
  info.command_line = command_line;
  for (const auto& [name, value] : values)
    info.config.push_back({name, value.value, value.source});
  info.provenance = machine_provenance("gradsync-calibrate");
  info.topology = places;
  return info;
}

std::string head_text(const std::vector<RankPlace>& places) {
  std::set<std::string> hosts;
  std::string text =
      "# gradsync-calibrate: nccl-tests' columns, GB = 1e9 B; allreduce, broadcast and reduce are "
      "measured in place, the others out of it\n";
  for (const RankPlace& place : places)
    if (hosts.insert(place.host).second)
      text += fmt::format("# host {}: {}, rank {} on cores {}\n", place.host, place.device,
                          place.rank, place.affinity);
  return text;
}

/// Local time, as nccl-tests prints it.
std::string local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

/// Prints on rank 0 while it measures; keeps the rows.
class Output {
 public:
  Output(const Session& session, const CalibrateOptions& options, Recorder* recorder)
      : session_(session), options_(options), recorder_(recorder) {}

  /// What is measured from now on.
  void measures(RankTransport& transports) {
    transport_ = &transports.get();
    if (session_.root())
      std::cout << fmt::format("# transport {}: {}\n", transports.choice().name,
                               transports.choice().why);
  }

  void begin(const PlannedCell& cell) {
    if (!session_.root()) return;
    section_.clear();
    std::cout << calibration_header(cell, way_of(cell, *transport_), session_.size(),
                                    options_.counts, options_.columns);
  }

  void add(const PlannedCell& cell, const CalibrationRow& row) {
    section_.push_back(row);
    rows_.push_back(row);
    if (recorder_) recorder_->add(row);
    if (session_.root())
      std::cout << calibration_line(*cell.operation, row, session_.size(), options_.columns,
                                    local_time())
                << std::flush;
  }

  void end() {
    if (!session_.root()) return;
    const auto curves = calibration_curves(section_, static_cast<std::size_t>(session_.size()));
    std::cout << calibration_footer(curves.at(0)) << std::flush;
  }

  const std::vector<CalibrationRow>& rows() const { return rows_; }

 private:
  const Session& session_;
  Transport* transport_ = nullptr;
  const CalibrateOptions& options_;
  Recorder* recorder_;
  std::vector<CalibrationRow> section_, rows_;
};

/// The GPU of this rank with a stream for the calls, or nothing on the CPU.
class CalibrationDevice {
 public:
  CalibrationDevice(const Session& session, const RankGpu& gpu) {
    if (!gpu.choice.cuda) return;
    session.together([&] {
      device_ = make_cuda_device(gpu.index);
      ring_.emplace(*device_);
      const StreamHandle stream = device_->make_stream();
      lane_.emplace(DeviceLane{*device_, *ring_, stream, stream});
    });
  }
  ~CalibrationDevice() {
    if (lane_) device_->free_stream(lane_->communication);
  }
  CalibrationDevice(const CalibrationDevice&) = delete;
  CalibrationDevice& operator=(const CalibrationDevice&) = delete;

  DeviceLane* lane() { return lane_ ? &*lane_ : nullptr; }

 private:
  std::unique_ptr<Device> device_;
  std::optional<EventRing> ring_;
  std::optional<DeviceLane> lane_;
};

/// Ends the job, with its file as a partial one, where a signal asked any rank for it. Collective.
void stop_if_asked(const Session& session, const StopSignals& stop, const std::string& path,
                   std::unique_ptr<Recorder>& recorder, std::size_t rows) {
  const auto signal = static_cast<int>(session.max(stop.received()));
  if (signal == 0) return;
  const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kPublishing);
  if (!session.root()) session.wait_for_abort();
  std::string kept = "nothing is kept";
  if (recorder) {
    recorder->finish(RunStatus::kPartial);
    recorder.reset();
    // Nothing resumes a calibration.
    std::filesystem::remove(journal_path(path));
    kept = fmt::format("'{}' is partial", path);
  }
  throw Error(ExitCode::kStoppedEarly,
              fmt::format("stopped after {} (signal {}); {}", count_text(rows, "row"),
                          signal_name(signal), kept),
              "start it again, with another --output");
}

void measure_all(Calibrator& calibrator, std::span<const PlannedCell> cells,
                 const CalibrateOptions& options, Output& output,
                 const std::function<void()>& between) {
  while (!cells.empty()) {
    const auto last = std::ranges::find_if(
        cells, [&](const PlannedCell& cell) { return !same_section(cell, cells.front()); });
    const auto section = cells.first(static_cast<std::size_t>(last - cells.begin()));
    output.begin(section.front());
    for (int cycle = 0; cycle < options.cycles; ++cycle)
      for (const PlannedCell& cell : section) {
        between();
        output.add(cell, calibrator.measure(cell, options.counts, between));
      }
    output.end();
    cells = cells.subspan(section.size());
  }
}

/// One transport with what is measured over it.
struct Way {
  TransportChoice chosen;
  std::vector<PlannedCell> cells;
};

std::vector<std::string> transports_of(const CalibrateOptions& options, const DeviceChoice& device,
                                       const RankLayout& layout) {
  if (options.transports.front() == kAllTransports) return possible_transports(device, layout);
  return options.transports;
}

/// In host memory every transport but the first one has an all-reduce of its own, and leaves the
/// rest to MPI.
std::vector<PlannedCell> not_measured_yet(std::vector<PlannedCell> cells, bool first,
                                          bool on_device) {
  if (!first && !on_device)
    std::erase_if(cells, [](const PlannedCell& cell) { return !moved_by_transport(cell); });
  return cells;
}

std::vector<Way> plan_ways(const Session& session, const CalibrateOptions& options,
                           const DeviceChoice& device, const std::vector<BucketShape>& buckets) {
  const RankLayout layout = rank_layout(session);
  std::vector<Way> ways;
  session.together([&] {
    for (const std::string& name : transports_of(options, device, layout)) {
      const TransportChoice chosen = choose_transport(name, device, layout);
      auto cells = plan_cells(operations_over(chosen.name, options.operations), options.cadences,
                              options.sizes, buckets, options.types);
      cells = not_measured_yet(std::move(cells), ways.empty(), device.cuda);
      if (!cells.empty()) ways.push_back({chosen, std::move(cells)});
    }
  });
  for (const Way& way : ways)
    require_memory(session, way.cells);
  return ways;
}

void require_expected(const std::vector<Judgment>& judgments) {
  const auto missed = std::ranges::count(judgments, false, &Judgment::met);
  if (missed > 0)
    throw Error(
        ExitCode::kCheckFailed,
        fmt::format("{} of {} expected bandwidths are not reached", missed, judgments.size()),
        "gradsync-check compares the links with each other and with their nominal rate");
}

/// All tables in one file, each in nccl-tests' layout: the only one there, several beside it.
void write_json(const std::filesystem::path& path, const std::vector<CalibrationCurve>& curves,
                const JsonFrame& frame) {
  write_result(path, calibration_json(curves, frame));
  if (curves.size() > 1 && path != "-")
    for (const CalibrationCurve& curve : curves)
      write_result(json_path(path, curve), calibration_json({curve}, frame));
}

void require_right(const std::vector<CalibrationRow>& rows) {
  std::int64_t wrong = 0;
  for (const CalibrationRow& row : rows)
    wrong += row.wrong > 0 ? row.wrong : 0;
  if (wrong > 0)
    throw Error(ExitCode::kCheckFailed, count_text(wrong, "wrong value") + " (#wrong)",
                "do not use results of these ranks; try another transport or library version");
}

/// Throws unless a new run, and tables in nccl-tests' layout, can be written where they are to go.
void require_outputs(const CalibrateOptions& options) {
  if (options.json != "-" && !options.json.empty()) {
    const std::filesystem::path path = options.json;
    require_free(path, "choose another -J FILE");
    // Several curves have a file each beside it (json_path).
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(
             path.has_parent_path() ? path.parent_path() : ".", missing))
      for (const OperationEntry* operation : options.operations)
        if (entry.path().extension() == path.extension() &&
            entry.path().filename().string().starts_with(
                fmt::format("{}-{}-", path.stem().string(), collective_name(operation->kind))))
          require_free(entry.path(), "choose another -J FILE, or move that one away");
  }
  if (!options.output.empty()) require_new_run(options.output);
}

/// The sizes of the buckets of a run file, read by rank 0, on all ranks. Collective.
std::vector<BucketShape> shared_bucket_shapes(const Session& session, const std::string& path) {
  std::vector<BucketShape> shapes;
  session.together([&] {
    if (session.root()) shapes = bucket_shapes(*open_run(path), path);
  });
  session.broadcast(shapes);
  return shapes;
}

/// Agreement, measuring, output. Errors and signals end the job through the session, wrong values
/// with kCheckFailed after all output is written. Collective.
int run_calibration(const Session& session, const CalibrateOptions& options,
                    const OptionValues& values, const std::string& command_line) {
  const StopSignals stop({SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1});
  require_agreement(session, named_values(values));
  const auto buckets = options.sizes_from.empty()
                           ? std::vector<BucketShape>()
                           : shared_bucket_shapes(session, options.sizes_from);
  const RankGpu gpu = agree_on_gpus(session, options.device);
  const std::vector<Way> ways = plan_ways(session, options, gpu.choice, buckets);
  CalibrationDevice device(session, gpu);
  Watchdog& watchdog = session.watchdog();
  try {
    const auto places =
        gather_places(session, kThreads, measure_clock_offset(session), gpu.description);
    std::unique_ptr<Recorder> recorder;
    session.together([&] {
      if (session.root() && !options.output.empty())
        recorder =
            std::make_unique<Recorder>(options.output, run_info(values, command_line, places));
    });
    const BeforeLeaving unlocks(session, [&] { recorder.reset(); });
    if (session.root()) std::cout << head_text(places);
    const std::string started = utc_now();
    Output output(session, options, recorder.get());
    for (const Way& way : ways) {
      RankTransport transports(session, watchdog, way.chosen, gpu.choice, device.lane());
      output.measures(transports);
      Calibrator calibrator(session, transports.get(), watchdog, device.lane());
      session.abort_on_error([&] {
        measure_all(calibrator, way.cells, options, output, [&] {
          stop_if_asked(session, stop, options.output, recorder, output.rows().size());
        });
      });
    }
    const WatchdogTimeoutExtension writes(watchdog, WatchedPhase::kPublishing);
    session.together([&] {
      if (recorder) recorder->finish(RunStatus::kComplete);
      const auto curves =
          calibration_curves(output.rows(), static_cast<std::size_t>(session.size()));
      const auto judgments = judge(options.expected, curves);
      if (session.root() && !options.json.empty())
        write_json(options.json, curves,
                   {places, command_line, started, utc_now(), options, judgments});
      if (session.root()) std::cout << expectation_footer(judgments) << std::flush;
      require_right(output.rows());
      require_expected(judgments);
    });
  } catch (...) {
    session.abort(current_error());
  }
  return 0;
}

}  // namespace

}  // namespace gradsync::calibrate

int main(int argc, char** argv) {
  using namespace gradsync;
  using namespace gradsync::calibrate;
  tune_allocation();
  CalibrateOptions options;
  const MpiProgram program{
      calibrate_help(),
      calibrate_option_table(),
      Foreign::kIgnore,
      [&](const OptionValues& values) { options = calibrate_options(values); },
      [&] { require_outputs(options); },
      [&] { return watch_limits(options); },
      [&](const Session& session, const OptionValues& values, const std::string& command_line,
          ProgramOutput&) { return run_calibration(session, options, values, command_line); },
      true,
      WatchedPhase::kTimedCalls};
  return run_mpi_program(program, argc, argv);
}
