// SPDX-License-Identifier: BSD-3-Clause
#include "record/schema.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "record/columns.h"
#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "serial/sample_run.h"
#include "serial/test_folder.h"

// The fields of src/record/schema.h are all members of the rows, and all derived formats hold them.

using namespace gradsync;
using namespace gradsync::testing;

namespace {

/// Stands for any member of an aggregate.
struct AnyMember {
  std::size_t number;
  template <typename Member>
  operator Member() const;
};

template <typename Row, std::size_t... Numbers>
constexpr bool has_members(std::index_sequence<Numbers...>) {
  return requires {
    Row{AnyMember{Numbers}...};
  };
}

/// Of an aggregate, bases included.
template <typename Row, std::size_t Most = 24>
constexpr std::size_t member_count() {
  if constexpr (has_members<Row>(std::make_index_sequence<Most>()))
    return Most;
  else
    return member_count<Row, Most - 1>();
}

/// Counts what is visited of a row, the bytes of it too.
struct VisitCount {
  std::size_t members = 0, bytes = 0;
  template <typename Value>
  void operator()(const Field&, const Value& value) {
    ++members;
    bytes += sizeof value;
  }
  template <typename Value>
  void operator()(const Field&, FileAxis, const Value& value) {
    ++members;
    bytes += sizeof value;
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>& rows) {
    ++members;
    bytes += sizeof rows;
  }
};

template <typename Row>
VisitCount visited() {
  VisitCount count;
  const Row row{};
  visit_fields(row, count);
  return count;
}

template <typename Row>
void check_row_members() {
  INFO(std::string(typeid(Row).name()));
  CHECK(visited<Row>().members == member_count<Row>());
}
template <typename... Rows>
void check_members() {
  (check_row_members<Rows>(), ...);
}

/// Gives every value of a row another one; lists in it get these lengths.
class DistinctValues {
 public:
  explicit DistinctValues(std::size_t ranks) : ranks_(ranks) {}

  void operator()(const Field&, double& value) { value = 1.0 / ++next_; }
  void operator()(const Field&, std::int64_t& value) { value = ++next_; }
  void operator()(const Field&, std::int32_t& value) { value = ++next_; }
  void operator()(const Field&, bool& value) { value = ++next_ % 2 == 0; }
  void operator()(const Field&, std::string& value) { value = "text " + std::to_string(++next_); }
  void operator()(const Field&, CollectiveKind& value) { value = next_kind(); }
  void operator()(const Field&, Named<CollectiveKind> value) { value.value = next_kind(); }
  template <typename Values>
  void operator()(const Field&, FileAxis axis, Values& values) {
    if constexpr (requires { values.resize(1); }) values.resize(fixed_length(axis));
    for (std::int64_t& value : values)
      value = ++next_;
  }
  template <typename Row>
  void operator()(const Nested& nested, std::vector<Row>& rows) {
    rows.resize(nested.axis == FileAxis::kRanks ? ranks_ : 2);
    for (Row& row : rows)
      visit_fields(row, *this);
  }

 private:
  CollectiveKind next_kind() {
    return static_cast<CollectiveKind>(static_cast<std::size_t>(++next_) % kCollectiveNames.size());
  }
  std::size_t ranks_;
  int next_ = 0;
};

/// The values of a row as texts, in order.
struct ValueTexts {
  std::vector<std::string> texts;
  template <typename Value>
  void operator()(const Field& field, const Value& value) {
    add(field, value);
  }
  template <typename Value>
  void operator()(const Field& field, Named<Value> value) {
    add(field, text_of(value.value));
  }
  void operator()(const Field& field, CollectiveKind value) { add(field, text_of(value)); }
  template <typename Values>
  void operator()(const Field& field, FileAxis, const Values& values) {
    for (const std::int64_t value : values)
      add(field, value);
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>& rows) {
    for (const Row& row : rows)
      visit_fields(row, *this);
  }

 private:
  template <typename Value>
  void add(const Field& field, const Value& value) {
    texts.push_back(fmt::format("{} {}", path_of(field), value));
  }
};

template <typename Row>
std::vector<std::string> texts_of(const std::vector<Row>& rows) {
  ValueTexts values;
  for (const Row& row : rows)
    visit_fields(row, values);
  return values.texts;
}

/// All lists, each with a row or two whose values are all different.
RunLists distinct_lists(std::size_t ranks) {
  RunLists lists;
  DistinctValues values(ranks);
  for_each_list(
      [&]<typename Row>(std::vector<Row>& rows) {
        if constexpr (std::is_same_v<Row, ResumeRow>) return;  // checked against the journal
        rows.resize(kRowKind<Row>.axis == FileAxis::kNone ? 1 : 2);
        for (Row& row : rows)
          visit_fields(row, values);
      },
      lists);
  return lists;
}

void check_lists(const RunReader& run, const RunLists& expected) {
  for_each_list(
      []<typename Row>(const std::vector<Row>& of_run, const std::vector<Row>& of_expected) {
        INFO(kRowKind<Row>.title);
        CHECK(texts_of(of_run) == texts_of(of_expected));
      },
      run.lists(), expected);
}

const std::filesystem::path kOldFiles = std::filesystem::path(__FILE__).parent_path() / "files";

}  // namespace

