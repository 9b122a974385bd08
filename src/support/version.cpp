#include "support/version.h"

#ifndef GRADSYNC_REVISION
#define GRADSYNC_REVISION "unknown"
#endif

namespace gradsync {

namespace {
constexpr const char* kVersion = "0.1.0";
}

std::string revision() {
  return GRADSYNC_REVISION;
}

std::string version_text(const std::string& program) {
  return program + " " + kVersion + " (revision " + revision() + ")\n";
}

}  // namespace gradsync
