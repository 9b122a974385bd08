#include "support/fast_network.h"

#include <filesystem>

namespace gradsync {

namespace {

bool holds_anything(const char* folder) {
  std::error_code error;
  const std::filesystem::directory_iterator devices(folder, error);
  return !error && devices != std::filesystem::directory_iterator();
}

}  // namespace

bool has_infiniband() {
  return holds_anything("/sys/class/infiniband");
}

bool has_fast_network() {
  return has_infiniband() || holds_anything("/sys/class/cxi");
}

}  // namespace gradsync
