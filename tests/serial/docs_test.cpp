// SPDX-License-Identifier: BSD-3-Clause
// What the documents say of the code, compared with the code.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table.h"
#include "record/journal.h"
#include "record/run.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/programs.h"
#include "serial/test_folder.h"
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

/// What users read, relative to the root: `ending` of a folder's files, or all.
std::vector<fs::path> files_in(const fs::path& folder, const std::string& ending = "") {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(kRoot / folder))
    if (entry.is_regular_file() && entry.path().filename().string().ends_with(ending))
      files.push_back(fs::relative(entry.path(), kRoot));
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> documents() {
  std::vector<fs::path> files = files_in("", ".md");
  for (const fs::path& file : files_in("docs", ".md"))
    files.push_back(file);
  for (const char* study : {"bench", "example", "published", "soak"})
    files.push_back(fs::path("results") / study / "README.md");
  return files;
}

/// The anchor of a heading, as GitHub and its like make it.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading)
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ')
      anchor += '-';
  return anchor;
}

bool has_anchor(const fs::path& file, const std::string& anchor) {
  for (const std::string& line : lines_of(text_of(file)))
    if (line.starts_with("#") && anchor_of(line.substr(line.find(' ') + 1)) == anchor) return true;
  return contains(text_of(file), "id=\"" + anchor + "\"");
}

/// The words of each command of a program in the code blocks of a document, from the program on and
/// up to a comment, a pipe or another command; none with an omission.
std::vector<std::vector<std::string>> documented_commands(const std::string& document) {
  std::vector<std::vector<std::string>> commands;
  bool code = false;
  std::string joined;
  for (const std::string& line : lines_of(document)) {
    if (line.starts_with("```")) code = !code;
    if (!code) continue;
    joined += line;
    if (joined.ends_with("\\")) {
      joined.back() = ' ';
      continue;
    }
    std::istringstream words(std::exchange(joined, ""));
    std::vector<std::string> command;
    for (std::string word; words >> word;) {
      if (word == "#" || word == "|" || word == ">" || word == "&&" || word == "…") break;
      if (!command.empty() || fs::path(word).filename().string().starts_with("gradsync-"))
        command.push_back(word);
    }
    if (!command.empty() && !command[0].ends_with(":")) commands.push_back(command);
  }
  return commands;
}

}  // namespace

TEST_CASE("docs: the README fits 120 lines, and a line of prose 110 characters") {
  CHECK(lines_of(text_of("README.md")).size() <= 120);
  for (const fs::path& file : documents())
    for (const std::string& line : lines_of(text_of(file)))
      if (!line.starts_with("|"))
        CHECK_MESSAGE(display_width(line) <= 110, file.string() << ": " << line);
}

TEST_CASE("docs: every relative link leads to a file, and its anchor to a heading") {
  for (const fs::path& file : documents()) {
    CAPTURE(file);
    for (const std::string& link : all_matches(text_of(file), "\\]\\(([^)\\s]+)\\)")) {
      if (contains(link, "://")) continue;
      const auto mark = link.find('#');
      const fs::path target = mark == 0 ? file : file.parent_path() / link.substr(0, mark);
      CHECK_MESSAGE(fs::exists(kRoot / target), link);
      if (mark != std::string::npos && fs::exists(kRoot / target))
        CHECK_MESSAGE(has_anchor(target, link.substr(mark + 1)), link);
    }
  }
}

TEST_CASE("docs: every documented command has options and values that its program takes") {
  const CleanEnvironment environment;
  std::size_t checked = 0;
  for (const fs::path& file : documents())
    for (auto words : documented_commands(text_of(file))) {
      const std::string name = fs::path(words[0]).filename().string();
      CAPTURE(file);
      CAPTURE(fmt::format("{}", fmt::join(words, " ")));
      // What follows -- is the trainer's.
      const auto dashes = std::find(words.begin(), words.end(), "--");
      std::vector<std::string> rest(dashes, words.end());
      words.erase(dashes, words.end());
      for (const auto& [help, options, read] : programs()) {
        const bool compare = words.size() > 1 && words[1] == "compare";
        if (help.name != name || compare) continue;
        std::vector<const char*> argv;
        for (const std::string& word : words)
          argv.push_back(word.c_str());
        CHECK_NOTHROW(read(
            resolve_options(options, static_cast<int>(argv.size()), argv.data(), "FILES").values));
        ++checked;
      }
      if (rest.empty()) continue;
      std::vector<const char*> argv;
      for (const std::string& word : rest)
        argv.push_back(word.c_str());
      CHECK_NOTHROW(
          resolve_options(train_option_table(), static_cast<int>(argv.size()), argv.data()));
    }
  CHECK(checked >= 40);
}

TEST_CASE("docs/file-format.md: schema and versions are those of the code") {
  const std::string doc = text_of("docs/file-format.md");
  CHECK(first_match(doc, "One run is one HDF5 file, `([^`]+)`") == schema_text(kRunSchema));
  CHECK(first_match(doc, "`([^`]+)` is read\\.") == schema_text(kOldestRunSchema));
  const std::string journal = section(doc, "The journal");
  const std::string newest = std::to_string(kJournalVersion);
  CHECK(first_match(journal, "uint32 version \\((\\d+)\\)") == newest);
  CHECK(first_match(journal, "Versions (\\d+ to \\d+) are read") ==
        std::to_string(kOldestJournalVersion) + " to " + newest);
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
TEST_CASE("messages: a number that may be 1 stands before its noun by count_text") {
  // Behind these words the plural is right, or the number is never 1.
  const std::string allowed = "of all most the these than fill ";
  const std::regex plural(
      "(\\w*) ?\\{\\} (ranks|threads|cells|images|hosts|steps|buckets|cores|samples|"
      "checkpoints)\\b");
  for (const auto& code : code_by_name()) {
    const auto& [name, text] = code;
    if (!name.starts_with("src/") || name.starts_with("src/sweep/")) continue;
    for (std::sregex_iterator at(text.begin(), text.end(), plural), end; at != end; ++at)
      CHECK_MESSAGE(
          ((*at)[1].length() > 0 && contains(allowed, (*at)[1].str() + " ")),
          code.first << ": \"" << at->str() << "\" may say \"1 " << (*at)[2].str() << "\"");
  }
}

TEST_CASE("docs: a registered thing is defined in one file, and no other code names it") {
  struct Registry {
    std::string list, folder, prefix, suffix;
  };
  const Registry registries[] = {
      {"src/options/modes.def", "src/sync", "make_", ""},
      {"src/options/optimizers.def", "src/optim", "make_", ""},
      {"src/options/networks.def", "src/model", "make_", ""},
      {"src/check/checks.def", "src/check", "check_", ""},
      {"analysis/tables/tables.def", "analysis/tables", "make_", "_table"},
      {"analysis/plots/plots.def", "analysis/plots", "make_", "_plot"},
      {"analysis/verdict/questions.def", "analysis/verdict", "", "_clauses"}};
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
