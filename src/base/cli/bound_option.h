#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/cli/options.h"

namespace gradsync {

/// What --help says of a range: ", 0 (no limit) to 1000". `zero` is the meaning of the lower end.
std::string range_text(const std::string& low, const std::string& high,
                       const std::string& zero = {});

/// Values as people write them, which the typed readers of base/cli/options.h read back: "0.1" and
/// "5e-4", "25MiB", "90s".
std::string number_text(double value);
std::string size_text(std::int64_t bytes);
std::string duration_text(double seconds);

/// `help` with `range` behind its first clause, which ends at a semicolon.
std::string with_range(const std::string& help, const std::string& range);

/// The type of an option, its range, and the member of `Settings` that it sets. The default of the
/// option is the member's value in Settings{}. All readers throw Error kUsage as those of
/// base/cli/options.h do.
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

  static BoundValue on_off(Place<bool> place) {
    return {"", "",
            [place](const auto& values, const auto& name, Settings& settings) {
              place(settings) = switch_option(values, name);
            },
            [place](Settings settings) { return std::string(place(settings) ? "true" : "false"); }};
  }

  template <typename Integer = std::int64_t>
  static BoundValue integer(std::type_identity_t<Place<Integer>> place, std::int64_t low,
                            std::int64_t high, const std::string& zero = {}) {
    return {"N", range_text(std::to_string(low), std::to_string(high), zero),
            [=](const auto& values, const auto& name, Settings& settings) {
              place(settings) = static_cast<Integer>(integer_option(values, name, low, high));
            },
            [place](Settings settings) {
              return std::to_string(static_cast<std::int64_t>(place(settings)));
            }};
  }

  static BoundValue number(Place<double> place, double low, double high,
                           const std::string& zero = {}) {
    return {"X", range_text(number_text(low), number_text(high), zero),
            [=](const auto& values, const auto& name, Settings& settings) {
              place(settings) = number_option(values, name, low, high);
            },
            [place](Settings settings) { return number_text(place(settings)); }};
  }

  /// From `low` to below 1.
  static BoundValue fraction(Place<double> place, double low = 0) {
    return {"X", range_text(number_text(low), "below 1"),
            [=](const auto& values, const auto& name, Settings& settings) {
              place(settings) = fraction_option(values, name, low);
            },
            [place](Settings settings) { return number_text(place(settings)); }};
  }

  template <typename Number = std::int64_t>
  static BoundValue size(std::type_identity_t<Place<Number>> place, std::int64_t low,
                         std::int64_t high) {
    return {"SIZE", range_text(size_text(low), size_text(high)),
            [=](const auto& values, const auto& name, Settings& settings) {
              place(settings) = static_cast<Number>(size_option(values, name, low, high));
            },
            [place](Settings settings) {
              return size_text(static_cast<std::int64_t>(place(settings)));
            }};
  }

  static BoundValue duration(Place<double> place, double low_s, double high_s,
                             const std::string& zero = {}) {
    const std::string low = zero.empty() ? duration_text(low_s) : "0";
    return {"TIME", range_text(low, duration_text(high_s), zero),
            [=](const auto& values, const auto& name, Settings& settings) {
              place(settings) = duration_option(values, name, low_s, high_s);
            },
            [place](Settings settings) { return duration_text(place(settings)); }};
  }

  /// A std::string, or a std::filesystem::path.
  template <typename Text = std::string>
  static BoundValue text_value(std::type_identity_t<Place<Text>> place, const std::string& shown) {
    return {shown, "",
            [place](const auto& values, const auto& name, Settings& settings) {
              place(settings) = text_option(values, name);
            },
            [place](Settings settings) { return std::string(place(settings)); }};
  }

  /// Of an option that may be repeated.
  static BoundValue texts(Place<std::vector<std::string>> place, const std::string& shown) {
    return {shown, "",
            [place](const auto& values, const auto& name, Settings& settings) {
              place(settings) = list_option(values, name);
            },
            [](const Settings&) { return std::string(); }};
  }

  static BoundValue choice(Place<std::string> place, const std::vector<std::string>& choices) {
    BoundValue bound = text_value(place, "");
    for (const std::string& name : choices)
      bound.shown += (bound.shown.empty() ? "" : "|") + name;
    bound.read = [=](const auto& values, const auto& name, Settings& settings) {
      place(settings) = choice_option(values, name, choices);
    };
    bound.choices = choices;
    return bound;
  }

  /// A choice of too many names for the left column of --help.
  static BoundValue named(const std::string& shown, Place<std::string> place,
                          const std::vector<std::string>& choices) {
    BoundValue bound = choice(place, choices);
    bound.shown = shown;
    for (const std::string& name : choices)
      bound.range += (bound.range.empty() ? ": " : ", ") + name;
    return bound;
  }

  /// Two words for false and true.
  static BoundValue either(const std::string& no, const std::string& yes, Place<bool> place) {
    return {no + "|" + yes,
            "",
            [=](const auto& values, const auto& name, Settings& settings) {
              place(settings) = choice_option(values, name, {no, yes}) == yes;
            },
            [=](Settings settings) { return place(settings) ? yes : no; },
            {no, yes}};
  }

  /// A choice whose names are those of an enumeration, in its order.
  template <typename Enum>
  static BoundValue enumerated(Place<Enum> place, const std::vector<std::string>& names) {
    BoundValue bound = choice({}, names);
    bound.read = [=](const auto& values, const auto& name, Settings& settings) {
      const auto at = std::find(names.begin(), names.end(), choice_option(values, name, names));
      place(settings) = static_cast<Enum>(at - names.begin());
    };
    bound.text = [=](Settings settings) {
      return names.at(static_cast<std::size_t>(place(settings)));
    };
    return bound;
  }

  /// A word that stands for `meaning`, or else `other`.
  template <typename T>
  static BoundValue word_or(const std::string& word, std::type_identity_t<Place<T>> place,
                            T meaning, BoundValue other) {
    std::vector<std::string> words = other.choices;
    words.push_back(word);
    return {
        other.shown + "|" + word, other.range,
        [=](const auto& values, const auto& name, Settings& settings) {
          if (text_option(values, name) == word)
            place(settings) = meaning;
          else
            other.read(values, name, settings);
        },
        [=](Settings settings) { return place(settings) == meaning ? word : other.text(settings); },
        words};
  }

  /// A form of its own: `parse` throws Error kUsage, whose what() is the end of a sentence and
  /// whose fix() says what would be right.
  template <typename Parse, typename T = std::invoke_result_t<Parse, std::string>>
  static BoundValue parsed(const std::string& shown, const std::string& default_text,
                           std::type_identity_t<Place<T>> place, Parse parse) {
    return {shown, "",
            [=](const auto& values, const auto& name, Settings& settings) {
              try {
                place(settings) = parse(text_option(values, name));
              } catch (const Error& error) {
                throw option_error(values, name, error.what(), error.fix());
              }
            },
            [default_text](const Settings&) { return default_text; }};
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
