#include <algorithm>
#include <functional>
#include <random>

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <torch/script.h>

#include "model/image_batch.h"
#include "quantize/float_network.h"
#include "quantize/int8_network.h"
#include "quantize/speed.h"
#include "stats/clock.h"
#include "stats/estimate.h"

namespace gradsync::quantize {

namespace {

// --- the network as TorchScript -----------------------------------------------------------------

std::string value(std::size_t number) {
  return fmt::format("v{}", number);
}

/// Weights [out][row][column][in] as LibTorch has them.
torch::Tensor weights_of(const Node& node, const std::vector<float>& values) {
  const auto size = [](std::size_t count) { return static_cast<std::int64_t>(count); };
  const torch::Tensor weights = torch::tensor(values)
                                    .view({size(node.out_channels), size(node.kernel),
                                           size(node.kernel), size(node.in_channels)})
                                    .permute({0, 3, 1, 2})
                                    .contiguous();
  return node.linear ? weights.flatten(1) : weights;
}

std::string convolution_text(const Node& node, std::size_t number, bool biased) {
  const std::string bias = biased ? fmt::format("self.b{}", number) : "None";
  if (node.linear)
    return fmt::format("torch.linear({}.flatten(1), self.w{}, {})", value(node.input), number,
                       bias);
  return fmt::format("torch.conv2d({}, self.w{}, {}, [{s}, {s}], [{p}, {p}])", value(node.input),
                     number, bias, fmt::arg("s", node.stride), fmt::arg("p", node.padding));
}

std::string node_text(const Node& node, std::size_t number, bool biased) {
  std::string text;
  if (node.kind == NodeKind::kConvolution)
    text = convolution_text(node, number, biased);
  else if (node.kind == NodeKind::kMaxPool)
    text = fmt::format("torch.max_pool2d({}, [{k}, {k}])", value(node.input),
                       fmt::arg("k", node.kernel));
  else
    text = fmt::format("torch.mean({}, [2, 3], True)", value(node.input));
  if (node.added >= 0) text += " + " + value(static_cast<std::size_t>(node.added));
  if (node.relu) text = "torch.relu(" + text + ")";
  return fmt::format("  {} = {}\n", value(number + 1), text);
}

/// The folded network, frozen and optimized for inference: the fastest form in which LibTorch alone
/// runs it. Takes and gives what FloatNetwork does.
torch::jit::Module script_network(const FloatModel& model) {
  torch::jit::Module module("quantized");
  std::string source = "def forward(self, v0):\n";
  for (std::size_t i = 0; i < model.plan.nodes.size(); ++i) {
    const Node& node = model.plan.nodes[i];
    const FloatLayer& layer = model.layers[i];
    if (model.plan.weighted(i))
      module.register_parameter(fmt::format("w{}", i), weights_of(node, layer.weights), false);
    if (!layer.bias.empty())
      module.register_parameter(fmt::format("b{}", i), torch::tensor(layer.bias), false);
    source += node_text(node, i, !layer.bias.empty());
  }
  module.define(source + fmt::format("  return {}\n", value(model.plan.nodes.size())));
  module.eval();
  return torch::jit::optimize_for_inference(module);
}

// --- paths, timed in turn -----------------------------------------------------------------------

/// One way from images to logits, and what it took in each round.
struct TimedPath {
  std::string name;
  bool int8 = false;
  std::function<void()> run;
  std::int64_t calls = 1;            ///< of one round, about kRound_s
  std::vector<double> seconds = {};  ///< per call, one a round
};

constexpr double kRound_s = 0.03;
constexpr std::uint64_t kSeed = 7;

double timed_s(const TimedPath& path) {
  const Stopwatch watch;
  for (std::int64_t call = 0; call < path.calls; ++call)
    path.run();
  return watch.elapsed_s() / static_cast<double>(path.calls);
}

/// Warms a path up and finds how many calls make a round.
void prepare(TimedPath& path) {
  constexpr int kWarmups = 5;  // TorchScript specializes in its first calls
  for (int i = 0; i < kWarmups; ++i)
    path.run();
  path.calls = std::max<std::int64_t>(1, static_cast<std::int64_t>(kRound_s / timed_s(path)));
}

std::vector<float> random_pixels(std::int64_t batch) {
  std::mt19937 engine(kSeed);
  std::normal_distribution<float> normal;
  std::vector<float> pixels(static_cast<std::size_t>(batch) * kImageBytes);
  std::generate(pixels.begin(), pixels.end(), [&] { return normal(engine); });
  return pixels;
}

/// A batch that threads share by whole images, each with a network of its own.
class Int8Batch {
 public:
  Int8Batch(const Int8Model& model, std::int64_t threads, std::vector<float> pixels,
            std::int64_t batch)
      : networks_(static_cast<std::size_t>(std::min(threads, batch)), Int8Network(model)),
        pixels_(std::move(pixels)),
        logits_(static_cast<std::size_t>(batch) * networks_.front().classes()) {}

