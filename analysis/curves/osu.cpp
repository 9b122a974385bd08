// OSU Micro-Benchmarks (mvapich.cse.ohio-state.edu/benchmarks): osu_allreduce and the other
// blocking collectives. Each call begins after a barrier. The text does not tell the ranks.

#include <regex>

#include <fmt/format.h>

#include "analysis/curves/curve_format.h"
#include "support/error.h"

namespace gradsync::report {

namespace {

namespace fs = std::filesystem;

const ToolNames kOsuNames = {{"Allreduce", CollectiveKind::kAllReduce},
                             {"Broadcast", CollectiveKind::kBroadcast},
                             {"Reduce", CollectiveKind::kReduce},
                             {"Gather", CollectiveKind::kGather},
                             {"Scatter", CollectiveKind::kScatter},
                             {"Allgather", CollectiveKind::kAllGather},
                             {"Reduce_scatter", CollectiveKind::kReduceScatter},
                             {"All-to-All Personalized Exchange", CollectiveKind::kAllToAll}};
// Size, average, and with -f minimum, maximum and iterations.
constexpr std::size_t kOsuAverage = 1, kOsuMaximum = 3, kOsuIterations = 4;

class OsuReader {
 public:
  OsuReader(const CurveFile& file, std::string_view text)
      : path_(file.path), lines_(file.path, text), curves_{file.ranks, {}} {
    if (file.ranks == 0)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}' does not tell how many ranks took part, as no text of the OSU "
                              "benchmarks does",
                              path_.string()),
                  fmt::format("{}:ranks=N", path_.string()));
  }

  CurveFileContent read() {
    while (lines_.next())
      if (lines_.line().starts_with('#'))
        take_comment();
      else if (kind_ && lines_.is_row(2))
        curves_.rows.push_back(row());
    content_.curves.push_back(std::move(curves_));
    return std::move(content_);
  }

 private:
  void take_comment() {
    static const std::regex title(R"(# OSU (MPI|NCCL)(?:-\w+)? (.{1,64}?) (?:Latency )?Test.*)");
    const std::string line(lines_.line());
    std::smatch part;
    if (std::regex_match(line, part, title)) {
      transport_ = part[1] == "NCCL" ? "nccl" : "mpi";
      kind_ = kind_named(part[2].str(), kOsuNames);
      type_ = kFloatType;
      if (!kind_)
        content_.remarks.push_back(
            fmt::format("{}: {} is left out", path_.string(), part[2].str()));
    }
    if (line.starts_with("# Datatype: ") && lines_.words().size() > 2 &&
        lines_.words()[2] != "MPI_FLOAT.")
      type_ = lines_.words()[2].substr(0, lines_.words()[2].find('.'));
    if (line.starts_with("# Size")) full_ = line.find("Max Latency") != line.npos;
  }

  CalibrationRow row() const {
    CalibrationRow row;
    row.kind = *kind_;
    row.transport = transport_;
    row.cadence = "isolated";
    row.type = type_;
    row.bytes = payload_bytes(*kind_, lines_.whole(0), curves_.ranks);
    row.median_s = row.mean_s = 1e-6 * lines_.number(full_ ? kOsuMaximum : kOsuAverage);
    if (full_) row.repetitions = lines_.whole(kOsuIterations);
    if (lines_.line().find(" Fail") != std::string_view::npos) row.wrong = 1;
    return row;
  }

  const fs::path& path_;
  CurveLines lines_;
  std::optional<CollectiveKind> kind_;
  std::string transport_, type_;
  bool full_ = false;
  Curves curves_;
  CurveFileContent content_;
};

}  // namespace

CurveFormat osu_text() {
  return {
      [](std::string_view text) { return text.find("# OSU ") != text.npos; },
      [](const CurveFile& file, std::string_view text) { return OsuReader(file, text).read(); }};
}

}  // namespace gradsync::report
