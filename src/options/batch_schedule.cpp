#include "options/batch_schedule.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/parse.h"

namespace gradsync {

namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw Error(ExitCode::kUsage, fmt::format("--batch-schedule {}: {}", text, why),
              "EPOCH:BATCH pairs from epoch 0 on, as 0:128,3:512");
}

std::int64_t count_of(const std::string& text, const std::string& word, std::int64_t lowest) {
  std::int64_t count = -1;
  try {
    count = parse_integer(word);
  } catch (const Error&) {
    refuse(text, fmt::format("\"{}\" is not a whole number", word));
  }
  if (count < lowest) refuse(text, fmt::format("{} is below {}", word, lowest));
  return count;
}

}  // namespace

BatchSchedule::BatchSchedule(std::string_view text) : text_(text) {
  for (const std::string& pair : split_list(text_, ',')) {
    const std::size_t colon = pair.find(':');
    if (colon == std::string::npos) refuse(text_, fmt::format("\"{}\" has no colon", pair));
    phases_.push_back(
        {count_of(text_, pair.substr(0, colon), 0), count_of(text_, pair.substr(colon + 1), 1)});
  }
  if (phases_.empty() || phases_.front().epoch != 0) refuse(text_, "epoch 0 is missing");
  const auto same_or_earlier = [](const Phase& a, const Phase& b) { return a.epoch >= b.epoch; };
  if (std::adjacent_find(phases_.begin(), phases_.end(), same_or_earlier) != phases_.end())
    refuse(text_, "the epochs are not increasing");
}

void BatchSchedule::require_fits(std::int64_t epochs, std::int64_t shares) const {
  for (const Phase& phase : phases_) {
    if (phase.epoch >= epochs)
      refuse(text_,
             fmt::format("epoch {} lies beyond the {} epochs of the run", phase.epoch, epochs));
    if (phase.batch % shares != 0)
      refuse(text_,
             fmt::format("{} does not divide by {} (ranks × accumulate)", phase.batch, shares));
  }
}

std::int64_t BatchSchedule::at(std::int64_t epoch) const {
  const auto next = std::upper_bound(
      phases_.begin(), phases_.end(), epoch,
      [](std::int64_t wanted, const Phase& phase) { return wanted < phase.epoch; });
  return std::prev(next)->batch;
}

}  // namespace gradsync
