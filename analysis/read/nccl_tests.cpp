// SPDX-License-Identifier: BSD-3-Clause
// nccl-tests (github.com/NVIDIA/nccl-tests) and rccl-tests: what all_reduce_perf and its like
// print, and their JSON (-J), which gradsync-calibrate writes as well.

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "analysis/read/curve_format.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json_number.h"
#include "base/ranges.h"
#include "calibrate/operation.h"
#include "stats/bandwidth.h"

namespace gradsync::report {

namespace {

using calibrate::in_place;
using nlohmann::json;

constexpr double kMicrosecond = 1e-6;
constexpr const char* kNoBarrier =
    "its ranks wait after each call without a barrier (-z 2), which is taken for back-to-back";

/// A program, and what its rows show of it where the text does not name it.
struct Program {
  enum class Redop { kNone, kSome, kEither };
  std::string_view name;
  std::optional<CollectiveKind> kind;
  Redop redop = Redop::kNone;
  bool rooted = false;
  bool counts_parts = false;        ///< column count is size / ranks
  bool full_busbw_in_2019 = false;  ///< before June 2020 algbw held the factor: busbw = algbw
  bool in_place_checked = true;     ///< since September 2022
};

using Redop = Program::Redop;

const Program kPrograms[] = {
    {"all_reduce_perf", CollectiveKind::kAllReduce, Redop::kSome},
    {"broadcast_perf", CollectiveKind::kBroadcast, Redop::kNone, true},
    {"reduce_perf", CollectiveKind::kReduce, Redop::kSome, true},
    {"gather_perf", CollectiveKind::kGather, Redop::kNone, true, true},
    {"scatter_perf", CollectiveKind::kScatter, Redop::kNone, true, true},
    {"all_gather_perf", CollectiveKind::kAllGather, Redop::kNone, false, true, true},
    {"reduce_scatter_perf", CollectiveKind::kReduceScatter, Redop::kSome, false, true, true},
    {"alltoall_perf", CollectiveKind::kAllToAll, Redop::kNone, false, true, false, false},
    {"sendrecv_perf", CollectiveKind::kSendReceive, Redop::kEither, false, false, false, false},
    {"alltoallv_perf", {}, Redop::kNone, false, true, false, false},
    {"hypercube_perf", {}, Redop::kNone, false, true}};

/// Binaries have suffixes where they are built so: "all_reduce_perf_mpi", "all_reduce_perf.exe".
const Program* program_named(std::string_view name) {
  const auto* known = std::ranges::find_if(kPrograms, [&](const Program& one) {
    return name.starts_with(one.name) &&
           (name.size() == one.name.size() || std::isalnum(name[one.name.size()]) == 0);
  });
  return known == std::end(kPrograms) || !known->kind ? nullptr : known;
}

/// A line of results before its collective and ranks are known.
struct Result {
  double size = 0, count = 0;  ///< nccl-tests' (message_bytes)
  std::string type, redop;     ///< redop is empty for none
  std::int64_t root = -1;
  double algbw = kNotMeasured, busbw = kNotMeasured;
  std::int64_t repetitions = 0;
  CalibrationRow in_place_row, out_of_place_row;  ///< time and wrong values; NaN: not measured
};

/// What all rows of a table have in common.
struct Measured {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::int64_t ranks = 0;
  std::string transport = "nccl", cadence = kBackToBack;
};

ToolRow row_of(const Result& result, const Measured& table) {
  const bool here = in_place(table.kind);
  const CalibrationRow& usual = here ? result.in_place_row : result.out_of_place_row;
  const CalibrationRow& other = here ? result.out_of_place_row : result.in_place_row;
  ToolRow one{table.ranks, std::isnan(usual.median_s) ? other : usual, result.redop,
              std::max<std::int64_t>(result.root, 0)};
  one.row.kind = table.kind;
  one.row.transport = table.transport;
  one.row.cadence = table.cadence;
  one.row.type = result.type;
  one.row.bytes =
      std::llround(result.size / message_bytes(table.kind, 1, static_cast<double>(table.ranks)));
  one.row.repetitions = result.repetitions;
  return one;
}

/// Whether busbw is to algbw as of so many ranks, within what two decimals tell.
bool has_busbw_of(const Program& program, const Result& result, std::int64_t ranks) {
  if (!(result.algbw > 0) || !(result.busbw > 0)) return true;
  const auto agrees = [&](double factor) {
    return std::abs(result.busbw - factor * result.algbw) <= 0.02 * result.busbw + 0.015;
  };
  const double n = static_cast<double>(ranks);
  if (program.full_busbw_in_2019 && agrees(1)) return true;
  if (program.kind) return agrees(busbw_factor(*program.kind, n));
  return agrees(program.name == "hypercube_perf" ? 1 : (n - 1) / n);
}

/// Bytes of a value of a type; 0 where the type is not known.
double bytes_of_type(std::string_view type) {
  static const std::map<std::string_view, double> kBytes = {
      {"int8", 1},   {"uint8", 1},    {"char", 1},   {"half", 2},    {"bfloat16", 2}, {"int32", 4},
      {"uint32", 4}, {"int", 4},      {"float", 4},  {"int64", 8},   {"uint64", 8},   {"double", 8},
      {"f8e4m3", 1}, {"fp8_e4m3", 1}, {"f8e5m2", 1}, {"fp8_e5m2", 1}};
  const auto known = kBytes.find(type);
  return known == kBytes.end() ? 0 : known->second;
}

/// The row whose bandwidths have most digits.
const Result& fastest(const std::vector<Result>& results) {
  return *std::ranges::max_element(results, [](const Result& a, const Result& b) {
    return std::fmax(a.busbw, 0) < std::fmax(b.busbw, 0);
  });
}

/// Where the text names no program, as before June 2025: those that print such rows.
std::vector<const Program*> programs_like(const std::vector<Result>& results, std::int64_t ranks) {
  const Result& result = fastest(results);
  const double parts = result.size / (result.count * bytes_of_type(result.type));
  const auto all_of = [&](const CalibrationRow Result::*group, bool checked) {
    return std::ranges::all_of(results, [&](const Result& one) {
      return !std::isnan((one.*group).median_s) && ((one.*group).wrong >= 0) == checked;
    });
  };
  const bool in_place_checked = all_of(&Result::in_place_row, true);
  const bool only_out_of_place_checked =
      all_of(&Result::in_place_row, false) && all_of(&Result::out_of_place_row, true);
  std::vector<const Program*> programs;
  for (const Program& one : kPrograms) {
    const bool redop =
        one.redop == Redop::kEither || (one.redop == Redop::kSome) == !result.redop.empty();
    const bool counts =
        !std::isfinite(parts) ||
        std::abs(parts / (one.counts_parts ? static_cast<double>(ranks) : 1) - 1) < 0.02;
    // Send/receive has printed a reduction since it leaves its values in place unchecked.
    const bool checks = one.in_place_checked ? !only_out_of_place_checked
                                             : !in_place_checked || (one.redop != Redop::kEither ||
                                                                     result.redop.empty());
    if (redop && counts && checks && one.rooted == (result.root >= 0) &&
        has_busbw_of(one, result, ranks))
      programs.push_back(&one);
  }
  return programs;
}

// --- text ---

struct Section {
  enum class Stage { kNone, kVersion, kNamed, kBegun };  ///< by the last title
  Stage stage = Stage::kNone;
  std::string name;
  std::map<std::string, std::set<std::int64_t>> groups;  ///< ranks
  std::int64_t ranks = 0;  ///< as gradsync-calibrate names them; 0: count the groups
  std::int64_t iterations = 0;
  std::string transport = "nccl", cadence = kBackToBack;
  Columns columns;
  bool in_place_only = false;
  std::vector<Result> results;
  std::int64_t out_of_bounds = 0;
  std::string problem;  ///< why its rows count nowhere
};

class NcclTestsText : public ToolText {
 public:
  using ToolText::ToolText;

