#include "analysis/read/curve_file.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/read/curve_format.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "record/reader.h"
#include "record/row_figures.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRanksSuffix = ":ranks=";
constexpr std::int64_t kMostRanks = 65536;
constexpr std::uintmax_t kLargestFile = 256U << 20;

CurveFileContent read_run_file(const fs::path& path) {
  const auto run = open_run(path);
  if (run->calibration().empty())
    throw Error(ExitCode::kBadData, fmt::format("'{}' holds no calibration", path.string()),
                "gradsync-calibrate --output FILE.h5");
  return {{{static_cast<std::int64_t>(run->ranks()), run->calibration()}}, run->remarks()};
}

/// "allreduce of 4 ranks".
std::string named(const ToolRow& one) {
  return fmt::format("{} of {}", collective_name(one.row.kind), count_text(one.ranks, "rank"));
}

/// Keeps, of rows that differ in a condition, those of the wanted one, else of the first.
void keep_one(std::vector<ToolRow>& rows, std::string (*condition)(const ToolRow&),
              const std::string& wanted, std::string_view what, std::vector<std::string>& remarks) {
  std::vector<std::string> values;
  for (const ToolRow& one : rows)
    if (std::find(values.begin(), values.end(), condition(one)) == values.end())
      values.push_back(condition(one));
  const bool has_wanted = std::find(values.begin(), values.end(), wanted) != values.end();
  const std::string kept = has_wanted ? wanted : values.front();
  std::erase(values, kept);
  if (values.empty()) return;
  remarks.push_back(fmt::format("{}: {} {} is used, {} left out", named(rows.front()), what, kept,
                                fmt::join(values, ", ")));
  std::erase_if(rows, [&](const ToolRow& one) { return condition(one) != kept; });
}

/// A size that stands several times is one of several runs. They must agree: what differs by more
/// is of other ranks, algorithms or settings, which the text does not tell.
void require_agreement(const fs::path& path, const std::vector<ToolRow>& rows,
                       std::vector<std::string>& remarks) {
  constexpr double kAgrees = 1.25;
  std::map<std::pair<std::string, std::int64_t>, std::vector<double>> times;
  for (const ToolRow& one : rows)
    if (usable(one.row)) times[{one.row.type, one.row.bytes}].push_back(one.row.median_s);
  std::size_t most = 1;
  double widest = 1;
  for (const auto& [size, of_size] : times) {
    const auto [least, largest] = std::minmax_element(of_size.begin(), of_size.end());
    if (*largest > kAgrees * *least)
      throw Error(
          ExitCode::kBadData,
          fmt::format("'{}': {}, {} bytes of {} stand there {} times, with {:.2f} and {:.2f} "
                      "us: runs of other ranks, algorithms or settings",
                      path.string(), named(rows.front()), size.second, size.first, of_size.size(),
                      1e6 * *least, 1e6 * *largest),
          "keep one run in the file, or give each a file of its own");
    most = std::max(most, of_size.size());
    widest = std::max(widest, *largest / *least);
  }
  if (most > 1)
    remarks.push_back(
        fmt::format("{}: sizes stand there {} times, within {:.0f} %: taken for "
                    "repeats",
                    named(rows.front()), most, 100 * (widest - 1)));
}

/// The rows of a curve have the same conditions in everything but size and type.
void add_curve(const fs::path& path, std::vector<ToolRow> rows,
               std::map<std::int64_t, Curves>& by_ranks, std::vector<std::string>& remarks) {
  keep_one(
      rows, [](const ToolRow& one) { return one.redop; }, "sum", "the reduction", remarks);
  keep_one(
      rows, [](const ToolRow& one) { return std::to_string(one.root); }, "0", "root", remarks);
  if (const std::string& redop = rows.front().redop; !redop.empty() && redop != "sum")
    remarks.push_back(
        fmt::format("{}: the reduction is {}; taken for sum", named(rows.front()), redop));
  require_agreement(path, rows, remarks);
  Curves& curves = by_ranks[rows.front().ranks];
  curves.ranks = rows.front().ranks;
  for (ToolRow& one : rows)
    curves.rows.push_back(std::move(one.row));
}

