// SPDX-License-Identifier: BSD-3-Clause
#include "base/version.h"

#ifndef GRADSYNC_REVISION
#define GRADSYNC_REVISION "unknown"
#endif

namespace gradsync {

std::string version_number() {
  return "0.4.0-dev";
}

std::string revision() {
  return GRADSYNC_REVISION;
}

std::string version_text(const std::string& program) {
  return program + " " + version_number() + " (revision " + revision() + ")\n";
}

}  // namespace gradsync