  bool takes_title(const std::string& line) override {
    static const std::regex version(R"(#\s+nccl-tests version .*)");
    static const std::regex start(R"(#\s+Collective test starting:\s+(?:\S*[/\\])?(\S{1,64}).*)");
    static const std::regex counts(R"(#\s+nThreads?:?\s.*)");
    static const std::regex iterations(R"(.*warmup ?[iI]ters:\s*\d+\s+iters:\s*(\d{1,9})\b.*)");
    std::smatch part;
    auto stage = Section::Stage::kNone;
    if (takes_title_of_calibrate(line)) return true;
    if (std::regex_match(line, version)) stage = Section::Stage::kVersion;
    if (std::regex_match(line, counts)) stage = Section::Stage::kBegun;
    const bool named = std::regex_match(line, part, start);
    if (named) stage = Section::Stage::kNamed;
    if (stage == Section::Stage::kNone) return false;
    if (section_.stage >= stage) end();
    section_.stage = stage;
    if (named) section_.name = part[1];
    if (std::regex_match(line, part, iterations)) section_.iterations = std::stoll(part[1]);
    return true;
  }

  Heading take_heading(const std::string& line, const Words& words) override {
    static const std::regex rank(
        R"(#\s+Rank\s+(\d{1,9})\s+(?:Group\s+(\d{1,9})\s+)?(?:Pid|on)\s.*)");
    static const std::regex bounds(R"(#\s+Out of bounds values\s*:\s*(\d{1,9})\b.*)");
    static const std::regex calls(R"(# .*; time: median of at most (\d{1,9}) calls .*)");
    std::smatch part;
    if (section_.stage == Section::Stage::kNone) return Heading::kEndsTable;
    if (contains(words, "algbw")) return take_columns(line);
    if (std::regex_match(line, part, bounds)) {
      section_.out_of_bounds = std::stoll(part[1]);
      end();
      return Heading::kEndsTable;
    }
    // rccl-tests: the sizes once more.
    if (words.size() == 4 && words[1] == "Testing" && words[3] == "cycle.") return Heading::kDetail;
    if (std::regex_match(line, part, calls)) section_.iterations = std::stoll(part[1]);
    if (!section_.results.empty()) {
      end();
      return Heading::kEndsTable;
    }
    if (std::regex_match(line, part, rank) &&
        !section_.groups[part[2]].insert(std::stoll(part[1])).second)
      leave_out(
          fmt::format("rank {} stands there twice: built without MPI=1, each process of "
                      "nccl-tests measures alone",
                      part[1].str()));
    if (const std::size_t at = line.find("Blocking Enabled"); at != line.npos) {
      const bool barrier =
          line.find("barrier") != line.npos && line.find("no barrier") == line.npos;
      if (barrier) section_.cadence = kIsolated;
      if (!barrier) found_.remarks.emplace_back(kNoBarrier);
    }
    if (line.find("in-place") != line.npos)
      section_.in_place_only = line.find("out-of-place") == line.npos;
    return Heading::kDetail;
  }

