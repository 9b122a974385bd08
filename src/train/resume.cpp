#include "train/resume.h"

#include <cstdlib>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_folder.h"
#include "record/journal.h"
#include "record/journal_payload.h"
#include "support/error.h"
#include "support/parse.h"

namespace gradsync {

namespace {

namespace fs = std::filesystem;

void warn(const std::string& text) {
  std::cerr << "gradsync-train: warning: " << text << std::endl;
}

/// What a journal says of its run, and how much of it is sound.
struct JournalHead {
  CheckpointInfo run;
  std::int64_t first_row_at = 0, sound_bytes = 0;
};

JournalHead read_head(const fs::path& path) {
  JournalReader reader(path);
  const auto record = reader.next();
  const auto info =
      record && record->type == RecordType::kInfo ? decode_info(record->payload) : std::nullopt;
  if (!info)
    throw Error(
        ExitCode::kBadData,
        fmt::format("'{}' does not say which run it is of: a job ended as it began", path.string()),
        "remove it; no iteration is in it");
  JournalHead head{describe_run(*info), reader.position(), 0};
  while (reader.next()) {
  }
  head.sound_bytes = reader.position();
  return head;
}

Error is_of_another_run(const std::string& what, const std::string& why) {
  return Error(ExitCode::kBadData, fmt::format("cannot go on from {}: {}", what, why),
               "give the options, ranks and data of that run, or another --output");
}

/// Sound, of this run and with its iterations in the journal, or an Error kBadData says why not.
CheckpointFile open_of_run(const fs::path& path, const JournalHead& head) {
  CheckpointFile file(path);
  const CheckpointInfo info = from_metadata(file.metadata());
  const std::string name = fmt::format("checkpoint '{}' is refused: ", path.string());
  if (info.run_id != head.run.run_id)
    throw Error(ExitCode::kBadData,
                fmt::format("{}it is of run {}, not {}", name, info.run_id, head.run.run_id));
  if (info.journal_bytes > head.sound_bytes || info.journal_bytes < head.first_row_at)
    throw Error(ExitCode::kBadData, fmt::format("{}it goes on from byte {} of the journal, which "
                                                "has {} sound bytes",
                                                name, info.journal_bytes, head.sound_bytes));
  return file;
}

std::optional<CheckpointFile> newest_sound(const fs::path& folder, const JournalHead& head) {
  for (const NamedCheckpoint& candidate : checkpoints_in(folder)) {
    try {
      return open_of_run(candidate.path, head);
    } catch (const Error& error) {
      if (error.code() != ExitCode::kBadData) throw;
      warn(fmt::format("{}; the next older one is tried", error.what()));
    }
  }
  return std::nullopt;
}

ResumePlan from_file(CheckpointFile file) {
  ResumePlan plan;
  plan.resumes = true;
  plan.from = from_metadata(file.metadata());
  plan.file.emplace(std::move(file));
  return plan;
}

ResumePlan plan_auto(const TrainOptions& options, const CheckpointInfo& requested) {
  const fs::path journal = journal_path(options.output);
  if (!fs::exists(journal)) return {};
  const JournalHead head = read_head(journal);
  if (const auto why = difference(head.run, requested))
    throw is_of_another_run(fmt::format("'{}'", journal.string()), *why);
  if (auto file = newest_sound(checkpoint_folder(options.output), head))
    return from_file(*std::move(file));
  ResumePlan plan;
  plan.resumes = true;
  plan.from = head.run;
  plan.from.journal_bytes = head.first_row_at;
  return plan;
}

/// "--resume FILE" of the newest sound checkpoint beside `bad` that is older, or other advice.
std::string older_offered(const fs::path& bad, const CheckpointInfo& requested) {
  for (const NamedCheckpoint& candidate : checkpoints_in(bad.parent_path())) {
    if (candidate.path.filename() >= bad.filename()) continue;
    try {
      const CheckpointFile file(candidate.path);
      if (!difference(from_metadata(file.metadata()), requested))
        return fmt::format("--resume {}", candidate.path.string());
    } catch (const Error&) {
      continue;  // as bad
    }
  }
  return "no older checkpoint beside it is sound; --resume no begins a new run in another --output";
}

void require_journal(const TrainOptions& options, const CheckpointFile& file) {
  if (options.output.empty()) return;
  const fs::path journal = journal_path(options.output);
  if (!fs::exists(journal))
    throw Error(ExitCode::kNoInput,
                fmt::format("'{}', with the iterations before the checkpoint, is missing",
                            journal.string()),
                "give the --output of the run that was stopped, or none");
  open_of_run(file.path(), read_head(journal));
}

ResumePlan plan_file(const TrainOptions& options, const CheckpointInfo& requested) {
  try {
    CheckpointFile file(options.resume);
    if (const auto why = difference(from_metadata(file.metadata()), requested))
      throw is_of_another_run(fmt::format("checkpoint '{}'", options.resume), *why);
    require_journal(options, file);
    return from_file(std::move(file));
  } catch (const Error& error) {
    if (error.code() != ExitCode::kBadData || !error.fix().empty()) throw;
    throw Error(ExitCode::kBadData, error.what(), older_offered(options.resume, requested));
  }
}

ResumePlan choose(const TrainOptions& options, const CheckpointInfo& requested) {
  if (options.resume == "no") return {};
  ResumePlan plan =
      options.resume == "auto" ? plan_auto(options, requested) : plan_file(options, requested);
  if (!plan.resumes) return plan;
  if (const auto versions = other_versions(plan.from, requested))
    warn(fmt::format("{}: the numbers may differ from those of a run that was never stopped",
                     *versions));
  return plan;
}

/// The place, from rank 0 to all.
void broadcast(const Session& session, ResumePlan& plan) {
  std::string text;
  if (session.root() && plan.resumes) text = nlohmann::json(to_metadata(plan.from)).dump();
  std::uint64_t size = text.size();
  const auto watched = session.control(CollectiveKind::kBroadcast, sizeof size);
  MPI_Bcast(&size, 1, MPI_UINT64_T, 0, session.world());
  text.resize(static_cast<std::size_t>(size));
  session.count(CollectiveKind::kBroadcast, static_cast<std::int64_t>(size));
  MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, 0, session.world());
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
  const auto take = [&](const TextMap& texts, const char* name, std::string& value) {
    if (const auto found = texts.find(name); found != texts.end()) value = found->second;
  };
  take(plan.from.provenance, "precision", options.precision);
  take(plan.from.provenance, "layout", options.layout);
  take(plan.from.options, "device", options.device);
  take(plan.from.options, "transport", options.transport);
  std::string threads = std::to_string(options.threads);
  take(plan.from.options, "threads", threads);
  options.threads = std::atoll(threads.c_str());
  const auto take_size = [&](const char* name, std::int64_t& bytes) {
    std::string size;
    take(plan.from.options, name, size);
    if (bytes == 0 && !size.empty() && size != "auto") bytes = parse_size(size);
  };
  take_size("first-bucket", options.first_bucket_bytes);
  take_size("bucket-cap", options.bucket_cap_bytes);
}

}  // namespace gradsync
