// SPDX-License-Identifier: BSD-3-Clause
// gradsync-quantize: int8 post-training quantization of a trained network, step by step.
//
//   gradsync-quantize --checkpoint run.checkpoints --output int8.h5 --save int8.safetensors
//   mpirun -n 2 gradsync-quantize --checkpoint run.checkpoints --calibrator entropy

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <torch/version.h>

#include "base/cli/program_output.h"
#include "base/file.h"
#include "base/parse.h"
#include "comm/mpi_program.h"
#include "comm/places.h"
#include "comm/session.h"
#include "model/image_batch.h"
#include "quantize/float_network.h"
#include "quantize/quantize_options.h"
#include "quantize/study.h"
#include "record/recorder.h"
#include "transport/mpi_transport.h"

namespace gradsync::quantize {

namespace {

constexpr std::int64_t kCheckedImages = 16;

FloatModel read_model(const CheckpointFile& checkpoint, const QuantizeOptions& options) {
  const std::string stated = model_of(checkpoint);
  if (!options.model.empty() && options.model != stated)
    throw Error(ExitCode::kBadData,
                fmt::format("checkpoint '{}' is of {}, and --model says {}",
                            checkpoint.path().string(), stated, options.model),
                "leave --model out, or give the checkpoint of that network");
  return read_float_model(checkpoint, make_plan(stated));
}

/// Everything that is read, and refused, before anything is computed.
struct Inputs {
  CheckpointFile checkpoint;
  FloatModel model;
  Cifar10 data;
  ImageRange calibration, test;

