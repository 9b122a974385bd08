#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cli/bound_option.h"
#include "base/parse.h"

/// Options that name entries of a registry, whose entries have a `name` and a `description`.
namespace gradsync::report {

template <typename Spec>
std::vector<std::string> names_of(const std::vector<Spec>& specs) {
  std::vector<std::string> names;
  for (const Spec& spec : specs)
    names.push_back(spec.name);
  return names;
}

/// The entries of `known` that a repeatable option of comma lists names, in the order of `known`;
/// "all" is all of them. Throws Error kUsage for any other name.
std::vector<std::string> chosen_names(const OptionValues& values, const std::string& option,
                                      const std::vector<std::string>& known);

template <typename Spec>
std::vector<const Spec*> chosen(const OptionValues& values, const std::string& option,
                                const std::vector<Spec>& specs) {
  const auto names = chosen_names(values, option, names_of(specs));
  std::vector<const Spec*> result;
  for (const Spec& spec : specs)
    if (std::find(names.begin(), names.end(), spec.name) != names.end()) result.push_back(&spec);
  return result;
}

/// A repeatable option of names, which `read` reads and whose default is `usual`.
template <typename Settings>
BoundOption<Settings> names_option(
    const std::string& name, const std::vector<std::string>& known, const std::string& usual,
    const std::string& help,
    std::function<void(const OptionValues&, const std::string&, Settings&)> read) {
  std::vector<std::string> choices = known;
  choices.emplace_back("all");
  return {name,
          {"NAME,...", fmt::format(": {}", fmt::join(choices, ", ")), std::move(read),
           [usual](const Settings&) { return usual; }, choices},
          help,
          {},
          0,
          /*repeatable=*/true};
}

/// The entries of a registry for --list, below `head`.
template <typename Spec>
std::string list_of(const std::string& head, const std::vector<Spec>& specs) {
  std::string text = head + "\n";
  for (const Spec& spec : specs)
    text += fmt::format("  {:<16}{}\n", spec.name, spec.description);
  return text;
}

}  // namespace gradsync::report
