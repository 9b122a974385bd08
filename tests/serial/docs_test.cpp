// What the documents say of the code, compared with the code.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "record/hdf5_layout.h"
#include "record/journal.h"
#include "record/quantization_fields.h"
#include "record/run.h"
#include "serial/source_folder.h"
#include "test_folder.h"

using namespace gradsync;

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

const fs::path kRoot = source_folder();

std::string text_of(const fs::path& path) {
  std::ifstream file(kRoot / path);
  REQUIRE_MESSAGE(file.good(), "tests run in the repository's root; missing: " << path.string());
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What the first group of an expression finds, in order.
std::vector<std::string> all_matches(const std::string& text, const std::string& expression) {
  const std::regex wanted(expression);
  std::vector<std::string> found;
  for (std::sregex_iterator at(text.begin(), text.end(), wanted), end; at != end; ++at)
    found.push_back((*at)[1].str());
  return found;
}

std::string first_match(const std::string& text, const std::string& expression) {
  const auto found = all_matches(text, expression);
  REQUIRE_MESSAGE(!found.empty(), "nothing fits " << expression);
  return found.front();
}

std::string section(const std::string& text, const std::string& heading) {
  const auto begin = text.find("\n## " + heading + "\n");
  REQUIRE_MESSAGE(begin != std::string::npos, "no section " << heading);
  return text.substr(begin, text.find("\n## ", begin + 1) - begin);
}

/// Words between backticks.
Names quoted(const std::string& text) {
  const auto found = all_matches(text, "`([^`]+)`");
  return {found.begin(), found.end()};
}

std::string joined(const auto& names) {
  std::string text;
  for (const auto& name : names)
    text += (text.empty() ? "" : " ") + std::string(name);
  return text;
}

/// "time/iteration" and the like, from rows "| `/time/<phase>` |" and "| `/loss`, `/correct` |":
/// a name without a slash is in the group of the one before it.
Names documented_paths(const std::string& content) {
  Names paths;
  for (const std::string& cell : all_matches(content, "\n\\| ((?:`[^`]+`(?:, )?)+) \\|")) {
    std::string group;
    for (const std::string& name : all_matches(cell, "`/?([^`]+)`")) {
      const bool whole = cell.find("`/" + name + "`") != std::string::npos;
      if (whole) group = name.substr(0, name.rfind('/') + 1);
      paths.insert(whole ? name : group + name);
    }
  }
  return paths;
}

template <typename Fields>
void add_paths(Names& paths, const Fields& fields) {
  for (const auto& field : fields)
    paths.insert(field.spec.path);
}

/// Of all data sets that come in families.
Names recorded_paths() {
  Names paths;
  add_paths(paths, iteration_fields());
  add_paths(paths, bucket_fields());
  add_paths(paths, epoch_fields());
  add_paths(paths, epoch_counts());
  add_paths(paths, calibration_texts());
  add_paths(paths, calibration_counts());
  add_paths(paths, calibration_times());
  add_paths(paths, window_counts());
  add_paths(paths, window_times());
  add_paths(paths, clock_fields());
  add_paths(paths, resume_counts());
  add_paths(paths, resume_texts());
  add_paths(paths, device_counts());
  add_paths(paths, device_numbers());
  add_paths(paths, traffic_total_fields());
  add_paths(paths, replica_texts());
  add_paths(paths, replica_numbers());
  for (const DatasetSpec& spec :
       {learning_rate_spec(), warmup_spec(), bucket_bytes_spec(), bucket_kind_spec(),
        calibration_collective_spec(), calibration_of_bucket_spec(), window_kind_spec(),
        clock_when_spec(), clock_at_spec(), traffic_when_spec(), traffic_iterations_spec()})
    paths.insert(spec.path);
  for (const auto& field : rank_fields())
    if (!field.spec.path.starts_with("time/") || field.spec.path == "time/begin")
      paths.insert(field.spec.path);
  paths.insert({"correct", "time/<phase>", "traffic/<category>"});
  return paths;
}

/// Those of a set that another one lacks.
std::string lacking(const Names& all, const Names& in) {
  Names missing;
  for (const std::string& name : all)
    if (!in.contains(name)) missing.insert(name);
  return joined(missing);
}

}  // namespace