  explicit Inputs(const QuantizeOptions& options)
      : checkpoint(checkpoint_at(options.checkpoint)),
        model(read_model(checkpoint, options)),
        data(options.data),
        calibration(data, Split::kTrain, options.calibration_images),
        test(data, Split::kTest,
             options.test_images > 0 ? options.test_images : data.size(Split::kTest)) {}
  // The ranges refer to the data.
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
  ~Inputs() = default;
};

std::vector<NamedText> stated(const OptionValues& values, const CheckpointFile& checkpoint) {
  std::vector<NamedText> all = named_values(values);
  all.push_back({"checkpoint's SHA-256", checkpoint.metadata().at(std::string(kDigestKey))});
  return all;
}

RunInfo run_info(const OptionValues& values, const std::string& command_line, const Inputs& inputs,
                 const DataDigest& digest, const std::vector<RankPlace>& places) {
  RunInfo info;
  info.run_id = new_uuid();
  info.created = utc_now();
  info.command_line = command_line;
  for (const auto& [name, value] : values)
    info.config.push_back(
        {name, name == "model" ? inputs.model.plan.model : value.value, value.source});
  info.provenance = machine_provenance("gradsync-quantize");
  const auto& metadata = inputs.checkpoint.metadata();
  info.provenance.insert(
      info.provenance.end(),
      {{"libtorch", TORCH_VERSION},
       {"data_name", digest.name},
       {"data_sha256", digest.combined},
       {"checkpoint", inputs.checkpoint.path().filename().string()},
       {"checkpoint_sha256", metadata.at(std::string(kDigestKey))},
       {"checkpoint_run_id", metadata.contains("run_id") ? metadata.at("run_id") : ""},
       {"checkpoint_iteration", metadata.contains("iteration") ? metadata.at("iteration") : ""}});
  info.topology = places;
  return info;
}

/// What is quantized, how and with which images: some lines for people.
std::string head_text(const Plan& plan, const QuantizeOptions& options, const Inputs& inputs,
                      const DataDigest& data) {
  return fmt::format(
      "{}: weights int{}, {}; activations int{}, {}\n"
      "data: {}, {} training images for calibration, {} test images\n",
      plan.model, options.weights.bits, options.weights.text(), options.activations.bits,
      options.activations.text(), data.name, inputs.calibration.count(), inputs.test.count());
}

Table layer_table(const Quantization& results) {
  Table table{"layers", "Layers", {}, {}, {}};
  table.columns = {
      {"layer", "layer", true},   {"role", "what", true},    {"minimum", "min"},
      {"maximum", "max"},         {"sigma_low", "mean-3sd"}, {"sigma_high", "mean+3sd"},
      {"scale", "largest scale"}, {"sqnr_db", "SQNR dB"},    {"clipped_percent", "clipped %"}};
  for (const QuantizedTensorRow& row : results.tensors)
    table.add({row.layer, row.role, Cell::of(row.minimum, 4), Cell::of(row.maximum, 4),
               Cell::of(row.sigma_low, 4), Cell::of(row.sigma_high, 4),
               Cell::of(row.scale_largest, 6), Cell::of(row.sqnr_db, 1),
               Cell::of(100 * row.clipped, 3)});
  return table;
}

Table step_table(const Quantization& results) {
  Table table{"steps", "Accuracy on the test images", {}, {}, {}};
  table.columns = {{"name", "step or variant", true},
                   {"weights", "weights", true, "", "", 2},
                   {"activations", "activations", true, "", "", 2},
                   {"bias", "bias", true, "", "", 2},
                   {"accuracy", "accuracy %"},
                   {"drop", "drop pp"},
                   {"bytes", "bytes", false, "", "", 3}};
  const auto accuracy = [](const QuantizedStepRow& row) {
    return 100.0 * static_cast<double>(row.correct) / static_cast<double>(row.images);
  };
  for (const QuantizedStepRow& row : results.steps)
    table.add({row.name, row.weights, row.activations, row.bias, Cell::of(accuracy(row), 2),
               Cell::of(accuracy(results.steps.front()) - accuracy(row), 2),
               row.model_bytes < 0 ? Cell("") : Cell::count(static_cast<double>(row.model_bytes))});
  table.notes = {
      fmt::format("n = {} test images; drop against the first row", results.steps.front().images)};
  return table;
}

/// Layers whose activations or weights are cut hard.
void warn_of_clipping(const Quantization& results) {
  constexpr double kMuch = 0.01;
  for (const QuantizedTensorRow& row : results.tensors)
    if (row.clipped > kMuch)
      print_warning("gradsync-quantize",
                    fmt::format("layer {} is saturated: {:.1f} % of its {}s are clipped; a wider "
                                "range (--calibrator min-max, --weight-range total) loses less",
                                row.layer, 100 * row.clipped, row.role));
}

void require_same_network(const Study& study, const Inputs& inputs) {
  std::vector<float> pixels =
      inputs.calibration.load(0, std::min(kCheckedImages, inputs.calibration.count()));
  const auto images = static_cast<std::int64_t>(pixels.size() / kImageBytes);
  const auto trained = trained_network(inputs.checkpoint, study.model().plan.model);
  folding_difference(*trained, study.model(), image_batch(pixels.data(), images, Layout::kNhwc));
}

void write_files(const Study& study, const QuantizeOptions& options, const RunInfo& info,
                 const Quantization& results, const std::string& checkpoint_digest) {
  if (!options.save.empty()) {
    write_int8_model(study.quantized(),
                     {{"checkpoint_sha256", checkpoint_digest},
                      {"weights", options.weights.text()},
                      {"weight_bits", std::to_string(options.weights.bits)},
                      {"activations", options.activations.text()},
                      {"activation_bits", std::to_string(options.activations.bits)}},
                     options.save);
    std::cout << "quantized network: " << options.save << std::endl;
  }
  if (options.output.empty()) return;
  Recorder recorder(options.output, info);
  recorder.add(results);
  recorder.finish(RunStatus::kComplete);
  std::cout << "run file: " << options.output << std::endl;
}

std::int64_t threads_of(const Session& session, const QuantizeOptions& options) {
  if (options.threads > 0) return options.threads;
  return static_cast<std::int64_t>(
      fair_threads(cores_on_node(session), static_cast<std::size_t>(session.local_rank())));
}

/// Passes over the images may take long, so ranks wait for each other by what they took themselves.
WatchLimits watch_limits() {
  WatchLimits limits;
  limits.automatic = true;
  return limits;
}

/// Quantizes a network step by step on all ranks. Nothing is written before all is computed. Errors
/// end the job through Session::abort. Collective.
int run_quantization(const Session& session, const QuantizeOptions& options,
                     const OptionValues& values, const std::string& command_line,
                     ProgramOutput& output) {
  std::unique_ptr<Inputs> inputs;
  session.together([&] { inputs = std::make_unique<Inputs>(options); });
  require_agreement(session, stated(values, inputs->checkpoint));
  DataDigest digest;
  require_same_on_nodes(session, "data set digest", [&] {
    digest = inputs->data.verify();
    return digest.combined;
  });
  MpiTransport transport(session.world());
  Exchange exchange(session, transport, VerifyLevel::kOff);
  try {
    std::optional<WatchdogTimeoutExtension> studies(std::in_place, session.watchdog(),
                                                    WatchedPhase::kEvaluation);
    const std::int64_t threads = threads_of(session, options);
    const auto places = gather_places(session, threads, measure_clock_offset(session));
    Study study({exchange, static_cast<std::size_t>(threads)}, options, inputs->model,
                float_bytes(inputs->checkpoint), inputs->calibration, inputs->test);
    if (session.root())
      std::cout << head_text(study.model().plan, options, *inputs, digest) << std::flush;
    session.together([&] { require_same_network(study, *inputs); });
    study.calibrate();
    if (session.root()) warn_of_clipping(study.results());
    study.judge_steps();
    if (options.ablation) study.judge_variants();
    studies.reset();
    const WatchdogTimeoutExtension writes(session.watchdog(), WatchedPhase::kPublishing);
    session.together([&] {
      if (!session.root()) return;
      output.print(layer_table(study.results()));
      output.print(step_table(study.results()));
      write_files(study, options, run_info(values, command_line, *inputs, digest, places),
                  study.results(), inputs->checkpoint.metadata().at(std::string(kDigestKey)));
      output.write_json();
    });
  } catch (...) {
    session.abort(current_error());
  }
  return 0;
}

}  // namespace

}  // namespace gradsync::quantize

int main(int argc, char** argv) {
  using namespace gradsync;
  using namespace gradsync::quantize;
  QuantizeOptions options;
  const MpiProgram program{
      quantize_help(),
      quantize_option_table(),
      Foreign::kIgnore,
      [&](const OptionValues& values) { options = quantize_options(values); },
      [&] {
        if (!options.output.empty()) require_new_run(options.output);
        require_free(options.save, "choose another --save; nothing is overwritten");
      },
      watch_limits,
      [&](const Session& session, const OptionValues& values, const std::string& command_line,
          ProgramOutput& output) {
        return run_quantization(session, options, values, command_line, output);
      },
      true,
      WatchedPhase::kQuantization};
  return run_mpi_program(program, argc, argv);
}
