// SPDX-License-Identifier: BSD-3-Clause
#include "base/cli/options.h"

#include "base/parse.h"
#include "calibrate/calibrate_options.h"
#include "fuzz/targets.h"
#include "options/options.h"
#include "quantize/quantize_options.h"
#include "serial/clean_environment.h"
#include "sweep/runner.h"

namespace gradsync::fuzz {

namespace {

using Arguments = std::vector<const char*>;

int count(const Arguments& arguments) {
  return static_cast<int>(arguments.size()) - 1;
}

void train(const Arguments& arguments) {
  const auto given = resolve_options(train_option_table(), count(arguments), arguments.data(), {},
                                     Foreign::kReject);
  train_options(given.values);
  config_text(train_option_table(), given.values);
}

void sweep(const Arguments& arguments) {
  sweep::read_sweep_command(count(arguments), arguments.data());
}

void calibrate(const Arguments& arguments) {
  const auto given =
      resolve_options(calibrate::calibrate_option_table(), count(arguments), arguments.data());
  calibrate::calibrate_options(given.values);
}

void quantize(const Arguments& arguments) {
  const auto given =
      resolve_options(quantize::quantize_option_table(), count(arguments), arguments.data());
  quantize::quantize_options(given.values);
}

constexpr void (*kPrograms[])(const Arguments&) = {train, sweep, calibrate, quantize};

}  // namespace

/// The input: the program, then a line for each argument or, where it begins with GRADSYNC_,
/// variable of the environment.
void options(Input input) {
  if (input.empty()) return;
  std::string text(text_of(input.subspan(1)));
  std::erase(text, '\0');
  const auto lines = split_list(text, '\n');
  const CleanEnvironment environment;
  Arguments arguments = {"program"};
  for (const std::string& line : lines) {
    const std::size_t equals = line.find('=');
    if (line.starts_with("GRADSYNC_") && equals != std::string::npos)
      setenv(line.substr(0, equals).c_str(), line.c_str() + equals + 1, 1);
    else
      arguments.push_back(line.c_str());
  }
  arguments.push_back(nullptr);
  kPrograms[input[0] % std::size(kPrograms)](arguments);
}

}  // namespace gradsync::fuzz
