// SPDX-License-Identifier: BSD-3-Clause
#include "analysis/read/curve_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <regex>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "analysis/read/curve_format.h"
#include "base/error.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/ranges.h"
#include "record/reader.h"
#include "record/row_figures.h"

namespace gradsync::report {

namespace {

constexpr std::size_t kLongestLine = 1000;  // std::regex recurses for each character
constexpr std::size_t kLongestQuote = 60;
constexpr std::size_t kMostTitles = 8;
constexpr double kLargestNumber = 1e15;
constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view without_blanks(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  return line.substr(0, line.find_last_not_of(kBlanks) + 1);
}

std::string excerpt_of(std::string_view line) {
  line = without_blanks(line);
  return fmt::format("'{}{}'", with_escaped_bytes(line.substr(0, kLongestQuote)),
                     line.size() > kLongestQuote ? "…" : "");
}

bool is_whole(std::string_view word) {
  return word.find_first_not_of("0123456789") == std::string_view::npos;
}

std::size_t decimals_of(std::string_view word) {
  const std::size_t point = word.find('.');
  return point == word.npos ? 0 : word.size() - point - 1;
}

Words words_of(std::string_view line) {
  Words words;
  for (std::size_t at = line.find_first_not_of(kBlanks); at != line.npos;) {
    const std::size_t stop = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, stop - at));
    at = line.find_first_not_of(kBlanks, stop);
  }
  return words;
}

}  // namespace

double number_of(std::string_view word) {
  try {
    if (const double value = parse_number(word); value >= 0 && value <= kLargestNumber)
      return value;
  } catch (const Error&) {
    // Refused below.
  }
  throw Error(ExitCode::kBadData,
              fmt::format("{} is not a number from 0 to 1e15", excerpt_of(word)));
}

std::int64_t whole_of(std::string_view word) {
  const double value = number_of(word);
  const auto whole = static_cast<std::int64_t>(value);
  if (static_cast<double>(whole) != value)
    throw Error(ExitCode::kBadData, fmt::format("{} is not whole", excerpt_of(word)));
  return whole;
}

Columns::Columns(std::string_view line, std::initializer_list<std::string_view> known) {
  for (line = without_blanks(line); !line.empty(); line = without_blanks(line)) {
    const auto* title = std::ranges::find_if(known, [&](std::string_view name) {
      return line.starts_with(name) &&
             (line.size() == name.size() || kBlanks.find(line[name.size()]) != kBlanks.npos);
    });
    if (title == known.end()) {
      titles_.clear();
      return;
    }
    titles_.emplace_back(*title);
    line.remove_prefix(title->size());
  }
}

std::optional<std::size_t> Columns::at(std::string_view title) const {
  const auto found = std::ranges::find(titles_, title);
  if (found == titles_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - titles_.begin());
}

void Columns::require_as_many(std::size_t words) const {
  if (words != size())
    throw Error(ExitCode::kBadData,
                fmt::format("it has {} columns, and the table {}", words, size()));
}

namespace {

// --- MPI's own benchmarks ------------------------------------------------------------------------

constexpr std::array<std::pair<std::string_view, CollectiveKind>, 10> kMpiNames = {
    {{"Allreduce", CollectiveKind::kAllReduce},
     {"Bcast", CollectiveKind::kBroadcast},
     {"Broadcast", CollectiveKind::kBroadcast},
     {"Reduce", CollectiveKind::kReduce},
     {"Gather", CollectiveKind::kGather},
     {"Scatter", CollectiveKind::kScatter},
     {"Allgather", CollectiveKind::kAllGather},
     {"Reduce_scatter", CollectiveKind::kReduceScatter},
     {"Alltoall", CollectiveKind::kAllToAll},
     {"All-to-All Personalized Exchange", CollectiveKind::kAllToAll}}};

/// What these tools have in common: a title names a collective, the table below it has a row a
/// size.
class MpiText : public ToolText {
 public:
  using ToolText::ToolText;

