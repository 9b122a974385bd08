#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/sweep_fixture.h"
#include "serial/test_folder.h"
#include "support/file.h"
#include "support/process.h"
#include "sweep/batch_scripts.h"
#include "sweep/batch_submission.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;

namespace {

std::vector<BatchScript> scripts_of(const Job& job) {
  const BatchCommands commands{
      "/home/a b", {"gradsync-sweep", "jobs/it's.cfg"}, {"--data=$HOME"}, {"gradsync-report", "r"}};
  auto scripts = cell_scripts(job, expand(job).cells, commands);
  scripts.push_back(report_script(job, commands));
  return scripts;
}

// An sbatch that keeps its arguments, and answers with numbers from 41 on.
class StandInSbatch {
 public:
  explicit StandInSbatch(int exit_code = 0) : path_(std::getenv("PATH")) {
    std::ofstream(folder_ / "sbatch")
        << "#!/bin/sh\necho \"$@\" >>'" << (folder_ / "calls").string() << "'\n[ " << exit_code
        << " = 0 ] || exit " << exit_code << "\necho $((40 + $(wc -l <'"
        << (folder_ / "calls").string() << "')));\n";
    fs::permissions(folder_ / "sbatch", fs::perms::owner_all);
    setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  ~StandInSbatch() { setenv("PATH", path_.c_str(), 1); }
  StandInSbatch(const StandInSbatch&) = delete;
  StandInSbatch& operator=(const StandInSbatch&) = delete;

  std::string calls() const { return read_text_file(folder_ / "calls"); }

 private:
  TestFolder folder_;
  std::string path_;
};

const char* const kTwoCells =
    "model = lenet\nsync = ddp, allreduce\nranks = 1, 2, 4\nranks-per-node = 2\n"
    "exclude = sync=allreduce ranks=1\nbatch-per-rank = 8\n";

}  // namespace

TEST_CASE("batch scripts: one a shape, with its cells, and one for the tables") {
  const CleanEnvironment environment;
  const auto scripts = scripts_of(job_of(kTwoCells));
  REQUIRE(scripts.size() == 4);
  CHECK(scripts[0].name == "1x1");
  CHECK(scripts[1].name == "1x2");
  CHECK(scripts[2].name == "2x2");
  CHECK(scripts[3].name == "report");
  CHECK(scripts[2].what == "2 nodes × 2 ranks, 2 cells");
  const std::string& text = scripts[2].text;
  for (const char* part :
       {"#!/bin/bash\n", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=2\n",
        "#SBATCH --array=1-2%1\n", "#SBATCH --signal=USR1@120\n", "#SBATCH --job-name=test-2x2\n",
        "#SBATCH --output=\"/home/a b/results/test/sbatch/%x-%A_%a.log\"\n", "cd '/home/a b'\n",
        "  lenet-ddp-r4\n  lenet-allreduce-r4\n)\n",
        "gradsync-sweep 'jobs/it'\\''s.cfg' --launcher srun --cell \"$cell\" -- '--data=$HOME'"})
    CHECK_MESSAGE(contains(text, part), part << " is not in\n" << text);
  CHECK_FALSE(contains(text, "--gpus"));
  CHECK_FALSE(contains(text, "--cpus-per-task"));
  CHECK(contains(scripts[3].text, "\ngradsync-report r\n"));
}

TEST_CASE("batch scripts: GPUs, threads and the person's own options") {
  const CleanEnvironment environment;
  const auto scripts = scripts_of(
      job_of(std::string(kTwoCells) +
             "gpus-per-rank = 1\nthreads = 3, 6\nsbatch-options = --time=1:00:00 -p gpu\n"));
  REQUIRE(scripts.size() == 7);
  CHECK(scripts[5].name == "2x2x6");
  for (const char* part : {"#SBATCH --gpus-per-node=2\n", "#SBATCH --cpus-per-task=6\n",
                           "#SBATCH --time=1:00:00 -p gpu\nset -euo"})
    CHECK_MESSAGE(contains(scripts[5].text, part), part);
}

TEST_CASE("batch scripts: bash reads them") {
  const CleanEnvironment environment;
  const TestFolder folder;
  for (const auto& script : scripts_of(job_of(kTwoCells))) {
    std::ofstream(folder / script.name) << script.text;
    CHECK(run_process({"bash", "-n", folder / script.name}).succeeded());
  }
}

TEST_CASE("batch scripts: what they need to know") {
  const CleanEnvironment environment;
  CHECK(contains(refusal([] { scripts_of(job_of("ranks = 1, 2")); }), "--ranks-per-node"));
  CHECK_NOTHROW(scripts_of(job_of("ranks = 1")));
  CHECK(contains(refusal([] { scripts_of(job_of("ranks = 1\nresults = 100%")); }),
                 "cannot stand in a script"));
  CHECK(contains(refusal([] { job_of("gpus-per-rank = 2"); }), "out of range"));
}

TEST_CASE("batch submission: each job waits for those before it") {
  const CleanEnvironment environment;
  const TestFolder folder;
  const StandInSbatch sbatch;
  std::ostringstream out;
  submit_scripts(scripts_of(job_of(kTwoCells)), folder / "sbatch", out);
  const std::string at = (folder / "sbatch").string();
  CHECK(sbatch.calls() == "--parsable " + at + "/1x1.sbatch\n--parsable --dependency=afterany:41 " +
                              at + "/1x2.sbatch\n--parsable --dependency=afterany:41:42 " + at +
                              "/2x2.sbatch\n--parsable --dependency=afterany:41:42:43 " + at +
                              "/report.sbatch\n");
  CHECK(contains(out.str(), "job 43: 2 nodes × 2 ranks, 2 cells (" + at + "/2x2.sbatch)"));
}

TEST_CASE("batch submission: a script that is there is used or left alone") {
  const CleanEnvironment environment;
  const TestFolder folder;
  const StandInSbatch sbatch;
  std::ostringstream out;
  submit_scripts({{"1x1", "", "first"}}, folder.path(), out);
  submit_scripts({{"1x1", "", "first"}}, folder.path(), out);
  submit_scripts({{"1x1", "", "second"}}, folder.path(), out);
  CHECK(read_text_file(folder / "1x1.sbatch") == "first");
  CHECK(read_text_file(folder / "1x1-2.sbatch") == "second");
  CHECK(folder.entries() == 2);
}

TEST_CASE("batch submission: a refusal says which script; printing submits nothing") {
  const CleanEnvironment environment;
  const TestFolder folder;
  const StandInSbatch sbatch(1);
  std::ostringstream out;
  const std::string text = error_text(ExitCode::kEnvironment, [&] {
    submit_scripts({{"1x1", "", "text"}}, folder.path(), out);
  });
  CHECK(contains(text, "sbatch refused"));
  CHECK(contains(text, "1x1.sbatch"));

  print_scripts(scripts_of(job_of(kTwoCells)), folder / "new", out);
  CHECK_FALSE(fs::exists(folder / "new"));
  CHECK(contains(out.str(), "# sbatch --parsable --dependency=afterany:JOB1 "));
}
