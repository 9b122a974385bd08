#pragma once

#include <string>

namespace gradsync {

/// The time of day in ISO 8601, UTC, to the second: "2026-11-21T05:43:00Z".
std::string utc_now();

}  // namespace gradsync
