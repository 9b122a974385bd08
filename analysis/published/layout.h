// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/published/numbers.h"
#include "analysis/read/run_set.h"
#include "base/table.h"

/// A published report's tables as data: which numbers stand where, and by which conventions the
/// report computes them. results/published/layouts.json holds a layout a report; another course's
/// is a file of its own with the same keys.
namespace gradsync::report::published {

/// What rows and columns can be told apart by. kValue: published, measured, ratio.
enum class Axis { kMode, kDevices, kBatch, kQuantity, kValue };

/// "epoch_2_time", or "epoch_2_time in ms/iteration".
struct LayoutQuantity {
  std::string text, name;
  Kind kind = Kind::kUnknown;
  std::int64_t number = 0;  ///< of the name: 2; 0: it has none
  bool per_iteration = false;
};

struct LayoutTable {
  std::string name, title;
  std::vector<std::string> of;  ///< tables of the published file
  std::vector<Axis> rows, columns;
  std::vector<LayoutQuantity> quantities;
  std::vector<std::int64_t> devices;  ///< empty: any number
};

/// "epoch_time 2x128", "mean_iteration_time 4x64 ddp", "epoch_5_accuracy 4x512 with lr", or "1": a
/// number of a report's setting. Without a mode it is that of the published number.
struct LayoutOperand {
  std::string text;
  double constant = kNotMeasured;  ///< NaN: the rest names a number
  LayoutQuantity quantity;
  std::int64_t devices = 0, batch = 0;
  std::string mode;
  std::string remedy;  ///< option of the trainer that is on in the measured runs
};

/// What a report concludes from two of its numbers: `left` is above or below `right`.
struct LayoutSentence {
  std::string topic, says;
  LayoutOperand left, right;
  bool above = false;
};

struct Layout {
  std::string name;
  std::filesystem::path published;  ///< file of published numbers; empty: none to compare with
  std::string report;               ///< in that file
  std::string clock;                ///< of epochs: "running" or "training"
  std::string speedup;              ///< "speedup": T(1)/T(n), "weak-speedup": n*T(1)/T(n)
  std::string speedup_clock;        ///< of its times: "running" or "training"; as `clock`
  std::string compute;              ///< "measured", "derived": T(1)/n, "whole-epoch": T(n)
  std::string communication;        ///< "measured", "derived": T(n) - T(1)/n
  std::string bandwidth;            ///< of kConventionNames
  std::string bandwidth_unit;  ///< that its numbers have, whatever it prints; empty: as printed
  std::string images;          ///< of an epoch: "split" over the devices, or "each" takes all
  std::string accuracy;        ///< and loss: of "train" or "test"
  std::optional<std::vector<std::string>> plots;  ///< that the report has; nothing: not said
  std::vector<LayoutTable> tables;
  std::vector<LayoutSentence> sentences;
  std::vector<std::string> notes;  ///< of the sentences: where else the report is answered
};

/// One of the installed layouts, or a file's where `name` ends in ".json". Throws Error kUsage for
/// an unknown name, kNoInput for a missing file, kBadData with file and place for a key, a table, a
/// quantity or a convention that is unknown.
Layout read_layout(const std::string& name);

/// The same from a text: one layout, whose published file lies in `folder`.
Layout parse_layout(const std::string& text, const std::string& name,
                    const std::filesystem::path& folder);

/// In the order of the file.
std::vector<std::string> layout_names();

/// The tables of a layout: what the report printed, what the runs measured, by the report's own
/// conventions, and measured / published, in the rows and columns in which the report prints a
/// number; in those in which runs have one where it prints nothing. Notes name what the audit finds
/// wrong in the published numbers and, of what is derived, in the measured ones, whose rows it
/// marks. What only one of the two has is n/a in the other. The last table, `sentences`, holds each
/// sentence of the layout against both. Throws Error kBadData for a published
/// file that has not what the layout names, and for a table in which two published numbers would
/// have one cell.
std::vector<Table> tables_as_published(const Layout& layout, const RunSet& set);

}  // namespace gradsync::report::published
