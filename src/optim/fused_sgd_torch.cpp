// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "machine/kernel_math.h"
#include "model/current_stream.h"
#include "optim/optimizer.h"

namespace gradsync {

namespace {

bool same(const SgdTensor& one, const SgdTensor& other) {
  return one.parameter == other.parameter && one.gradient == other.gradient;
}

template <typename T>
torch::Tensor bytes_on(const torch::Device& device, const std::vector<T>& values) {
  torch::Tensor bytes =
      torch::empty({static_cast<std::int64_t>(values.size() * sizeof(T))}, torch::kUInt8);
  std::memcpy(bytes.data_ptr(), values.data(), values.size() * sizeof(T));
  return bytes.to(device);
}

template <typename T>
const T* values_in(const torch::Tensor& bytes) {
  return reinterpret_cast<const T*>(bytes.const_data_ptr<std::uint8_t>());
}

}  // namespace

FusedSgd::FusedSgd(Replica& replica, const OptimizerSettings& settings)
    : Optimizer(replica, {"velocity"}),
      rule_{static_cast<float>(settings.momentum), static_cast<float>(settings.weight_decay),
            settings.nesterov} {}

void FusedSgd::prepare(double learning_rate, double gradient_scale) {
  if (!device().is_cuda()) return Optimizer::prepare(learning_rate, gradient_scale);
  launch_prepare(state(), static_cast<float>(learning_rate), static_cast<float>(gradient_scale),
                 current_stream(device()));
}

void FusedSgd::apply() {
  find_tensors();
  device().is_cuda() ? apply_on_device() : apply_on_host();
}

void FusedSgd::find_tensors() {
  std::vector<SgdTensor> now;
  for (std::size_t i = 0; i < parameter_count(); ++i) {
    const Values values = values_of(i);
    now.push_back({values.parameter, values.gradient, moment_values(0, values), values.count});
  }
  if (std::equal(now.begin(), now.end(), tensors_.begin(), tensors_.end(), same)) return;
  tensors_ = std::move(now);
  const std::vector<SgdPart> parts = sgd_parts(tensors_);
  part_count_ = static_cast<std::int64_t>(parts.size());
  device_tensors_ = bytes_on(device(), tensors_);
  device_parts_ = bytes_on(device(), parts);
}

void FusedSgd::apply_on_host() {
  StepState& now = *state();
  if (scales_loss())
    for (std::size_t i = tensors_.size(); i-- > 0;)
      if (std::any_of(tensors_[i].gradient, tensors_[i].gradient + tensors_[i].count, is_bad))
        now.first_bad = i;
  if (!skips_step(now)) ++steps();
  sgd_on_host(tensors_, rule_, now);
  finish_step(now);
}

void FusedSgd::apply_on_device() {
  ++steps();
  const StreamHandle stream = current_stream(device());
  const auto* tensors = values_in<SgdTensor>(device_tensors_);
  const auto* parts = values_in<SgdPart>(device_parts_);
  if (scales_loss()) launch_find_bad(tensors, parts, part_count_, state(), stream);
  launch_sgd(tensors, parts, part_count_, rule_, state(), stream);
  launch_finish_step(state(), stream);
}

}  // namespace gradsync
