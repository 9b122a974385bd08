#pragma once

#include <string>

namespace gradsync::check {

/// LibTorch's version by its headers, and by the library that is loaded with the commit it was
/// built from: "2.11.0 (70d99e99)".
std::string libtorch_compiled();
std::string libtorch_loaded();

}  // namespace gradsync::check