TEST_CASE("schema: every member of a row is a field of it") {
  check_members<ConfigEntry, NamedText, RankPlace, RunInfo, RunEnd, IterationHeader, BucketShape,
                BucketTimes, RankEpoch, EpochRow, VerificationRow, CalibrationRow, RankWindow,
                WindowRow, ClockReading, ClockRow, RankTraffic, TrafficRow, RankReplica, ReplicaRow,
                ResumeRow, QuantizedTensorRow, QuantizedStepRow, QuantizedSpeedRow, Quantization>();
  // The rank in place of the whole memory of a GPU, and beside what a host counts.
  CHECK(visited<DeviceSample>().members == member_count<GpuReading>());
  CHECK(visited<HostSample>().members == member_count<HostReading>() + 1);
  std::size_t lists = 0;
  const RunLists none;
  for_each_list([&](const auto&) { ++lists; }, none);
  CHECK(lists == member_count<RunLists>());
  // A base and two lists; and no aggregate, but one without padding.
  CHECK(member_count<IterationRow>() == 3);
  CHECK(visited<IterationRow>().members == visited<IterationHeader>().members + 2);
  CHECK(visited<RankIteration>().bytes == sizeof(RankIteration));
}

TEST_CASE("schema: journal and run file give back every field of every kind of row") {
  constexpr std::size_t kRanks = 3;
  const TestFolder folder;
  RunInfo info;
  DistinctValues values(kRanks);
  info.config = {{"a", "1", "default"}, {"b", "2", "command line"}};
  info.provenance = {{"c", "3"}};
  info.experiment = {{"d", "4"}};
  info.topology.resize(kRanks);
  std::int32_t rank = 0;
  for (RankPlace& place : info.topology) {
    visit_fields(place, values);
    place.rank = rank++;
  }
  info.run_id = "id", info.created = "created", info.command_line = "line";
  std::vector<IterationRow> rows(2);
  for (IterationRow& row : rows)
    visit_fields(row, values);
  RunLists lists = distinct_lists(kRanks);

  const auto path = folder / "run.h5.journal";
  {
    JournalWriter writer(path, encode(info));
    const std::int64_t first = writer.bytes();
    lists.resumes = {{0, first, "then", "there"}};
    writer.append(RecordType::kResume, encode(lists.resumes[0]));
    for (const IterationRow& row : rows)
      writer.append(RecordType::kIteration, encode(row));
    for_each_list(
        [&]<typename Row>(const std::vector<Row>& of_kind) {
          if constexpr (!std::is_same_v<Row, ResumeRow>)
            for (const Row& row : of_kind)
              writer.append(kRowKind<Row>.record, encode(row));
        },
        lists);
    writer.append(RecordType::kEnd, encode(RunEnd{RunStatus::kComplete, "ended"}));
  }
  JournalRun journal_run(path);
  publish_run(journal_run, folder / "run.h5");
  for (const auto& run : {open_run(path), open_run(folder / "run.h5")}) {
    CHECK(texts_of(std::vector{run->info()}) == texts_of(std::vector{info}));
    CHECK(run->status() == RunStatus::kComplete);
    CHECK(run->finished() == "ended");
    CHECK(texts_of(run->rows(0, run->iterations())) == texts_of(rows));
    check_lists(*run, lists);
  }
}

TEST_CASE("schema: the journal and the run file of all kinds of earlier builds read as they did") {
  const auto journal = open_run(kOldFiles / "all-kinds.journal");
  const auto file = open_run(kOldFiles / "all-kinds.h5");
  CHECK(journal->remarks().empty());
  CHECK(journal->iterations() == 12);
  CHECK_NOTHROW(require_same_run(*journal, *file));
  [[maybe_unused]] constexpr int kVersion = 3;  // that wrote them; unused says GCC 12
  for_each_list(
      []<typename Row>(const std::vector<Row>& rows) {
        CHECK(rows.empty() == (kRowKind<Row>.since > kVersion));
      },
      file->lists());
}

