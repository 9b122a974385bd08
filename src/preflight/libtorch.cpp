#include "preflight/libtorch.h"

#include <ATen/Version.h>
#include <torch/version.h>

namespace gradsync::check {

namespace {

constexpr std::size_t kCommitShown = 8;

/// The value behind `key` in the library's own list of how it was built, or "unknown".
std::string build_setting(const std::string& config, const std::string& key) {
  const auto begin = config.find(key + "=");
  if (begin == std::string::npos) return "unknown";
  const auto value = begin + key.size() + 1;
  return config.substr(value, config.find_first_of(", \n", value) - value);
}

}  // namespace

std::string libtorch_compiled() {
  return TORCH_VERSION;
}

std::string libtorch_loaded() {
  const std::string config = at::show_config();
  return build_setting(config, "TORCH_VERSION") + " (" +
         build_setting(config, "COMMIT_SHA").substr(0, kCommitShown) + ")";
}

}  // namespace gradsync::check
