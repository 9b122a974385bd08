#include "analysis/figures/remedy.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"
#include "options/option_roles.h"

namespace gradsync::report {

namespace {

/// The options that are remedies, in the order of the tables; each is off at its default.
constexpr std::array kRemedies = {"lr-scaling",      "warmup-epochs",  "lr-schedule",
                                  "optimizer",       "clip-norm",      "nesterov",
                                  "label-smoothing", "batch-schedule", "batch-norm"};

bool is_on(const RunGroup& group, const char* remedy) {
  const std::string value = option_value(group.first(), remedy);
  return !value.empty() && value != value_before(*declared_train_option(remedy));
}

std::string rate_text(const RunGroup& group, const RunGroup& reference) {
  const std::string here = option_value(group.first(), "lr"),
                    plain = option_value(reference.first(), "lr");
  if (here == plain || here.empty() || plain.empty()) return {};
  return fmt::format("lr {} ({} at batch {})", here, plain, reference.first().batch_global);
}

bool is_plain(const RunGroup& group) {
  return std::none_of(kRemedies.begin(), kRemedies.end(),
                      [&](const char* remedy) { return is_on(group, remedy); });
}

}  // namespace

std::string remedy_text(const RunGroup& group, const RunGroup& reference) {
  std::string text = rate_text(group, reference);
  for (const char* remedy : kRemedies)
    if (is_on(group, remedy))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", remedy,
                          option_value(group.first(), remedy));
  return text.empty() ? "none" : text;
}

bool is_remedy_option(const std::string& name) {
  return name == "lr" || name == "accumulate" ||
         std::find(kRemedies.begin(), kRemedies.end(), name) != kRemedies.end();
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
    const bool same = is_known_work(run) && run.model == wanted.model && run.mode == wanted.mode &&
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