  void take_row(const Words& words) override {
    if (section_.problem.empty()) section_.results.push_back(result_of(words));
  }

  int rising_column() const override { return -1; }

  void end() override {
    Section section = std::exchange(section_, {});
    if (section.results.empty() && section.problem.empty()) {
      // A start that failed.
      if (section.stage == Section::Stage::kBegun && section.columns.empty())
        section.problem = "it ended before its results";
      else
        return;
    }
    try {
      if (!section.problem.empty()) throw Error(ExitCode::kBadData, section.problem);
      add(section);
    } catch (const Error& error) {
      found_.remarks.push_back(
          fmt::format("{} is left out: {}",
                      section.name.empty() ? "a table of nccl-tests" : section.name, error.what()));
    }
  }

 private:
  /// What gradsync-calibrate prints in place of nccl-tests' titles.
  bool takes_title_of_calibrate(const std::string& line) {
    static const std::regex title(
        R"(# Collective: (\S{1,64}) \((.{1,80})\), (\S{1,20}), (\d{1,7}) ranks?)");
    std::smatch part;
    if (!std::regex_match(line, part, title)) return false;
    const auto& operations = calibrate::operations();
    const auto operation = std::ranges::find_if(
        operations, [&](const auto& one) { return one.name == part[1].str(); });
    const auto* program = std::ranges::find_if(kPrograms, [&](const Program& one) {
      return operation != operations.end() && one.kind == operation->kind;
    });
    end();
    section_.stage = Section::Stage::kBegun;
    section_.name = program == std::end(kPrograms) ? part[1].str() : std::string(program->name);
    section_.transport = calibrate::transport_of_text(part[2]);
    section_.cadence = part[3];
    section_.ranks = std::stoll(part[4]);
    return true;
  }

