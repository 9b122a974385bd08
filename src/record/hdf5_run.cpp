// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "record/columns.h"
#include "record/hdf5.h"
#include "record/reader.h"

namespace gradsync {

namespace {

void write_config(Hdf5Output& file, const RunInfo& info) {
  file.make_group("config");
  for (const ConfigEntry& entry : info.config)
    file.write_text("config/" + entry.name, entry.value, "option --" + entry.name, entry.source);
  file.make_group("provenance");
  for (const NamedText& entry : info.provenance)
    file.write_text("provenance/" + entry.name, entry.value, entry.name);
  if (info.experiment.empty()) return;
  file.make_group("experiment");
  for (const NamedText& entry : info.experiment)
    file.write_text("experiment/" + entry.name, entry.value, entry.name);
}

template <typename Row>
void write_table(Hdf5Output& file, FileAxis axis, const std::vector<Row>& rows) {
  Columns columns = make_columns<Row>(axis);
  put_rows(rows, file.lengths(), columns);
  for (const FieldColumn& column : columns)
    std::visit([&](const auto& values) { file.write(column.spec, values); }, column.values);
}

/// Calls action(axis, always, rows) for each table in the lists of a run. A kind of row without an
/// axis holds nothing but lists, which are tables themselves.
template <typename Action>
class TableVisitor {
 public:
  explicit TableVisitor(Action action) : action_(action) {}

  template <typename Row>
  void operator()(const std::vector<Row>& rows) {
    constexpr RowKind kKind = kRowKind<Row>;
    if constexpr (kKind.axis != FileAxis::kNone)
      action_(kKind.axis, kKind.always, rows);
    else if (!rows.empty())
      visit_fields(rows.back(), *this);
  }
  template <typename Row>
  void operator()(const Nested& nested, const std::vector<Row>& rows) {
    action_(nested.axis, true, rows);
  }

 private:
  Action action_;
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
  TableVisitor tables([&](FileAxis axis, bool, const auto& rows) { set(axis, rows.size()); });
  for_each_list(tables, run.lists());
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
  // The texts that describe the run, and its end.
  auto attributes = [&]<typename Of>(const Of& field, const auto& value) {
    if constexpr (std::is_same_v<Of, Field>) {
      if constexpr (requires { text_of(value.value); })
        file.set_attribute(std::string(field.name), text_of(value.value));
      else
        file.set_attribute(std::string(field.name), value);
    }
  };
  visit_fields(run.info(), attributes);
  const RunEnd end{run.status(), run.finished()};
  visit_fields(end, attributes);
  write_config(file, run.info());
  write_table(file, FileAxis::kRanks, run.info().topology);
  write_iterations(file, run);
  TableVisitor tables([&](FileAxis axis, bool always, const auto& rows) {
    if (always || !rows.empty()) write_table(file, axis, rows);
  });
  for_each_list(tables, run.lists());
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
    throw Error(
        error.code(), fmt::format("cannot write '{}': {}", path.string(), error.what()),
        "free space on that disk; a journal that is there is kept, and gradsync-report reads it");
  }
}

namespace {

using Shape = std::vector<std::size_t>;

void read_config(const Hdf5Input& file, RunInfo& info) {
  for (const std::string& name : file.members("config"))
    info.config.push_back({name, file.text("config/" + name), file.source_of("config/" + name)});
  for (const std::string& name : file.members("provenance"))
    info.provenance.push_back({name, file.text("provenance/" + name)});
  if (!file.has("experiment")) return;
  for (const std::string& name : file.members("experiment"))
    info.experiment.push_back({name, file.text("experiment/" + name)});
}

/// Refuses a file of another or a newer schema, naming both.
void require_schema(const Hdf5Input& file) {
  const std::string schema = file.has_attribute("schema") ? file.text_attribute("schema") : "";
  const auto number = parse_schema(schema);
  if (!number)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' is an HDF5 file but not a run file: its attribute schema is '{}', not "
                    "one of {} to {}",
                    file.path(), schema, schema_text(kOldestRunSchema), schema_text(kRunSchema)),
        "name a file that --output of a program of gradsync wrote");
  if (*number < kOldestRunSchema || *number > kRunSchema)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' has the schema {}, this program reads {} to {}", file.path(),
                            schema, schema_text(kOldestRunSchema), schema_text(kRunSchema)),
                "use the gradsync-report of the release that wrote it");
}

