#include "analysis/published/choices.h"

#include <array>
#include <utility>

#include <fmt/format.h>

namespace gradsync::report::published {

namespace {

using Choices = std::vector<Choice>;

/// Each choice of `choices` with each of `values`, which `apply` puts in.
template <typename Values, typename Apply>
Choices crossed(const Choices& choices, const Values& values, Apply&& apply) {
  Choices result;
  for (const Choice& choice : choices)
    for (const auto& value : values) {
      result.push_back(choice);
      apply(result.back(), value);
    }
  return result;
}

Choices with_times(const Choices& choices, const std::vector<TimeSource>& sources) {
  int cost = 0;
  std::vector<std::pair<TimeSource, int>> costed;
  for (const TimeSource& source : sources)
    costed.emplace_back(source, std::exchange(cost, 1));
  return crossed(choices, costed, [](Choice& choice, const auto& source) {
    choice.time = choice.base = source.first;
    choice.cost += source.second;
  });
}

Choices with_bases(const Choices& choices, const std::vector<TimeSource>& sources, bool has_time) {
  Choices result;
  for (const Choice& choice : choices)
    for (const TimeSource& source : sources) {
      if (source.sum) continue;
      const bool other =
          source.table != choice.time.table || source.quantity != choice.time.quantity;
      result.push_back(choice);
      result.back().base = source;
      if (other && has_time && !choice.time.sum) ++result.back().cost;
      if (!has_time && &source != &sources.front()) ++result.back().cost;
    }
  // Nothing to choose from: one choice has to be left to say so.
  return result.empty() ? choices : result;
}

Choices with_rules(const Choices& choices) {
  const std::array<BaseRule, 4> rules = {{{}, {true, false}, {false, true}, {true, true}}};
  return crossed(choices, rules, [](Choice& choice, const BaseRule& rule) {
    choice.rule = rule;
    choice.cost += (rule.same_global_batch ? 1 : 0) + (rule.same_mode ? 1 : 0);
  });
}

Choices with_messages(const Choices& choices, const std::vector<Message>& messages) {
  return crossed(choices, messages, [](Choice& choice, const Message& message) {
    choice.message = message;
    choice.cost += message.cost;
  });
}

Choices with_last_batches(const Choices& choices) {
  const std::array<LastBatch, 3> all = {LastBatch::kCounted, LastBatch::kFraction,
                                        LastBatch::kLeftOut};
  return crossed(choices, all, [](Choice& choice, LastBatch last) {
    choice.last = last;
    choice.cost += last == LastBatch::kCounted ? 0 : 1;
  });
}

// The published communication time, or what the epoch times of one source leave for it.
Choices with_communication(const Choices& choices, const std::vector<TimeSource>& sources) {
  Choices result = choices;
  for (const Choice& choice : choices)
    for (const TimeSource& source : sources) {
      if (source.sum) continue;
      Choice derived = choice;
      derived.time = derived.base = source;
      derived.derived_comm = true;
      derived.cost += &source == &sources.front() ? 1 : 2;
      result.push_back(derived);
    }
  return result;
}

}  // namespace

std::vector<Choice> choices_for(const Study& study, const DerivedColumn& column,
                                const Convention& convention, const AuditOptions& options) {
  const auto& sources = study.time_sources(column.report);
  Choices choices(1);
  choices.front().cost = convention.cost;
  const bool has_time = convention.needs_input(Input::kTime);
  if (has_time) choices = with_times(choices, sources);
  if (convention.needs_input(Input::kBaseTime))
    choices = with_rules(with_bases(choices, sources, has_time));
  if (convention.needs_input(Input::kMessage))
    choices = with_messages(choices, messages_for(*column.rows.front(), study, options));
  if (convention.needs_input(Input::kIterations)) choices = with_last_batches(choices);
  if (convention.needs_input(Input::kComm) && column.kind == Kind::kBandwidth)
    choices = with_communication(choices, sources);
  return choices;
}

std::vector<Message> messages_for(const Row& row, const Study& study, const AuditOptions& options) {
  if (options.message_bytes > 0) return {{"--message-bytes", options.message_bytes, 0}};
  if (options.parameters > 0)
    return {{fmt::format("{} parameters (--parameters) of 4 B", with_commas(options.parameters)),
             4 * options.parameters, 0}};
  const Found bytes = study.same_setting(row, Kind::kMessageBytes);
  if (bytes.range.known()) return {{"published message size", bytes.range.value, 0}};
  const Found count = study.same_setting(row, Kind::kParameters);
  if (count.range.known()) return {{"published parameter count of 4 B", 4 * count.range.value, 0}};
  std::vector<Message> known = messages_of_model(row.model);
  if (known.empty()) known.push_back({"unknown message", 0, 0});
  return known;
}

}  // namespace gradsync::report::published
