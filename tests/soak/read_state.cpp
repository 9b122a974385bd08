// SPDX-License-Identifier: BSD-3-Clause
// Reads what a crash may have left of a run, for tests/soak/crash.py.
//
//   read_state <FOLDERS      a folder a line; for each, one line of JSON: an object from the path
//   of
//                            each run file, journal and checkpoint below the folder to what it
//                            holds, or to why it is refused
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint_file.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_info.h"
#include "record/journal.h"
#include "record/reader.h"

using namespace gradsync;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// One number a row: it covers this row and all before it, so two runs agree up to a row if they
/// have the same number there.
json digests_of(RunReader& run) {
  std::vector<std::uint32_t> digests;
  std::uint32_t digest = 0;
  const std::size_t block = rows_per_block(run.ranks(), run.index().buckets);
  for (std::size_t first = 0; first < run.iterations(); first += block)
    for (const IterationRow& row : run.rows(first, std::min(block, run.iterations() - first)))
      digests.push_back(digest = crc32c(encode(row), digest));
  return digests;
}

/// What a run computed, without the times it took: a run that was resumed has the same number.
std::uint32_t numbers_of(RunReader& run) {
  std::uint32_t digest = 0;
  const auto add = [&](auto number) {
    digest = crc32c(std::as_bytes(std::span(&number, 1)), digest);
  };
  for (std::size_t i = 0; i < run.iterations(); ++i) {
    const IterationRow row = run.rows(i, 1).front();
    for (const std::int64_t number : {row.iteration, row.epoch, row.step, row.samples})
      add(number);
    add(row.learning_rate);
    for (const RankIteration& rank : row.ranks) {
      add(rank.loss);
      add(rank.correct);
    }
  }
  return digest;
}

json run_in(const fs::path& path) {
  const auto run = open_run(path);
  return {{"run_id", run->info().run_id},     {"status", status_name(run->status())},
          {"remarks", run->remarks().size()}, {"epochs", run->epochs().size()},
          {"numbers", numbers_of(*run)},      {"rows", digests_of(*run)}};
}

/// The bytes of a journal that are whole, sound records: what a checkpoint needs of it.
std::int64_t sound_bytes(const fs::path& journal) {
  JournalReader reader(journal);
  while (reader.next()) {
  }
  return reader.position();
}

json checkpoint_in(const fs::path& path) {
  const CheckpointFile file(path);
  const CheckpointInfo info = from_metadata(file.metadata());
  return {{"run_id", info.run_id},
          {"iteration", info.iteration},
          {"journal_bytes", info.journal_bytes}};
}

json content_of(const fs::path& path) {
  try {
    if (path.extension() == ".safetensors") return checkpoint_in(path);
    json run = run_in(path);
    if (path.extension() == ".journal") run["sound_bytes"] = sound_bytes(path);
    return run;
  } catch (const Error& error) {
    return {{"refused", error.what()}, {"code", static_cast<int>(error.code())}};
  }
}

json state_in(const fs::path& folder) {
  json state = json::object();
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension();
    if (entry.is_regular_file() &&
        (ending == ".safetensors" || ending == ".journal" || ending == ".h5"))
      state[fs::relative(entry.path(), folder)] = content_of(entry.path());
  }
  return state;
}

}  // namespace

int main() {
  for (std::string folder; std::getline(std::cin, folder);)
    std::cout << state_in(folder).dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  return 0;
}