 protected:
  /// Takes the name in a title; what has no counterpart here is left out.
  void begin(const std::string& name) {
    const auto* known =
        std::ranges::find_if(kMpiNames, [&](const auto& entry) { return entry.first == name; });
    kind_.reset();
    if (known != kMpiNames.end())
      kind_ = known->second;
    else
      found_.left_out.insert(name);
    begun_ = false;
  }

  /// Titles of columns, without which rows are left out.
  Heading take_columns(Columns columns, bool complete, const std::string& line) {
    begun_ = true;
    columns_ = std::move(columns);
    usable_ = kind_ && complete;
    if (kind_ && !complete) found_.left_out.insert("columns '" + line + "'");
    return Heading::kColumns;
  }

  /// A row of a table; its size is of all ranks where the collective is a reduce-scatter.
  void add_row(CalibrationRow row, std::int64_t size, std::int64_t ranks) {
    row.kind = *kind_;
    row.bytes = row.kind == CollectiveKind::kReduceScatter ? size / ranks : size;
    found_.rows.push_back({ranks, std::move(row), {}, 0});
  }

  std::optional<CollectiveKind> kind_;
  bool begun_ = false, usable_ = false;  ///< a table of this title, and its rows
  Columns columns_;
};

// OSU Micro-Benchmarks (mvapich.cse.ohio-state.edu/benchmarks): osu_allreduce and the other
// blocking collectives. Each call begins after a barrier. The text does not tell the ranks.

class OsuText : public MpiText {
 public:
  OsuText(const CurveFile& file, ToolRows& found) : MpiText(found), file_(file) {}

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
    begin(name.empty() ? "Latency" : name);
    if (kind_ && file_.ranks == 0)
      throw Error(ExitCode::kBadData,
                  fmt::format("'{}' does not tell how many ranks took part, as no text of the OSU "
                              "benchmarks does",
                              file_.path.string()),
                  fmt::format("{}:ranks=N", file_.path.string()));
    type_ = kFloatType;
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
    Columns columns(std::regex_replace(line.substr(1), tail, "Tail"),
                    {"Size", "Avg Latency(us)", "Latency (us)", "Min Latency(us)",
                     "Max Latency(us)", "Iterations", "Validation", "Tail"});
    const bool complete = !columns.empty();
    return take_columns(std::move(columns), complete, line);
  }

  void take_row(const Words& words) override {
    if (!usable_) return;
    columns_.require_as_many(words.size());
    CalibrationRow row;
    row.transport = transport_;
    row.cadence = kIsolated;
    row.type = type_;
    for (const char* title : {"Max Latency(us)", "Avg Latency(us)", "Latency (us)"})
      if (const auto at = columns_.at(title); at && std::isnan(row.median_s))
        row.median_s = row.mean_s = 1e-6 * number_of(words[*at]);
    if (const auto at = columns_.at("Iterations")) row.repetitions = whole_of(words[*at]);
    if (const auto at = columns_.at("Validation")) row.wrong = words[*at] == "Pass" ? 0 : 1;
    add_row(std::move(row), whole_of(words[0]), file_.ranks);
  }

 private:
  const CurveFile& file_;
  std::string transport_, type_;
};

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}

class ImbText : public MpiText {
 public:
  using MpiText::MpiText;

  bool takes_title(const std::string& line) override {
    static const std::regex suite(R"(#\s+Intel.{0,40}MPI Benchmarks.*)");
    static const std::regex benchmark(R"(#-?\s+Benchmarking\s+(\S{1,64}).*)");
    std::smatch part;
    if (std::regex_match(line, suite)) {
      type_ = kFloatType;
      cadence_ = kIsolated;
      kind_.reset();
      begun_ = false;
    } else if (std::regex_match(line, part, benchmark)) {
      // "Multi-Allreduce": groups that run at the same time.
      begin(part[1]);
    } else {
      return false;
    }
    ranks_ = 0;
    return true;
  }

