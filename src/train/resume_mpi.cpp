// SPDX-License-Identifier: BSD-3-Clause
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "options/option_roles.h"
#include "record/journal.h"
#include "record/reader.h"
#include "record/recorder.h"
#include "train/resume.h"

namespace gradsync {

std::string stop_text(StopReason reason) {
  if (reason == StopReason::kTimeLimit) return "--time-limit";
  return "signal " + signal_name(static_cast<int>(reason));
}

void StopRequest::begin(double time_limit_s) {
  signals_.add({SIGINT, SIGTERM, SIGHUP, SIGPIPE});
  time_limit_s_ = time_limit_s;
}

StopReason StopRequest::reason(double needed_s) const {
  if (const int signal = signals_.received()) return StopReason{signal};
  const bool late = time_limit_s_ > 0 && since_start_.elapsed_s() + needed_s > time_limit_s_;
  return late ? StopReason::kTimeLimit : StopReason::kNone;
}

namespace {

namespace fs = std::filesystem;

/// The fix where a file is sound but of another run: no other checkpoint helps.
constexpr const char* kRunOfFile =
    "give the options, ranks and data of that run, or another --output";

Error is_of_another_run(const std::string& what, const std::string& why) {
  return Error(ExitCode::kBadData, fmt::format("cannot resume from {}: {}", what, why), kRunOfFile);
}

/// Why the journal does not hold the iterations of a checkpoint, or nothing.
std::optional<std::string> mismatch(const CheckpointInfo& info, const JournalRun& journal) {
  const std::string& run_id = journal.info().run_id;
  if (info.run_id != run_id) return fmt::format("it is of run {}, not {}", info.run_id, run_id);
  if (info.journal_bytes > journal.read_bytes())
    return fmt::format("it was written when the journal had {} bytes, of which {} can be read",
                       info.journal_bytes, journal.read_bytes());
  const auto iterations = journal.iterations_at(info.journal_bytes);
  if (!iterations)
    return "it is of a branch that was abandoned: since it was written the run was resumed from "
           "an earlier iteration";
  if (*iterations != info.iteration)
    return fmt::format("it is of {} iterations, of which the journal holds {}", info.iteration,
                       *iterations);
  return std::nullopt;
}

/// Throws Error kBadData unless the checkpoint is of this run and of its current branch.
void require_match(const CheckpointFile& file, const JournalRun& journal) {
  if (const auto why = mismatch(from_metadata(file.metadata()), journal))
    throw Error(ExitCode::kBadData,
                fmt::format("checkpoint '{}' is refused: {}", file.path().string(), *why));
}

CheckpointFile open_of_run(const fs::path& path, const JournalRun& journal) {
  CheckpointFile file(path);
  require_match(file, journal);
  return file;
}

std::optional<CheckpointFile> newest_sound(const fs::path& folder, const JournalRun& journal) {
  for (const NamedCheckpoint& candidate : checkpoints_in(folder)) {
    try {
      return open_of_run(candidate.path, journal);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData) throw;
      print_warning("gradsync-train", fmt::format("{}; the next older one is tried", error.what()));
    }
  }
  return std::nullopt;
}

/// The checkpoints beside the run file that are still of its current branch once the run resumes
/// from `from`.
std::vector<NamedCheckpoint> own_checkpoints(const fs::path& folder, const CheckpointInfo& from,
                                             const JournalRun& journal) {
  std::vector<NamedCheckpoint> own = checkpoints_in(folder);
  std::erase_if(own, [&](const NamedCheckpoint& one) {
    try {
      const CheckpointFile file = open_of_run(one.path, journal);
      return from_metadata(file.metadata()).journal_bytes > from.journal_bytes;
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData) throw;
      return true;
    }
  });
  return own;
}

ResumePlan from_file(CheckpointFile file) {
  ResumePlan plan;
  plan.resumes = true;
  plan.from = from_metadata(file.metadata());
  plan.file.emplace(std::move(file));
  return plan;
}

ResumePlan plan_auto(const TrainOptions& options, const CheckpointInfo& requested) {
  const fs::path path = journal_path(options.output);
  if (!fs::exists(path)) {
    ResumePlan plan;
    if (options.compare.empty()) require_new_run(options.output);
    if (!fs::exists(options.output)) return plan;
    // The job was killed between publishing this contender and the others.
    const auto published = open_hdf5(options.output);
    plan.complete = published->status() == RunStatus::kComplete &&
                    !difference(describe_run(published->info()), requested);
    return plan;
  }
  const JournalRun journal(path);
  const CheckpointInfo run = describe_run(journal.info());
  if (const auto why = difference(run, requested))
    throw is_of_another_run(fmt::format("'{}'", path.string()), *why);
  ResumePlan plan;
  plan.complete = journal.is_complete();
  if (plan.complete) return plan;
  for (const std::string& remark : journal.remarks())
    print_warning("gradsync-train", fmt::format("'{}': {}", path.string(), remark));
  const fs::path folder = checkpoint_folder(options.output);
  if (auto file = newest_sound(folder, journal)) {
    plan = from_file(*std::move(file));
    plan.own = own_checkpoints(folder, plan.from, journal);
    return plan;
  }
  plan.resumes = true;
  plan.from = run;
  plan.from.journal_bytes = journal.first_row_at();
  return plan;
}

