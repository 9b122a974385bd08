// SPDX-License-Identifier: BSD-3-Clause
#include <bit>
#include <limits>

#include "machine/kernels.h"
#include "train/gradient_guard.h"

namespace gradsync {

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7f800000u;
  std::uint32_t bad = 0;
  for (const float value : values)
    bad |= (std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

GradientGuard::GradientGuard(const Replica& replica, Exchange& exchange)
    : replica_(replica),
      exchange_(exchange),
      hooks_(replica.parameters, [this](std::size_t parameter) { look_at(parameter); }) {
  if (!on_device()) return;
  lowest_ = torch::full({1}, -1, replica.parameters[0].options().dtype(torch::kInt64));
  before_ =
      exchange_.set_gradient_check([this](std::span<const float> values, StreamHandle stream) {
        if (!at_rest_) look_at_message(values, stream);
      });
}

GradientGuard::~GradientGuard() {
  if (on_device()) exchange_.set_gradient_check(before_);
}

void GradientGuard::reset(bool marks_last) {
  first_bad_ = -1;
  marks_last_ = marks_last;
  looked_ = at_rest_ = false;
  if (on_device()) lowest_.fill_(-1);
}

void GradientGuard::look_at(std::size_t parameter) {
  const torch::Tensor& gradient = replica_.parameters[parameter].grad();
  if (std::exchange(poison_, false)) {
    const torch::NoGradGuard no_grad;
    gradient.as_strided({1}, {1}).fill_(std::numeric_limits<float>::quiet_NaN());
  }
  if (!on_device() && first_bad_ < 0 &&
      !all_finite({gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel())}))
    first_bad_ = static_cast<std::int64_t>(parameter);
  if (marks_last_) last_seen_ = exchange_.now();
}

void GradientGuard::note_places() {
  if (!on_device()) return;
  places_.clear();
  for (const torch::Tensor& parameter : replica_.parameters)
    places_.push_back(parameter.grad().defined() ? parameter.grad().data_ptr<float>() : nullptr);
}

void GradientGuard::look_at_message(std::span<const float> values, StreamHandle stream) {
  looked_ = true;
  static_assert(sizeof(std::int64_t) == sizeof(unsigned long long));
  exchange_.lane()->kernels.lowest_bad(
      values.data(), static_cast<std::int64_t>(values.size()),
      reinterpret_cast<unsigned long long*>(lowest_.data_ptr<std::int64_t>()), stream);
}

void GradientGuard::look_at_rest() {
  if (!on_device() || looked_) return;
  at_rest_ = true;
  // Nothing has traveled: the gradients lie in one buffer.
  const auto& storage = replica_.parameters[0].grad().storage();
  look_at_message({static_cast<const float*>(storage.data()), storage.nbytes() / sizeof(float)},
                  exchange_.lane()->compute);
}

GuardFinding GradientGuard::finding() {
  if (!on_device()) return {};
  return {to_host(lowest_), places_};
}

std::int64_t GradientGuard::first_bad(const GuardFinding& finding, const Replica& replica) {
  const auto address = static_cast<unsigned long long>(*finding.lowest.data_ptr<std::int64_t>());
  if (address == kNoAddress) return -1;
  const auto* value = reinterpret_cast<const float*>(static_cast<std::uintptr_t>(address));
  for (std::size_t i = 0; i < finding.gradients.size(); ++i)
    if (value >= finding.gradients[i] &&
        value < finding.gradients[i] + replica.parameters[i].numel())
      return static_cast<std::int64_t>(i);
  return static_cast<std::int64_t>(replica.parameters.size());
}

}  // namespace gradsync