  Heading take_heading(const std::string& line, const Words& /*words*/) override {
    static const std::regex processes(R"(#-?\s+#processes\s*=\s*(\d{1,9})\b.*)");
    static const std::regex reduced(R"(#\s+MPI_Datatype for reductions\s*:\s*(\w+)\s*)");
    static const std::regex not_synchronized(R"(.*\s-sync\s+(off|0|disable|no)\b.*)");
    std::smatch part;
    if (begun_) return Heading::kEndsTable;
    if (line.find("#repetitions") != line.npos) {
      Columns columns(line, {"Group", "#bytes", "#repetitions", "t_min[usec]", "t_max[usec]",
                             "t_avg[usec]", "defects"});
      const bool complete = columns.at("#bytes") && columns.at("t_max[usec]");
      return take_columns(std::move(columns), complete, line);
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
    if (!usable_) return;
    columns_.require_as_many(words.size());  // "4194304 time-out.; Time limit …"
    if (ranks_ == 0) throw Error(ExitCode::kBadData, "no line '# #processes = N' stands above it");
    CalibrationRow row;
    row.transport = "mpi";
    row.cadence = cadence_;
    if (reduces(*kind_)) row.type = type_;
    row.repetitions = whole_of(words[*columns_.at("#repetitions")]);
    row.median_s = row.mean_s = 1e-6 * number_of(words[*columns_.at("t_max[usec]")]);
    if (const auto at = columns_.at("defects")) row.wrong = number_of(words[*at]) > 0 ? 1 : 0;
    add_row(std::move(row), whole_of(words[*columns_.at("#bytes")]), ranks_);
  }

  int rising_column() const override { return columns_.at("#bytes") == 1U ? 1 : 0; }

 private:
  std::string type_ = std::string(kFloatType), cadence_ = kIsolated;
  std::int64_t ranks_ = 0;
};

// --- the lines of a log: titles of all tools, the prefix that a launcher puts before them, rows
// ---

/// Whether a line names columns, as of a tool that begins its titles without '#': two names, and no
/// more words of another kind, as a sentence has.
bool names_columns(std::string_view line) {
  constexpr std::array kNames = {"size",    "bytes",     "byte", "count", "message", "msg",
                                 "latency", "bandwidth", "time", "busbw", "algbw",   "us",
                                 "usec",    "ms",        "mb",   "gb",    "seconds", "s"};
  std::set<std::string> names;
  std::size_t known = 0, others = 0;
  std::string word;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (contains(kNames, word))
      names.insert(word), ++known;
    else
      ++others;
    word.clear();
  };
  for (const char c : line)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else
      end_word();
  end_word();
  return names.size() > 1 && known >= others;
}

class LogReader {
 public:
  LogReader(const CurveFile& file, ToolRows& found) : found_(found) {
    tools_[0] = nccl_tests_text(found);
    tools_[1] = std::make_unique<OsuText>(file, found);
    tools_[2] = std::make_unique<ImbText>(found);
  }

