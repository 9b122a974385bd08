#include "record/publish.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file.h"
#include "record/hdf5_run.h"
#include "record/journal_payload.h"
#include "record/journal_run.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

void sync_file(const fs::path& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file)
    throw Error(ExitCode::kInputOutput,
                fmt::format("cannot open '{}': {}", path.string(), errno_text()));
  close_file(std::move(file), path);
}

const std::string kCheckDisk = "check the disk; the journal is kept and gradsync-report reads it";

[[noreturn]] void differs(std::string_view what) {
  throw Error(ExitCode::kInputOutput,
              fmt::format("the run file, read back, differs from the journal in {}", what),
              kCheckDisk);
}

// Encoded, so that every field counts and NaN equals NaN.
template <typename Row>
void require_same(const std::vector<Row>& expected, const std::vector<Row>& found,
                  std::string_view what) {
  const auto same = [](const Row& a, const Row& b) { return encode(a) == encode(b); };
  if (!std::equal(expected.begin(), expected.end(), found.begin(), found.end(), same))
    differs(what);
}

bool is_run_file(const fs::path& file, const RunInfo& info, RunStatus status) {
  if (!fs::exists(fs::symlink_status(file))) return false;
  try {
    const auto run = open_hdf5(file);
    return run->info().run_id == info.run_id && run->status() == status;
  } catch (const Error&) {
    return false;  // no run file at all
  }
}

}  // namespace

void require_same_run(RunReader& expected, RunReader& found) {
  if (encode(expected.info()) != encode(found.info())) differs("what describes the run");
  if (expected.status() != found.status() || expected.finished() != found.finished())
    differs("its end");
  if (expected.iterations() != found.iterations()) differs("the number of iterations");
  for_each_list(
      []<typename Row>(const std::vector<Row>& of_expected, const std::vector<Row>& of_found) {
        require_same(of_expected, of_found, kRowKind<Row>.title);
      },
      expected.lists(), found.lists());
  const std::size_t block = rows_per_block(expected.ranks(), expected.index().buckets);
  for (std::size_t first = 0; first < expected.iterations(); first += block) {
    const std::size_t count = std::min(block, expected.iterations() - first);
    require_same(expected.rows(first, count), found.rows(first, count),
                 fmt::format("iterations {} to {}", first, first + count - 1));
  }
}

std::unique_ptr<RunReader> open_whole(const fs::path& journal, const WholeJournal& written) {
  std::unique_ptr<JournalRunReader> run;
  try {
    run = open_journal(journal);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData) throw;
    throw Error(ExitCode::kInputOutput, error.what(), kCheckDisk);
  }
  const auto iterations = static_cast<std::int64_t>(run->iterations());
  if (iterations == written.iterations && run->status() == written.status &&
      run->read_bytes() == written.bytes && run->remarks().empty())
    return run;
  throw Error(ExitCode::kInputOutput,
              fmt::format("journal '{}' is damaged at byte {}: {} of {} iterations can be read, "
                          "status {}; no run file is made of it",
                          journal.string(), run->read_bytes(), iterations, written.iterations,
                          status_name(run->status())),
              kCheckDisk);
}

bool is_complete_file(const fs::path& file, const RunInfo& info) {
  return is_run_file(file, info, RunStatus::kComplete);
}

bool is_earlier_part(const fs::path& file, const RunInfo& info) {
  return is_run_file(file, info, RunStatus::kPartial);
}

void rename_to_new(const fs::path& from, const fs::path& to, const std::string& fix) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  // Some network file systems know no RENAME_NOREPLACE; a hard link refuses existing names too.
  if ((errno == EINVAL || errno == ENOSYS) && ::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return;
  }
  throw Error(
      creation_failure(),
      fmt::format("cannot give the finished file the name '{}': {}", to.string(), errno_text()),
      fix);
}

void publish_run(RunReader& run, const fs::path& output) {
  TemporaryFile temporary(temporary_beside(output));
  write_hdf5(run, temporary.path());
  sync_file(temporary.path());
  require_same_run(run, *open_hdf5(temporary.path()));
  if (is_earlier_part(output, run.info()))
    temporary.rename_to(output);
  else
    rename_to_new(temporary.path(), output,
                  "choose another --output; the journal holds the whole run");
  temporary.keep();
  sync_folder(folder_of(output));
}

}  // namespace gradsync