/// Rows `first` … `first + count` of the data set of a column.
void read_column(const Hdf5Input& file, FieldColumn& column, const AxisLengths& lengths,
                 std::size_t first, std::size_t count) {
  const std::string& path = column.spec.path;
  if (column.optional && !file.has(path)) return;
  Shape shape;
  for (const FileAxis axis : column.spec.dimensions)
    shape.push_back(lengths[static_cast<std::size_t>(axis)]);
  std::visit(
      [&]<typename Value>(std::vector<Value>& values) {
        if constexpr (std::is_arithmetic_v<Value>)
          values = file.rows<Value>(path, shape, first, count);
        else
          values = file.texts(path, shape[0]);
      },
      column.values);
}

std::size_t length_of(const Hdf5Input& file, const std::string& path) {
  const auto shape = file.shape(path);
  if (shape.size() != 1)
    throw Error(ExitCode::kBadData, fmt::format("/{} of '{}' is not a list", path, file.path()));
  return shape[0];
}

/// Makes the lists of the ranks in a row, so that they can be filled.
template <typename Row>
void make_ranks(Row& row, std::size_t ranks) {
  if constexpr (requires { row.ranks; }) row.ranks.resize(ranks);
}

/// All rows along `axis`, whose length is that of the first column unless `lengths` has it. All
/// columns are read first, so no memory is taken for more rows than the file holds values for.
template <typename Row>
std::vector<Row> read_table(const Hdf5Input& file, FileAxis axis, AxisLengths lengths) {
  Columns columns = make_columns<Row>(axis);
  std::size_t& count = lengths[static_cast<std::size_t>(axis)];
  if (count == 0) count = length_of(file, columns.front().spec.path);
  for (FieldColumn& column : columns)
    read_column(file, column, lengths, 0, count);
  std::vector<Row> rows(count);
  for (Row& row : rows)
    make_ranks(row, lengths[static_cast<std::size_t>(FileAxis::kRanks)]);
  get_rows(columns, lengths, file.path(), rows);
  return rows;
}

/// Reads the lists of a run. What files of earlier versions lack is empty. A kind without an axis
/// holds nothing but lists, which are tables themselves.
class ListReader {
 public:
  ListReader(const Hdf5Input& file, const AxisLengths& lengths) : file_(file), lengths_(lengths) {}

  template <typename Row>
  void operator()(std::vector<Row>& rows) {
    constexpr RowKind kKind = kRowKind<Row>;
    if (!kKind.always && !file_.has(std::string(kKind.group))) return;
    if constexpr (kKind.axis == FileAxis::kNone)
      visit_fields(rows.emplace_back(), *this);
    else
      rows = read_table<Row>(file_, kKind.axis, lengths_);
  }
  template <typename Row>
  void operator()(const Nested& nested, std::vector<Row>& rows) {
    rows = read_table<Row>(file_, nested.axis, lengths_);
  }

 private:
  const Hdf5Input& file_;
  const AxisLengths& lengths_;
};

class Hdf5Run : public RunReader {
 public:
  explicit Hdf5Run(const std::filesystem::path& path) : path_(path.string()), file_(path) {
    read_header();
    read_index();
    ListReader lists(file_, lengths_);
    for_each_list(lists, lists_);
    use_present_names(lists_.calibration);
  }

  bool has_checksums() const override { return file_.has_sum("iteration/number"); }
  Matrix matrix(const Field& field, std::size_t first, std::size_t count) override;
  Matrix bucket_starts(std::size_t first, std::size_t count) override;

  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override;

 private:
  void read_header();
  void read_index();
  std::size_t stored_rows() const {
    return lengths_[static_cast<std::size_t>(FileAxis::kIterations)];
  }
  std::size_t& length(FileAxis axis) { return lengths_[static_cast<std::size_t>(axis)]; }
  void make_buckets(Columns& columns, std::vector<IterationRow>& rows) const;

  std::string path_;
  Hdf5Input file_;
  /// Lengths of the data sets that are read; there may be more iterations than iterations().
  AxisLengths lengths_{};
};

void Hdf5Run::read_header() {
  require_schema(file_);
  auto attributes = [&]<typename Of>(const Of& field, auto&& value) {
    if constexpr (std::is_same_v<Of, Field>) {
      const std::string text = file_.text_attribute(std::string(field.name));
      if constexpr (!requires { text_of(value.value); })
        value = text;
      else if (!from_text(text, value.value) || text_of(value.value) != text)
        throw Error(ExitCode::kBadData,
                    fmt::format("/@{} of '{}' is '{}'", field.name, path_, text));
    }
  };
  visit_fields(info_, attributes);
  visit_fields(end_, attributes);
  read_config(file_, info_);
  use_present_names(info_);
  info_.topology = read_table<RankPlace>(file_, FileAxis::kRanks, lengths_);
  if (info_.topology.empty())
    throw Error(ExitCode::kBadData, fmt::format("/topology/rank of '{}' lists no ranks", path_));
  for (const FileAxis axis : {FileAxis::kCategories, FileAxis::kBins, FileAxis::kLevels})
    length(axis) = fixed_length(axis);
  length(FileAxis::kRanks) = ranks();
}

