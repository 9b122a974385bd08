// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

/// While it lives, no GRADSYNC_* variable is set but those that the test sets; all come back as
/// they were. (`make test GRADSYNC_DATA=…` sets one for the tests of the data.)
class CleanEnvironment {
 public:
  CleanEnvironment() : before_(take()) {}
  ~CleanEnvironment() {
    take();
    for (const auto& setting : before_) {
      const std::size_t equals = setting.find('=');
      setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, 1);
    }
  }
  CleanEnvironment(const CleanEnvironment&) = delete;
  CleanEnvironment& operator=(const CleanEnvironment&) = delete;

 private:
  static std::vector<std::string> take() {
    std::vector<std::string> taken;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry)
      if (std::string(*entry).starts_with("GRADSYNC_")) taken.emplace_back(*entry);
    for (const auto& setting : taken)
      unsetenv(setting.substr(0, setting.find('=')).c_str());
    return taken;
  }

  std::vector<std::string> before_;
};
