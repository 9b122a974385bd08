#include "check/loaded_files.h"

#include <elf.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include <fmt/format.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"

namespace gradsync::check {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSampledBytes = std::size_t{4} << 20;
constexpr int kMostAncestors = 8;

std::string hex(std::span<const unsigned char> bytes) {
  std::string text;
  for (const unsigned char byte : bytes)
    text += fmt::format("{:02x}", byte);
  return text;
}

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
    if (is_gnu && head.n_type == NT_GNU_BUILD_ID) return hex(rest.subspan(name, head.n_descsz));
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

}  // namespace gradsync::check
