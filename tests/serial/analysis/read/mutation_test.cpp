// SPDX-License-Identifier: BSD-3-Clause
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include <doctest/doctest.h>

#include "analysis/read/run_set.h"
#include "analysis/tables/tables.h"
#include "base/error.h"
#include "base/file.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

// Damaged files: each is opened and all tables are made, in a child with limits of time and memory.
// It is refused with a message, or its tables are those of the sound file, or say what they lack.

namespace {

constexpr std::size_t kPerFormat = 2500;
constexpr std::size_t kPerChild = 100;
constexpr unsigned kSeconds = 5;
constexpr rlim_t kMemoryBytes = rlim_t{1} << 30;
constexpr std::uint64_t kSeed = 20260102;

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % std::max<std::size_t>(1, limit));
}

void flip_bytes(std::string& text, Random& random) {
  for (std::size_t left = 1 + below(random, 8); left > 0; --left)
    text[below(random, text.size())] = static_cast<char>(random());
}

void cut_off(std::string& text, Random& random) {
  text.resize(below(random, text.size()));
}

void insert_bytes(std::string& text, Random& random) {
  std::string more(1 + below(random, 64), '\0');
  for (char& c : more)
    c = static_cast<char>(random());
  text.insert(below(random, text.size()), more);
}

void remove_bytes(std::string& text, Random& random) {
  text.erase(below(random, text.size()), 1 + below(random, 64));
}

void overwrite_range(std::string& text, Random& random) {
  const std::size_t from = below(random, text.size());
  const std::size_t count = std::min(text.size() - from, 1 + below(random, 512));
  text.replace(from, count, count, below(random, 2) == 0 ? '\0' : '\xff');
}

/// The number of the mutation is its seed.
std::string mutated(const std::string& sound, std::size_t number) {
  constexpr void (*kKinds[])(std::string&, Random&) = {flip_bytes, flip_bytes,   overwrite_range,
                                                       cut_off,    insert_bytes, remove_bytes};
  Random random(kSeed + number);
  std::string text = sound;
  kKinds[number % std::size(kKinds)](text, random);
  return text;
}

/// All tables as text, and what is remarked.
struct Reported {
  std::string tables;
  bool remarks = false;
};

Reported report_of(const std::filesystem::path& path) {
  const RunSet set = load_runs({{path, true}});
  std::ostringstream text;
  for (const TableSpec& table : tables())
    print_text(text, table.make(set, {}));
  return {text.str(), !set.remarks.empty()};
}

/// What children tell; it lives in memory that they share with the test.
struct Tally {
  std::size_t at = 0;  ///< the mutation under way
  std::size_t refused = 0, same = 0, remarked = 0;
  std::size_t wrong = 0, last_wrong = 0;
};

class SharedTally {
 public:
  SharedTally()
      : place_(mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0)) {
    REQUIRE(place_ != MAP_FAILED);
    new (place_) Tally;
  }
  ~SharedTally() { munmap(place_, sizeof(Tally)); }
  SharedTally(const SharedTally&) = delete;
  SharedTally& operator=(const SharedTally&) = delete;
  Tally& operator*() const { return *static_cast<Tally*>(place_); }

 private:
  void* place_;
};

void count_wrong(Tally& tally) {
  ++tally.wrong;
  tally.last_wrong = tally.at;
}

void judge(const std::filesystem::path& path, const std::string& expected, Tally& tally) {
  try {
    const Reported reported = report_of(path);
    if (reported.remarks)
      ++tally.remarked;
    else if (reported.tables == expected)
      ++tally.same;
    else
      count_wrong(tally);
  } catch (const Error& error) {
    const bool honest =
        error.code() == ExitCode::kBadData || error.code() == ExitCode::kInputOutput;
    honest ? static_cast<void>(++tally.refused) : count_wrong(tally);
  }
}

/// Exits with 0; anything else is the end of a mutation that crashed, hung or took too much memory.
int run_children_part(const std::string& sound, const std::string& expected,
                      const std::filesystem::path& path, std::size_t first, Tally& tally) {
#ifndef __SANITIZE_ADDRESS__  // whose shadow is larger than any limit
  const rlimit memory{kMemoryBytes, kMemoryBytes};
  setrlimit(RLIMIT_AS, &memory);
#endif
  for (tally.at = first; tally.at < first + kPerChild; ++tally.at) {
    // Signals that end the child: by its own time, and where it waits for something.
    const itimerval own{{0, 0}, {kSeconds, 0}};
    setitimer(ITIMER_PROF, &own, nullptr);
    alarm(20 * kSeconds);
    write_plainly(path, mutated(sound, tally.at));
    judge(path, expected, tally);
  }
  return 0;
}

int status_of(const std::function<int()>& body) {
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (...) {  // reported as 99, with the mutation's number
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

void mutate_and_judge(const std::filesystem::path& source, const std::filesystem::path& target) {
  const std::string sound = read_text_file(source);
  write_plainly(target, sound);
  const Reported expected = report_of(target);
  REQUIRE_FALSE(expected.tables.empty());
  const SharedTally tally;
  for (std::size_t first = 0; first < kPerFormat; first += kPerChild) {
    const int status =
        status_of([&] { return run_children_part(sound, expected.tables, target, first, *tally); });
    INFO("mutation " << (*tally).at << ", seed " << kSeed + (*tally).at << ", wait status "
                     << status);
    REQUIRE(status == 0);
  }
  INFO("last wrong mutation " << (*tally).last_wrong);
  MESSAGE(kPerFormat << " mutations: " << (*tally).refused << " refused, " << (*tally).remarked
                     << " with a remark, " << (*tally).same << " without effect");
  CHECK((*tally).wrong == 0);
  CHECK((*tally).refused > kPerFormat / 10);
  CHECK((*tally).refused + (*tally).remarked + (*tally).same == kPerFormat);
}

}  // namespace

TEST_CASE("mutation: 2,500 damaged run files end in a message or in the tables of the sound one") {
  const TestFolder folder;
  write_sample(folder / "sound.h5", {});
  mutate_and_judge(folder / "sound.h5", folder / "run.h5");
}

TEST_CASE(
    "mutation: 2,500 damaged journals end in a message or in tables that say what is lacking") {
  const TestFolder folder;
  {
    Recorder recorder(folder / "run.h5", sample_info({}));
    record_sample(recorder, {});
    recorder.sync();
  }
  std::filesystem::rename(folder / "run.h5.journal", folder / "sound.journal");
  mutate_and_judge(folder / "sound.journal", folder / "run.h5.journal");
}
