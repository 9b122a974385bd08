// The tables of docs/file-format.md are those of src/record/schema.h. With GRADSYNC_WRITE_DOCS=1 in
// the environment they are written again:
//   GRADSYNC_WRITE_DOCS=1 build/tests/serial -tc='docs/file-format.md: tables*'
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "record/columns.h"
#include "serial/test_folder.h"

using namespace gradsync;

namespace {

std::string since_text(int since) {
  return since > 1 ? fmt::format(" (since version {})", since) : "";
}

/// The row of one data set.
std::string column_line(const FieldColumn& column, int since) {
  constexpr const char* kTypes[] = {"float64", "int64", "int32", "uint8", "text"};
  std::string axes;
  for (const FileAxis axis : column.spec.dimensions)
    axes += (axes.empty() ? "" : ", ") + std::string(kAxes[static_cast<std::size_t>(axis)].name);
  return fmt::format("| `/{}` | `[{}]` {} | {} | {}{} |\n", column.spec.path, axes,
                     kTypes[column.values.index()], column.spec.units,
                     std::regex_replace(column.spec.long_name, std::regex("\\|"), "\\|"),
                     since_text(since));
}

/// The version of each field of a row and of the rows in it, in the order of make_columns.
struct Versions {
  std::vector<int> since;
  template <typename Value>
  void operator()(const Field& field, const Value&) {
    since.push_back(field.since);
  }
  template <typename Values>
  void operator()(const Field& field, FileAxis, const Values&) {
    since.push_back(field.since);
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {
    const Row row{};
    visit_fields(row, *this);
  }
};

/// Attributes and data sets of one list after the other.
class ContentTable {
 public:
  std::string text;

  template <typename Row>
  void add_attributes() {
    const Row row{};
    visit_fields(row, *this);
  }
  template <typename Row>
  void add_table(FileAxis axis) {
    const Columns columns = make_columns<Row>(axis);
    Versions versions;
    const Row row{};
    visit_fields(row, versions);
    for (std::size_t i = 0; i < columns.size(); ++i)
      text += column_line(columns[i], versions.since[i]);
  }

  template <typename Row>
  void operator()(const std::vector<Row>&) {
    if constexpr (kRowKind<Row>.axis != FileAxis::kNone) {
      add_table<Row>(kRowKind<Row>.axis);
    } else {
      const Row row{};
      visit_fields(row, *this);
    }
  }
  template <typename Row>
  void operator()(const Nested& nested, const std::vector<Row>&) {
    if (nested.key != "config" && nested.key != "provenance" && nested.key != "topology")
      add_table<Row>(nested.axis);
  }
  template <typename Value>
  void operator()(const Field& field, const Value&) {
    text += fmt::format("| attribute `{}` of `/` | text | | {} |\n", field.name, field.description);
  }
};

std::string content_table() {
  ContentTable table{"| object | shape, type | units | meaning |\n|---|---|---|---|\n"};
  table.add_attributes<RunInfo>();
  table.add_attributes<RunEnd>();
  table.text +=
      "| attribute `valid_rows` of `/` | int64 | | number of iterations, written last |\n"
      "| `/config/<option>` | text | 1 | resolved value; its attribute `source` states where it "
      "came "
      "from |\n"
      "| `/provenance/<name>` | text | 1 | revision, versions, data digests, environment |\n";
  table.add_table<RankPlace>(FileAxis::kRanks);
  table.add_table<IterationRow>(FileAxis::kIterations);
  const RunLists none;
  for_each_list(table, none);
  return table.text;
}

std::string scale_table() {
  std::string text = "| scale | meaning |\n|---|---|\n";
  for (const auto& [name, long_name] : kAxes)
    text += fmt::format("| `/{}` | {} |\n", name, long_name);
  return text;
}

std::string record_table() {
  std::map<RecordType, std::string> records = {
      {RecordType::kInfo, "JSON: all that is known before the first iteration; first, once"},
      {RecordType::kIteration, "binary, below: one iteration of all ranks"},
      {RecordType::kEnd,
       "JSON: `status`, `finished`; last, unless a stopped run is resumed behind it"}};
  const RunLists none;
  for_each_list(
      [&]<typename Row>(const std::vector<Row>&) {
        constexpr RowKind kKind = kRowKind<Row>;
        records[kKind.record] = fmt::format(
            "JSON, {} of `/{}`", kKind.axis == FileAxis::kNone ? "all" : "one row", kKind.group);
      },
      none);
  records[RecordType::kQuantization] += "; at most once";
  records[RecordType::kResume] +=
      ": all records from byte `journal_bytes` of the file up to this one are superseded";
  std::string text = "| type | payload |\n|---|---|\n";
  for (const auto& [type, payload] : records)
    text += fmt::format("| {} | {} |\n", static_cast<std::uint32_t>(type), payload);
  return text;
}

/// "int64 number, epoch; float64 lr" of the values of a row.
class BinaryText {
 public:
  std::string text;

  template <typename Value>
  void operator()(const Field& field, const Value&) {
    const std::string type = std::is_same_v<Value, double>         ? "float64"
                             : std::is_same_v<Value, std::int64_t> ? "int64"
                                                                   : "uint32";
    text += type == last_ ? ", " : (text.empty() ? "" : "; ") + type + " ";
    text += std::string(field.name) + since_text(field.since > 2 ? field.since : 1);
    last_ = type;
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>&) {}

 private:
  std::string last_;
};

template <typename Row>
std::string binary_text() {
  const Row row{};
  BinaryText values;
  visit_fields(row, values);
  return values.text;
}

std::string iteration_table() {
  return "| how often | values |\n|---|---|\n| once | " + binary_text<IterationHeader>() +
         ", ranks, buckets |\n| each bucket | " + binary_text<BucketShape>() +
         " |\n| each rank | " + binary_text<RankIteration>() + " |\n| each bucket of the rank | " +
         binary_text<BucketTimes>() + " |\n";
}

/// `document` with the lines between <!-- name --> and <!-- end --> replaced.
std::string with_block(const std::string& document, const std::string& name,
                       const std::string& lines) {
  const std::string mark = "<!-- from src/record/schema.h: " + name + " -->\n";
  const auto begin = document.find(mark);
  REQUIRE_MESSAGE(begin != std::string::npos, "no block " << name);
  const auto from = begin + mark.size(), end = document.find("<!-- end -->", from);
  REQUIRE(end != std::string::npos);
  return document.substr(0, from) + lines + document.substr(end);
}

}  // namespace

TEST_CASE("docs/file-format.md: tables are those of src/record/schema.h") {
  const auto path = source_folder() / "docs/file-format.md";
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::string expected = text.str();
  for (const auto& [name, lines] :
       {std::pair("scales", scale_table()), std::pair("content", content_table()),
        std::pair("records", record_table()), std::pair("iterations", iteration_table())})
    expected = with_block(expected, name, lines);
  if (std::getenv("GRADSYNC_WRITE_DOCS") != nullptr) std::ofstream(path) << expected;
  CHECK_MESSAGE(text.str() == expected,
                "write them with GRADSYNC_WRITE_DOCS=1 build/tests/serial -tc='docs/file-format*'");
}
