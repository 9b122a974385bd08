#include "analysis/metrics/remedy.h"

#include <array>

#include <fmt/format.h>

namespace gradsync {

namespace {

/// An option that is a remedy, and the value with which it is off. An option that a run does not
/// have is off.
struct Remedy {
  std::string_view option, off;
};

constexpr std::array<Remedy, 10> kRemedies = {{{"lr-scaling", "none"},
                                               {"warmup-epochs", "0"},
                                               {"lr-schedule", "constant"},
                                               {"optimizer", "sgd"},
                                               {"clip-norm", "0"},
                                               {"nesterov", "false"},
                                               {"label-smoothing", "0"},
                                               {"batch-schedule", ""},
                                               {"batch-norm", "local"},
                                               {"accumulate", "1"}}};

std::string option(const RunGroup& group, std::string_view name) {
  return group.first().reader->option(name);
}

std::string rate_text(const RunGroup& group, const RunGroup& reference) {
  const std::string here = option(group, "lr"), plain = option(reference, "lr");
  if (here == plain || here.empty() || plain.empty()) return {};
  return fmt::format("lr {} ({} at batch {})", here, plain, reference.first().batch_global);
}

}  // namespace

std::string remedy_text(const RunGroup& group, const RunGroup& reference) {
  std::string text = rate_text(group, reference);
  for (const Remedy& remedy : kRemedies) {
    const std::string value = option(group, remedy.option);
    if (value.empty() || value == remedy.off) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", remedy.option, value);
  }
  return text.empty() ? "none" : text;
}

const RunGroup& smallest_batch(const std::vector<RunGroup>& groups, const RunGroup& group) {
  const RunGroup* best = &group;
  for (const RunGroup& one : groups) {
    if (one.first().model != group.first().model || one.first().batch_global <= 0) continue;
    if (one.first().batch_global < best->first().batch_global) best = &one;
  }
  return *best;
}

}  // namespace gradsync
