// SPDX-License-Identifier: BSD-3-Clause
#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"
#include "check/check.h"

namespace gradsync::check {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSampledBytes = std::size_t{4} << 20;
constexpr int kMostAncestors = 8;

std::size_t padded_to_4(std::size_t bytes) {
  return (bytes + 3) / 4 * 4;
}

/// The build ID in one segment of notes, or empty.
std::string build_id_in(std::span<const unsigned char> notes) {
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes.data(), sizeof head);
    const std::size_t name = padded_to_4(head.n_namesz), value = padded_to_4(head.n_descsz);
    const auto rest = notes.subspan(sizeof head);
    if (name + value > rest.size()) return "";
    const bool is_gnu = head.n_namesz == 4 && std::memcmp(rest.data(), "GNU", 4) == 0;
    if (is_gnu && head.n_type == NT_GNU_BUILD_ID)
      return hex_digits(rest.subspan(name, head.n_descsz));
    notes = rest.subspan(name + value);
  }
  return "";
}

std::string build_id(const dl_phdr_info& object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const auto& segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const unsigned char*>(object.dlpi_addr + segment.p_vaddr);
    const std::string id = build_id_in({notes, segment.p_memsz});
    if (!id.empty()) return id;
  }
  return "";
}

/// Different builds differ in size or in their tables of symbols, which stand in front.
std::string sample_of(const std::string& path) {
  const MappedFile file(path);
  const auto front = file.bytes().first(std::min(kSampledBytes, file.bytes().size()));
  return fmt::format("{} bytes, CRC-32C {:08x}", file.bytes().size(), crc32c(front));
}

std::string identity(const dl_phdr_info& object, const std::string& path) {
  const std::string id = build_id(object);
  if (!id.empty()) return "build ID " + id;
  try {
    return sample_of(path);
  } catch (const std::exception&) {
    return "cannot be read";
  }
}

/// dlpi_name is empty for the program itself.
std::string real_path(const char* name) {
  std::error_code ignored;
  const fs::path given = *name == '\0' ? fs::path("/proc/self/exe") : fs::path(name);
  const fs::path real = fs::canonical(given, ignored);
  return real.empty() ? given.string() : real.string();
}

struct Search {
  std::string stem;
  std::vector<LoadedFile> found;
};

int look_at(dl_phdr_info* object, std::size_t, void* data) {
  auto& search = *static_cast<Search*>(data);
  const std::string_view path = object->dlpi_name;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  if (search.stem.empty() ? !path.empty() : !name.starts_with(search.stem)) return 0;
  const std::string real = real_path(object->dlpi_name);
  for (const LoadedFile& known : search.found)
    if (known.path == real) return 0;
  search.found.push_back({real, identity(*object, real)});
  return 0;
}

/// Parent's id of a process, or 0.
int parent_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const auto after_name = line.rfind(')');
  if (after_name == std::string::npos || line.size() < after_name + 4) return 0;
  return std::atoi(line.c_str() + after_name + 4);
}

std::string path_in_process(int pid, const std::string& stem) {
  // In another mount namespace the same path may be another file.
  if (namespace_of("mnt", std::to_string(pid)) != namespace_of("mnt")) return "";
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.rfind('/'), begin = line.find('/');
    if (slash != std::string::npos && line.compare(slash + 1, stem.size(), stem) == 0)
      return line.substr(begin);
  }
  return "";
}

}  // namespace

std::vector<LoadedFile> loaded_files(const std::string& stem) {
  Search search{stem, {}};
  dl_iterate_phdr(look_at, &search);
  return search.found;
}

std::string loaded_path(const std::string& stem) {
  const auto files = loaded_files(stem);
  return files.empty() ? "" : files.front().path;
}

std::string path_in_ancestors(const std::string& stem) {
  int pid = getppid();
  for (int i = 0; i < kMostAncestors && pid > 1; ++i, pid = parent_of(pid)) {
    const std::string path = path_in_process(pid, stem);
    if (!path.empty()) return path;
  }
  return "";
}

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
