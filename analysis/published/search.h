#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/published/conventions.h"
#include "analysis/published/models.h"
#include "analysis/published/study.h"

namespace gradsync::published {

/// What a published table does not say and a user may know.
struct AuditOptions {
  double images = 50000;                       ///< of one epoch: CIFAR-10's training set
  double parameters = kUnknownNumber;          ///< of every model, for unknown or other ones
  double message_bytes = kUnknownNumber;       ///< of one gradient; counts before parameters
  double fastest_link_bytes_per_s = 900e9;     ///< one direction of NVLink 5
  static constexpr double kUnknownNumber = 0;  ///< not given
};

/// Constants and sources with which a convention is evaluated.
struct Choice {
  TimeSource time, base;
  BaseRule rule;
  Message message;
  LastBatch last = LastBatch::kCounted;
  bool derived_comm = false;  ///< T(n) - T(1)/n instead of the published communication time
  Slip slip = {"", 1, 0};
  int cost = 0;  ///< of all of it, slip included
};

/// What a convention says about one row.
struct Expectation {
  Range range = Range::unknown();  ///< as it would be printed, in base units
  std::vector<std::size_t> lines;  ///< the numbers it rests on
  std::string missing;             ///< why there is none
};

Expectation expect(const Study& study, const Row& row, const Convention& convention,
                   const Choice& choice, const AuditOptions& options);

enum class Match { kAgrees, kCutOff, kDiffers };

/// The printed digits leave an interval open, and so do those of the numbers the expectation rests
/// on: the two meet (kAgrees), meet if the last digit was cut off rather than rounded (kCutOff), or
/// do not.
Match compare(const Row& row, const Range& expected);

/// Rows that were computed alike: one derived quantity of one model in one table of one report.
struct DerivedColumn {
  std::string report, table, quantity, unit, model;
  Kind kind = Kind::kUnknown;
  std::vector<const Row*> rows;
};

std::vector<DerivedColumn> derived_columns(const Study& study);

/// The convention that explains a column best.
struct Fit {
  const Convention* convention = nullptr;  ///< null: the kind has none
  Choice choice;
  std::size_t tried = 0;       ///< combinations of convention, constants and sources
  std::size_t agree = 0;       ///< of `evidence`
  std::size_t recomputed = 0;  ///< rows of `evidence` it gives a number for
  std::size_t evidence = 0;    ///< rows that some convention gives a number for, base rows apart
  bool reproduces = false;     ///< enough of them agree, the more the odder the convention
  double lowest = 0, highest = 0;  ///< printed / expected over the rows it gives a number for
  double median_distance = 0;      ///< of |ln(printed / expected)|
};

constexpr double kNear = 2;  ///< a nearest convention further off than this factor is none

/// Searches every convention of the column's kind with every constant, source and slip.
/// A fit must explain half of the rows, a tenth more for each step of cost, and three rows at least
/// from cost 2 on; the one that explains most counts, half a row off for each step of cost.
Fit search(const Study& study, const DerivedColumn& column, const AuditOptions& options);

/// A row whose devices are those of the base: a speedup of 1 proves no convention.
bool is_base_row(const Study& study, const Row& row);

/// The message sizes to try for a row's model; one without bytes if none is known.
std::vector<Message> messages_for(const Row& row, const Study& study, const AuditOptions& options);

/// The interval of message sizes with which `convention` gives every row of a bandwidth column;
/// unknown where there is none or fewer than three rows can be used.
Range implied_message(const Study& study, const DerivedColumn& column, const Convention& convention,
                      const AuditOptions& options);

}  // namespace gradsync::published