TEST_CASE("docs/file-format.md: schema, versions and types of records are those of the code") {
  const std::string doc = text_of("docs/file-format.md");
  CHECK(first_match(doc, "One run is one HDF5 file, `([^`]+)`") == schema_text(kRunSchema));
  CHECK(first_match(doc, "`([^`]+)` is read\\.") == schema_text(kOldestRunSchema));
  const std::string journal = section(doc, "The journal");
  const std::string newest = std::to_string(kJournalVersion);
  CHECK(first_match(journal, "uint32 version \\((\\d+)\\)") == newest);
  CHECK(first_match(journal, "Versions (\\d+ and \\d+) are read") ==
        std::to_string(kOldestJournalVersion) + " and " + newest);
  CHECK(first_match(journal, "and (\\d+) is appended to") == newest);

  // kInfo = 1,  ///< RunInfo, JSON; ...
  const std::string header = text_of("src/record/journal.h");
  std::vector<std::string> in_code, in_doc;
  const std::regex record("\n  k(\\w+) = (\\d+),? +///< \\w+(?: and \\w+)?, (JSON|binary)");
  for (std::sregex_iterator at(header.begin(), header.end(), record), end; at != end; ++at) {
    std::string name = std::regex_replace((*at)[1].str(), std::regex("(.)([A-Z])"), "$1 $2");
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    in_code.push_back((*at)[2].str() + " " + name + " " + (*at)[3].str());
  }
  const std::regex row("\n\\| (\\d+) \\| ([a-z ]+) \\| (JSON|binary)");
  for (std::sregex_iterator at(journal.begin(), journal.end(), row), end; at != end; ++at)
    in_doc.push_back((*at)[1].str() + " " + (*at)[2].str() + " " + (*at)[3].str());
  CHECK(joined(in_doc) == joined(in_code));
  CHECK(in_code.size() == all_matches(header, "\n  k\\w+ = (\\d+)").size());
}

TEST_CASE("docs/file-format.md: a row of the journal holds what the code writes") {
  const std::string doc = text_of("docs/file-format.md");
  const std::string row =
      first_match(section(doc, "The journal"), "\\| 2 \\| iteration \\|([^|]+)");
  CHECK(first_match(row, "(\\d+) phases") == std::to_string(kPhases));
  CHECK(first_match(row, "(\\d+) traffic categories") == std::to_string(kRowCategories));
  std::string times;
  for (const auto& field : bucket_fields())
    times += (times.empty() ? "" : ", ") + field.spec.path.substr(std::strlen("bucket/"));
  CHECK(first_match(row, "b × float64 ([a-z, ]+)\\)") == times);
}

TEST_CASE("docs/file-format.md: phases, categories, kinds and data sets are those of the code") {
  const std::string content = section(text_of("docs/file-format.md"), "Content");
  CHECK(first_match(content, "`/time/<phase>`[^`]+`\\[I, R\\]` \\| `([a-z_ ]+)`") ==
        joined(kPhaseNames));
  CHECK(first_match(content, "`/traffic/<category>`[^:]+: `([a-z ]+)`") ==
        joined(std::span(kTrafficNames).first(kRowCategories)));
  CHECK(first_match(content, "categories in order: `([a-z ]+)`") == joined(kTrafficNames));
  for (std::size_t kind = 0; kind < kCollectiveNames.size(); ++kind)
    CHECK(content.find(std::to_string(kind) + " " + std::string(kCollectiveNames[kind])) !=
          std::string::npos);
  const Names documented = documented_paths(content), recorded = recorded_paths();
  CHECK(lacking(recorded, documented) == "");
  Names families;
  for (const std::string& path : documented)
    if (!path.starts_with("quantize/") && !path.starts_with("topology/") &&
        !path.starts_with("verification/") && path.find('<') == std::string::npos)
      families.insert(path);
  // Written one by one.
  for (const char* path : {"epoch/number", "epoch/iterations", "epoch/order_digest"})
    families.erase(path);
  CHECK(lacking(families, recorded) == "");
}

TEST_CASE("docs/numbers.md explains every phase") {
  const std::string doc = section(text_of("docs/numbers.md"), "One iteration of one rank");
  const Names named = quoted(doc);
  for (const std::string_view phase : kPhaseNames) {
    CAPTURE(phase);
    CHECK(named.contains(std::string(phase)));
  }
}
