#pragma once

#include <filesystem>

namespace gradsync {

/// The root of the checkout.
inline std::filesystem::path source_folder() {
  return std::filesystem::path(__FILE__).parent_path() / "../..";
}

}  // namespace gradsync
