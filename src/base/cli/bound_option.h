// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/cli/options.h"

namespace gradsync {

/// A number as people write it, which parse_number() reads back: "0.1" and "5e-4".
std::string number_text(double value);

/// `help` with `range` behind its first clause, which ends at a semicolon.
std::string with_range(const std::string& help, const std::string& range);

/// How the value of an option is written, and what --help shows of it.
template <typename T>
struct ValueForm {
  std::string shown;  ///< OptionSpec::value_name
  std::string range;  ///< for with_range()
  /// Throws Error kUsage: what() is the end of a sentence, fix() says what would be right.
  std::function<T(const std::string&)> parse;
  std::function<std::string(const T&)> text;  ///< what `parse` reads back
  std::vector<std::string> choices = {};      ///< OptionSpec::choices
};

/// Both ends of a range belong to it; `zero` is the meaning of the lower one.
ValueForm<bool> switch_form();
ValueForm<std::int64_t> integer_form(std::int64_t low, std::int64_t high,
                                     const std::string& zero = {});
ValueForm<double> number_form(double low, double high, const std::string& zero = {});
/// From 0 to below 1.
ValueForm<double> fraction_form();
ValueForm<std::int64_t> size_form(std::int64_t low, std::int64_t high);
ValueForm<double> duration_form(double low_s, double high_s, const std::string& zero = {});
/// The text as it is.
ValueForm<std::string> text_form(const std::string& shown);
/// One of some words, as its position or as it is.
ValueForm<std::size_t> index_form(const std::vector<std::string>& names);
ValueForm<std::string> choice_form(const std::vector<std::string>& choices);

/// The value of an option. Throws Error kUsage, or with the code of a file that it names, naming
/// the option, the value, where it came from and what would be right.
template <typename T>
T read_value(const OptionValues& values, const std::string& name, const ValueForm<T>& form) {
  const std::string text = text_option(values, name);
  try {
    return form.parse(text);
  } catch (const Error& error) {
    const Error named = option_error(values, name, error.what(), error.fix());
    throw Error(error.code(), named.what(), named.fix());
  }
}

/// The form of an option's value, and the member of `Settings` that it sets. The default of the
/// option is the member's value in Settings{}. All readers throw Error kUsage as read_value does.
template <typename Settings>
struct BoundValue {
  /// A member: `&Settings::member`, or `part_of(&Settings::part, &Part::member)`.
  template <typename T>
  using Place = std::function<T&(Settings&)>;

  std::string shown;  ///< OptionSpec::value_name
  std::string range;  ///< for with_range()
  std::function<void(const OptionValues&, const std::string& name, Settings&)> read;
  /// The value of the settings as text, which `read` reads back.
  std::function<std::string(Settings)> text;
  std::vector<std::string> choices = {};  ///< OptionSpec::choices

  template <typename T, typename Form>
  static BoundValue bound(Place<T> place, const ValueForm<Form>& form) {
    return {form.shown, form.range,
            [=](const OptionValues& values, const std::string& name, Settings& settings) {
              place(settings) = static_cast<T>(read_value(values, name, form));
            },
            [=](Settings settings) { return form.text(static_cast<Form>(place(settings))); },
            form.choices};
  }

