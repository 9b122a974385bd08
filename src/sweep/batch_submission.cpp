#include "sweep/batch_submission.h"

#include <ostream>

#include <fmt/format.h>

#include "support/error.h"
#include "support/file.h"
#include "support/process.h"
#include "sweep/launcher.h"

namespace gradsync::sweep {

namespace {

namespace fs = std::filesystem;

// The first name that is free or holds this very text.
fs::path place_for(const BatchScript& script, const fs::path& folder) {
  fs::path file = folder / (script.name + ".sbatch");
  for (int number = 2; fs::exists(file) && read_text_file(file) != script.text; ++number)
    file = folder / fmt::format("{}-{}.sbatch", script.name, number);
  return file;
}

// After the end, good or bad, of the jobs before.
LaunchCommand sbatch(const fs::path& file, const std::vector<std::string>& jobs_before) {
  LaunchCommand command{{}, {"sbatch", "--parsable"}};
  if (!jobs_before.empty())
    command.args.push_back(fmt::format("--dependency=afterany:{}", fmt::join(jobs_before, ":")));
  command.args.push_back(file.string());
  return command;
}

std::string submitted(const LaunchCommand& command, const fs::path& file) {
  const CapturedProcess sbatch = capture_process(command.args);
  if (!sbatch.result.succeeded())
    throw Error(ExitCode::kEnvironment,
                fmt::format("sbatch refused {}: {}", file.string(), sbatch.result.text()),
                "its own message stands above; options for it: key sbatch-options, or SBATCH_…");
  // "4711", or "4711;cluster".
  return sbatch.output.substr(0, sbatch.output.find_first_of(";\n"));
}

}  // namespace

void submit_scripts(const std::vector<BatchScript>& scripts, const fs::path& folder,
                    std::ostream& out) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Error(ExitCode::kCannotCreate, fmt::format("{}: {}", folder.string(), error.message()));
  std::vector<std::string> jobs;
  for (const auto& script : scripts) {
    const fs::path file = place_for(script, folder);
    if (!fs::exists(file)) write_file_atomically(file, script.text);
    jobs.push_back(submitted(sbatch(file, jobs), file));
    out << fmt::format("job {}: {} ({})\n", jobs.back(), script.what, file.string()) << std::flush;
  }
}

void print_scripts(const std::vector<BatchScript>& scripts, const fs::path& folder,
                   std::ostream& out) {
  std::vector<std::string> jobs;
  for (const auto& script : scripts) {
    const fs::path file = place_for(script, folder);
    out << "# " << file.string() << '\n' << script.text << '\n';
    out << "# " << shell_text(sbatch(file, jobs)) << "\n\n";
    jobs.push_back("JOB" + std::to_string(jobs.size() + 1));
  }
}

}  // namespace gradsync::sweep
