#include "analysis/metrics/remedy.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "support/error.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

/// An option that is a remedy, and the value with which it is off. An option that a run does not
/// have is off.
struct Remedy {
  std::string_view option, off;
};

constexpr std::array<Remedy, 9> kRemedies = {{{"lr-scaling", "none"},
                                              {"warmup-epochs", "0"},
                                              {"lr-schedule", "constant"},
                                              {"optimizer", "sgd"},
                                              {"clip-norm", "0"},
                                              {"nesterov", "false"},
                                              {"label-smoothing", "0"},
                                              {"batch-schedule", ""},
                                              {"batch-norm", "local"}}};

std::string option(const RunGroup& group, std::string_view name) {
  return option_value(group.first(), name);
}

std::string rate_text(const RunGroup& group, const RunGroup& reference) {
  const std::string here = option(group, "lr"), plain = option(reference, "lr");
  if (here == plain || here.empty() || plain.empty()) return {};
  return fmt::format("lr {} ({} at batch {})", here, plain, reference.first().batch_global);
}

bool is_plain(const RunGroup& group) {
  return std::all_of(kRemedies.begin(), kRemedies.end(), [&](const Remedy& remedy) {
    const std::string value = option(group, remedy.option);
    return value.empty() || value == remedy.off;
  });
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

bool is_remedy_option(const std::string& name) {
  return name == "lr" || name == "accumulate" ||
         std::any_of(kRemedies.begin(), kRemedies.end(),
                     [&](const Remedy& remedy) { return remedy.option == name; });
}

const RunGroup& smallest_batch(const std::vector<RunGroup>& groups, const RunGroup& group) {
  const RunGroup* best = &group;
  for (const RunGroup& one : groups) {
    const Run& run = one.first();
    if (run.model != group.first().model || run.batch_global <= 0) continue;
    const std::int64_t batch = largest_batch(run), smallest = largest_batch(best->first());
    if (batch < smallest || (batch == smallest && is_plain(one) && !is_plain(*best))) best = &one;
  }
  return *best;
}

const RunGroup* plain_group(const std::vector<RunGroup>& groups, const RunGroup& group,
                            const RunGroup& reference) {
  for (const RunGroup& one : groups) {
    const Run &run = one.first(), &wanted = group.first();
    const bool same = run.model == wanted.model && run.mode == wanted.mode &&
                      run.ranks == wanted.ranks && largest_batch(run) == largest_batch(wanted);
    if (same && remedy_text(one, reference) == "none") return &one;
  }
  return nullptr;
}

std::int64_t largest_batch(const Run& run) {
  std::int64_t largest = run.batch_global;
  for (const std::string& phase : split_list(run.reader->option("batch-schedule"), ',')) {
    const std::size_t colon = phase.find(':');
    if (colon == std::string::npos) continue;
    try {
      largest = std::max(largest, parse_integer(phase.substr(colon + 1)));
    } catch (const Error&) {
      continue;  // of another version: what it says of its batch stands
    }
  }
  return largest;
}

}  // namespace gradsync::report