  static BoundValue on_off(Place<bool> place) { return bound(place, switch_form()); }
  template <typename Integer = std::int64_t>
  static BoundValue integer(std::type_identity_t<Place<Integer>> place, std::int64_t low,
                            std::int64_t high, const std::string& zero = {}) {
    return bound<Integer>(place, integer_form(low, high, zero));
  }
  static BoundValue number(Place<double> place, double low, double high,
                           const std::string& zero = {}) {
    return bound(place, number_form(low, high, zero));
  }
  /// From 0 to below 1.
  static BoundValue fraction(Place<double> place) { return bound(place, fraction_form()); }
  template <typename Number = std::int64_t>
  static BoundValue size(std::type_identity_t<Place<Number>> place, std::int64_t low,
                         std::int64_t high) {
    return bound<Number>(place, size_form(low, high));
  }
  static BoundValue duration(Place<double> place, double low_s, double high_s,
                             const std::string& zero = {}) {
    return bound(place, duration_form(low_s, high_s, zero));
  }
  /// A std::string, or a std::filesystem::path.
  template <typename Text = std::string>
  static BoundValue text_value(std::type_identity_t<Place<Text>> place, const std::string& shown) {
    return bound<Text>(place, text_form(shown));
  }
  /// An option that may be repeated.
  static BoundValue texts(Place<std::vector<std::string>> place, const std::string& shown) {
    return {shown, "",
            [=](const OptionValues& values, const std::string& name, Settings& settings) {
              place(settings) = list_option(values, name);
            },
            [](const Settings&) { return std::string(); }};
  }
  static BoundValue choice(Place<std::string> place, const std::vector<std::string>& choices) {
    return bound(place, choice_form(choices));
  }
  /// A choice of too many names for the left column of --help.
  static BoundValue named(const std::string& shown, Place<std::string> place,
                          const std::vector<std::string>& choices) {
    BoundValue value = choice(place, choices);
    value.shown = shown;
    for (const std::string& name : choices)
      value.range += (value.range.empty() ? ": " : ", ") + name;
    return value;
  }
  /// A choice whose names are those of an enumeration, in its order.
  template <typename Enum>
  static BoundValue enumerated(std::type_identity_t<Place<Enum>> place,
                               const std::vector<std::string>& names) {
    return bound<Enum>(place, index_form(names));
  }
  /// Two words for false and true.
  static BoundValue either(const std::string& no, const std::string& yes, Place<bool> place) {
    return enumerated<bool>(place, {no, yes});
  }
  /// A word that stands for `meaning`, or else `other`.
  template <typename T>
  static BoundValue word_or(const std::string& word, std::type_identity_t<Place<T>> place,
                            T meaning, BoundValue other) {
    other.choices.push_back(word);
    return {
        other.shown + "|" + word, other.range,
        [=](const OptionValues& values, const std::string& name, Settings& settings) {
          if (text_option(values, name) == word)
            place(settings) = meaning;
          else
            other.read(values, name, settings);
        },
        [=](Settings settings) { return place(settings) == meaning ? word : other.text(settings); },
        other.choices};
  }
  /// A form of its own: `parse` throws as ValueForm::parse does. A `fix` is given in place of that
  /// of its errors.
  template <typename Parse, typename T = std::invoke_result_t<Parse, std::string>>
  static BoundValue parsed(const std::string& shown, const std::string& default_text,
                           std::type_identity_t<Place<T>> place, Parse parse,
                           const std::string& fix = {}) {
    const auto read = [=](const std::string& text) {
      try {
        return parse(text);
      } catch (const Error& error) {
        throw Error(error.code(), error.what(), fix.empty() ? error.fix() : fix);
      }
    };
    return bound<T>(place, ValueForm<T>{shown, "", read, [=](const T&) { return default_text; }});
  }
};

/// A member of a part of the settings.
template <typename Settings, typename Part, typename T>
auto part_of(Part Settings::*part, T Part::*member) {
  return [=](Settings& settings) -> T& { return settings.*part.*member; };
}

/// A member of a part of a part of the settings.
template <typename Settings, typename Part, typename Inner, typename T>
auto part_of(Part Settings::*part, Inner Part::*inner, T Inner::*member) {
  return [=](Settings& settings) -> T& { return settings.*part.*inner.*member; };
}

/// An option of a program, declared once.
template <typename Settings>
struct BoundOption {
  std::string name;
  BoundValue<Settings> value;
  std::string help;  ///< without range and choices
  std::string group = {};
  char letter = 0;
  bool repeatable = false;
};

/// Options of one heading of --help.
template <typename Settings>
struct BoundGroup {
  std::string name;
  std::vector<BoundOption<Settings>> options;
};

/// The options of a part of the settings.
template <typename Settings, typename Part>
BoundGroup<Settings> of_part(Part Settings::*part, const BoundGroup<Part>& group) {
  BoundGroup<Settings> lifted{group.name, {}};
  for (const BoundOption<Part>& option : group.options) {
    const BoundValue<Part> value = option.value;
    lifted.options.push_back(
        {option.name,
         {value.shown, value.range,
          [=](const OptionValues& values, const std::string& name, Settings& settings) {
            value.read(values, name, settings.*part);
          },
          [=](Settings settings) { return value.text(settings.*part); }, value.choices},
         option.help,
         option.group,
         option.letter,
         option.repeatable});
  }
  return lifted;
}

template <typename Settings>
OptionSpec spec_of(const BoundOption<Settings>& option) {
  return {option.name,
          option.value.shown,
          option.value.text(Settings{}),
          with_range(option.help, option.value.range),
          option.group,
          option.repeatable,
          {},
          option.letter,
          option.value.choices};
}

template <typename Settings>
OptionTable table_of(const std::vector<BoundGroup<Settings>>& groups) {
  OptionTable table;
  for (const BoundGroup<Settings>& group : groups)
    for (const BoundOption<Settings>& option : group.options) {
      table.push_back(spec_of(option));
      table.back().group = group.name;
    }
  return table;
}

/// The options of one program: its own, which stand under its scope (see `scoped`), and those with
/// the trainer's meaning.
template <typename Settings>
struct ProgramOptions {
  std::string scope;
  std::vector<BoundGroup<Settings>> own, shared = {};

  OptionTable table() const {
    OptionTable all = scoped(scope, table_of(own));
    const OptionTable more = table_of(shared);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// Reads every option, in the order of the table.
  Settings read(const OptionValues& values) const {
    Settings settings;
    for (const auto* groups : {&own, &shared})
      for (const BoundGroup<Settings>& group : *groups)
        for (const BoundOption<Settings>& option : group.options)
          option.value.read(values, option.name, settings);
    return settings;
  }
};

}  // namespace gradsync
