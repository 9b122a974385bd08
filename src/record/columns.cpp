#include "record/columns.h"

#include <limits>

namespace gradsync {

namespace {

constexpr double fill(double) {
  return kNotMeasured;
}
constexpr std::int64_t fill(std::int64_t) {
  return 0;
}
constexpr std::int32_t fill(std::int32_t) {
  return 0;
}
constexpr std::uint8_t fill(std::uint8_t) {
  return kNoCollective;
}
std::string fill(const std::string&) {
  return "";
}

}  // namespace

void clear_columns(Columns& columns, std::size_t rows, const AxisLengths& lengths) {
  for (FieldColumn& column : columns) {
    std::size_t count = rows;
    for (std::size_t axis = 1; axis < column.spec.dimensions.size(); ++axis)
      count *= lengths[static_cast<std::size_t>(column.spec.dimensions[axis])];
    std::visit(
        [count](auto& values) {
          using Value = typename std::decay_t<decltype(values)>::value_type;
          values.assign(count, fill(Value{}));
        },
        column.values);
  }
}

}  // namespace gradsync
