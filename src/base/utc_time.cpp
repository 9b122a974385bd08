#include "base/utc_time.h"

#include <ctime>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace gradsync {

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace gradsync
