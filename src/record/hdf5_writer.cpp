#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "record/columns.h"
#include "record/hdf5_output.h"
#include "record/hdf5_run.h"

namespace gradsync {

namespace {

void write_config(Hdf5Output& file, const RunInfo& info) {
  file.make_group("config");
  for (const ConfigEntry& entry : info.config)
    file.write_text("config/" + entry.name, entry.value, "option --" + entry.name, entry.source);
  file.make_group("provenance");
  for (const NamedText& entry : info.provenance)
    file.write_text("provenance/" + entry.name, entry.value, entry.name);
}

/// Writes the texts that describe a run, and its end, as attributes of the root.
class AttributeWriter {
 public:
  explicit AttributeWriter(Hdf5Output& file) : file_(file) {}

  void operator()(const Field& field, const std::string& text) {
    file_.set_attribute(std::string(field.name), text);
  }
  template <typename Value>
  void operator()(const Field& field, Named<Value> value) {
    file_.set_attribute(std::string(field.name), text_of(value.value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}

 private:
  Hdf5Output& file_;
};

template <typename Row>
void write_table(Hdf5Output& file, FileAxis axis, const std::vector<Row>& rows) {
  Columns columns = make_columns<Row>(axis);
  put_rows(rows, file.lengths(), columns);
  for (const FieldColumn& column : columns)
    std::visit([&](const auto& values) { file.write(column.spec, values); }, column.values);
}

/// Writes the lists of a run. A kind without an axis holds nothing but lists, which are tables
/// themselves.
class ListWriter {
 public:
  explicit ListWriter(Hdf5Output& file) : file_(file) {}

  template <typename Row>
  void operator()(const std::vector<Row>& rows) {
    constexpr RowKind kKind = kRowKind<Row>;
    if (rows.empty() && !kKind.always) return;
    if constexpr (kKind.axis == FileAxis::kNone)
      visit_fields(rows.back(), *this);
    else
      write_table(file_, kKind.axis, rows);
  }
  template <typename Row>
  void operator()(const Nested& nested, const std::vector<Row>& rows) {
    write_table(file_, nested.axis, rows);
  }

 private:
  Hdf5Output& file_;
};

/// Finds the lengths of the axes in the same way.
class ListLengths {
 public:
  explicit ListLengths(AxisLengths& lengths) : lengths_(lengths) {}

  template <typename Row>
  void operator()(const std::vector<Row>& rows) {
    constexpr RowKind kKind = kRowKind<Row>;
    if constexpr (kKind.axis != FileAxis::kNone)
      lengths_[static_cast<std::size_t>(kKind.axis)] = rows.size();
    else if (!rows.empty())
      visit_fields(rows.back(), *this);
  }
  template <typename Row>
  void operator()(const Nested& nested, const std::vector<Row>& rows) {
    lengths_[static_cast<std::size_t>(nested.axis)] = rows.size();
  }

 private:
  AxisLengths& lengths_;
};

/// Files without histograms have no numbers on their axes either.
AxisLengths lengths_of(const RunReader& run) {
  AxisLengths lengths{};
  const auto set = [&](FileAxis axis, std::size_t length) {
    lengths[static_cast<std::size_t>(axis)] = length;
  };
  set(FileAxis::kIterations, run.iterations());
  set(FileAxis::kRanks, run.ranks());
  set(FileAxis::kBuckets, run.index().buckets);
  set(FileAxis::kCategories, fixed_length(FileAxis::kCategories));
  for (const FileAxis axis : {FileAxis::kBins, FileAxis::kLevels})
    set(axis, run.quantization().empty() ? 0 : fixed_length(axis));
  ListLengths visitor(lengths);
  for_each_list(visitor, run.lists());
  return lengths;
}

/// The data sets of the iterations, which grow block by block.
class IterationWriter {
 public:
  explicit IterationWriter(Hdf5Output& file)
      : file_(file), columns_(make_columns<IterationRow>(FileAxis::kIterations)) {
    for (FieldColumn& column : columns_)
      of_numbers(column, [&]<typename Number>(std::vector<Number>&) {
        datasets_.push_back(file_.make_dataset<Number>(column.spec));
      });
    sums_.resize(columns_.size());
  }

  void write(std::size_t first, const std::vector<IterationRow>& rows) {
    put_rows(rows, file_.lengths(), columns_);
    for (std::size_t i = 0; i < columns_.size(); ++i)
      of_numbers(columns_[i], [&]<typename Number>(std::vector<Number>& values) {
        file_.write_rows<Number>(datasets_[i], columns_[i].spec, first, values);
        sums_[i] = crc32c(std::as_bytes(std::span(values)), sums_[i]);
      });
  }

  void close() {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      file_.close(datasets_[i], columns_[i].spec.path, sums_[i]);
  }

 private:
  /// No field of an iteration is a text.
  template <typename Action>
  static void of_numbers(FieldColumn& column, Action action) {
    std::visit(
        [&]<typename Value>(std::vector<Value>& values) {
          if constexpr (std::is_arithmetic_v<Value>) action(values);
        },
        column.values);
  }

  Hdf5Output& file_;
  Columns columns_;
  std::vector<H5Object> datasets_;
  std::vector<std::uint32_t> sums_;
};

void write_iterations(Hdf5Output& file, RunReader& run) {
  IterationWriter writer(file);
  const std::size_t block = rows_per_block(run.ranks(), run.index().buckets);
  for (std::size_t first = 0; first < run.iterations(); first += block)
    writer.write(first, run.rows(first, std::min(block, run.iterations() - first)));
  writer.close();
}

void write_content(Hdf5Output& file, RunReader& run) {
  AttributeWriter attributes(file);
  visit_fields(run.info(), attributes);
  const RunEnd end{run.status(), run.finished()};
  visit_fields(end, attributes);
  write_config(file, run.info());
  write_table(file, FileAxis::kRanks, run.info().topology);
  write_iterations(file, run);
  ListWriter lists(file);
  for_each_list(lists, run.lists());
  file.set_attribute("valid_rows", static_cast<std::int64_t>(run.iterations()));
}

}  // namespace

void write_hdf5(RunReader& run, const std::filesystem::path& path) {
  Hdf5Output file(path, lengths_of(run));
  try {
    write_content(file, run);
    file.close();
  } catch (const Error& error) {
    // HDF5 knows which object it was, not which file.
    if (error.code() != ExitCode::kInputOutput) throw;
    throw Error(error.code(), fmt::format("cannot write '{}': {}", path.string(), error.what()),
                "free space on that disk; the journal is kept and gradsync-report reads it");
  }
}

}  // namespace gradsync
