#include <algorithm>

#include <fmt/format.h>

#include "record/columns.h"
#include "record/hdf5_input.h"
#include "record/hdf5_run.h"

namespace gradsync {

namespace {

using Shape = std::vector<std::size_t>;

void read_config(const Hdf5Input& file, RunInfo& info) {
  for (const std::string& name : file.members("config"))
    info.config.push_back({name, file.text("config/" + name), file.source_of("config/" + name)});
  for (const std::string& name : file.members("provenance"))
    info.provenance.push_back({name, file.text("provenance/" + name)});
}

/// Refuses a file of another or a newer schema, naming both.
void require_schema(const Hdf5Input& file) {
  const std::string schema = file.has_attribute("schema") ? file.text_attribute("schema") : "";
  const auto number = parse_schema(schema);
  if (!number)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' is an HDF5 file but not a run file: its attribute schema is '{}', "
                    "expected '{}'",
                    file.path(), schema, schema_text(kRunSchema)));
  if (*number < kOldestRunSchema || *number > kRunSchema)
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' has the schema {}, this program reads {} to {}", file.path(),
                            schema, schema_text(kOldestRunSchema), schema_text(kRunSchema)),
                "use the gradsync-report of the release that wrote it");
}

/// Reads the attributes of the root. Throws Error kBadData for a name that is not known.
class AttributeReader {
 public:
  explicit AttributeReader(const Hdf5Input& file) : file_(file) {}

  void operator()(const Field& field, std::string& text) {
    text = file_.text_attribute(std::string(field.name));
  }
  template <typename Value>
  void operator()(const Field& field, Named<Value> value) {
    const std::string text = file_.text_attribute(std::string(field.name));
    if (!from_text(text, value.value) || text_of(value.value) != text)
      throw Error(ExitCode::kBadData,
                  fmt::format("/@{} of '{}' is '{}'", field.name, file_.path(), text));
  }
  template <typename Row>
  void operator()(const Nested&, std::vector<Row>&) {}

 private:
  const Hdf5Input& file_;
};

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

  const RunInfo& info() const override { return info_; }
  RunStatus status() const override { return end_.status; }
  const std::string& finished() const override { return end_.finished; }
  const std::vector<std::string>& remarks() const override { return remarks_; }
  bool has_checksums() const override { return file_.has_sum("iteration/number"); }
  std::size_t iterations() const override { return index_.iteration.size(); }
  std::size_t ranks() const override { return info_.topology.size(); }
  const IterationIndex& index() const override { return index_; }
  const RunLists& lists() const override { return lists_; }

  Matrix time(Phase phase, std::size_t first, std::size_t count) override {
    return measured(phase_field(phase), first, count);
  }
  Matrix begin(std::size_t first, std::size_t count) override {
    return matrix<double>("time/begin", first, count);
  }
  Matrix loss(std::size_t first, std::size_t count) override {
    return matrix<double>("loss", first, count);
  }
  Matrix correct(std::size_t first, std::size_t count) override {
    return matrix<std::int64_t>("correct", first, count);
  }
  Matrix traffic(Traffic category, std::size_t first, std::size_t count) override {
    Matrix bytes = matrix<std::int64_t>(path_of(traffic_field(category)), first, count);
    std::transform(bytes.values.begin(), bytes.values.end(), bytes.values.begin(), known_bytes);
    return bytes;
  }
  Matrix usage(Usage what, std::size_t first, std::size_t count) override {
    return measured(usage_field(what), first, count);
  }
  Matrix bucket_starts(std::size_t first, std::size_t count) override;

  std::vector<IterationRow> rows(std::size_t first, std::size_t count) override;

 private:
  /// Earlier files lack what was introduced later.
  Matrix measured(const Field& field, std::size_t first, std::size_t count) {
    if (field.since > 1 && !file_.has(path_of(field)))
      return {count, ranks(), std::vector<double>(count * ranks(), kNotMeasured)};
    return matrix<double>(path_of(field), first, count);
  }
  void read_header();
  void read_index();
  std::size_t stored_rows() const {
    return lengths_[static_cast<std::size_t>(FileAxis::kIterations)];
  }
  std::size_t& length(FileAxis axis) { return lengths_[static_cast<std::size_t>(axis)]; }
  void make_buckets(const Columns& columns, std::vector<IterationRow>& rows) const;

  template <typename Number>
  Matrix matrix(const std::string& path, std::size_t first, std::size_t count) const {
    require_rows(first, count);
    auto values = file_.rows<Number>(path, {stored_rows(), ranks()}, first, count);
    if constexpr (std::is_same_v<Number, double>)
      return {count, ranks(), std::move(values)};  // 328 MB for 4,096 ranks and 10,000 iterations
    else
      return {count, ranks(), std::vector<double>(values.begin(), values.end())};
  }

  std::string path_;
  Hdf5Input file_;
  RunInfo info_;
  RunEnd end_;
  /// Of the data sets that are read; there may be more iterations than iterations().
  AxisLengths lengths_{};
  IterationIndex index_;
  RunLists lists_;
  std::vector<std::string> remarks_;
};

void Hdf5Run::read_header() {
  require_schema(file_);
  AttributeReader attributes(file_);
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

void Hdf5Run::read_index() {
  const std::size_t stored = length_of(file_, "iteration/number");
  const std::int64_t valid = file_.number_attribute("valid_rows");
  if (valid < 0 || static_cast<std::size_t>(valid) > stored)
    throw Error(
        ExitCode::kBadData,
        fmt::format("/@valid_rows of '{}' is {}, more than /iteration/number holds", path_, valid));
  length(FileAxis::kIterations) = stored;
  Columns columns = make_columns<IterationHeader>(FileAxis::kIterations);
  std::vector<IterationHeader> rows(static_cast<std::size_t>(valid));
  for (FieldColumn& column : columns)
    read_column(file_, column, lengths_, 0, rows.size());
  get_rows(columns, lengths_, path_, rows);
  for (const IterationHeader& row : rows)
    index_.add(row);
  const Shape buckets = file_.shape("bucket/bytes");
  if (buckets.size() != 2)
    throw Error(ExitCode::kBadData, fmt::format("/bucket/bytes of '{}' is not a matrix", path_));
  length(FileAxis::kBuckets) = index_.buckets = buckets[1];
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

/// As many as /bucket/kind has before kNoCollective.
void Hdf5Run::make_buckets(const Columns& columns, std::vector<IterationRow>& rows) const {
  const auto column = std::find_if(columns.begin(), columns.end(), [](const FieldColumn& one) {
    return one.spec.path == "bucket/kind";
  });
  auto kinds = std::get<std::vector<std::uint8_t>>(column->values).begin();
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

}  // namespace gradsync