/// The journal that a checkpoint resumes in; null for a run that is not recorded.
std::unique_ptr<JournalRun> journal_of(const TrainOptions& options) {
  if (options.output.empty()) return nullptr;
  const fs::path path = journal_path(options.output);
  if (!fs::exists(path))
    throw Error(
        ExitCode::kNoInput,
        fmt::format("'{}', with the iterations before the checkpoint, is missing", path.string()),
        "give the --output of the run that was stopped, or none");
  return std::make_unique<JournalRun>(path);
}

/// Sound, of the run that is asked for, and of the current branch of the journal if there is one.
CheckpointFile open_requested(const fs::path& path, const CheckpointInfo& requested,
                              const JournalRun* journal) {
  CheckpointFile file(path);
  if (const auto why = difference(from_metadata(file.metadata()), requested))
    throw is_of_another_run(fmt::format("checkpoint '{}'", path.string()), *why);
  if (journal) require_match(file, *journal);
  return file;
}

/// "--resume FILE" of the newest usable checkpoint beside `bad` that is older, or other advice.
std::string older_offered(const fs::path& bad, const CheckpointInfo& requested,
                          const JournalRun* journal) {
  for (const NamedCheckpoint& candidate : checkpoints_in(bad.parent_path())) {
    if (candidate.path.filename() >= bad.filename()) continue;
    try {
      open_requested(candidate.path, requested, journal);
      return fmt::format("--resume {}", candidate.path.string());
    } catch (const Error&) {
      continue;  // as bad
    }
  }
  return "no older checkpoint beside it is valid; --resume no begins a new run in another --output";
}

ResumePlan plan_file(const TrainOptions& options, const CheckpointInfo& requested) {
  const auto journal = journal_of(options);
  try {
    ResumePlan plan = from_file(open_requested(options.resume, requested, journal.get()));
    if (journal) plan.own = own_checkpoints(checkpoint_folder(options.output), plan.from, *journal);
    return plan;
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData || error.fix() == kRunOfFile) throw;
    throw Error(ExitCode::kBadData, error.what(),
                older_offered(options.resume, requested, journal.get()));
  }
}

ResumePlan choose(const TrainOptions& options, const CheckpointInfo& requested) {
  if (options.resume == "no") return {};
  ResumePlan plan =
      options.resume == "auto" ? plan_auto(options, requested) : plan_file(options, requested);
  if (!plan.resumes) return plan;
  if (const auto versions = other_versions(plan.from, requested))
    print_warning(
        "gradsync-train",
        fmt::format("{}: the numbers may differ from those of a run that was never stopped",
                    *versions));
  return plan;
}

/// The place, from rank 0 to all.
void broadcast(const Session& session, ResumePlan& plan) {
  session.broadcast(plan.complete);
  std::string text;
  if (session.root() && plan.resumes) text = nlohmann::json(to_metadata(plan.from)).dump();
  session.broadcast(text);
  if (text.empty() || session.root()) return;
  plan.resumes = true;
  plan.from = from_metadata(nlohmann::json::parse(text).get<TextMap>());
}

}  // namespace

ResumePlan plan_resume(const Session& session, const TrainOptions& options,
                       const CheckpointInfo& requested) {
  const WatchdogTimeoutExtension reads(session.watchdog(), WatchedPhase::kResume);
  ResumePlan plan;
  session.together([&] {
    if (session.root()) plan = choose(options, requested);
  });
  broadcast(session, plan);
  return plan;
}

void settle_as_before(TrainOptions& options, const ResumePlan& plan) {
  if (!plan.resumes) return;
  const auto take = [&](const char* name, std::string& value) {
    const auto found = plan.from.provenance.find(name);
    if (found != plan.from.provenance.end()) value = found->second;
  };
  take("precision", options.precision);
  take("layout", options.layout);
  for (const TrainOption& option : declared_train_options()) {
    const auto found = plan.from.options.find(option.name);
    if (option.open.empty() || found == plan.from.options.end()) continue;
    try {
      option.value.read({{option.name, {found->second, "checkpoint", "the checkpoint"}}},
                        option.name, options);
    } catch (const Error& error) {
      throw Error(ExitCode::kBadData, error.what(), error.fix());
    }
  }
}

}  // namespace gradsync
