// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <set>

#include <doctest/doctest.h>

#include "base/file.h"
#include "fuzz/targets.h"

using namespace gradsync;

// The inputs that fuzzing began with or found something with (tests/fuzz): each target reads them
// without a crash, a hang or an exception other than an Error.

TEST_CASE("fuzz: every target reads its corpus") {
  const std::filesystem::path corpus = "build/tests/corpus";
  std::set<std::string> names;
  for (const fuzz::Target& target : fuzz::targets()) {
    CAPTURE(target.name);
    names.emplace(target.name);
    std::size_t inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(corpus / target.name)) {
      CAPTURE(entry.path().string());
      const std::string content = read_text_file(entry.path());
      CHECK_NOTHROW(fuzz::run(
          target, {reinterpret_cast<const std::uint8_t*>(content.data()), content.size()}));
      ++inputs;
    }
    CHECK(inputs > 0);
  }
  for (const auto& entry : std::filesystem::directory_iterator(corpus))
    CHECK_MESSAGE(names.contains(entry.path().filename()), entry.path().string());
}