/// More than any network has parameters, of which a bucket has one at least.
constexpr std::size_t kMostBuckets = 1 << 16;

void Hdf5Run::read_index() {
  const std::size_t stored = length_of(file_, "iteration/number");
  const std::int64_t valid = file_.number_attribute("valid_rows");
  if (valid < 0 || static_cast<std::size_t>(valid) > stored)
    throw Error(
        ExitCode::kBadData,
        fmt::format("/@valid_rows of '{}' is {}, more than /iteration/number holds", path_, valid));
  length(FileAxis::kIterations) = stored;
  Columns columns = make_columns<IterationHeader>(FileAxis::kIterations);
  // Columns first: they are checked to be in the file before they take memory.
  for (FieldColumn& column : columns)
    read_column(file_, column, lengths_, 0, static_cast<std::size_t>(valid));
  std::vector<IterationHeader> rows(static_cast<std::size_t>(valid));
  get_rows(columns, lengths_, path_, rows);
  for (const IterationHeader& row : rows)
    index_.add(row);
  const Shape buckets = file_.shape("bucket/bytes");
  if (buckets.size() != 2 || buckets[0] != stored || buckets[1] > kMostBuckets)
    throw Error(
        ExitCode::kBadData,
        fmt::format("/bucket/bytes of '{}' is not a matrix of {} rows and at most {} columns",
                    path_, stored, kMostBuckets));
  length(FileAxis::kBuckets) = index_.buckets = buckets[1];
}

FieldColumn& column_of(Columns& columns, const std::string& path) {
  return *std::ranges::find_if(columns,
                               [&](const FieldColumn& one) { return one.spec.path == path; });
}

Matrix Hdf5Run::matrix(const Field& field, std::size_t first, std::size_t count) {
  require_rows(first, count);
  Columns columns = make_columns<IterationRow>(FileAxis::kIterations);
  FieldColumn& column = column_of(columns, path_of(field));
  read_column(file_, column, lengths_, first, count);
  Matrix result{count, ranks(), {}};
  std::visit(
      [&]<typename Value>(std::vector<Value>& values) {
        if constexpr (std::is_same_v<Value, double>)
          result.values = std::move(values);  // 328 MB for 4,096 ranks and 10,000 iterations
        else if constexpr (std::is_arithmetic_v<Value>)
          result.values.assign(values.begin(), values.end());
      },
      column.values);
  // Earlier files lack what was introduced later.
  result.values.resize(count * ranks(), kNotMeasured);
  return result;
}

Matrix Hdf5Run::bucket_starts(std::size_t first, std::size_t count) {
  require_rows(first, count);
  const Shape shape = {stored_rows(), index_.buckets, ranks()};
  return {count, index_.buckets * ranks(), file_.rows<double>("bucket/start", shape, first, count)};
}

std::vector<IterationRow> Hdf5Run::rows(std::size_t first, std::size_t count) {
  require_rows(first, count);
  Columns columns = make_columns<IterationRow>(FileAxis::kIterations);
  for (FieldColumn& column : columns)
    read_column(file_, column, lengths_, first, count);
  std::vector<IterationRow> rows(count);
  make_buckets(columns, rows);
  get_rows(columns, lengths_, path_, rows);
  return rows;
}

/// Makes as many buckets as /bucket/kind has before kNoCollective.
void Hdf5Run::make_buckets(Columns& columns, std::vector<IterationRow>& rows) const {
  auto kinds =
      std::get<std::vector<std::uint8_t>>(column_of(columns, "bucket/kind").values).begin();
  for (IterationRow& row : rows) {
    const auto end = kinds + static_cast<std::ptrdiff_t>(index_.buckets);
    row.buckets.resize(static_cast<std::size_t>(std::find(kinds, end, kNoCollective) - kinds));
    kinds = end;
    row.ranks.resize(ranks());
    for (RankIteration& rank : row.ranks)
      rank.buckets.resize(row.buckets.size());
  }
}

}  // namespace

std::unique_ptr<RunReader> open_hdf5(const std::filesystem::path& path) {
  return std::make_unique<Hdf5Run>(path);
}

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