  void run() {
    const auto parts = static_cast<std::int64_t>(networks_.size());
    if (parts == 1) return networks_.front().run(pixels_, logits_);
    at::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t part = first; part < last; ++part)
        run_part(static_cast<std::size_t>(part));
    });
  }

 private:
  void run_part(std::size_t part) {
    const std::size_t classes = networks_.front().classes(), images = logits_.size() / classes;
    const std::size_t first = part * images / networks_.size();
    const std::size_t count = (part + 1) * images / networks_.size() - first;
    networks_[part].run(std::span(pixels_).subspan(first * kImageBytes, count * kImageBytes),
                        std::span(logits_).subspan(first * classes, count * classes));
  }

  std::vector<Int8Network> networks_;
  std::vector<float> pixels_, logits_;
};

void add_fp32_paths(std::vector<TimedPath>& paths, Network& trained, const FloatModel& folded,
                    const std::string& order, const torch::Tensor& images) {
  auto eager = std::make_shared<FloatNetwork>(folded);
  auto script = std::make_shared<torch::jit::Module>(script_network(folded));
  paths.push_back({"fp32: trainer's network, " + order, false,
                   [&trained, images] { trained.forward(images); }});
  paths.push_back({"fp32: folded, " + order, false, [eager, images] { eager->forward(images); }});
  paths.push_back({"fp32: TorchScript, frozen, " + order, false,
                   [script, images] { script->forward({images}); }});
}

std::vector<TimedPath> make_paths(Network& trained, const FloatModel& folded,
                                  const Int8Model& quantized, std::int64_t batch,
                                  std::int64_t threads) {
  std::vector<float> pixels = random_pixels(batch);
  const torch::Tensor nhwc = image_batch(pixels.data(), batch, Layout::kNhwc).clone();
  std::vector<TimedPath> paths;
  auto int8 = std::make_shared<Int8Batch>(quantized, threads, std::move(pixels), batch);
  paths.push_back({"int8: " + Int8Network(quantized).kernel_name(), true, [int8] { int8->run(); }});
  add_fp32_paths(paths, trained, folded, "NHWC", nhwc);
  add_fp32_paths(paths, trained, folded, "NCHW", nhwc.contiguous());
  return paths;
}

void take_turns(std::vector<TimedPath>& paths, std::int64_t rounds) {
  for (TimedPath& path : paths)
    prepare(path);
  for (std::int64_t round = 0; round < rounds; ++round)
    for (TimedPath& path : paths)
      path.seconds.push_back(timed_s(path));
}

const TimedPath& best_fp32(const std::vector<TimedPath>& paths) {
  return *std::min_element(paths.begin(), paths.end(), [](const TimedPath& a, const TimedPath& b) {
    return a.int8 != b.int8 ? b.int8 : median(a.seconds) < median(b.seconds);
  });
}

QuantizedSpeedRow row_of(const TimedPath& path, const TimedPath& best, std::int64_t batch,
                         const SpeedSettings& settings) {
  QuantizedSpeedRow row{path.name, batch, settings.threads, settings.rounds, 0, 0, 0, 0};
  row.images_per_s = static_cast<double>(batch) / median(path.seconds);
  const Estimate ratio = ratio_estimate(best.seconds, path.seconds, kSeed);
  row.ratio = ratio.value;
  row.ratio_low = ratio.low;
  row.ratio_high = ratio.high;
  return row;
}

}  // namespace

std::vector<QuantizedSpeedRow> measure_speed(Network& trained, const FloatModel& folded,
                                             const Int8Model& quantized,
                                             const SpeedSettings& settings) {
  const c10::InferenceMode inference;
  at::set_num_threads(static_cast<int>(settings.threads));
  std::vector<QuantizedSpeedRow> rows;
  for (const std::int64_t batch : settings.batches) {
    auto paths = make_paths(trained, folded, quantized, batch, settings.threads);
    take_turns(paths, settings.rounds);
    const TimedPath& best = best_fp32(paths);
    for (const TimedPath& path : paths)
      rows.push_back(row_of(path, best, batch, settings));
  }
  return rows;
}

}  // namespace gradsync::quantize
