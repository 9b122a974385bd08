// Intel MPI Benchmarks (github.com/intel/mpi-benchmarks): IMB-MPI1. A file has a table for each
// benchmark and number of processes. The ranks wait for each other after each call.

#include <regex>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/curves/curve_format.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

const ToolNames kImbNames = {{"Allreduce", CollectiveKind::kAllReduce},
                             {"Bcast", CollectiveKind::kBroadcast},
                             {"Reduce", CollectiveKind::kReduce},
                             {"Gather", CollectiveKind::kGather},
                             {"Scatter", CollectiveKind::kScatter},
                             {"Allgather", CollectiveKind::kAllGather},
                             {"Reduce_scatter", CollectiveKind::kReduceScatter},
                             {"Alltoall", CollectiveKind::kAllToAll}};
// #bytes #repetitions t_min t_max t_avg, of the ranks.
constexpr std::size_t kImbBytes = 0, kImbRepetitions = 1, kImbMaximum = 3, kImbColumns = 5;

class ImbReader {
 public:
  ImbReader(const CurveFile& file, std::string_view text)
      : path_(file.path), lines_(file.path, text) {}

  CurveFileContent read() {
    while (lines_.next())
      if (lines_.line().starts_with('#'))
        take_comment();
      else if (kind_ && is_result())
        add_row();
    if (!left_out_.empty())
      content_.remarks.push_back(
          fmt::format("{}: {} left out", path_.string(), fmt::join(left_out_, ", ")));
    return std::move(content_);
  }

 private:
  void take_comment() {
    static const std::regex benchmark(R"(# Benchmarking (\w{1,64})\s*)");
    static const std::regex processes(R"(# #processes = (\d{1,9})\s*)");
    static const std::regex groups(R"(# \( *\d+ groups? of (\d{1,9}) processes.*)");
    const std::string line(lines_.line());
    std::smatch part;
    if (std::regex_match(line, part, benchmark)) {
      kind_ = kind_named(part[1].str(), kImbNames);
      ranks_ = 0;
      if (!kind_) left_out_.insert(part[1].str());
    }
    if (std::regex_match(line, part, processes) || std::regex_match(line, part, groups))
      ranks_ = std::stoll(part[1]);
  }

  /// Not "4194304 time-out.; Time limit …".
  bool is_result() const {
    return lines_.is_row(kImbColumns) && lines_.line().find(';') == std::string_view::npos;
  }

  void add_row() {
    if (ranks_ == 0) lines_.refuse("no line '# #processes = N' stands above it");
    CalibrationRow row;
    row.kind = *kind_;
    row.transport = "mpi";
    row.cadence = "isolated";
    row.bytes = payload_bytes(*kind_, lines_.whole(kImbBytes), ranks_);
    row.repetitions = lines_.whole(kImbRepetitions);
    row.median_s = row.mean_s = 1e-6 * lines_.number(kImbMaximum);
    if (ranks_ > 1) content_.curves.push_back({ranks_, {row}});
  }

  const fs::path& path_;
  CurveLines lines_;
  std::optional<CollectiveKind> kind_;
  std::int64_t ranks_ = 0;
  std::set<std::string> left_out_;
  CurveFileContent content_;
};

}  // namespace

CurveFormat imb_text() {
  return {
      [](std::string_view text) {
        return text.find("# #processes = ") != text.npos ||
               text.find("Intel(R) MPI Benchmarks") != text.npos;
      },
      [](const CurveFile& file, std::string_view text) { return ImbReader(file, text).read(); }};
}

}  // namespace gradsync::report
