#pragma once

#include <string>
#include <string_view>

namespace gradsync::report {

/// `data` in gzip's format (RFC 1952), without name and time, so that the same data give the same
/// bytes.
std::string gzipped(std::string_view data);

}  // namespace gradsync::report
