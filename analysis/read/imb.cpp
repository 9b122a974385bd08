// Intel MPI Benchmarks (github.com/intel/mpi-benchmarks): IMB-MPI1. A file has a table for each
// benchmark and number of processes. The ranks wait for each other after each call, unless -sync is
// off.

#include <regex>

#include <fmt/format.h>

#include "analysis/read/curve_format.h"
#include "base/error.h"

namespace gradsync::report {

namespace {

const ToolNames kImbNames = {{"Allreduce", CollectiveKind::kAllReduce},
                             {"Bcast", CollectiveKind::kBroadcast},
                             {"Reduce", CollectiveKind::kReduce},
                             {"Gather", CollectiveKind::kGather},
                             {"Scatter", CollectiveKind::kScatter},
                             {"Allgather", CollectiveKind::kAllGather},
                             {"Reduce_scatter", CollectiveKind::kReduceScatter},
                             {"Alltoall", CollectiveKind::kAllToAll}};

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

class ImbText : public ToolText {
 public:
  using ToolText::ToolText;

  bool takes_title(const std::string& line) override {
    static const std::regex suite(R"(#\s+Intel.{0,40}MPI Benchmarks.*)");
    static const std::regex benchmark(R"(#-?\s+Benchmarking\s+(\S{1,64}).*)");
    std::smatch part;
    if (std::regex_match(line, suite)) {
      type_ = kFloatType;
      cadence_ = kIsolated;
      kind_.reset();
    } else if (std::regex_match(line, part, benchmark)) {
      // "Multi-Allreduce": groups that run at the same time.
      kind_ = kind_named(part[1].str(), kImbNames);
      if (!kind_) found_.left_out.insert(part[1].str());
    } else {
      return false;
    }
    ranks_ = 0;
    begun_ = false;
    return true;
  }

  Heading take_heading(const std::string& line, const Words& /*words*/) override {
    static const std::regex processes(R"(#-?\s+#processes\s*=\s*(\d{1,9})\b.*)");
    static const std::regex reduced(R"(#\s+MPI_Datatype for reductions\s*:\s*(\w+)\s*)");
    static const std::regex not_synchronized(R"(.*\s-sync\s+(off|0|disable|no)\b.*)");
    std::smatch part;
    if (begun_) return Heading::kEndsTable;
    if (line.find("#repetitions") != line.npos) {
      begun_ = true;
      columns_ = Columns(line, {"Group", "#bytes", "#repetitions", "t_min[usec]", "t_max[usec]",
                                "t_avg[usec]", "defects"});
      known_ = columns_.at("#bytes") && columns_.at("t_max[usec]");
      if (!known_ && kind_) found_.left_out.insert("columns '" + line + "'");
      return Heading::kColumns;
    }
    if (std::regex_match(line, part, processes)) ranks_ = std::stoll(part[1]);
    if (std::regex_match(line, part, reduced))
      type_ = part[1] == "MPI_FLOAT"
                  ? kFloatType
                  : std::string_view(line).substr(static_cast<std::size_t>(part.position(1)),
                                                  static_cast<std::size_t>(part.length(1)));
    if (std::regex_match(line, not_synchronized)) cadence_ = kBackToBack;
    return Heading::kDetail;
  }

  void take_row(const Words& words) override {
    if (!kind_ || !known_) return;
    columns_.require_as_many(words.size());  // "4194304 time-out.; Time limit …"
    if (ranks_ == 0) throw Error(ExitCode::kBadData, "no line '# #processes = N' stands above it");
    ToolRow one{ranks_, {}, {}, 0};
    CalibrationRow& row = one.row;
    row.kind = *kind_;
    row.transport = "mpi";
    row.cadence = cadence_;
    if (reduces(*kind_)) row.type = type_;
    row.bytes = payload_bytes(*kind_, whole_of(words[*columns_.at("#bytes")]), ranks_);
    row.repetitions = whole_of(words[*columns_.at("#repetitions")]);
    row.median_s = row.mean_s = 1e-6 * number_of(words[*columns_.at("t_max[usec]")]);
    if (const auto at = columns_.at("defects")) row.wrong = number_of(words[*at]) > 0 ? 1 : 0;
    found_.rows.push_back(std::move(one));
  }

  int rising_column() const override { return columns_.at("#bytes") == 1U ? 1 : 0; }

 private:
  std::optional<CollectiveKind> kind_;
  std::string type_ = std::string(kFloatType), cadence_ = kIsolated;
  std::int64_t ranks_ = 0;
  bool begun_ = false, known_ = false;  ///< a table of this title, and its columns
  Columns columns_;
};

}  // namespace

std::unique_ptr<ToolText> imb_text(ToolRows& found) {
  return std::make_unique<ImbText>(found);
}

}  // namespace gradsync::report
