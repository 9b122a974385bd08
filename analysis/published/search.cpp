#include "analysis/published/search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace gradsync::published {

namespace {

constexpr std::size_t kMostEvidence = 64;  // rows that a search looks at; enough to tell
constexpr double kHalf = 0.5, kTenth = 0.1;

// --- one expectation -----------------------------------------------------------------------------

struct Inputs {
  std::array<Range, kInputCount> ranges;
  std::vector<std::size_t> lines;
  std::string missing;

  Inputs() { ranges.fill(Range::unknown()); }
  void set(Input input, const Range& range) { ranges[static_cast<std::size_t>(input)] = range; }
  void take(Input input, const Found& found) {
    set(input, found.range);
    lines.insert(lines.end(), found.lines.begin(), found.lines.end());
    if (!found.range.known() && missing.empty()) missing = found.missing;
  }
  void need(Input input, bool known, double value, const std::string& why) {
    if (known)
      set(input, Range::exact(value));
    else if (missing.empty())
      missing = why;
  }
};

const Convention& derived_communication_time() {
  static const Convention& derived = *conventions_of(Kind::kCommTime).front();
  return derived;
}

Found communication_of(const Study& study, const Row& row, const Choice& choice,
                       const AuditOptions& options) {
  if (!choice.derived_comm) {
    Found found = study.same_setting(row, Kind::kCommTime);
    if (!found.range.known()) found.missing = "the communication time " + found.missing.substr(3);
    return found;
  }
  Choice plain = choice;
  plain.slip = {"", 1, 0};
  const Expectation derived = expect(study, row, derived_communication_time(), plain, options);
  return {derived.range, derived.lines, 0, derived.missing};
}

void take_times(const Study& study, const Row& row, const Convention& convention,
                const Choice& choice, Inputs& inputs) {
  if (convention.needs_input(Input::kTime))
    inputs.take(Input::kTime, study.time_of(row, choice.time));
  if (!convention.needs_input(Input::kBaseTime)) return;
  const Found base = study.base_time_of(row, choice.base, choice.rule);
  inputs.take(Input::kBaseTime, base);
  inputs.set(Input::kBaseDevices, Range::exact(base.devices));
}

void take_published(const Study& study, const Row& row, const Convention& convention,
                    Inputs& inputs) {
  constexpr std::array<std::pair<Input, Kind>, 3> kPublished = {
      {{Input::kCompute, Kind::kComputeTime},
       {Input::kBandwidth, Kind::kBandwidth},
       {Input::kSpeedup, Kind::kSpeedup}}};
  for (const auto& [input, kind] : kPublished)
    if (convention.needs_input(input)) inputs.take(input, study.same_setting(row, kind));
}

void take_constants(const Row& row, const Convention& convention, const Choice& choice,
                    const AuditOptions& options, Inputs& inputs) {
  const auto devices = static_cast<double>(row.devices);
  if (convention.needs_input(Input::kDevices))
    inputs.need(Input::kDevices, row.devices != kNotSaid, devices,
                "the number of devices is not given");
  if (convention.needs_input(Input::kMessage))
    inputs.need(Input::kMessage, choice.message.bytes > 0, choice.message.bytes,
                fmt::format("the message of model '{}' is not known; give --parameters or "
                            "--message-bytes",
                            row.model));
  if (convention.needs_input(Input::kIterations))
    inputs.need(Input::kIterations, row.batch_per_device != kNotSaid && row.devices != kNotSaid,
                epoch_iterations(options.images,
                                 devices * static_cast<double>(row.batch_per_device), choice.last),
                "the batch per device is not given");
  inputs.set(Input::kImages, Range::exact(options.images));
}

Inputs inputs_of(const Study& study, const Row& row, const Convention& convention,
                 const Choice& choice, const AuditOptions& options) {
  Inputs inputs;
  take_times(study, row, convention, choice, inputs);
  take_published(study, row, convention, inputs);
  if (convention.needs_input(Input::kComm))
    inputs.take(Input::kComm, communication_of(study, row, choice, options));
  take_constants(row, convention, choice, options, inputs);
  return inputs;
}

// The formulas grow or fall with each input alone, so their extremes lie in the corners.
Range evaluate(const Convention& convention, const std::array<Range, kInputCount>& ranges) {
  InputValues values{};
  for (std::size_t i = 0; i < kInputCount; ++i)
    values[i] = ranges[i].value;
  Range result = Range::exact(convention.value(values));
  const std::size_t corners = std::size_t{1} << convention.needs.size();
  for (std::size_t corner = 0; corner < corners; ++corner) {
    for (std::size_t i = 0; i < convention.needs.size(); ++i) {
      const auto input = static_cast<std::size_t>(convention.needs[i]);
      values[input] = (corner >> i) & 1 ? ranges[input].high : ranges[input].low;
    }
    const double value = convention.value(values);
    result.low = std::fmin(result.low, value);
    result.high = std::fmax(result.high, value);
  }
  return result;
}

Range slipped(const Range& range, const Slip& slip) {
  return {range.value * slip.factor, range.low * slip.factor, range.high * slip.factor};
}

// --- the choices ---------------------------------------------------------------------------------

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

Choices choices_for(const Study& study, const DerivedColumn& column, const Convention& convention,
                    const AuditOptions& options) {
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

// --- scoring -------------------------------------------------------------------------------------

struct Prediction {
  const Row* row;
  Range expected;
};

// Digits that leave more than a fifth open agree with anything: no evidence for a convention.
bool says_something(const Range& expected) {
  constexpr double kVague = 0.2;
  return (expected.high - expected.low) / 2 <= kVague * std::abs(expected.value);
}

Fit score(const std::vector<Prediction>& predictions, const Convention& convention,
          const Choice& choice) {
  Fit fit;
  fit.convention = &convention;
  fit.choice = choice;
  std::vector<double> ratios, distances;
  for (const auto& [row, expected] : predictions) {
    const Range printed = slipped(expected, choice.slip);
    ++fit.recomputed;
    if (compare(*row, printed) != Match::kDiffers && says_something(printed)) ++fit.agree;
    ratios.push_back(row->range().value / printed.value);
    const double distance = std::abs(std::log(ratios.back()));
    distances.push_back(std::isnan(distance) ? HUGE_VAL : distance);
  }
  if (ratios.empty()) return fit;
  std::tie(fit.lowest, fit.highest) = std::pair(*std::min_element(ratios.begin(), ratios.end()),
                                                *std::max_element(ratios.begin(), ratios.end()));
  std::sort(distances.begin(), distances.end());
  fit.median_distance = distances[distances.size() / 2];
  return fit;
}

double points(const Fit& fit) {
  return static_cast<double>(fit.agree) - kHalf * fit.choice.cost;
}

bool explains_more(const Fit& a, const Fit& b) {
  if (points(a) != points(b)) return points(a) > points(b);
  if (a.choice.cost != b.choice.cost) return a.choice.cost < b.choice.cost;
  if (a.recomputed != b.recomputed) return a.recomputed > b.recomputed;
  return a.median_distance < b.median_distance;
}

bool is_nearer(const Fit& a, const Fit& b) {
  const auto distance = [](const Fit& fit) {
    return fit.median_distance + kTenth / 2 * fit.choice.cost;
  };
  if (a.recomputed != b.recomputed) return a.recomputed > b.recomputed;
  return distance(a) < distance(b);
}

// "Nearest" is for people: no slip, and no choice that is far from the words.
bool may_be_nearest(const Fit& fit) {
  return fit.choice.slip.text.empty() && fit.choice.cost <= 2 && fit.recomputed > 0;
}

bool explains_enough(const Fit& fit) {
  const double share = kHalf + kTenth * fit.choice.cost;
  if (fit.choice.cost >= 2 && fit.evidence < 3) return false;
  return fit.agree > 0 &&
         static_cast<double>(fit.agree) >= share * static_cast<double>(fit.evidence) - 1e-9;
}

class Search {
 public:
  Search(const Study& study, const DerivedColumn& column, const AuditOptions& options)
      : study_(study), column_(column), options_(options) {
    for (const Row* row : column.rows)
      if (row->usable() && !is_base_row(study, *row) && rows_.size() < kMostEvidence)
        rows_.push_back(row);
  }

  Fit best() {
    const auto conventions = conventions_of(column_.kind);
    if (!conventions.empty()) best_.convention = nearest_.convention = conventions.front();
    for (const Convention* convention : conventions)
      for (const Choice& choice : choices_for(study_, column_, *convention, options_))
        try_choice(*convention, choice);
    best_.evidence = nearest_.evidence = plain_.evidence = evidence_;
    best_.reproduces = explains_enough(best_);
    // With nothing near, what the words say is a better measure than the least wrong reading.
    if (plain_.recomputed == nearest_.recomputed && plain_.recomputed > 0 &&
        nearest_.median_distance > std::log(kNear))
      nearest_ = plain_;
    Fit& chosen = best_.reproduces ? best_ : nearest_;
    chosen.tried = tried_;
    if (chosen.recomputed == 0) use_plain_choice(chosen);
    return chosen;
  }

 private:
  void try_choice(const Convention& convention, const Choice& choice) {
    std::vector<Prediction> predictions;
    for (const Row* row : rows_) {
      const Range expected = expect(study_, *row, convention, choice, options_).range;
      if (expected.known()) predictions.push_back({row, expected});
    }
    evidence_ = std::max(evidence_, predictions.size());
    for (const Slip& slip : slips_of(column_.rows.front()->unit.dimension, column_.unit)) {
      Choice slipping = choice;
      slipping.slip = slip;
      slipping.cost += slip.cost;
      consider(score(predictions, convention, slipping));
    }
  }

  void consider(const Fit& fit) {
    ++tried_;
    if (fit.choice.cost == 0 && fit.recomputed > plain_.recomputed) plain_ = fit;
    if (fit.agree > 0 && (best_.recomputed == 0 || explains_more(fit, best_))) best_ = fit;
    if (may_be_nearest(fit) && (nearest_.recomputed == 0 || is_nearer(fit, nearest_)))
      nearest_ = fit;
  }

  // Nothing could be recomputed: the first convention with its first choice says what is missing.
  void use_plain_choice(Fit& fit) const {
    if (!fit.convention) return;
    fit.choice = choices_for(study_, column_, *fit.convention, options_).front();
  }

  const Study& study_;
  const DerivedColumn& column_;
  const AuditOptions& options_;
  std::vector<const Row*> rows_;
  Fit best_, nearest_, plain_;
  std::size_t tried_ = 0, evidence_ = 0;
};

Message given_message(double bytes, const std::string& text) {
  return {text, bytes, 0};
}

}  // namespace

Expectation expect(const Study& study, const Row& row, const Convention& convention,
                   const Choice& choice, const AuditOptions& options) {
  Inputs inputs = inputs_of(study, row, convention, choice, options);
  if (!inputs.missing.empty()) return {Range::unknown(), inputs.lines, inputs.missing};
  const Range range = slipped(evaluate(convention, inputs.ranges), choice.slip);
  if (!range.known()) return {range, inputs.lines, "the formula has no value for these numbers"};
  return {range, inputs.lines, {}};
}

Match compare(const Row& row, const Range& expected) {
  const Range printed = row.range();
  const double slack = 1e-9 * std::abs(printed.value);  // of the arithmetic here
  if (expected.high >= printed.low - slack && expected.low <= printed.high + slack)
    return Match::kAgrees;
  const double cut_off = printed.value + row.step() * row.unit.factor * (row.value < 0 ? -1 : 1);
  const double low = std::min(printed.value, cut_off), high = std::max(printed.value, cut_off);
  const bool meets = expected.high >= low - slack && expected.low <= high + slack;
  return meets ? Match::kCutOff : Match::kDiffers;
}

std::vector<DerivedColumn> derived_columns(const Study& study) {
  std::vector<DerivedColumn> columns;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, std::size_t>
      known;
  for (const Row& row : study.rows()) {
    if (!row.what.derived) continue;
    const auto [place, added] = known.emplace(
        std::tuple(row.report, row.table, row.quantity, row.unit_text, row.model), columns.size());
    if (added)
      columns.push_back(
          {row.report, row.table, row.quantity, row.unit_text, row.model, row.what.kind, {}});
    columns[place->second].rows.push_back(&row);
  }
  return columns;
}

bool is_base_row(const Study& study, const Row& row) {
  return row.devices == study.base_devices(row);
}

std::vector<Message> messages_for(const Row& row, const Study& study, const AuditOptions& options) {
  if (options.message_bytes > 0) return {given_message(options.message_bytes, "--message-bytes")};
  if (options.parameters > 0)
    return {given_message(4 * options.parameters, fmt::format("{} parameters (--parameters) of 4 B",
                                                              with_commas(options.parameters)))};
  const Found bytes = study.same_setting(row, Kind::kMessageBytes);
  if (bytes.range.known()) return {given_message(bytes.range.value, "published message size")};
  const Found count = study.same_setting(row, Kind::kParameters);
  if (count.range.known())
    return {given_message(4 * count.range.value, "published parameter count of 4 B")};
  std::vector<Message> known = messages_of_model(row.model);
  if (known.empty()) known.push_back({"unknown message", 0, 0});
  return known;
}

Fit search(const Study& study, const DerivedColumn& column, const AuditOptions& options) {
  return Search(study, column, options).best();
}

Range implied_message(const Study& study, const DerivedColumn& column, const Convention& convention,
                      const AuditOptions& options) {
  Choice choice;
  choice.message = given_message(1, "one byte");
  Range common = {0, 0, HUGE_VAL};
  std::size_t used = 0;
  for (const Row* row : column.rows) {
    const Range per_byte = expect(study, *row, convention, choice, options).range;
    if (!per_byte.known() || per_byte.low <= 0) continue;
    ++used;
    common.low = std::max(common.low, row->range().low / per_byte.high);
    common.high = std::min(common.high, row->range().high / per_byte.low);
  }
  if (used < 3 || !(common.low <= common.high)) return Range::unknown();
  common.value = (common.low + common.high) / 2;
  return common;
}

}  // namespace gradsync::published
