// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace gradsync {

/// The git revision the build was made from, or "unknown" (macro GRADSYNC_REVISION).
std::string revision();

/// "0.3.0"; "0.4.0-dev" between releases.
std::string version_number();

/// The text of --version: "gradsync-train 0.3.0 (revision 1a2b3c4)" and a newline.
std::string version_text(const std::string& program);

}  // namespace gradsync
