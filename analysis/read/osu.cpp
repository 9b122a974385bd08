// OSU Micro-Benchmarks (mvapich.cse.ohio-state.edu/benchmarks): osu_allreduce and the other
// blocking collectives. Each call begins after a barrier. The text does not tell the ranks.

#include <regex>

#include <fmt/format.h>

#include "analysis/read/curve_format.h"
#include "base/error.h"

namespace gradsync::report {

namespace {

const ToolNames kOsuNames = {{"Allreduce", CollectiveKind::kAllReduce},
                             {"Broadcast", CollectiveKind::kBroadcast},
                             {"Reduce", CollectiveKind::kReduce},
                             {"Gather", CollectiveKind::kGather},
                             {"Scatter", CollectiveKind::kScatter},
                             {"Allgather", CollectiveKind::kAllGather},
                             {"Reduce_scatter", CollectiveKind::kReduceScatter},
                             {"All-to-All Personalized Exchange", CollectiveKind::kAllToAll}};

class OsuText : public ToolText {
 public:
  OsuText(const CurveFile& file, ToolRows& found) : ToolText(found), file_(file) {}

  bool takes_title(const std::string& line) override {
    // Between OSU and Test: "MPI-CUDA Allreduce Latency", "MPI_Put Latency"; version 3 names no
    // library.
    static const std::regex title(R"(#\s+OSU\s+(.{1,80}?)(?:\s+[Ll]atency)?\s+Test\b.*)");
    static const std::regex library(R"((MPI|NCCL|RCCL)(?:-\w+)?(?:\s+|$))");
    std::smatch part;
    if (!std::regex_match(line, part, title)) return false;
    std::string name = part[1];
    transport_ = "mpi";
    if (std::regex_search(name, part, library, std::regex_constants::match_continuous)) {
      if (part[1] != "MPI") transport_ = "nccl";
      name = part.suffix();
    }
    kind_ = kind_named(name, kOsuNames);
    if (!kind_)
      found_.left_out.insert(name.empty() ? "Latency" : name);
    else if (file_.ranks == 0)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}' does not tell how many ranks took part, as no text of the OSU "
                              "benchmarks does",
                              file_.path.string()),
                  fmt::format("{}:ranks=N", file_.path.string()));
    type_ = kFloatType;
    begun_ = false;
    return true;
  }

  Heading take_heading(const std::string& line, const Words& words) override {
    static const std::regex tail(R"(P[\d.]{1,8} Tail Lat\(us\))");
    if (line.starts_with("# Datatype: ") && words.size() > 2) {
      type_ = words[2].substr(0, words[2].find('.'));
      if (type_ == "MPI_FLOAT") type_ = kFloatType;
      return begun_ ? Heading::kEndsTable : Heading::kDetail;
    }
    if (!line.starts_with("# Size")) return begun_ ? Heading::kEndsTable : Heading::kDetail;
    begun_ = true;
    columns_ = Columns(std::regex_replace(line.substr(1), tail, "Tail"),
                       {"Size", "Avg Latency(us)", "Latency (us)", "Min Latency(us)",
                        "Max Latency(us)", "Iterations", "Validation", "Tail"});
    if (columns_.empty() && kind_) found_.left_out.insert("columns '" + line + "'");
    return Heading::kColumns;
  }

  void take_row(const Words& words) override {
    if (!kind_ || columns_.empty()) return;
    columns_.require_as_many(words.size());
    ToolRow one{file_.ranks, {}, {}, 0};
    CalibrationRow& row = one.row;
    row.kind = *kind_;
    row.transport = transport_;
    row.cadence = kIsolated;
    row.type = type_;
    row.bytes = payload_bytes(*kind_, whole_of(words[0]), file_.ranks);
    for (const char* title : {"Max Latency(us)", "Avg Latency(us)", "Latency (us)"})
      if (const auto at = columns_.at(title); at && std::isnan(row.median_s))
        row.median_s = row.mean_s = 1e-6 * number_of(words[*at]);
    if (const auto at = columns_.at("Iterations")) row.repetitions = whole_of(words[*at]);
    if (const auto at = columns_.at("Validation")) row.wrong = words[*at] == "Pass" ? 0 : 1;
    found_.rows.push_back(std::move(one));
  }

 private:
  const CurveFile& file_;
  std::optional<CollectiveKind> kind_;
  std::string transport_, type_;
  bool begun_ = false;  ///< a table of this title
  Columns columns_;
};

}  // namespace

std::unique_ptr<ToolText> osu_text(const CurveFile& file, ToolRows& found) {
  return std::make_unique<OsuText>(file, found);
}

}  // namespace gradsync::report
