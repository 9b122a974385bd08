#include "analysis/published/rows.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/published/csv.h"
#include "base/error.h"
#include "base/parse.h"

namespace gradsync::report::published {

namespace {

enum Field { kReport, kTable, kModel, kMode, kDevices, kBatch, kQuantity, kValue, kUnit, kFields };

constexpr std::array<std::string_view, kFields> kNames = {
    "report", "table", "model", "mode", "devices", "batch_per_device", "quantity", "value", "unit"};

constexpr const char* kFormatHelp =
    "the columns are report,table,model,mode,devices,batch_per_device,quantity,value,unit, in any "
    "order";

struct Header {
  std::array<std::size_t, kFields> at;  ///< kNowhere: the file has no such column
  std::vector<std::pair<std::string, std::size_t>> extra;
  std::size_t columns = 0;
};

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

[[noreturn]] void refuse(const std::string& name, std::size_t line, const std::string& why,
                         const std::string& fix = {}) {
  throw Error(ExitCode::kBadData, fmt::format("{}:{}: {}", name, line, why), fix);
}

std::string lower(std::string text) {
  for (char& c : text)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

void place_column(Header& header, const std::string& title, std::size_t column) {
  const auto known = std::find(kNames.begin(), kNames.end(), lower(title));
  if (known == kNames.end())
    header.extra.emplace_back(title.empty() ? fmt::format("column {}", column + 1) : title, column);
  else
    header.at[static_cast<std::size_t>(known - kNames.begin())] = column;
}

void require_columns(const Header& header, const CsvRecord& first, const std::string& name) {
  for (const Field field : {kQuantity, kValue})
    if (header.at[field] == kNowhere)
      refuse(name, first.line, fmt::format("the header has no column '{}'", kNames[field]),
             kFormatHelp);
}

Header read_header(const CsvRecord& first, const std::string& name) {
  Header header;
  header.at.fill(kNowhere);
  header.columns = first.fields.size();
  std::map<std::string, int> seen;
  for (std::size_t column = 0; column < first.fields.size(); ++column) {
    const std::string& title = first.fields[column];
    if (!title.empty() && ++seen[lower(title)] > 1)
      refuse(name, first.line, fmt::format("the header names '{}' twice", title), kFormatHelp);
    place_column(header, title, column);
  }
  require_columns(header, first, name);
  return header;
}

std::string field_of(const CsvRecord& record, const Header& header, Field field) {
  return header.at[field] == kNowhere ? std::string() : record.fields[header.at[field]];
}

std::int64_t count_of(const std::string& text, std::string_view what, const std::string& name,
                      std::size_t line) {
  if (text.empty()) return kNotSaid;
  try {
    const std::int64_t count = parse_integer(text);
    if (count >= 1) return count;
  } catch (const Error&) {  // the message below says more
  }
  refuse(name, line, fmt::format("{} is '{}', not a whole number from 1", what, text));
}

double rows_number_of(const std::string& text, const std::string& name, std::size_t line) {
  if (text.empty()) refuse(name, line, "the value is missing", "leave out what was not published");
  try {
    return parse_number(text.starts_with('+') ? text.substr(1) : text);
  } catch (const Error& error) {
    refuse(name, line, fmt::format("the value {}", error.what()),
           "write numbers like 12.5 or 3e-4, without thousands separators; leave out what was not "
           "published");
  }
}

// Digits behind the point, less a decimal exponent: 3 for 1.234, 1 for 1.234e2, -2 for 5e2.
int rows_decimals_of(const std::string& text) {
  const std::size_t exponent_at = std::min(text.find_first_of("eE"), text.size());
  const std::size_t point = std::min(text.find('.'), exponent_at);
  const int digits = point == exponent_at ? 0 : static_cast<int>(exponent_at - point) - 1;
  if (exponent_at == text.size()) return digits;
  std::string exponent = text.substr(exponent_at + 1);
  if (exponent.starts_with('+')) exponent.erase(0, 1);
  constexpr std::int64_t kBeyondAnyDouble = 5000;
  return digits -
         static_cast<int>(std::clamp(parse_integer(exponent), -kBeyondAnyDouble, kBeyondAnyDouble));
}

std::string extra_of(const CsvRecord& record, const Header& header) {
  std::vector<std::string> parts;
  for (const auto& [title, column] : header.extra)
    if (!record.fields[column].empty()) parts.push_back(title + "=" + record.fields[column]);
  return fmt::format("{}", fmt::join(parts, ", "));
}

void read_names(Row& row, const CsvRecord& record, const Header& header) {
  row.report = field_of(record, header, kReport);
  row.table = field_of(record, header, kTable);
  row.model = field_of(record, header, kModel);
  row.mode = field_of(record, header, kMode);
  row.quantity = field_of(record, header, kQuantity);
  row.unit_text = field_of(record, header, kUnit);
  row.extra = extra_of(record, header);
  if (row.report.empty()) row.report = "(no report named)";
}

void read_number(Row& row, const std::string& name) {
  const bool about = row.text.starts_with('~');  // "~45": ten units of the last digit
  const std::string digits = row.text.substr(about ? 1 : 0);
  row.value = rows_number_of(digits, name, row.line);
  row.decimals = rows_decimals_of(digits) - (about ? 1 : 0);
  row.what = quantity_of(row.quantity);
  row.unit = parse_unit(row.unit_text);
}

Row read_row(const CsvRecord& record, const Header& header, const std::string& name,
             std::int64_t batch_per_device) {
  if (record.fields.size() != header.columns)
    refuse(name, record.line,
           fmt::format("{} fields under a header of {}", record.fields.size(), header.columns),
           "put fields that hold a comma in quotes");
  Row row;
  row.line = record.line;
  read_names(row, record, header);
  if (row.quantity.empty()) refuse(name, row.line, "the quantity is missing", kFormatHelp);
  row.devices = count_of(field_of(record, header, kDevices), "devices", name, row.line);
  row.batch_per_device =
      count_of(field_of(record, header, kBatch), "batch_per_device", name, row.line);
  if (row.batch_per_device == kNotSaid) row.batch_per_device = batch_per_device;
  row.text = field_of(record, header, kValue);
  read_number(row, name);
  return row;
}

std::string identity(const Row& row) {
  // A separator that no field can hold unnoticed: lengths go before the texts.
  std::string key;
  for (const std::string* part :
       {&row.report, &row.table, &row.model, &row.mode, &row.quantity, &row.extra})
    key += fmt::format("{}:{}", part->size(), *part);
  return key + fmt::format("{}/{}", row.devices, row.batch_per_device);
}

bool same_number(const Row& a, const Row& b) {
  return a.value * a.unit.factor == b.value * b.unit.factor && a.unit.dimension == b.unit.dimension;
}

void add_unless_said(Row row, std::map<std::string, std::size_t>& seen, PublishedFile& file) {
  const auto [known, added] = seen.emplace(identity(row), file.rows.size());
  if (added) {
    file.rows.push_back(std::move(row));
    return;
  }
  const Row& first = file.rows[known->second];
  if (!same_number(first, row))
    refuse(file.name, row.line,
           fmt::format("{} {} here, but {} {} on line {} for the same {} of the same row", row.text,
                       row.unit_text, first.text, first.unit_text, first.line, row.quantity),
           "remove the wrong one, or tell them apart by the table's name or a column of your own");
  file.remarks.push_back(
      fmt::format("line {} repeats line {} and was left out", row.line, first.line));
}

void remark_columns(const Header& header, PublishedFile& file) {
  for (std::size_t field = 0; field < kFields; ++field)
    if (header.at[field] == kNowhere)
      file.remarks.push_back(fmt::format("the file has no column '{}'", kNames[field]));
  for (const auto& extra : header.extra)
    file.remarks.push_back(
        fmt::format("column '{}' is not of the format; it only tells rows apart", extra.first));
}

}  // namespace

Range Range::unknown() {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  return {kNaN, kNaN, kNaN};
}

double Row::step() const {
  return std::pow(10.0, -decimals);
}

Range Row::range() const {
  const double half = step() / 2;
  return {value * unit.factor, (value - half) * unit.factor, (value + half) * unit.factor};
}

bool Row::usable() const {
  return what.kind != Kind::kUnknown && what.dimension == unit.dimension;
}

std::string Row::synchronization() const {
  return mode.substr(0, mode.find(":rank"));
}

PublishedFile parse_published(std::string_view text, const std::string& name,
                              std::int64_t batch_per_device) {
  const std::vector<CsvRecord> records = parse_csv(text, name);
  if (records.empty()) refuse(name, 1, "the file is empty", kFormatHelp);
  const Header header = read_header(records.front(), name);
  PublishedFile file;
  file.name = name;
  remark_columns(header, file);
  std::map<std::string, std::size_t> seen;
  for (std::size_t i = 1; i < records.size(); ++i)
    add_unless_said(read_row(records[i], header, name, batch_per_device), seen, file);
  if (file.rows.empty()) refuse(name, records.front().line, "there is a header and no row");
  return file;
}

}  // namespace gradsync::report::published