  void read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++number_;
      ended_ = end < text.size();
      take_line(text.substr(0, std::min(end, kLongestLine)));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (tool_) tool_->end();
    if (damaged_ > 0)
      found_.remarks.push_back(damaged_ > 1 ? fmt::format("{}, as {} in tables", damage_,
                                                          count_text(damaged_ - 1, "other line"))
                                            : damage_);
  }

 private:
  void take_line(std::string_view line) {
    if (is_title(line)) return;
    const auto text = prefix_.rest(line);
    const Words words = words_of(text.value_or(line));
    if (!text) {
      if (open_ && words.size() > 1 && is_whole(words[0]))
        found_.left_out.insert("rows that do not begin as their title does");
      return;
    }
    if (words.empty()) return;
    if (words[0].starts_with('#') || words[0] == "Group") {
      const Heading heading = tool_ ? tool_->take_heading(std::string(without_blanks(*text)), words)
                                    : Heading::kEndsTable;
      if (heading == Heading::kColumns)
        open_ = true, interrupted_ = false, last_size_ = -1, decimals_ = 0;
      if (heading == Heading::kEndsTable) end_table(*text);
    } else if (words.size() > 1 && is_whole(words[0])) {
      take_row(*text, words);
    } else if (open_ && names_columns(*text)) {
      end_table(*text);
    } else {
      interrupted_ = true;
      if (open_) last_text_ = std::string(*text);
    }
  }

  /// A title behind whatever a launcher puts before each line.
  bool is_title(std::string_view line) {
    std::size_t at = line.find('#');
    for (int tried = 0; at != line.npos && tried < 3; at = line.find('#', at + 1), ++tried)
      for (const auto& tool : tools_) {
        if (!tool->takes_title(std::string(without_blanks(line.substr(at))))) continue;
        if (tool_ && tool_ != tool.get()) tool_->end();
        tool_ = tool.get();
        prefix_ = LinePrefix(line.substr(0, at));
        end_table(line.substr(at));
        return found_.known = true;
      }
    return false;
  }

  void end_table(std::string_view line) {
    open_ = false;
    ended_by_ = std::string(line);
  }

  void take_row(std::string_view line, const Words& words) {
    try {
      if (const int column = open_ ? tool_->rising_column() : -1;
          column >= 0 && static_cast<std::size_t>(column) < words.size()) {
        const double size = number_of(words[static_cast<std::size_t>(column)]);
        if (interrupted_ && size <= last_size_) end_table(last_text_);
        interrupted_ = false;
        last_size_ = size;
      }
      if (open_) {
        // "1749.6", and the file ends.
        const std::size_t above = std::exchange(decimals_, decimals_of(words.back()));
        if (!ended_ && decimals_ < above)
          throw Error(ExitCode::kBadData, "the file ends within it");
        return tool_->take_row(words);
      }
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData || !open_) throw;
      if (damaged_++ == 0)
        damage_ = fmt::format("line {}: {}, {}; left out", number_, excerpt_of(line), error.what());
      return;
    }
    if (ended_by_.empty()) return;
    if (found_.left_out.size() < kMostTitles)
      found_.left_out.insert("rows below " + excerpt_of(ended_by_));
    ended_by_.clear();
  }

  ToolRows& found_;
  std::array<std::unique_ptr<ToolText>, 3> tools_;
  ToolText* tool_ = nullptr;  ///< of the last title
  LinePrefix prefix_;
  bool open_ = false, interrupted_ = false, ended_ = true;  ///< a table, the line
  std::size_t decimals_ = 0;                                ///< of the last word of the last row
  double last_size_ = -1;
  std::string last_text_, ended_by_, damage_;
  std::size_t number_ = 0;
  std::int64_t damaged_ = 0;
};

// --- curves --------------------------------------------------------------------------------------

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
    if (!contains(values, condition(one))) values.push_back(condition(one));
  const bool has_wanted = contains(values, wanted);
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
    const auto [least, largest] = std::ranges::minmax_element(of_size);
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
  LogReader(file, found).read(text);
  if (!found.known && found.remarks.empty())
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' {}{}{}", file.path.string(),
                    text.starts_with('{') ? "is not nccl-tests' JSON" : "is no curve that is known",
                    found.left_out.empty() ? "" : "; it holds ", fmt::join(found.left_out, ", ")),
        "known are run files with calibration, the -J files of gradsync-calibrate and of "
        "nccl-tests, and what these two, osu_allreduce and IMB-MPI1 print");
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
  const auto curve_of = [](const CalibrationRow& row) {
    return std::pair(row.kind, row.transport);
  };
  std::map<std::pair<CollectiveKind, std::string>, std::vector<std::string>> types;
  for (const CalibrationRow& row : curves.rows)
    types[curve_of(row)].push_back(row.type);
  for (const auto& [curve, of_curve] : types) {
    if (contains(of_curve, kFloatType)) continue;
    const std::string first = of_curve.front();
    std::erase_if(curves.rows, [&, which = curve](const CalibrationRow& row) {
      return curve_of(row) == which && row.type != first;
    });
    for (CalibrationRow& row : curves.rows)
      if (curve_of(row) == curve) row.type = kFloatType;
    remarks.insert(fmt::format("{}: values are {}; the curve is taken for float",
                               collective_name(curve.first), first));
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

}  // namespace gradsync::report
