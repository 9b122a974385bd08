// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer's side of the targets: build/fuzz/fuzz --target=NAME [options of libFuzzer] [corpus...]

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "fuzz/targets.h"

namespace {

const gradsync::fuzz::Target* chosen = nullptr;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--target=";
  for (int i = 1; i < *argc; ++i)
    for (const auto& target : gradsync::fuzz::targets())
      if ((*argv)[i] == std::string(kOption) + std::string(target.name)) chosen = &target;
  if (chosen) return 0;
  std::cerr << "usage: fuzz --target=NAME [libFuzzer's options] [corpus...]\ntargets:";
  for (const auto& target : gradsync::fuzz::targets())
    std::cerr << ' ' << target.name;
  std::cerr << '\n';
  std::exit(64);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  gradsync::fuzz::run(*chosen, {data, bytes});
  return 0;
}
