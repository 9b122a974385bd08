// SPDX-License-Identifier: BSD-3-Clause
#include "quantize/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace gradsync::quantize {

namespace {

constexpr std::size_t kColors = 3, kSide = 32, kClasses10 = 10;

/// Appends nodes and keeps track of what the last one gives.
class Builder {
 public:
  explicit Builder(std::string model) { plan_.model = std::move(model); }

  std::size_t last() const { return plan_.nodes.size(); }
  std::size_t channels(std::size_t value) const {
    return value == 0 ? kColors : plan_.nodes[value - 1].out_channels;
  }
  std::size_t side(std::size_t value) const {
    return value == 0 ? kSide : plan_.nodes[value - 1].out_side;
  }

  /// What a node reads and gives, from its kernel.
  Node& add(Node node) {
    node.in_channels = channels(node.input);
    node.in_side = side(node.input);
    node.out_side = (node.in_side + 2 * node.padding - node.kernel) / node.stride + 1;
    plan_.nodes.push_back(std::move(node));
    return plan_.nodes.back();
  }

  Node& convolution(const std::string& parameters, std::size_t out, std::size_t kernel,
                    std::size_t stride, std::size_t padding, std::size_t input) {
    Node node;
    node.name = node.parameters = parameters;
    node.input = input;
    node.out_channels = out;
    node.kernel = kernel;
    node.stride = stride;
    node.padding = padding;
    return add(node);
  }

  Node& linear(const std::string& parameters, std::size_t out) {
    Node& node = convolution(parameters, out, side(last()), 1, 0, last());
    node.linear = true;
    return node;
  }

  void pool(NodeKind kind, const std::string& name, std::size_t kernel) {
    Node node;
    node.kind = kind;
    node.name = name;
    node.input = last();
    node.out_channels = channels(last());
    node.kernel = node.stride = kernel;
    add(node);
  }

  Plan finish() { return std::move(plan_); }

 private:
  Plan plan_;
};

Plan lenet(const std::string& model, bool biased) {
  Builder builder(model);
  builder.convolution("conv1", 6, 5, 1, 0, builder.last()).relu = true;
  builder.pool(NodeKind::kMaxPool, "pool1", 2);
  builder.convolution("conv2", 16, 5, 1, 0, builder.last()).relu = true;
  builder.pool(NodeKind::kMaxPool, "pool2", 2);
  builder.linear("fc1", 120).relu = true;
  builder.linear("fc2", 84).relu = true;
  builder.linear("fc3", kClasses10).biased = biased;
  return builder.finish();
}

Plan vgg11() {
  constexpr std::size_t kPool = 0;
  constexpr std::size_t kWidths[] = {64,  kPool, 128,   kPool, 256, 256,  kPool,
                                     512, 512,   kPool, 512,   512, kPool};
  Builder builder("vgg11");
  std::size_t module = 0, pools = 0;
  for (const std::size_t width : kWidths) {
    if (width == kPool) {
      builder.pool(NodeKind::kMaxPool, fmt::format("pool{}", ++pools), 2);
      ++module;
      continue;
    }
    Node& node =
        builder.convolution(fmt::format("features.{}", module), width, 3, 1, 1, builder.last());
    node.norm = fmt::format("features.{}", module + 1);
    node.relu = node.biased = true;
    module += 3;
  }
  builder.linear("classifier", kClasses10).biased = true;
  return builder.finish();
}

void basic_block(Builder& builder, const std::string& name, std::size_t width, std::size_t stride) {
  const std::size_t input = builder.last();
  std::size_t kept = input;
  if (stride != 1 || builder.channels(input) != width) {
    builder.convolution(name + ".shortcut.0", width, 1, stride, 0, input).norm =
        name + ".shortcut.1";
    kept = builder.last();
  }
  Node& first = builder.convolution(name + ".conv1", width, 3, stride, 1, input);
  first.norm = name + ".bn1";
  first.relu = true;
  Node& second = builder.convolution(name + ".conv2", width, 3, 1, 1, builder.last());
  second.norm = name + ".bn2";
  second.relu = true;
  second.added = static_cast<int>(kept);
}

Plan resnet18() {
  Builder builder("resnet18");
  Node& stem = builder.convolution("conv1", 64, 3, 1, 1, builder.last());
  stem.norm = "bn1";
  stem.relu = true;
  std::size_t block = 0;
  for (const std::size_t width : {64, 128, 256, 512})
    for (const bool first : {true, false})
      basic_block(builder, fmt::format("blocks.{}", block++), width, first && width > 64 ? 2 : 1);
  builder.pool(NodeKind::kMeanPool, "mean", builder.side(builder.last()));
  builder.linear("fc", kClasses10).biased = true;
  return builder.finish();
}

struct Entry {
  const char* model;
  Plan (*make)();
};
constexpr Entry kPlans[] = {{"lenet", [] { return lenet("lenet", true); }},
                            {"lenet-no-bias", [] { return lenet("lenet-no-bias", false); }},
                            {"vgg11", vgg11},
                            {"resnet18", resnet18}};

}  // namespace

const std::vector<std::string>& plan_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : kPlans)
      all.emplace_back(entry.model);
    return all;
  }();
  return names;
}

Plan make_plan(const std::string& model) {
  for (const Entry& entry : kPlans)
    if (model == entry.model) return entry.make();
  throw Error(ExitCode::kUsage, fmt::format("'{}' cannot be quantized", model),
              fmt::format("networks that can: {}", fmt::join(plan_names(), ", ")));
}

}  // namespace gradsync::quantize
