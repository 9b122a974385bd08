#include "record/hdf5_quantization.h"

#include <fmt/format.h>

#include "record/quantization_fields.h"

namespace gradsync {

namespace {

using enum Dimension;
const std::string kGroup = "quantize";
const std::string kTensors = kGroup + "/tensor", kSteps = kGroup + "/step",
                  kSpeeds = kGroup + "/speed";

/// The axis of a histogram, from its name.
Dimension bins_of(const std::string& name) {
  return name == "integers" ? kLevels : kBins;
}

std::size_t bins_in(const std::string& name) {
  return name == "integers" ? kHistogramLevels : kHistogramBins;
}

/// Writes one field of all rows; `visit_fields` of the first row says which there are.
template <typename Row>
class ColumnWriter {
 public:
  ColumnWriter(Hdf5Output& file, std::string group, Dimension rows, std::vector<Row>& from)
      : file_(file), group_(std::move(group)), dimension_(rows), rows_(from) {}

  template <typename Value>
  void operator()(const char* name, Value&, const char* units, const char* long_name) {
    std::vector<Value> column;
    for (Row& row : rows_) {
      Taker<Value> taker{name, column};
      visit_fields(row, taker);
    }
    write(name, units, long_name, column);
  }

 private:
  /// Takes the value of one name out of a row.
  template <typename Value>
  struct Taker {
    std::string_view name;
    std::vector<Value>& into;
    void operator()(const char* field, Value& value, const char*, const char*) {
      if (name == field) into.push_back(value);
    }
    template <typename Other>
    void operator()(const char*, Other&, const char*, const char*) {}
  };

  template <typename Value>
  void write(const std::string& name, const char* units, const char* long_name,
             const std::vector<Value>& column) {
    file_.write({group_ + "/" + name, {dimension_}, units, long_name}, column);
  }
  void write(const std::string& name, const char* units, const char* long_name,
             const std::vector<std::vector<std::int64_t>>& column) {
    std::vector<std::int64_t> all;
    for (const auto& counts : column)
      all.insert(all.end(), counts.begin(), counts.end());
    file_.write({group_ + "/" + name, {dimension_, bins_of(name)}, units, long_name}, all);
  }

  Hdf5Output& file_;
  std::string group_;
  Dimension dimension_;
  std::vector<Row>& rows_;
};

template <typename Row>
void write_rows(Hdf5Output& file, const std::string& group, Dimension dimension,
                std::vector<Row> rows) {
  file.make_group(group);
  ColumnWriter<Row> writer(file, group, dimension, rows);
  Row any;
  visit_fields(any, writer);
}

/// Reads the fields of one row.
class RowReader {
 public:
  RowReader(const Hdf5Input& file, std::string group, std::size_t rows, std::size_t row)
      : file_(file), group_(std::move(group)), rows_(rows), row_(row) {}

  void operator()(const char* name, std::string& value, const char*, const char*) {
    value = file_.texts(group_ + "/" + name, rows_)[row_];
  }
  void operator()(const char* name, std::vector<std::int64_t>& value, const char*, const char*) {
    value = file_.rows<std::int64_t>(group_ + "/" + name, {rows_, bins_in(name)}, row_, 1);
  }
  template <typename Number>
  void operator()(const char* name, Number& value, const char*, const char*) {
    value = file_.numbers<Number>(group_ + "/" + name, {rows_})[row_];
  }

 private:
  const Hdf5Input& file_;
  std::string group_;
  std::size_t rows_, row_;
};

template <typename Row>
std::vector<Row> read_rows(const Hdf5Input& file, const std::string& group,
                           const std::string& first) {
  const auto shape = file.shape(group + "/" + first);
  if (shape.size() != 1)
    throw Error(ExitCode::kBadData,
                fmt::format("/{}/{} of '{}' is no list", group, first, file.path()));
  file.texts(group + "/" + first, shape[0]);  // that the file holds so many rows
  std::vector<Row> rows(shape[0]);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    RowReader reader(file, group, rows.size(), i);
    visit_fields(rows[i], reader);
  }
  return rows;
}

}  // namespace

void write_quantization(Hdf5Output& file, const Quantization& quantization) {
  if (quantization.empty()) return;
  file.make_group(kGroup);
  write_rows(file, kTensors, kQuantizedTensors, quantization.tensors);
  write_rows(file, kSteps, kQuantizedSteps, quantization.steps);
  write_rows(file, kSpeeds, kQuantizedSpeeds, quantization.speeds);
}

Quantization read_quantization(const Hdf5Input& file) {
  if (!file.has(kGroup)) return {};
  return {read_rows<QuantizedTensorRow>(file, kTensors, "layer"),
          read_rows<QuantizedStepRow>(file, kSteps, "kind"),
          read_rows<QuantizedSpeedRow>(file, kSpeeds, "path")};
}

}  // namespace gradsync
