// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/published/layout.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "analysis/figures/bandwidth.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_number.h"
#include "base/parse.h"
#include "base/ranges.h"

namespace gradsync::report::published {

namespace {

namespace fs = std::filesystem;
using LayoutJson = nlohmann::ordered_json;
using LayoutNames = std::vector<std::string>;

constexpr std::array<std::string_view, 5> kAxisNames = {"mode", "devices", "batch_per_device",
                                                        "quantity", "value"};
constexpr std::string_view kInMs = " in ms/iteration";

/// One object of a layout; each key is asked for once, and what nobody asked for is refused.
class LayoutObject {
 public:
  LayoutObject(const LayoutJson& value, std::string where) : where_(std::move(where)) {
    if (!value.is_object()) refuse("this is not an object of keys");
    value_ = value;
  }

  [[noreturn]] void refuse(const std::string& why, const std::string& fix = {}) const {
    throw Error(ExitCode::kBadData, fmt::format("{}: {}", where_, why), fix);
  }

  std::string text(const std::string& key, const std::string& otherwise) {
    const LayoutJson value = take(key);
    if (value.is_null()) return otherwise;
    if (!value.is_string()) refuse(fmt::format("{} is not a text", key));
    return value.get<std::string>();
  }

  /// One of `known`, the first where nothing is said.
  std::string choice(const std::string& key, const LayoutNames& known) {
    const std::string value = text(key, known.front());
    require_known(key, value, known);
    return value;
  }

  LayoutNames texts(const std::string& key) {
    LayoutNames list;
    for (const LayoutJson& one : array(key)) {
      if (!one.is_string()) refuse(fmt::format("{} holds something that is no text", key));
      list.push_back(one.get<std::string>());
    }
    return list;
  }

  LayoutJson array(const std::string& key) {
    LayoutJson value = take(key);
    if (value.is_null()) return LayoutJson::array();
    if (!value.is_array()) refuse(fmt::format("{} is not a list", key));
    return value;
  }

  void require_known(const std::string& key, const std::string& value,
                     const LayoutNames& known) const {
    if (contains(known, value)) return;
    refuse(fmt::format("{}: {} is not one of them{}", key, value, did_you_mean(value, known)),
           fmt::format("known: {}", fmt::join(known, ", ")));
  }

  void require_empty() const {
    for (const auto& [key, value] : value_.items())
      if (!contains(asked_, key))
        refuse(fmt::format("{} is not a key{}", key, did_you_mean(key, asked_)),
               fmt::format("keys: {}", fmt::join(asked_, ", ")));
  }

 private:
  LayoutJson take(const std::string& key) {
    asked_.push_back(key);
    return value_.contains(key) ? value_.at(key) : LayoutJson();
  }