  void leave_out(const std::string& why) {
    if (section_.problem.empty()) section_.problem = why;
  }

  Heading take_columns(const std::string& line) {
    if (!section_.columns.empty())
      leave_out(
          "its columns stand there twice: built without MPI=1, each process of nccl-tests "
          "measures alone");
    section_.columns =
        Columns(line.substr(1), {"size", "count", "type", "redop", "root", "time", "cputime",
                                 "algbw", "busbw", "error", "#wrong", "i_min", "i_max", "i_p99",
                                 "i_cv%", "algo", "proto", "nchannels", "timestamp"});
    const auto& titles = section_.columns.titles();
    starts_.clear();
    for (std::size_t i = 0; i < titles.size(); ++i)
      if (titles[i] == "time" || titles[i] == "cputime") starts_.push_back(i);
    const bool whole = std::ranges::all_of(starts_, [&](std::size_t at) {
      return at + 3 < titles.size() && titles[at + 1] == "algbw" && titles[at + 2] == "busbw" &&
             (titles[at + 3] == "error" || titles[at + 3] == "#wrong");
    });
    if (starts_.empty() || starts_.size() > 2 || !whole || section_.columns.at("size") != 0U ||
        section_.columns.at("count") != 1U || section_.columns.at("type") != 2U ||
        section_.columns.at("redop").value_or(0) > starts_.front() ||
        section_.columns.at("timestamp").value_or(titles.size() - 1) != titles.size() - 1)
      leave_out(fmt::format("its columns are not known: '{}'", line));
    if (section_.columns.at("cputime"))
      leave_out("its times are those of the CPU, which launches the calls (-C)");
    return Heading::kColumns;
  }

  /// The words of a row, one for each column: what a table leaves blank is "" or "N/A".
  Words cells_of(Words words) const {
    std::size_t expected = section_.columns.size();
    if (section_.columns.at("timestamp")) {  // "2026-11-25 09:15:22"
      --expected;
      words.resize(words.size() - std::min<std::size_t>(2, words.size()));
    }
    const std::size_t first = starts_.front(), width = starts_.back() - first;
    const auto redop = section_.columns.at("redop");
    if (redop && words.size() + 1 == expected &&
        words[*redop].find_first_not_of("0123456789.-") == std::string_view::npos)
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(*redop), std::string_view());
    else if (width > 0 && words.size() + width == expected && is_wide_gap(words, first))
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(first), width, "N/A");
    if (words.size() != expected)
      throw Error(ExitCode::kBadData,
                  fmt::format("it has {} columns, and the table {}", words.size(), expected));
    return words;
  }

  /// Whether a group is left blank before a word. A row that ends within its second group has as
  /// many words.
  static bool is_wide_gap(const Words& words, std::size_t at) {
    constexpr std::ptrdiff_t kLeastBlanks = 16;
    return words[at].data() - (words[at - 1].data() + words[at - 1].size()) >= kLeastBlanks;
  }

  Result result_of(const Words& words) const {
    const Words cells = cells_of(words);
    Result result;
    result.size = number_of(cells[0]);
    result.count = number_of(cells[1]);
    result.repetitions = section_.iterations;
    result.type = cells[2];
    if (const auto at = section_.columns.at("redop"); at && cells[*at] != "none")
      result.redop = cells[*at];
    if (const auto at = section_.columns.at("root"); at && cells[*at] != "-1")
      result.root = whole_of(cells[*at]);
    for (const std::size_t at : starts_) {
      const bool second = at != starts_.front() || (starts_.size() == 1 && section_.in_place_only);
      CalibrationRow& row = second ? result.in_place_row : result.out_of_place_row;
      if (cells[at] == "N/A") continue;
      row.median_s = row.mean_s = kMicrosecond * number_of(cells[at]);
      row.wrong = wrong_of(cells[at + 3], section_.columns.titles()[at + 3] == "error");
      result.algbw = number_of(cells[at + 1]);
      result.busbw = number_of(cells[at + 2]);
    }
    return result;
  }