CurveFileContent read_text(const CurveFile& file) {
  std::error_code failure;
  const std::uintmax_t size = fs::file_size(file.path, failure);
  if (!failure && size > kLargestFile)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' has {}; curves are read up to {}", file.path.string(),
                    format_bytes(static_cast<std::int64_t>(size)), format_bytes(kLargestFile)));
  const std::string text = read_foreign_text(file.path);
  ToolRows found;
  read_documents(text, found);
  read_tables(file, text, found);
  if (!found.known && found.remarks.empty())
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' {}{}{}", file.path.string(),
                    text.starts_with('{') ? "is not nccl-tests' JSON" : "is no curve that is known",
                    found.left_out.empty() ? "" : "; it holds ", fmt::join(found.left_out, ", ")),
        "known are run files with calibration, the -J files of gradsync-calibrate and of "
        "nccl-tests, and what nccl-tests, osu_allreduce and IMB-MPI1 print");
  if (!found.left_out.empty())
    found.remarks.push_back(fmt::format("{} left out", fmt::join(found.left_out, ", ")));
  if (std::erase_if(found.rows, [](const ToolRow& one) { return one.ranks < 2; }) > 0)
    found.remarks.emplace_back("a table of one rank is left out");
  using Condition = std::tuple<std::int64_t, CollectiveKind, std::string, std::string>;
  std::map<Condition, std::vector<ToolRow>> conditions;
  for (ToolRow& one : found.rows) {
    if (one.ranks > kMostRanks)
      throw Error(ExitCode::kBadData, fmt::format("'{}' is of {} ranks, more than {}",
                                                  file.path.string(), one.ranks, kMostRanks));
    if (one.row.bytes > 0 && one.row.median_s > 0 && (file.ranks == 0 || one.ranks == file.ranks))
      conditions[{one.ranks, one.row.kind, one.row.transport, one.row.cadence}].push_back(
          std::move(one));
  }
  if (conditions.empty() && file.ranks > 0 && !found.rows.empty())
    throw Error(ExitCode::kBadData, fmt::format("'{}' holds nothing of {}", file.path.string(),
                                                count_text(file.ranks, "rank")));
  std::map<std::int64_t, Curves> by_ranks;
  for (auto& [condition, rows] : conditions)
    add_curve(file.path, std::move(rows), by_ranks, found.remarks);
  CurveFileContent content;
  for (auto& [ranks, curves] : by_ranks)
    content.curves.push_back(std::move(curves));
  content.remarks = std::move(found.remarks);
  return content;
}

/// Laws are of float. A collective without it stands for it with the first type that it has: what a
/// message costs is mostly its bytes.
void take_as_float(Curves& curves, std::set<std::string>& remarks) {
  std::map<CollectiveKind, std::vector<std::string>> types;
  for (const CalibrationRow& row : curves.rows)
    types[row.kind].push_back(row.type);
  for (const auto& [kind, of_kind] : types) {
    if (std::find(of_kind.begin(), of_kind.end(), kFloatType) != of_kind.end()) continue;
    const std::string first = of_kind.front();
    std::erase_if(curves.rows, [&, of = kind](const CalibrationRow& row) {
      return row.kind == of && row.type != first;
    });
    for (CalibrationRow& row : curves.rows)
      if (row.kind == kind) row.type = kFloatType;
    remarks.insert(fmt::format("{}: values are {}; the curve is taken for float",
                               collective_name(kind), first));
  }
}

}  // namespace

CurveFile parse_curve_file(const std::string& text) {
  const std::size_t at = text.rfind(kRanksSuffix);
  CurveFile file{text.substr(0, at), 0};
  if (file.path.empty()) throw Error(ExitCode::kUsage, "no file is named", "FILE or FILE:ranks=N");
  if (at == text.npos) return file;
  file.ranks = parse_integer(text.substr(at + kRanksSuffix.size()));
  if (file.ranks < 2 || file.ranks > kMostRanks)
    throw Error(ExitCode::kUsage,
                fmt::format("{} ranks are not from 2 to {}", file.ranks, kMostRanks));
  return file;
}

CurveFileContent read_curve_file(const CurveFile& file) {
  const std::string ending = file.path.extension().string();
  const bool is_run = ending == ".h5" || ending == ".journal";
  CurveFileContent content = is_run ? read_run_file(file.path) : read_text(file);
  if (is_run && file.ranks > 0 && content.curves.front().ranks != file.ranks)
    throw Error(ExitCode::kBadData, fmt::format("'{}' holds nothing of {}", file.path.string(),
                                                count_text(file.ranks, "rank")));
  std::set<std::string> remarks;
  for (Curves& curves : content.curves) {
    std::erase_if(curves.rows,
                  [](const CalibrationRow& row) { return row.bytes <= 0 || !(row.median_s > 0); });
    take_as_float(curves, remarks);
  }
  std::erase_if(content.curves, [](const Curves& curves) { return curves.rows.empty(); });
  content.remarks.insert(content.remarks.end(), remarks.begin(), remarks.end());
  if (content.curves.empty())
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' holds no time of a collective: {}", file.path.string(),
                    content.remarks.empty() ? "no row has a payload and a time"
                                            : fmt::format("{}", fmt::join(content.remarks, "; "))));
  for (std::string& remark : content.remarks)
    remark = fmt::format("{}: {}", file.path.string(), remark);
  return content;
}

std::int64_t payload_bytes(CollectiveKind kind, std::int64_t size, std::int64_t ranks) {
  return kind == CollectiveKind::kReduceScatter ? size / ranks : size;
}

std::optional<CollectiveKind> kind_named(std::string_view name, ToolNames names) {
  const auto known = std::find_if(names.begin(), names.end(),
                                  [&](const auto& entry) { return entry.first == name; });
  if (known == names.end()) return std::nullopt;
  return known->second;
}

}  // namespace gradsync::report
