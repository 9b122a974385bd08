// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "record/schema.h"

/// Rows as the columns that an HDF5 file holds of them, derived from the fields of record/schema.h:
/// one column a field, row-major over [row, list in a row, rank].
namespace gradsync {

/// bucket/kind where an iteration has fewer collectives than the largest one.
inline constexpr std::uint8_t kNoCollective = 255;

/// The data set of one field and its values in some rows.
struct FieldColumn {
  DatasetSpec spec;
  bool optional = false;  ///< files of early versions lack it; `values` is empty then
  std::variant<std::vector<double>, std::vector<std::int64_t>, std::vector<std::int32_t>,
               std::vector<std::uint8_t>, std::vector<std::string>>
      values;
};
using Columns = std::vector<FieldColumn>;

/// What stands for a value in a file.
template <typename Value>
auto to_file(const Value& value) {
  if constexpr (requires { text_of(value.value); })
    return text_of(value.value);
  else if constexpr (std::is_same_v<Value, bool> || std::is_same_v<Value, CollectiveKind>)
    return static_cast<std::uint8_t>(value);
  else
    return value;
}

/// The inverse; false if `stored` stands for none.
template <typename Stored, typename Value>
bool from_file(const Stored& stored, Value& value) {
  if constexpr (requires { from_text(stored, value.value); }) {
    return from_text(stored, value.value);
  } else {
    value = static_cast<Value>(stored);
    if constexpr (std::is_same_v<Value, CollectiveKind>) return stored < kCollectiveNames.size();
    return true;
  }
}

/// Makes a column of each field of a row and of the rows in it.
class ColumnMaker {
 public:
  ColumnMaker(Columns& columns, std::vector<FileAxis> axes)
      : columns_(columns), axes_(std::move(axes)) {}

  template <typename Value>
  void operator()(const Field& field, const Value& value) {
    add<decltype(to_file(value))>(field, axes_);
  }
  template <typename Values>
  void operator()(const Field& field, FileAxis axis, const Values&) {
    add<typename Values::value_type>(field, axes_with(axis));
  }
  template <typename Row>
  void operator()(const Nested& nested, const std::vector<Row>&) {
    ColumnMaker inner(columns_, axes_with(nested.axis));
    const Row row{};
    visit_fields(row, inner);
  }

 private:
  template <typename Stored>
  void add(const Field& field, std::vector<FileAxis> axes) {
    columns_.push_back({{path_of(field), std::move(axes), std::string(field.units),
                         std::string(field.description)},
                        field.since > 1,
                        std::vector<Stored>()});
  }
  /// The ranks are the last axis.
  std::vector<FileAxis> axes_with(FileAxis axis) const {
    std::vector<FileAxis> axes = axes_;
    axes.insert(axes.end() - (axes.back() == FileAxis::kRanks ? 1 : 0), axis);
    return axes;
  }

  Columns& columns_;
  std::vector<FileAxis> axes_;
};

/// The columns of rows of one type, without values; `axis` is the first of all.
template <typename Row>
Columns make_columns(FileAxis axis) {
  Columns columns;
  ColumnMaker maker(columns, {axis});
  const Row row{};
  visit_fields(row, maker);
  return columns;
}

/// Calls action(column, place, value) for each value of rows, with its place in its column. Columns
/// are those of make_columns, in this order.
template <typename Action>
class CellVisitor {
 public:
  CellVisitor(const AxisLengths& lengths, Action action) : lengths_(lengths), action_(action) {}

  template <typename Row>
  void visit_row(std::size_t number, Row& row) {
    row_ = number;
    column_ = 0;
    visit_fields(row, *this);
  }

  template <typename Value>
  void operator()(const Field&, Value&& value) {
    action_(column_++, place(), value);
  }
  template <typename Values>
  void operator()(const Field&, FileAxis axis, Values& values) {
    items_ = lengths_[static_cast<std::size_t>(axis)];
    if constexpr (requires { values.resize(items_); }) values.resize(items_);
    for (item_ = 0; item_ < items_; ++item_)
      action_(column_, place(), values[item_]);
    item_ = 0;
    items_ = 1;
    ++column_;
  }
  template <typename Rows>
  void operator()(const Nested& nested, Rows& rows) {
    static const std::size_t columns =
        make_columns<typename Rows::value_type>(FileAxis::kNone).size();
    const bool of_ranks = nested.axis == FileAxis::kRanks;
    std::size_t& at = of_ranks ? rank_ : item_;
    (of_ranks ? ranks_ : items_) = lengths_[static_cast<std::size_t>(nested.axis)];
    const std::size_t first = column_;
    for (at = 0; at < rows.size(); ++at) {
      column_ = first;
      visit_fields(rows[at], *this);
    }
    at = 0;
    (of_ranks ? ranks_ : items_) = 1;
    column_ = first + columns;
  }

 private:
  std::size_t place() const { return (row_ * items_ + item_) * ranks_ + rank_; }

  const AxisLengths& lengths_;
  Action action_;
  std::size_t column_ = 0, row_ = 0;
  std::size_t item_ = 0, items_ = 1, rank_ = 0, ranks_ = 1;
};

/// Fills columns with these rows, which are `require_recordable`. Where a row has fewer collectives
/// than the axis is long stand NaN, 0 and kNoCollective.
void clear_columns(Columns& columns, std::size_t rows, const AxisLengths& lengths);
template <typename Row>
void put_rows(const std::vector<Row>& rows, const AxisLengths& lengths, Columns& columns) {
  clear_columns(columns, rows.size(), lengths);
  CellVisitor visitor(lengths, [&](std::size_t column, std::size_t place, const auto& value) {
    auto stored = to_file(value);
    std::get<std::vector<decltype(stored)>>(columns[column].values).at(place) = std::move(stored);
  });
  for (std::size_t row = 0; row < rows.size(); ++row)
    visitor.visit_row(row, rows[row]);
}

/// The inverse. Lists in a row keep their length. Throws Error kBadData naming `file` for a value
/// that stands for none.
template <typename Row>
void get_rows(const Columns& columns, const AxisLengths& lengths, const std::string& file,
              std::vector<Row>& rows) {
  CellVisitor visitor(lengths, [&](std::size_t column, std::size_t place, auto& value) {
    const auto& values = std::get<std::vector<decltype(to_file(value))>>(columns[column].values);
    if (values.empty() || from_file(values[place], value)) return;
    throw Error(ExitCode::kBadData, fmt::format("/{} of '{}' holds '{}', which is not known",
                                                columns[column].spec.path, file, values[place]));
  });
  for (std::size_t row = 0; row < rows.size(); ++row)
    visitor.visit_row(row, rows[row]);
}

}  // namespace gradsync
