#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "analysis/published/quantities.h"

/// A published report's tables as data: which numbers stand where, and by which conventions the
/// report computes them. results/published/layouts.json holds a layout a report; another course's
/// is a file of its own with the same keys.
namespace gradsync::report::published {

/// What rows and columns can be told apart by. kValue: published, measured, ratio.
enum class Axis { kMode, kDevices, kBatch, kQuantity, kValue };

/// "epoch_2_time", or "epoch_2_time in ms/iteration".
struct LayoutQuantity {
  std::string text, name;
  Quantity what;
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
};

/// Of the installed layouts, or of a file where `name` ends in ".json". Throws Error kUsage for an
/// unknown name, kNoInput for a missing file, kBadData with file and place for a key, a table, a
/// quantity or a convention that is unknown.
Layout read_layout(const std::string& name);

/// The same from a text: one layout, whose published file lies in `folder`.
Layout parse_layout(const std::string& text, const std::string& name,
                    const std::filesystem::path& folder);

/// In the order of the file.
std::vector<std::string> layout_names();

}  // namespace gradsync::report::published
