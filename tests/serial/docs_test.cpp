// What the documents say of the code, compared with the code.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

#include "record/journal.h"
#include "record/run.h"
#include "serial/expect_error.h"
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

/// The code of src and analysis by file name, a header with its source.
std::map<std::string, std::string> code_by_name() {
  std::map<std::string, std::string> code;
  for (const char* folder : {"src", "analysis"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder))
      if (entry.is_regular_file()) {
        const fs::path file = fs::relative(entry.path(), kRoot);
        code[fs::path(file).replace_extension().string()] += text_of(file);
      }
  return code;
}

}  // namespace

TEST_CASE("docs/file-format.md: schema and versions are those of the code") {
  const std::string doc = text_of("docs/file-format.md");
  CHECK(first_match(doc, "One run is one HDF5 file, `([^`]+)`") == schema_text(kRunSchema));
  CHECK(first_match(doc, "`([^`]+)` is read\\.") == schema_text(kOldestRunSchema));
  const std::string journal = section(doc, "The journal");
  const std::string newest = std::to_string(kJournalVersion);
  CHECK(first_match(journal, "uint32 version \\((\\d+)\\)") == newest);
  CHECK(first_match(journal, "Versions (\\d+ and \\d+) are read") ==
        std::to_string(kOldestJournalVersion) + " and " + newest);
  CHECK(first_match(journal, "and (\\d+) is appended to") == newest);
}

TEST_CASE("docs/numbers.md explains every phase") {
  const std::string doc = section(text_of("docs/numbers.md"), "One iteration of one rank");
  const Names named = quoted(doc);
  for (const std::string_view phase : kPhaseNames) {
    CAPTURE(phase);
    CHECK(named.contains(std::string(phase)));
  }
}

// Whether something new takes its own file and one line: what is there already is named by the code
// in its file alone, and in its list.
TEST_CASE("docs: a registered thing is defined in one file, and no other code names it") {
  struct Registry {
    std::string list, folder, prefix, suffix;
  };
  const Registry registries[] = {
      {"src/options/modes.def", "src/sync", "make_", ""},
      {"src/options/optimizers.def", "src/optim", "make_", ""},
      {"src/options/networks.def", "src/model", "make_", ""},
      {"src/collectives/operations.def", "src/collectives", "make_", "_operation"},
      {"src/check/checks.def", "src/check", "check_", ""},
      {"analysis/tables/tables.def", "analysis/tables", "make_", "_table"},
      {"analysis/plots/plots.def", "analysis/plots", "make_", "_plot"},
      {"analysis/published/checks.def", "analysis/published", "check_", ""},
      {"analysis/published/published_tables.def", "analysis/published", "make_published_",
       "_table"}};
  const std::string table = section(text_of("docs/architecture.md"), "Where something new goes");
  const auto code = code_by_name();
  for (const Registry& one : registries) {
    const std::regex row("`" + one.folder + "/[^|]*\\| `" + one.list);
    CHECK_MESSAGE(std::regex_search(table, row), "no row of the table has " << one.list);
    const auto ids = all_matches(text_of(one.list), "\n[A-Z_]+\\((\\w+)");
    REQUIRE(ids.size() > 2);
    for (const std::string& id : ids) {
      const std::string function = one.prefix + id + one.suffix + "(";
      Names named;
      for (const auto& [name, text] : code)
        if (contains(text, " " + function)) named.insert(name);
      CHECK_MESSAGE(
          (named.size() == 1 && named.begin()->starts_with(one.folder)),
          function << ") is named in " << named.size() << " places, not in one of " << one.folder);
    }
  }
}
