// SPDX-License-Identifier: BSD-3-Clause
// Which code of a program was executed: linked with a program that is compiled with
// -fsanitize-coverage=trace-pc. Each block of code then calls the function below.
//
//   CODE_COVERAGE=FOLDER   FOLDER/PROGRAM has one byte for each byte of the program's image, and 1
//                          where a block's call returns to; all processes of the program share it

#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>

#define NOT_TRACED __attribute__((no_sanitize_coverage))

namespace {

struct Image {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
};

/// Of the program itself, which dl_iterate_phdr names first.
NOT_TRACED int find_program(dl_phdr_info* info, std::size_t, void* found) {
  auto& image = *static_cast<Image*>(found);
  image.begin = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      image.bytes = std::max<std::size_t>(image.bytes,
                                          info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  return 1;
}

Image image;
std::uint8_t* executed = nullptr;

/// The file is mapped and shared, so that a killed process loses nothing.
__attribute__((constructor)) NOT_TRACED void open_file() {
  const char* folder = std::getenv("CODE_COVERAGE");
  if (folder == nullptr) return;
  dl_iterate_phdr(find_program, &image);
  const std::string path = std::string(folder) + '/' + program_invocation_short_name;
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0 || ftruncate(file, static_cast<off_t>(image.bytes)) != 0) std::abort();
  void* mapped = mmap(nullptr, image.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) std::abort();
  close(file);
  executed = static_cast<std::uint8_t*>(mapped);
}

}  // namespace

// NOLINTNEXTLINE(bugprone-reserved-identifier): the name that the compiler calls
extern "C" NOT_TRACED void __sanitizer_cov_trace_pc() {
  if (executed == nullptr) return;
  const auto offset = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)) - image.begin;
  if (offset < image.bytes) executed[offset] = 1;
}
