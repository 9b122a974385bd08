#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/published/quantities.h"
#include "analysis/published/units.h"

/// Published numbers, one a line:
///   report,table,model,mode,devices,batch_per_device,quantity,value,unit
/// in any order of columns; all but quantity and value may be missing. A column of another name
/// tells rows apart (a number of nodes, a machine) and is not interpreted.
namespace gradsync::report::published {

/// What is known of a number: its value and the interval that its printed digits leave open.
struct Range {
  double value, low, high;
  static Range exact(double value) { return {value, value, value}; }
  static Range unknown();
  bool known() const { return value == value; }
};

constexpr std::int64_t kNotSaid = -1;

struct Row {
  std::size_t line = 0;
  std::string report, table, model, mode, quantity, text, unit_text;
  std::string extra;                ///< "nodes=2" for columns that are not of the format
  std::int64_t devices = kNotSaid;  ///< at least 1
  std::int64_t batch_per_device = kNotSaid;
  Quantity what;
  Unit unit;
  double value = 0;     ///< as printed, in its unit; "~" before it makes the last digit tens
  int decimals = 0;     ///< digits behind the point; negative where an exponent makes it coarser
  double step() const;  ///< of its last printed digit, in its unit

  /// In seconds, bytes per second or 1, with half a step of the last digit on either side.
  Range range() const;
  /// Its unit fits its quantity.
  bool usable() const;
  /// The mode without the rank: "ddp" for "ddp:rank3".
  std::string synchronization() const;
  bool one_rank_of_several() const { return mode.find(":rank") != std::string::npos; }
};

struct PublishedFile {
  std::string name;  ///< without its folder
  std::vector<Row> rows;
  std::vector<std::string> remarks;  ///< columns not there, columns not known, lines said twice
};

/// Throws Error kBadData with "name:line" for malformed CSV, a header without quantity and value or
/// with a name twice, a row of another length, a value that is not a finite number, devices or a
/// batch that are not whole numbers from 1, and for two values of one thing. `batch_per_device` is
/// taken where the file says none (kNotSaid: stays unknown).
PublishedFile parse_published(std::string_view text, const std::string& name,
                              std::int64_t batch_per_device = kNotSaid);

}  // namespace gradsync::report::published