  /// Values that are wrong. Before August 2022 the column holds the largest difference, which
  /// rccl-tests marks where it is too large.
  static std::int64_t wrong_of(std::string_view cell, bool is_difference) {
    if (cell == "N/A") return -1;
    if (!is_difference) return std::llround(number_of(cell));
    return cell.ends_with('*') || cell.find("nan") != cell.npos || cell.find("inf") != cell.npos ||
           number_of(cell) >= 1;
  }

  void add(const Section& section) {
    const std::int64_t ranks = ranks_of(section);
    const Program* program = program_of(section, ranks);
    if (!program) return;
    const Measured table{*program->kind, ranks, section.transport, section.cadence};
    const bool any_wrong = std::ranges::any_of(section.results, [](const Result& one) {
      return one.in_place_row.wrong > 0 || one.out_of_place_row.wrong > 0;
    });
    for (const Result& result : section.results) {
      found_.rows.push_back(row_of(result, table));
      // Differences do not tell which rows are the wrong ones.
      if (section.out_of_bounds > 0 && !any_wrong) found_.rows.back().row.wrong = 1;
    }
  }

  std::int64_t ranks_of(const Section& section) const {
    if (section.ranks > 0) return section.ranks;
    if (section.groups.empty())
      throw Error(ExitCode::kBadData, "no line '#  Rank 0 … Pid …' tells its ranks");
    const std::size_t ranks = section.groups.begin()->second.size();
    for (const auto& [group, of_group] : section.groups)
      if (of_group.size() != ranks)
        throw Error(ExitCode::kBadData,
                    fmt::format("its groups are of {} and of {} ranks", ranks, of_group.size()));
    return static_cast<std::int64_t>(ranks);
  }

  /// Null where it has no counterpart here.
  const Program* program_of(const Section& section, std::int64_t ranks) const {
    const Result& best = fastest(section.results);
    if (!section.name.empty()) {
      const Program* program = program_named(section.name);
      if (!program)
        found_.left_out.insert(section.name);
      else if (ranks > 1 && !has_busbw_of(*program, best, ranks))
        throw Error(ExitCode::kBadData,
                    fmt::format("it lists {} ranks, and busbw {} of algbw {} is of another number",
                                ranks, best.busbw, best.algbw));
      return program;
    }
    if (ranks < 2) return &kPrograms[0];  // It is left out, whatever it is.
    const std::vector<const Program*> programs = programs_like(section.results, ranks);
    if (programs.size() == 1 && programs.front()->kind) {
      // A law that lacks its curve then has a reason.
      if (programs.front()->kind != CollectiveKind::kAllReduce)
        found_.remarks.push_back(
            fmt::format("a table that does not name its collective is of {}, "
                        "by its columns",
                        collective_name(*programs.front()->kind)));
      return programs.front();
    }
    std::vector<std::string_view> names = each(programs, [](const Program* one) {
      return one->kind ? collective_name(*one->kind) : one->name;
    });
    throw Error(ExitCode::kBadData,
                (names.empty() ? std::string("its columns are of no collective")
                               : fmt::format("it does not name its collective, which may be {}",
                                             fmt::join(names, " or "))) +
                    " (nccl-tests names it since June 2025, and in -J FILE)");
  }

  Section section_;
  std::vector<std::size_t> starts_;  ///< where "time" stands, out of place and in place
};

// --- JSON ---

double number_or_none(const json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : kNotMeasured;
}

std::int64_t whole_or(const json& object, const char* name, std::int64_t otherwise) {
  const auto at = object.find(name);
  return at == object.end() ? otherwise : whole_number<std::int64_t>(*at);
}

