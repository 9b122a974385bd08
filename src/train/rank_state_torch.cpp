#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"
#include "train/rank_state.h"

namespace gradsync {

namespace {

const std::string kSteps = "optimizer/steps", kLossScale = "optimizer/loss_scale";
const std::string kMode = "mode", kBuckets = "trainer/buckets", kClock = "trainer/epoch_clock";
const std::string kRunSummary = "trainer/run_summary", kEpochSummary = "trainer/epoch_summary";

torch::Tensor numbers(const std::vector<double>& values) {
  return torch::tensor(values, torch::kFloat64);
}

std::vector<double> numbers_in(const torch::Tensor& values) {
  return {values.data_ptr<double>(), values.data_ptr<double>() + values.numel()};
}

std::vector<std::int64_t> integers_in(const torch::Tensor& values) {
  return {values.data_ptr<std::int64_t>(), values.data_ptr<std::int64_t>() + values.numel()};
}

/// The tensors of the network and of the optimizer, as views that can be read and written.
std::vector<NamedTensor> network_views(const RankState& state) {
  std::vector<NamedTensor> views;
  const Replica& replica = state.replica;
  for (std::size_t i = 0; i < replica.parameters.size(); ++i)
    views.push_back({"parameters/" + replica.names[i], replica.parameters[i].detach()});
  const auto& moments = state.optimizer.moment_names();
  for (std::size_t which = 0; which < moments.size(); ++which)
    for (std::size_t i = 0; i < replica.parameters.size(); ++i)
      views.push_back({moments[which] + "/" + replica.names[i], state.optimizer.moment(which, i)});
  for (std::size_t i = 0; i < replica.buffers.size(); ++i)
    views.push_back({"buffers/" + replica.buffer_names[i], replica.buffers[i]});
  return views;
}

std::vector<std::int64_t> bucket_numbers(const std::vector<BucketShape>& buckets) {
  std::vector<std::int64_t> all;
  for (const BucketShape& bucket : buckets)
    all.insert(all.end(), {bucket.bytes, static_cast<std::int64_t>(bucket.kind)});
  return all;
}

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(ExitCode::kBadData, fmt::format("the checkpoint's '{}' {}", name, what),
              "resume with the program that wrote it, or begin a new run in another --output");
}

const torch::Tensor* find(const std::vector<NamedTensor>& snapshot, const std::string& name,
                          torch::ScalarType type) {
  const auto found = std::find_if(snapshot.begin(), snapshot.end(),
                                  [&](const NamedTensor& one) { return one.name == name; });
  if (found == snapshot.end()) return nullptr;
  if (found->values.scalar_type() != type) refuse(name, "is of another type");
  return &found->values;
}

const torch::Tensor& required(const std::vector<NamedTensor>& snapshot, const std::string& name,
                              torch::ScalarType type) {
  const torch::Tensor* found = find(snapshot, name, type);
  if (found == nullptr) refuse(name, "is missing");
  return *found;
}

std::vector<BucketShape> buckets_in(const std::vector<std::int64_t>& numbers) {
  std::vector<BucketShape> buckets;
  for (std::size_t i = 0; i + 1 < numbers.size(); i += 2) {
    if (numbers[i + 1] < 0 || numbers[i + 1] >= static_cast<std::int64_t>(kCollectiveNames.size()))
      refuse(kBuckets, "holds an unknown collective");
    buckets.push_back({numbers[i], static_cast<CollectiveKind>(numbers[i + 1])});
  }
  return buckets;
}

torch::Tensor loss_scale_of(const Optimizer& optimizer) {
  const StepState now = optimizer.read_state();
  return numbers({now.loss_scale.scale, static_cast<double>(now.loss_scale.good_steps),
                  static_cast<double>(now.skipped_steps)});
}

void restore_loss_scale(Optimizer& optimizer, const std::vector<double>& numbers) {
  if (numbers.size() != 3) refuse(kLossScale, "has another shape");
  StepState state = optimizer.read_state();
  state.loss_scale = {static_cast<float>(numbers[0]), static_cast<int>(numbers[1])};
  state.skipped_steps = static_cast<std::int64_t>(numbers[2]);
  optimizer.write_state(state);
}

}  // namespace

std::vector<NamedTensor> snapshot(const RankState& state) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& view : network_views(state))
    all.push_back({view.name, view.values.contiguous().cpu()});
  all.push_back({kSteps, torch::tensor({state.optimizer.steps()}, torch::kInt64)});
  if (state.optimizer.scales_loss()) all.push_back({kLossScale, loss_scale_of(state.optimizer)});
  all.push_back({kRunSummary, numbers(state.run_summary.state()), true});
  all.push_back({kEpochSummary, numbers(state.epoch_summary.state()), true});
  all.push_back(
      {kClock, numbers({state.epoch_clock.training_s, state.epoch_clock.running_s()}), true});
  if (!state.buckets.empty())
    all.push_back({kBuckets, torch::tensor(bucket_numbers(state.buckets), torch::kInt64)});
  if (const auto order = state.mode.state(); !order.empty())
    all.push_back({kMode, torch::tensor(order, torch::kInt64)});
  return all;
}

void restore(const RankState& state, const std::vector<NamedTensor>& snapshot) {
  const torch::NoGradGuard no_grad;
  for (NamedTensor& view : network_views(state)) {
    const torch::Tensor& values = required(snapshot, view.name, view.values.scalar_type());
    if (values.sizes() != view.values.sizes()) refuse(view.name, "has another shape");
    view.values.copy_(values);
  }
  state.optimizer.steps() = integers_in(required(snapshot, kSteps, torch::kInt64)).at(0);
  if (state.optimizer.scales_loss())
    restore_loss_scale(state.optimizer,
                       numbers_in(required(snapshot, kLossScale, torch::kFloat64)));
  state.run_summary.restore(numbers_in(required(snapshot, kRunSummary, torch::kFloat64)));
  state.epoch_summary.restore(numbers_in(required(snapshot, kEpochSummary, torch::kFloat64)));
  const auto clock = numbers_in(required(snapshot, kClock, torch::kFloat64));
  if (clock.size() != 2) refuse(kClock, "has another shape");
  state.epoch_clock.training_s = clock[0];
  state.epoch_clock.before_s = clock[1];
  if (const auto* buckets = find(snapshot, kBuckets, torch::kInt64))
    state.buckets = buckets_in(integers_in(*buckets));
  if (const auto* order = find(snapshot, kMode, torch::kInt64))
    state.mode.restore(integers_in(*order));
}

}  // namespace gradsync
