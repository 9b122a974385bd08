// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "base/cli/options.h"
#include "base/file.h"
#include "clean_environment.h"
#include "expect_error.h"
#include "test_folder.h"

// What the tests of options share.
namespace gradsync {

/// A variable for the length of a test; what it was comes back.
class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Variable() { before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

/// A folder for files, and neither variables nor a site file of the person who runs the tests.
struct Sandbox {
  CleanEnvironment environment;
  TestFolder folder;
  Variable no_site{"XDG_CONFIG_HOME", folder.path().string()};

  std::string file(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text);
    return path.string();
  }
};

inline OptionTable small_table() {
  return {{"rate", "X", "0.5", "a number from 0 to 1", "Numbers"},
          {"count", "N", "3", "a whole number", "Numbers"},
          {"cap", "SIZE", "1MiB", "a size", "Numbers"},
          {"wait", "TIME", "10s", "a time", "Numbers"},
          {"mode", "a|b", "a", "a choice", "Words"},
          {"note", "TEXT", "", "any text", "Words"},
          {"set", "K=V", "", "may be repeated", "Words", true},
          {"augment", "", "true", "a switch that is on", "Words"},
          {"quick", "", "false", "a switch that is off", "Words"}};
}

inline ParsedCommandLine resolve(std::vector<const char*> args,
                                 const OptionTable& table = small_table(),
                                 const std::string& positional = {},
                                 Foreign foreign = Foreign::kIgnore) {
  args.insert(args.begin(), "program");
  return resolve_options(table, static_cast<int>(args.size()), args.data(), positional, foreign);
}

inline void require_same_values(const OptionValues& found, const OptionValues& expected) {
  REQUIRE(found.size() == expected.size());
  for (const auto& entry : expected)
    CHECK_MESSAGE(found.at(entry.first).value == entry.second.value, entry.first);
}

}  // namespace gradsync