/// A group of a row, with the statistics of single calls where there are any.
CalibrationRow json_group(const json& row, const char* group, const char* statistics,
                          Result& result) {
  CalibrationRow times;
  if (!row.contains(group) || !row.at(group).is_object()) return times;
  const json& measured = row.at(group);
  times.median_s = times.mean_s = number_or_none(measured, "time") * kMicrosecond;
  if (const double algbw = number_or_none(measured, "alg_bw"); algbw > 0) {
    result.algbw = algbw;
    result.busbw = number_or_none(measured, "bus_bw");
  }
  if (const double wrong = number_or_none(measured, "nwrong"); std::isfinite(wrong))
    times.wrong = std::llround(std::min(wrong, 1e15));
  if (std::isnan(times.mean_s) || !row.contains(statistics) || !row.at(statistics).is_object())
    return times;
  const json& calls = row.at(statistics);
  const double median_us = number_or_none(calls, "p50_us");
  if (std::isfinite(median_us)) times.median_s = median_us * kMicrosecond;
  times.minimum_s = number_or_none(calls, "min_us") * kMicrosecond;
  times.maximum_s = number_or_none(calls, "max_us") * kMicrosecond;
  times.p95_s = number_or_none(calls, "p95_us") * kMicrosecond;
  times.p99_s = number_or_none(calls, "p99_us") * kMicrosecond;
  times.deviation_s = number_or_none(calls, "stdev_us") * kMicrosecond;
  return times;
}

std::vector<Result> json_results(const json& results) {
  std::vector<Result> all;
  for (const json& one : results) {
    Result result;
    result.size = static_cast<double>(whole_number<std::int64_t>(one.at("size")));
    result.type = one.at("type").get<std::string>();
    if (const std::string redop = one.value("redop", "none"); redop != "none") result.redop = redop;
    if (const auto root = one.find("root"); root != one.end())
      result.root = root->is_string() ? std::atoll(root->get_ref<const std::string&>().c_str())
                                      : whole_number<std::int64_t>(*root);
    result.out_of_place_row = json_group(one, "out_of_place", "out_of_place_per_iter", result);
    result.in_place_row = json_group(one, "in_place", "in_place_per_iter", result);
    result.repetitions = whole_or(one, "actual_iterations", 0);
    all.push_back(std::move(result));
  }
  return all;
}

void add_rows(const std::vector<Result>& results, const Measured& table, ToolRows& found) {
  for (const Result& result : results)
    found.rows.push_back(row_of(result, table));
}

/// gradsync-calibrate's part, which holds all of its tables.
void add_calibration(const json& page, ToolRows& found) {
  for (const json& curve : page.at("curves"))
    add_rows(json_results(curve.at("results")),
             {calibrate::find_operation(curve.at("collective").get<std::string>()).kind,
              static_cast<std::int64_t>(page.at("ranks").size()),
              curve.at("transport").get<std::string>(), curve.at("cadence").get<std::string>()},
             found);
}

/// nccl-tests lists a device a process, whatever it has; where a process stands there with several,
/// they are all of them. busbw decides.
std::int64_t json_ranks(const json& config, const Program& program, const Result& result) {
  std::map<std::int64_t, std::int64_t> groups;
  std::set<std::string> processes;
  std::int64_t devices = 0;
  for (const json& device : config.at("devices")) {
    ++groups[whole_or(device, "group", 0)];
    processes.insert(device.value("hostname", "") + ' ' +
                     std::to_string(whole_or(device, "pid", -1 - devices)));
    ++devices;
  }
  if (devices == 0) throw Error(ExitCode::kBadData, "it names no device");
  const std::int64_t listed = groups.begin()->second;
  for (const auto& [group, count] : groups)
    if (count != listed)
      throw Error(ExitCode::kBadData,
                  fmt::format("its groups are of {} and of {} devices", listed, count));
  constexpr std::int64_t kMost = 1024;
  const std::int64_t each = std::clamp<std::int64_t>(whole_or(config, "nthreads", 1), 1, kMost) *
                            std::clamp<std::int64_t>(whole_or(config, "ngpus", 1), 1, kMost);
  const bool of_processes = static_cast<std::int64_t>(processes.size()) == devices;
  const std::int64_t ranks = of_processes ? listed * each : listed;
  for (const std::int64_t one : {ranks, listed})
    if (one == 1 ? ranks == 1 : has_busbw_of(program, result, one)) return one;
  throw Error(ExitCode::kBadData,
              fmt::format("its devices are {} ranks, and bus_bw / alg_bw = {:.4f} is of another "
                          "number",
                          ranks, result.busbw / result.algbw));
}

