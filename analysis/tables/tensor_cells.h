#pragma once

#include <string>
#include <vector>

#include "analysis/read/run_set.h"
#include "base/table.h"

/// What the tables with a row a tensor of quantized networks have in common.
namespace gradsync::report {

/// model, layer, what (weight, bias, activation …), then `numbers`, then the run.
std::vector<Column> tensor_columns(std::vector<Column> numbers);

/// The claim's source of a number: the field `name` of all tensors.
std::string tensor_dataset(const std::string& name);

/// A row for those columns.
void add_tensor_row(Table& table, const Run& run, const QuantizedTensorRow& tensor,
                    std::vector<Cell> numbers);

}  // namespace gradsync::report
