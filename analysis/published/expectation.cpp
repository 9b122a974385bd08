#include "analysis/published/expectation.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace gradsync::report::published {

namespace {

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

}  // namespace

Range slipped(const Range& range, const Slip& slip) {
  return {range.value * slip.factor, range.low * slip.factor, range.high * slip.factor};
}

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

namespace {

struct Model {
  std::string_view family, variant;
  double parameters;
};

/// Counts of gradsync's own networks (src/model) and of torchvision's. A new one is a line.
constexpr std::array<Model, 14> kModels = {{{"resnet18", "cifar", 11173962},
                                            {"resnet18", "imagenet", 11689512},
                                            {"resnet18", "imagenet stem, 10 classes", 11181642},
                                            {"resnet34", "imagenet", 21797672},
                                            {"resnet50", "imagenet", 25557032},
                                            {"vgg11", "bn cifar", 9231114},
                                            {"vgg11", "cifar", 9225610},
                                            {"vgg11", "bn imagenet", 132868840},
                                            {"vgg11", "imagenet", 132863336},
                                            {"vgg16", "imagenet", 138357544},
                                            {"alexnet", "imagenet", 61100840},
                                            {"lenet", "cifar", 61780},
                                            {"lenet", "cifar, 400-120-84-10", 62006},
                                            {"lenet", "mnist", 61706}}};

std::string letters_and_digits(const std::string& name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

// What the name says beside the family decides: "resnet18-imagenet" is the ImageNet network first.
bool names_variant(const std::string& plain, const Model& model) {
  const std::string first_word(model.variant.substr(0, model.variant.find_first_of(" ,")));
  return plain.size() > model.family.size() && plain.find(first_word) != std::string::npos;
}

std::vector<Model> candidates(const std::string& plain) {
  std::vector<Model> models;
  for (const Model& model : kModels)
    if (plain.starts_with(model.family)) models.push_back(model);
  std::stable_sort(models.begin(), models.end(), [&](const Model& a, const Model& b) {
    return names_variant(plain, a) > names_variant(plain, b);
  });
  return models;
}

}  // namespace

std::string with_commas(double whole_number) {
  std::string digits = fmt::format("{:.0f}", std::abs(whole_number));
  for (std::size_t at = digits.size(); at > 3; at -= 3)
    digits.insert(at - 3, 1, ',');
  return (whole_number < 0 ? "-" : "") + digits;
}

std::vector<Message> messages_of_model(const std::string& model) {
  std::vector<Message> messages;
  const std::vector<Model> models = candidates(letters_and_digits(model));
  for (const int width : {4, 2})
    for (const Model& one : models)
      messages.push_back({fmt::format("{} parameters ({} {}) of {} B", with_commas(one.parameters),
                                      one.family, one.variant, width),
                          one.parameters * width,
                          (width == 4 ? 0 : 1) + (&one == &models.front() ? 0 : 1)});
  return messages;
}

}  // namespace gradsync::report::published
