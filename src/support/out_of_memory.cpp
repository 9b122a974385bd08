#include "support/out_of_memory.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace gradsync {

namespace {

/// In lower case. cuDNN, cuSOLVER, cuSPARSE and cuFFT name their codes as cuBLAS does; cuDNN 9 has
/// one that is longer.
constexpr std::array<std::string_view, 9> kWords = {
    "out of memory",         "out_of_memory",          "not enough memory",
    "can't allocate memory", "cannot allocate memory", "errormemoryallocation",
    "_alloc_failed",         "_allocation_failed",     "failed to cuda malloc"};

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

bool tells_out_of_memory(std::string_view text) {
  // LibTorch appends where it was thrown: files and functions with names of their own.
  const std::string lower = lower_case(text.substr(0, text.find("\nException raised from ")));
  return std::any_of(kWords.begin(), kWords.end(), [&](std::string_view words) {
    return lower.find(words) != std::string::npos;
  });
}

}  // namespace gradsync
