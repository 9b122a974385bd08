#include <algorithm>
#include <map>
#include <set>

#include <fmt/ranges.h>

#include "check/facts.h"

namespace gradsync::check {

namespace {

const std::string kNone = "none";

/// The first number of `text` if it has points: "Open MPI v4.1.4" has 4.1.4; else empty.
std::string version_in(const std::string& text) {
  constexpr const char* kDigits = "0123456789";
  const auto begin = text.find_first_of(kDigits);
  if (begin == std::string::npos) return "";
  const auto end = text.find_first_not_of("0123456789.", begin);
  const std::string number = text.substr(begin, end - begin);
  return number.find('.') == std::string::npos ? "" : number;
}

std::string major_of(const std::string& version) {
  return version.substr(0, version.find('.'));
}

struct Mismatch {
  std::string text;
  bool major = false;
};

/// Libraries of rank 0 that are not of the version they were compiled against.
std::vector<Mismatch> mismatches(const std::vector<Library>& libraries) {
  std::vector<Mismatch> found;
  for (const Library& library : libraries) {
    const std::string compiled = version_in(library.compiled), loaded = version_in(library.loaded);
    if (compiled.empty() || loaded.empty() || compiled == loaded) continue;
    found.push_back({fmt::format("{}: compiled against {}, loaded {} ({})", library.name, compiled,
                                 loaded, library.path),
                     major_of(compiled) != major_of(loaded)});
  }
  return found;
}

std::string versions_text(const std::vector<Library>& libraries) {
  std::vector<std::string> texts;
  for (const Library& library : libraries)
    if (const std::string version = version_in(library.loaded); !version.empty())
      texts.push_back(library.name + " " + version);
  return fmt::format("{}", fmt::join(texts, ", "));
}

Finding judge_versions(const std::vector<Library>& libraries) {
  const std::string id = "libraries.versions";
  std::vector<std::string> texts;
  bool major = false;
  for (const Mismatch& mismatch : mismatches(libraries)) {
    texts.push_back(mismatch.text);
    major = major || mismatch.major;
  }
  if (texts.empty()) return passed(id, versions_text(libraries) + ", as compiled");
  const std::string fix =
      "load the modules of the build, or rebuild with the loaded ones: make clean all";
  return major ? failed(id, first_few(texts), fix) : warned(id, first_few(texts), fix);
}

const Library* named(const std::vector<Library>& libraries, const std::string& name) {
  const auto found = std::find_if(libraries.begin(), libraries.end(),
                                  [&](const Library& one) { return one.name == name; });
  return found == libraries.end() ? nullptr : &*found;
}

std::string described(const Library& library) {
  return library.path.empty() ? "not loaded" : fmt::format("{} {}", library.loaded, library.path);
}

/// What rank `other` has else than `first`, where `differ` holds.
template <typename Differ>
std::vector<std::string> differences(const Ranks<LibraryFacts>& ranks, Differ&& differ) {
  std::vector<std::string> texts;
  for (const Library& mine : ranks.front().facts.libraries)
    for (const auto& rank : ranks) {
      const Library* theirs = named(rank.facts.libraries, mine.name);
      if (theirs == nullptr || !differ(mine, *theirs)) continue;
      texts.push_back(fmt::format("{}: {} has {}, {} has {}", mine.name, ranks.front().name(),
                                  described(mine), rank.name(), described(*theirs)));
    }
  return texts;
}

Finding judge_equal(const Ranks<LibraryFacts>& ranks) {
  const std::string id = "libraries.equal";
  if (ranks.size() == 1) return skipped(id, "one rank");
  const auto other_builds = differences(ranks, [](const Library& a, const Library& b) {
    return a.identity != b.identity || a.loaded != b.loaded;
  });
  const std::string fix =
      "one installation for all nodes: the same modules, LD_LIBRARY_PATH and program everywhere "
      "(srun --export=ALL, mpirun -x LD_LIBRARY_PATH)";
  if (!other_builds.empty()) return failed(id, first_few(other_builds), fix);
  const auto other_paths =
      differences(ranks, [](const Library& a, const Library& b) { return a.path != b.path; });
  if (!other_paths.empty())
    return warned(id, "the same builds from different files: " + first_few(other_paths), fix);
  return passed(id, fmt::format("the same files on all {} ranks", ranks.size()));
}

/// Two entries of one name are two files in one process.
Finding judge_once(const Ranks<LibraryFacts>& ranks) {
  const std::string id = "libraries.once";
  std::vector<std::string> texts;
  for (const auto& rank : ranks) {
    std::map<std::string, std::vector<std::string>> paths;
    for (const Library& library : rank.facts.libraries)
      if (!library.path.empty()) paths[library.name].push_back(library.path);
    for (const auto& [name, files] : paths)
      if (files.size() > 1)
        texts.push_back(
            fmt::format("{} has {} from {}", rank.name(), name, fmt::join(files, " and ")));
  }
  if (texts.empty()) return passed(id, "no library is loaded twice");
  return warned(id, first_few(texts),
                "remove the second one from LD_LIBRARY_PATH or LD_PRELOAD; calls may reach either");
}

Table library_table(const std::vector<Library>& libraries) {
  Table table{"libraries", "Libraries of rank 0", {}, {}, {}};
  table.columns = {{"library", "library", true},
                   {"compiled", "compiled against", true},
                   {"loaded", "loaded", true},
                   {"path", "from", true}};
  for (const Library& library : libraries)
    table.add({library.name, library.compiled, library.loaded, library.path});
  return table;
}

}  // namespace

CheckResult judge_libraries(const Ranks<LibraryFacts>& ranks) {
  const auto& first = ranks.front().facts.libraries;
  return {{judge_versions(first), judge_equal(ranks), judge_once(ranks)}, {library_table(first)}};
}

CheckResult check_libraries(Job& job, const CheckOptions&) {
  return judged(job, LibraryFacts{job.libraries()},
                [](const Ranks<LibraryFacts>& ranks) { return judge_libraries(ranks); });
}

}  // namespace gradsync::check
