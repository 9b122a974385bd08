// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "base/error.h"
#include "sync/gradient_buckets.h"
#include "sync/sync_mode.h"

namespace gradsync {

GradientBuckets::GradientBuckets(Exchange& exchange, Limits limits, Events events)
    : exchange_(exchange), limits_(limits), events_(std::move(events)) {}

void GradientBuckets::attach(Replica& replica) {
  replica_ = &replica;
  auto order = module_order(replica.parameters.size());
  std::reverse(order.begin(), order.end());
  lay_out(order);
  hooks_.emplace(replica.parameters, [this](std::size_t parameter) { gradient_ready(parameter); });
}

void GradientBuckets::begin(bool exchanging) {
  exchanging_ = exchanging;
  came_.assign(replica_->parameters.size(), !exchanging);
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    missing_[b] = buckets_[b].last - buckets_[b].first;
}

bool GradientBuckets::end() {
  exchanging_ = false;
  require_all();
  if (rebuilt_) return false;
  share_order();
  lay_out(std::vector<std::size_t>(observed_.begin(), observed_.end()));
  rebuilt_ = true;
  return true;
}

std::vector<std::int64_t> GradientBuckets::state() const {
  return rebuilt_ ? observed_ : std::vector<std::int64_t>();
}

void GradientBuckets::restore(const std::vector<std::int64_t>& state) {
  if (state.empty()) return;
  lay_out(checked_order(state, replica_->parameters.size()));
  observed_ = state;
  rebuilt_ = true;
}

void GradientBuckets::gradient_ready(std::size_t parameter) {
  if (!exchanging_) return;
  // With cross-iteration overlap an exchange may last several iterations.
  if (observed_.size() < replica_->parameters.size())
    observed_.push_back(static_cast<std::int64_t>(parameter));
  came_[parameter] = true;
  const std::size_t bucket = bucket_of_[parameter];
  if (--missing_[bucket] > 0) return;
  ready_[bucket] = exchange_.now();
  events_.filled();
}

/// A bucket that lacks one never fills, and what follows it is not exchanged either.
void GradientBuckets::require_all() const {
  for (std::size_t i = 0; i < came_.size(); ++i)
    if (!came_[i])
      throw Error(ExitCode::kInternal,
                  fmt::format("the backward pass computed no gradient for parameter {} of the "
                              "network, and ddp needs one for each",
                              replica_->names.at(i)),
                  "use every parameter in every forward pass, or give --sync allreduce");
}

void GradientBuckets::share_order() {
  const auto order = std::as_writable_bytes(std::span(observed_));
  if (exchange_.lane())
    exchange_.session().broadcast(order);  // host memory
  else
    exchange_.run(Collective::broadcast(order, kRoot), Traffic::kControl);
}

void GradientBuckets::lay_out(const std::vector<std::size_t>& order) {
  std::vector<std::int64_t> bytes;
  for (const std::size_t parameter : order)
    bytes.push_back(replica_->parameters[parameter].numel() * value_bytes(ValueType::kFloat32));
  buckets_ = cut_into_buckets(bytes, limits_.first_bytes, limits_.cap_bytes);
  missing_.assign(buckets_.size(), 0);
  ready_.assign(buckets_.size(), Moment());
  bucket_of_.resize(order.size());
  std::vector<std::vector<std::size_t>> groups(buckets_.size());
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t position = buckets_[b].first; position < buckets_[b].last; ++position) {
      bucket_of_[order[position]] = b;
      groups[b].push_back(order[position]);
    }
  gradients_.emplace(*replica_, GradientLayout(*replica_, groups), exchange_);
  events_.laid_out();
}

namespace autograd = torch::autograd;

GradientHooks::GradientHooks(const std::vector<torch::Tensor>& parameters,
                             const std::function<void(std::size_t)>& ready) {
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    auto accumulator = autograd::impl::grad_accumulator(parameters[index]);
    auto hook = [index, ready](const autograd::variable_list& outputs,
                               const autograd::variable_list&) {
      ready(index);
      return outputs;
    };
    keys_.push_back(accumulator->add_post_hook(std::make_unique<autograd::utils::LambdaPostHook>(
        std::move(hook), [](autograd::CompiledNodeArgs&) {})));
    accumulators_.push_back(std::move(accumulator));
  }
}

GradientHooks::~GradientHooks() {
  for (std::size_t index = 0; index < keys_.size(); ++index)
    accumulators_[index]->del_post_hook(keys_[index]);
}

}  // namespace gradsync