/// The value behind an option in the arguments, "-z 1", "-z1", "--blocking=1"; empty without it.
std::string argument(const json& args, std::string_view letter, std::string_view name) {
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string word = args[i].get<std::string>();
    if ((word == letter || word == name) && i + 1 < args.size())
      return args[i + 1].get<std::string>();
    if (word.starts_with(std::string(name) + '=')) return word.substr(name.size() + 1);
    if (word.starts_with(letter) && !word.starts_with("--")) return word.substr(letter.size());
  }
  return {};
}

void add_nccl_tests(const json& page, ToolRows& found) {
  const json& args = page.at("args");
  std::string name = args.at(0).get<std::string>();
  name = name.substr(name.find_last_of("/\\") + 1);
  if (!page.contains("results")) {
    std::string why;
    for (const json& error : page.value("errors", json::array()))
      if (error.is_string() && !error.get_ref<const std::string&>().empty())
        why = ": " + error.get<std::string>();
    throw Error(ExitCode::kBadData, "the run crashed before its results" + why);
  }
  const Program* program = program_named(name);
  if (!program) {
    found.left_out.insert(name);
    return;
  }
  const std::vector<Result> results = json_results(page.at("results"));
  if (results.empty()) throw Error(ExitCode::kBadData, "the run crashed before its results");
  const json& config = page.at("config");
  Measured table{*program->kind, json_ranks(config, *program, fastest(results))};
  const json blocks = config.value("blocking_collectives", json());
  if (blocks == "true" || blocks == true) {
    const std::string mode = argument(args, "-z", "--blocking");
    table.cadence = mode == "2" ? kBackToBack : kIsolated;
    if (mode == "2") found.remarks.emplace_back(kNoBarrier);
    if (mode.empty())
      found.remarks.emplace_back(
          "its JSON does not tell whether a barrier follows each call (-z 1, 2 or 3): taken for "
          "isolated");
  }
  add_rows(results, table, found);
}

/// "AllReduce" and "all_reduce_perf" alike as "allreduce".
std::string letters_of(std::string_view name) {
  std::string letters;
  for (const char c : name.substr(0, name.find("_perf")))
    if (c != '_') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// rccl-tests' JSON (-Z json) has an object for each size and placement. Its ranks are processes,
/// of which ranksPerNode take part.
class RcclTestsJson {
 public:
  static bool is_one(const json& object) {
    return object.contains("algBw") && object.contains("busBw") && object.contains("inPlace");
  }

  void take(const json& object) {
    const std::int64_t gpus = whole_or(object, "gpusPerRank", whole_or(object, "gpus", 1));
    const std::int64_t processes = whole_or(object, "ranksPerNode", whole_or(object, "ranks", 1));
    if (gpus < 1 || processes < 1 || gpus > 1024 || processes > 65536)
      throw Error(ExitCode::kBadData, fmt::format("{} processes with {} GPUs", processes, gpus));
    const std::string type = object.at("type").get<std::string>();
    const std::string redop = object.value("redop", "none");
    const std::int64_t size = whole_number<std::int64_t>(object.at("size"));
    Result& result = tables_[{object.at("name").get<std::string>(), gpus * processes}]
                            [{whole_or(object, "numCycle", 0), type, redop, size}];
    result.size = static_cast<double>(size);
    result.type = type;
    if (redop != "none") result.redop = redop;
    result.algbw = number_or_none(object, "algBw");
    result.busbw = number_or_none(object, "busBw");
    CalibrationRow& row = whole_number<std::int64_t>(object.at("inPlace")) != 0
                              ? result.in_place_row
                              : result.out_of_place_row;
    row.median_s = row.mean_s = number_or_none(object, "time") * kMicrosecond;
    const json wrong = object.value("wrong", json());
    if (wrong.is_number()) row.wrong = std::llround(std::min(wrong.get<double>(), 1e15));
    if (wrong.is_string() && wrong != "N/A") row.wrong = wrong == "0" ? 0 : 1;
  }

  void finish(ToolRows& found) const {
    for (const auto& [table, by_size] : tables_) {
      const auto& [name, ranks] = table;
      const auto* program = std::ranges::find_if(kPrograms, [&, &title = name](const Program& one) {
        return one.kind && letters_of(one.name) == letters_of(title);
      });
      std::vector<Result> results;
      for (const auto& [size, result] : by_size)
        results.push_back(result);
      if (program == std::end(kPrograms))
        found.left_out.insert(name);
      else if (ranks > 1 && !has_busbw_of(*program, fastest(results), ranks))
        found.remarks.push_back(
            fmt::format("{} is left out: its busBw is not that of {} ranks", name, ranks));
      else
        add_rows(results, {*program->kind, ranks}, found);
    }
    if (!tables_.empty())
      found.remarks.emplace_back(
          "JSON of rccl-tests does not tell whether calls are blocking: taken for back-to-back");
  }

 private:
  using Size = std::tuple<std::int64_t, std::string, std::string, std::int64_t>;
  std::map<std::pair<std::string, std::int64_t>, std::map<Size, Result>> tables_;
};

/// "{", "{\"version\"", "[", "[{": no other line of a log begins so.
bool begins_document(std::string_view line) {
  if (line.starts_with('[')) line.remove_prefix(1);
  line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
  if (!line.starts_with('{')) return line.empty();
  return line.starts_with("{\"") || line.find_last_not_of(" \t\r") == 0;
}

/// Where a document begins: at the first '{' that begins a line, or stands behind a prefix.
std::string without_prefix(const std::string& text) {
  static const std::string_view kSpaces = " \t\r";
  LinePrefix prefix;
  bool begun = false;
  std::string stripped;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t brace = line.find('{'), first = line.find_first_not_of(kSpaces);
    if (first != line.npos && begins_document(line.substr(first))) return text;
    if (!begun && brace != line.npos &&
        (line.substr(brace).starts_with("{\"") || line.find_last_not_of(kSpaces) == brace)) {
      prefix = LinePrefix(line.substr(0, brace));
      begun = true;
    }
    if (!begun) continue;
    if (const auto content = prefix.rest(line)) stripped.append(*content).append("\n");
  }
  return stripped;
}