  LayoutJson value_;
  std::string where_;
  LayoutNames asked_;
};

std::vector<Axis> axes_of(LayoutObject& object, const std::string& key) {
  std::vector<Axis> axes;
  for (const std::string& name : object.texts(key)) {
    object.require_known(key, name, {kAxisNames.begin(), kAxisNames.end()});
    const auto at = std::ranges::find(kAxisNames, name);
    axes.push_back(static_cast<Axis>(at - kAxisNames.begin()));
  }
  return axes;
}

std::int64_t number_in(const std::string& name) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto first = std::ranges::find_if(name, digit);
  const auto last = std::find_if_not(first, name.end(), digit);
  return first == name.end() || last - first > 9 ? 0 : parse_integer(std::string(first, last));
}

LayoutQuantity quantity_in(const LayoutObject& object, const std::string& text) {
  LayoutQuantity quantity{text, text, Kind::kUnknown, 0, text.ends_with(kInMs)};
  if (quantity.per_iteration) quantity.name.resize(text.size() - kInMs.size());
  quantity.kind = kind_of(quantity.name);
  quantity.number = number_in(quantity.name);
  if (quantity.kind == Kind::kUnknown)
    object.refuse(fmt::format("quantities: {} is no quantity that runs have", text),
                  "epoch_time, epoch_2_time, training_time, speedup, compute_time, comm_time, "
                  "bandwidth, ...: docs/numbers.md");
  if (quantity.per_iteration && (!is_time(quantity.kind) || quantity.kind == Kind::kIterationTime))
    object.refuse(fmt::format("quantities: {} is no time of an epoch", quantity.name));
  return quantity;
}

LayoutTable table_in(const LayoutJson& value, const std::string& where) {
  LayoutObject object(value, where);
  LayoutTable table;
  table.name = object.text("name", "");
  if (table.name.empty()) object.refuse("the table has no name");
  object = LayoutObject(value, fmt::format("{}: table {}", where, table.name));
  table.name = object.text("name", "");
  table.title = object.text("title", table.name);
  table.of = object.texts("of");
  table.rows = axes_of(object, "rows");
  table.columns = axes_of(object, "columns");
  for (const std::string& text : object.texts("quantities"))
    table.quantities.push_back(quantity_in(object, text));
  for (const LayoutJson& devices : object.array("devices")) {
    if (!devices.is_number_integer() || devices.get<std::int64_t>() < 1)
      object.refuse("devices are whole numbers from 1");
    table.devices.push_back(devices.get<std::int64_t>());
  }
  object.require_empty();
  if (table.quantities.empty()) object.refuse("the table has no quantities");
  const auto names = [&](Axis axis) {
    return std::ranges::count(table.rows, axis) + std::ranges::count(table.columns, axis);
  };
  if (names(Axis::kValue) == 0) table.columns.push_back(Axis::kValue);
  if (names(Axis::kQuantity) == 0) table.columns.insert(table.columns.begin(), Axis::kQuantity);
  for (std::size_t i = 0; i < kAxisNames.size(); ++i)
    if (names(static_cast<Axis>(i)) > 1)
      object.refuse(fmt::format("{} stands twice among rows and columns", kAxisNames[i]));
  return table;
}

std::int64_t count_in(const LayoutObject& object, const std::string& key, const std::string& text) {
  const auto digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  if (text.empty() || text.size() > 10 || !std::ranges::all_of(text, digit))
    object.refuse(fmt::format("{}: {} is no setting", key, text), "DEVICESxBATCH: 2x128");
  return parse_integer(text);
}

LayoutOperand operand_in(LayoutObject& object, const std::string& key) {
  LayoutOperand operand;
  operand.text = object.text(key, "");
  std::vector<std::string> words = split_list(operand.text, ' ');
  if (words.size() == 1) {
    operand.constant = parsed_or(parse_number, words[0], kNotMeasured);
    if (std::isfinite(operand.constant)) return operand;
  }
  if (words.size() >= 4 && words[words.size() - 2] == "with") {
    operand.remedy = words.back();
    words.resize(words.size() - 2);
  }
  if (words.size() < 2 || words.size() > 3)
    object.refuse(fmt::format("{}: {} names no number", key, operand.text),
                  "QUANTITY DEVICESxBATCH [MODE] [with OPTION], or a number");
  operand.quantity = quantity_in(object, words[0]);
  const std::size_t by = words[1].find('x');
  operand.devices = count_in(object, key, words[1].substr(0, by));
  operand.batch = count_in(object, key, by == std::string::npos ? "" : words[1].substr(by + 1));
  if (words.size() == 3) operand.mode = words[2];
  return operand;
}

LayoutSentence sentence_in(const LayoutJson& value, const std::string& where) {
  LayoutObject object(value, where + ": a sentence");
  LayoutSentence sentence;
  sentence.topic = object.text("topic", "");
  sentence.says = object.text("says", "");
  sentence.left = operand_in(object, "left");
  sentence.above = object.choice("is", {"above", "below"}) == "above";
  sentence.right = operand_in(object, "right");
  object.require_empty();
  return sentence;
}

Layout layout_in(const LayoutJson& value, const std::string& name, const std::string& where,
                 const fs::path& folder) {
  LayoutObject object(value, where);
  Layout layout;
  layout.name = name;
  const std::string file = object.text("published", "");
  if (!file.empty()) layout.published = folder / file;
  layout.report = object.text("report", name);
  layout.clock = object.choice("clock", {"running", "training"});
  layout.speedup = object.choice("speedup", {"speedup", "weak-speedup"});
  layout.speedup_clock = object.choice("speedup_clock", layout.clock == "training"
                                                            ? LayoutNames{"training", "running"}
                                                            : LayoutNames{"running", "training"});
  layout.compute = object.choice("compute", {"measured", "derived", "whole-epoch"});
  layout.communication = object.choice("communication", {"measured", "derived"});
  layout.bandwidth = object.choice("bandwidth", {kConventionNames.begin(), kConventionNames.end()});
  layout.bandwidth_unit = object.text("bandwidth_unit", "");
  if (!layout.bandwidth_unit.empty() &&
      !parse_unit(layout.bandwidth_unit).value_or(Unit{}).of_bandwidth)
    object.refuse(
        fmt::format("bandwidth_unit: {} is no unit of a bandwidth", layout.bandwidth_unit),
        "MB/s, GB/s, GiB/s, Gbit/s");
  layout.images = object.choice("images", {"split", "each"});
  layout.accuracy = object.choice("accuracy", {"train", "test"});
  if (value.contains("plots")) layout.plots = object.texts("plots");
  for (const LayoutJson& table : object.array("tables"))
    layout.tables.push_back(table_in(table, where));
  for (const LayoutJson& sentence : object.array("sentences"))
    layout.sentences.push_back(sentence_in(sentence, where));
  layout.notes = object.texts("notes");
  object.require_empty();
  if (layout.tables.empty()) object.refuse("the layout has no tables");
  return layout;
}

LayoutJson parsed_json(const std::string& text, const std::string& where) {
  LayoutJson value = parse_json<LayoutJson>(text);
  if (value.is_discarded())
    throw Error(ExitCode::kBadData, where + ": this is not JSON",
                "results/published/layouts.json is an example");
  return value;
}

/// Beside the programs of a build, or of an installation.
fs::path layouts_file() {
  const fs::path programs = fs::read_symlink("/proc/self/exe").parent_path();
  for (const char* folder : {"../../results/published", "../share/gradsync/published"})
    if (fs::exists(programs / folder / "layouts.json"))
      return (programs / folder / "layouts.json").lexically_normal();
  throw Error(ExitCode::kNoInput,
              "layouts.json is neither in the build's results/published nor in "
              "share/gradsync/published",
              "run `make install`, or name a layout file: --as FILE.json");
}

}  // namespace

Layout parse_layout(const std::string& text, const std::string& name, const fs::path& folder) {
  return layout_in(parsed_json(text, name), fs::path(name).stem(), name, folder);
}

std::vector<std::string> layout_names() {
  const fs::path file = layouts_file();
  LayoutNames names;
  const LayoutJson layouts = parsed_json(read_text_file(file), file);
  for (const auto& [name, value] : layouts.items())
    names.push_back(name);
  return names;
}

Layout read_layout(const std::string& name) {
  const fs::path given(name);
  if (given.extension() == ".json")
    return parse_layout(read_text_file(given), name, given.parent_path());
  const LayoutNames known = layout_names();
  if (!contains(known, name))
    throw Error(
        ExitCode::kUsage,
        fmt::format("--as: there is no layout {}{}", excerpt(name), did_you_mean(name, known)),
        fmt::format("{}, or a file: --as FILE.json", fmt::join(known, ", ")));
  const fs::path file = layouts_file();
  return layout_in(parsed_json(read_text_file(file), file).at(name), name,
                   fmt::format("{}: {}", file.filename().string(), name), file.parent_path());
}

}  // namespace gradsync::report::published