TEST_CASE("schema: a run file of the oldest schema reads as it did") {
  const auto run = open_run(kOldFiles / "schema-1.h5");
  CHECK(run->info().schema == kOldestRunSchema);
  CHECK(run->status() == RunStatus::kComplete);
  REQUIRE(run->iterations() == 20);
  REQUIRE(run->ranks() == 2);
  CHECK(run->option("batch-global") == "32");
  const Matrix iteration = run->time(Phase::kIteration), compute = run->time(Phase::kCompute),
               exposed = run->time(Phase::kExposed), wait = run->time(Phase::kWait),
               other = run->time(Phase::kOther);
  CHECK(iteration.at(3, 0) == doctest::Approx(0.22561353).epsilon(1e-6));
  CHECK(wait.at(3, 0) == doctest::Approx(0.00975303).epsilon(1e-6));
  CHECK(run->index().round == std::vector<std::int64_t>(20, kNoRound));
  // Waiting is a part of communication.
  for (std::size_t row = 0; row < run->iterations(); ++row)
    CHECK(compute.at(row, 1) + exposed.at(row, 1) + other.at(row, 1) ==
          doctest::Approx(iteration.at(row, 1)));
}

TEST_CASE("schema: the two transports that earlier builds called ring have their present names") {
  for (const char* name : {"all-kinds.journal", "all-kinds.h5"}) {
    CAPTURE(name);
    const auto run = open_run(kOldFiles / name);
    const auto is = [&](const std::string& transport) {
      return std::any_of(run->calibration().begin(), run->calibration().end(),
                         [&](const CalibrationRow& row) { return row.transport == transport; });
    };
    CHECK(is("mpi-ring"));
    CHECK_FALSE(is("ring"));
  }
  RunInfo info;
  info.config = {{"sync", "ring", ""}, {"transport", "ring", "--transport"}};
  use_present_names(info);
  CHECK(info.config[0].value == "ring");
  CHECK(info.config[1].value == "tcp-ring");
}

namespace {

/// Whether objects have all members of these, and the rest is equal.
bool holds_all_of(const nlohmann::json& now, const nlohmann::json& before) {
  if (before.is_array())
    return now.is_array() &&
           std::equal(now.begin(), now.end(), before.begin(), before.end(), holds_all_of);
  if (!before.is_object()) return now == before;
  for (const auto& [name, value] : before.items())
    if (!now.contains(name) || !holds_all_of(now.at(name), value)) return false;
  return true;
}

/// The same members; objects may have more than they had.
void check_encoded(const std::vector<std::byte>& now, const std::vector<std::byte>& before) {
  const auto object = [](const std::vector<std::byte>& bytes) {
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    return nlohmann::json::parse(text, text + bytes.size());
  };
  CHECK(holds_all_of(object(now), object(before)));
}

}  // namespace

TEST_CASE("schema: records are encoded as earlier builds did") {
  JournalReader reader(kOldFiles / "all-kinds.journal");
  std::size_t records = 0;
  while (const auto record = reader.next()) {
    const auto again = [&]<typename Row>(const Row*) {
      const auto row = decode<Row>(record->payload);
      REQUIRE(row);
      ++records;
      if constexpr (!std::is_same_v<Row, IterationRow>) {
        check_encoded(encode(*row), record->payload);
      } else {  // binary: the same values
        const auto now = decode<Row>(encode(*row));
        REQUIRE(now);
        CHECK(texts_of(std::vector{*now}) == texts_of(std::vector{*row}));
        CHECK(std::isnan(row->ranks[0][Usage::kCpuTime]));
      }
    };
    if (record->type == RecordType::kInfo) again(static_cast<const RunInfo*>(nullptr));
    if (record->type == RecordType::kEnd) again(static_cast<const RunEnd*>(nullptr));
    if (record->type == RecordType::kIteration) again(static_cast<const IterationRow*>(nullptr));
    const RunLists none;
    for_each_list(
        [&]<typename Row>(const std::vector<Row>&) {
          if (kRowKind<Row>.record == record->type) again(static_cast<const Row*>(nullptr));
        },
        none);
  }
  CHECK(records == 39);
}

// The tables of docs/file-format.md are those of src/record/schema.h. With GRADSYNC_WRITE_DOCS=1 in
// the environment they are written again:
//   GRADSYNC_WRITE_DOCS=1 build/tests/serial -tc='docs/file-format.md: tables*'

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
    if (nested.key != "config" && nested.key != "provenance" && nested.key != "experiment" &&
        nested.key != "topology")
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
      "| `/provenance/<name>` | text | 1 | revision, versions, data digests, environment |\n"
      "| `/experiment/<name>` | text | 1 | of a contender of --compare (since version 5) |\n";
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
         "; uint32 ranks, buckets |\n| each bucket | " + binary_text<BucketShape>() +
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