bool is_of_nccl_tests(const json& page) {
  return page.contains("args") && page.at("args").is_array() && page.contains("config");
}

bool is_of_calibrate(const json& page) {
  const auto version = page.find("schema_version");
  return version != page.end() && version->is_string() &&
         version->get_ref<const std::string&>().starts_with("gradsync-calibration/");
}

}  // namespace

std::unique_ptr<ToolText> nccl_tests_text(ToolRows& found) {
  return std::make_unique<NcclTestsText>(found);
}

void read_documents(const std::string& file_text, ToolRows& found) {
  constexpr int kMostFailures = 100;
  const std::string text = without_prefix(file_text);
  std::istringstream in(text);
  int failures = 0;
  RcclTestsJson rccl_tests;
  for (std::size_t at = 0; at < text.size() && failures < kMostFailures;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t first = text.find_first_not_of(" \t\r", at);
    std::size_t next = end + 1;
    if (first < end && begins_document(std::string_view(text).substr(first, end - first))) {
      try {
        json page;
        in.clear();
        in.seekg(static_cast<std::streamoff>(first));
        in >> page;
        in.clear();
        next = static_cast<std::size_t>(in.tellg());
        next = std::min(text.find('\n', next), text.size()) + 1;
        for (const json& one : page.is_array() ? page : json::array({page})) {
          if (!is_of_calibrate(one) && !is_of_nccl_tests(one) && !RcclTestsJson::is_one(one))
            continue;
          found.known = true;
          if (RcclTestsJson::is_one(one))
            rccl_tests.take(one);
          else
            is_of_calibrate(one) ? add_calibration(one, found) : add_nccl_tests(one, found);
        }
      } catch (const json::exception& error) {
        if (failures++ == 0)
          found.remarks.push_back(fmt::format("what begins at byte {} is not nccl-tests' JSON: {}",
                                              first + 1, error.what()));
      } catch (const Error& error) {
        found.remarks.push_back(fmt::format("the JSON that begins at byte {} is left out: {}",
                                            first + 1, error.what()));
      }
    }
    at = next;
  }
  rccl_tests.finish(found);
}

}  // namespace gradsync::report
