// SPDX-License-Identifier: BSD-3-Clause
#include "options/networks.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "options/options.h"

namespace gradsync {

namespace {

constexpr std::string_view kFile = "FILE.pt", kFileEnd = ".pt";
const std::string kMlpForm = "mlp:WIDTHxDEPTH",
                  kSyntheticForm = "synthetic:parameters=350M,compute=120ms,tensors=200";
/// What one message of MPI can count.
constexpr std::int64_t kMostParameters = 2'000'000'000;
constexpr std::int64_t kWidest = 100'000, kDeepest = 1'000, kLargestSide = 4'096;

NetworkInput cifar10_image(const TrainOptions&) {
  return {};
}

NetworkInput imagenet_image(const TrainOptions&) {
  return {{3, 224, 224}, 1000, false};
}

NetworkInput token_sequence(const TrainOptions& options) {
  return {{options.sequence_length}, 50257, false};
}

/// The smallest sample.
NetworkInput single_value(const TrainOptions&) {
  return {{1, 1, 1}, 10, false};
}

NetworkInput stated_sample(const TrainOptions& options) {
  return {image_sizes(options.input), options.classes, false};
}

void no_numbers(const std::string&) {}

struct Entry {
  const char* form;
  NetworkInput (*input)(const TrainOptions&);
  void (*check)(const std::string& model);
};
constexpr Entry kNetworks[] = {
#define GRADSYNC_NETWORK(id, form, input, check) \
  {form, input, [](const std::string& model) { check(model); }},
#include "options/networks.def"
#undef GRADSYNC_NETWORK
};

[[noreturn]] void refuse(const std::string& text, const std::string& why, const std::string& form) {
  throw Error(ExitCode::kUsage, fmt::format("\"{}\" {}", text, why), "give it as " + form);
}

std::string behind_colon(const std::string& model) {
  return model.substr(model.find(':') + 1);
}

/// "4096", or "350M" in powers of 1000.
std::int64_t count_of(const std::string& text) {
  static const std::map<char, std::int64_t> units = {
      {'k', 1'000}, {'M', 1'000'000}, {'G', 1'000'000'000}};
  const auto unit = text.empty() ? units.end() : units.find(text.back());
  if (unit == units.end()) return parse_integer(text);
  const double value = parse_number(text.substr(0, text.size() - 1));
  return static_cast<std::int64_t>(std::clamp(value, -1.0, 1e9) *
                                   static_cast<double>(unit->second));
}

/// Numbers between "x", each from 1 to its own limit.
std::vector<std::int64_t> product_of(const std::string& text,
                                     const std::vector<std::int64_t>& limits,
                                     const std::string& form) {
  const auto all = each(split_list(text, 'x'), parse_integer);
  if (all.size() != limits.size())
    refuse(text, fmt::format("is not {} numbers with x between them", limits.size()), form);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] < 1 || all[i] > limits[i])
      refuse(text, fmt::format("holds {}, which is not in 1 to {}", all[i], limits[i]), form);
  return all;
}

std::vector<std::string> forms() {
  return each(kNetworks, [](const Entry& entry) { return std::string(entry.form); });
}

}  // namespace

std::int64_t NetworkInput::values() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::string NetworkInput::text() const {
  return tokens() ? fmt::format("{} tokens of {}", sizes[0], classes)
                  : fmt::format("{} values of {} classes", fmt::join(sizes, " x "), classes);
}

bool is_script(std::string_view model) {
  return model.ends_with(kFileEnd);
}

bool is_network(std::string_view form, std::string_view model) {
  if (form == kFile) return is_script(model);
  const auto colon = form.find(':');
  return colon == std::string_view::npos ? form == model
                                         : model.starts_with(form.substr(0, colon + 1));
}

MlpShape mlp_shape(const std::string& model) {
  const auto sizes = product_of(behind_colon(model), {kWidest, kDeepest}, kMlpForm);
  return {sizes[0], sizes[1]};
}

SyntheticShape synthetic_shape(const std::string& model) {
  SyntheticShape shape;
  std::map<std::string, std::function<void(const std::string&)>> missing = {
      {"parameters", [&](const std::string& text) { shape.parameters = count_of(text); }},
      {"tensors", [&](const std::string& text) { shape.tensors = count_of(text); }},
      {"compute", [&](const std::string& text) { shape.compute_s = parse_duration(text); }}};
  for (const std::string& part : split_list(behind_colon(model), ',')) {
    const auto equals = std::min(part.find('='), part.size());
    const auto read = missing.find(part.substr(0, equals));
    if (read == missing.end())
      refuse(
          model,
          fmt::format("holds \"{}\", which is not parameters, compute or tensors, each once", part),
          kSyntheticForm);
    read->second(part.substr(std::min(equals + 1, part.size())));
    missing.erase(read);
  }
  if (!missing.empty()) refuse(model, "lacks " + missing.begin()->first, kSyntheticForm);
  if (shape.tensors < 1 || shape.parameters < shape.tensors || shape.parameters > kMostParameters)
    refuse(model,
           fmt::format("needs from 1 tensor to as many as parameters, and at most {}",
                       kMostParameters),
           kSyntheticForm);
  return shape;
}

std::vector<std::int64_t> image_sizes(const std::string& text) {
  return product_of(text, {kLargestSide, kLargestSide, kLargestSide}, "3x224x224");
}

void require_network(const std::string& model) {
  for (const Entry& entry : kNetworks) {
    if (!is_network(entry.form, model)) continue;
    entry.check(model);
    return;
  }
  throw Error(ExitCode::kUsage,
              fmt::format("\"{}\" is not a choice{}", model, did_you_mean(model, forms())),
              fmt::format("give one of {}", fmt::join(forms(), ", ")));
}

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = forms();
  return names;
}

NetworkInput network_input(const TrainOptions& options) {
  for (const Entry& entry : kNetworks)
    if (is_network(entry.form, options.model)) return entry.input(options);
  return {};
}

}  // namespace gradsync
