#include "analysis/curves/curve_file.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/curves/curve_format.h"
#include "record/reader.h"
#include "support/error.h"
#include "support/file.h"
#include "support/parse.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRanksSuffix = ":ranks=";
constexpr std::int64_t kMostRanks = 65536;
constexpr std::uintmax_t kLargestFile = 256U << 20;
constexpr double kLargestNumber = 1e15;
constexpr std::size_t kLongestLine = 1000;  // std::regex recurses for each character

/// The formats that are text; a run file is recognized by its ending.
std::vector<CurveFormat> formats() {
  return {nccl_tests_json(), nccl_tests_text(), osu_text(), imb_text()};
}

CurveFileContent read_run_file(const fs::path& path) {
  const auto run = open_run(path);
  if (run->calibration().empty())
    throw Error(ExitCode::kBadData, fmt::format("'{}' holds no calibration", path.string()),
                "gradsync-calibrate --output FILE.h5");
  return {{{static_cast<std::int64_t>(run->ranks()), run->calibration()}}, run->remarks()};
}

CurveFileContent read_text(const CurveFile& file) {
  std::error_code failure;
  const std::uintmax_t size = fs::file_size(file.path, failure);
  if (!failure && size > kLargestFile)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' has {}; curves are read up to {}", file.path.string(),
                    format_bytes(static_cast<std::int64_t>(size)), format_bytes(kLargestFile)));
  const std::string text = read_text_file(file.path);
  for (const CurveFormat& format : formats())
    if (format.recognizes(text)) return format.read(file, text);
  throw Error(ExitCode::kBadData, fmt::format("'{}' is no curve that is known", file.path.string()),
              "known are run files with calibration, the -J files of gradsync-calibrate and of "
              "nccl-tests, and what nccl-tests, osu_allreduce and IMB-MPI1 print");
}

/// Of a file of several numbers of ranks those that its name asks for.
void keep_ranks(const CurveFile& file, CurveFileContent& content) {
  if (file.ranks == 0 || content.curves.empty()) return;
  std::erase_if(content.curves, [&](const Curves& one) { return one.ranks != file.ranks; });
  if (content.curves.empty())
    throw Error(ExitCode::kBadData, fmt::format("'{}' holds nothing of {}", file.path.string(),
                                                count_text(file.ranks, "rank")));
}

std::vector<Curves> merged(const fs::path& path, const std::vector<Curves>& all) {
  std::map<std::int64_t, std::vector<CalibrationRow>> by_ranks;
  for (const Curves& one : all)
    if (one.ranks > kMostRanks)
      throw Error(ExitCode::kBadData, fmt::format("'{}' is of {} ranks, more than {}",
                                                  path.string(), one.ranks, kMostRanks));
    else
      by_ranks[one.ranks].insert(by_ranks[one.ranks].end(), one.rows.begin(), one.rows.end());
  std::vector<Curves> result;
  for (auto& [ranks, rows] : by_ranks)
    if (!rows.empty()) result.push_back({ranks, std::move(rows)});
  return result;
}

/// Laws are of float. A file without it stands for it with the first type that it has: what a
/// message costs is mostly its bytes.
void take_as_float(const fs::path& path, CurveFileContent& content) {
  std::set<std::string> types;
  std::string first;
  for (const Curves& curves : content.curves)
    for (const CalibrationRow& row : curves.rows) {
      if (first.empty()) first = row.type;
      types.insert(row.type);
    }
  if (first.empty() || types.contains(std::string(kFloatType))) return;
  for (Curves& curves : content.curves) {
    std::erase_if(curves.rows, [&](const CalibrationRow& row) { return row.type != first; });
    for (CalibrationRow& row : curves.rows)
      row.type = kFloatType;
  }
  content.remarks.push_back(
      fmt::format("{}: values are {}; the curve is taken for float", path.string(), first));
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
  CurveFileContent content =
      ending == ".h5" || ending == ".journal" ? read_run_file(file.path) : read_text(file);
  for (Curves& curves : content.curves)
    std::erase_if(curves.rows,
                  [](const CalibrationRow& row) { return row.bytes <= 0 || !(row.median_s > 0); });
  keep_ranks(file, content);
  content.curves = merged(file.path, content.curves);
  take_as_float(file.path, content);
  if (content.curves.empty())
    throw Error(ExitCode::kBadData,
                fmt::format("'{}' holds no time of a collective{}{}", file.path.string(),
                            content.remarks.empty() ? "" : ": ", fmt::join(content.remarks, "; ")));
  return content;
}

bool CurveLines::next() {
  if (rest_.empty()) return false;
  const std::size_t end = rest_.find('\n');
  line_ = rest_.substr(0, std::min(end, kLongestLine));
  rest_ = end == rest_.npos ? std::string_view() : rest_.substr(end + 1);
  ++line_number_;
  words_.clear();
  constexpr std::string_view kBlanks = " \t\r\v\f";
  for (std::size_t at = line_.find_first_not_of(kBlanks); at != line_.npos;) {
    const std::size_t stop = std::min(line_.find_first_of(kBlanks, at), line_.size());
    words_.push_back(line_.substr(at, stop - at));
    at = line_.find_first_not_of(kBlanks, stop);
  }
  return true;
}

bool CurveLines::is_row(std::size_t least_words) const {
  return words_.size() >= least_words &&
         words_[0].find_first_not_of("0123456789") == std::string_view::npos;
}

double CurveLines::number(std::size_t word) const {
  const std::string_view text = word < words_.size() ? words_[word] : std::string_view();
  try {
    if (const double value = parse_number(text); value >= 0 && value <= kLargestNumber)
      return value;
  } catch (const Error&) {
    // Refused below, with its place.
  }
  refuse(fmt::format("'{}' is not a number from 0 to 1e15", with_escaped_bytes(text)));
}

std::int64_t CurveLines::whole(std::size_t word) const {
  const double value = number(word);
  const auto whole = static_cast<std::int64_t>(value);
  if (static_cast<double>(whole) != value) refuse(fmt::format("'{}' is not whole", words_[word]));
  return whole;
}

void CurveLines::refuse(const std::string& why) const {
  throw Error(ExitCode::kBadData,
              fmt::format("'{}', line {}: {}", path_.string(), line_number_, why));
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
