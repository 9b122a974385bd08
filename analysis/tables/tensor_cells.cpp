#include "analysis/tables/tensor_cells.h"

#include <iterator>

namespace gradsync::report {

std::vector<Column> tensor_columns(std::vector<Column> numbers) {
  std::vector<Column> all = {
      {"model", "model", true}, {"layer", "layer", true}, {"role", "what", true}};
  std::move(numbers.begin(), numbers.end(), std::back_inserter(all));
  all.push_back({"run", "run", true});
  return all;
}

std::string tensor_dataset(const std::string& name) {
  return "/quantize/tensor/" + name;
}

void add_tensor_row(Table& table, const Run& run, const QuantizedTensorRow& tensor,
                    std::vector<Cell> numbers) {
  std::vector<Cell> cells = {run.model, tensor.layer, tensor.role};
  std::move(numbers.begin(), numbers.end(), std::back_inserter(cells));
  cells.emplace_back(run.name);
  table.add(std::move(cells), run.path.string());
}

}  // namespace gradsync::report
