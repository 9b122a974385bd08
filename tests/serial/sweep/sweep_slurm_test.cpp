#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/file.h"
#include "base/process.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/sweep_fixture.h"
#include "serial/test_folder.h"
#include "sweep/slurm.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;

namespace {

const char* const kShapes =
    "model = lenet\nsync = ddp, allreduce\nranks = 4, 1, 2\nranks-per-node = 2\n"
    "exclude = sync=allreduce ranks=1\nbatch-per-rank = 8\n";

// A job file, and a checkout whose slurm/ is the real one. Its sbatch keeps its arguments, a line
// each, and answers with numbers from 41 on; the one numbered `refused` gets exit code 1.
class Submission {
 public:
  explicit Submission(const std::string& text, int refused = 0) : path_(std::getenv("PATH")) {
    fs::copy(source_folder() / "slurm", folder_ / "slurm");
    fs::remove(folder_ / "slurm/site");
    fs::create_directory(file().parent_path());
    write(file(), text + "results = " + (folder_ / "runs").string() + "\n");
    write(folder_ / "sbatch",
          "#!/bin/sh\ncd '" + folder_.path().string() +
              "'\necho call >>calls\nprintf '%s\\n' \"$@\" >>words\nnumber=$(wc -l <calls)\n"
              "[ $number != " +
              std::to_string(refused) + " ] || exit 1\necho \"$((40 + number));cluster\"\n");
    fs::permissions(folder_ / "sbatch", fs::perms::owner_all);
    setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
    setenv("GRADSYNC_HOME", folder_.path().c_str(), 1);
  }
  ~Submission() { setenv("PATH", path_.c_str(), 1); }
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  // Of a sweep with these options; what it prints.
  std::string submit(const Names& options = {}) {
    Names words = {"gradsync-sweep", file().string(), "--launcher=slurm"};
    append(words, options);
    std::vector<const char*> argv;
    for (const auto& word : words)
      argv.push_back(word.c_str());
    const auto command = read_sweep_command(static_cast<int>(argv.size()), argv.data());
    const SlurmSite site = this_site();
    take_site_data(site);
    const Plan plan = plan_of(command);
    plan.there.require_same(plan.job.results);
    std::ostringstream out;
    submit_grid(plan, site, out);
    return out.str();
  }

  // What sbatch was given, a word a line.
  std::string words() const { return read_text_file(folder_ / "words"); }
  fs::path file() const { return folder_ / "it's a" / "test.cfg"; }
  fs::path runs() const { return folder_ / "runs"; }
  const TestFolder& folder() const { return folder_; }

 private:
  CleanEnvironment environment_;
  TestFolder folder_;
  std::string path_;
};

}  // namespace

TEST_CASE("job arrays: one a shape, with its cells, after those before it") {
  Submission submission(kShapes);
  CHECK(submission.submit() ==
        "job 41: 1 node × 1 rank, cell 2\njob 42: 1 node × 2 ranks, cells 3,5\n"
        "job 43: 2 nodes × 2 ranks, cells 1,4\n");
  const std::string at = submission.folder().path().string();
  CHECK(contains(submission.words(),
                 "--parsable\n--dependency=afterany:41:42\n--array=1,4%1\n--nodes=2\n"
                 "--ntasks-per-node=2\n--job-name=test-2x2\n--output=" +
                     at + "/runs/slurm/%x-%A_%a.log\n" + at + "/slurm/grid.sbatch\n" + at +
                     "/it's a/test.cfg\n--results\n" + at + "/runs\n"));
  CHECK_FALSE(contains(submission.words(), "--gpus"));
  CHECK(fs::exists(submission.runs() / "grid.json"));
  CHECK(fs::is_directory(submission.runs() / "slurm"));
}

TEST_CASE("job arrays: one rank a node takes as many nodes as there are ranks") {
  Submission submission("model = lenet\nranks = 2\nranks-per-node = 1\n");
  CHECK(submission.submit() == "job 41: 2 nodes × 1 rank, cell 1\n");
}

TEST_CASE("job arrays: GPUs, threads, the site's values and the job's own options") {
  Submission submission(std::string(kShapes) +
                        "gpus-per-rank = 1\nthreads = 3, 6\n"
                        "sbatch-options = --time 1:00:00 -p cpu --exclusive\n");
  write(submission.folder() / "slurm/site", "array-tasks = 4\n");
  submission.submit();
  for (const char* part : {"--array=2,8%4\n", "--gpus-per-node=2\n", "--cpus-per-task=6\n",
                           "-2x2x6\n", ".log\n--time=1:00:00\n-pcpu\n--exclusive\n"})
    CHECK_MESSAGE(contains(submission.words(), part), part << " is not in " << submission.words());
}

namespace {

// What slurm/submit of this site prints.
std::string printed(const Submission& submission, const std::string& site, const Names& words) {
  write(submission.folder() / "slurm/site", site);
  std::ostringstream out;
  submit_template(words, out);
  return out.str();
}

}  // namespace

TEST_CASE("job arrays: the site's way to request GPUs, its cores a rank and its options") {
  const std::pair<std::string, std::string> forms[] = {{"gpus-per-node", "--gpus-per-node=2\n"},
                                                       {"gres", "--gres=gpu:2\n"},
                                                       {"gres:h100", "--gres=gpu:h100:2\n"},
                                                       {"none", ""}};
  for (const auto& [form, words] : forms) {
    const std::string& request = form;  // clang 14 captures no binding
    CAPTURE(request);
    Submission submission("model = lenet\nranks = 2\nranks-per-node = 2\ngpus-per-rank = 1\n");
    write(submission.folder() / "slurm/site",
          "gpu-request = " + form + "\ncores-per-rank = 6\nsbatch-options = --comment=x --qos=y\n");
    submission.submit();
    CHECK(contains(submission.words(),
                   "--cpus-per-task=6\n--comment=x\n--qos=y\n--parsable\n--array=1%1\n"));
    CHECK(contains(submission.words(), "--ntasks-per-node=2\n" + words + "--job-name="));
  }
}

TEST_CASE("slurm/submit: templates have the site's request for GPUs in place of ours") {
  const Submission submission("model = lenet\n");
  const auto request = [&](const std::string& form) {
    const std::string text =
        printed(submission, "gpu-request = " + form + "\n", {"--print", "multi-node"});
    CHECK(contains(text, "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n"));
    CHECK(contains(text, "run.sh\" multi-node any gpu grid"));
    const std::size_t begin = text.find("node=4\n") + 7;
    return text.substr(begin, text.find("#SBATCH --cpus") - begin);
  };
  CHECK(request("gpus-per-node") == "#SBATCH --gpus-per-node=4\n");
  CHECK(request("gres") == "#SBATCH --gres=gpu:4\n");
  CHECK(request("gres:a100") == "#SBATCH --gres=gpu:a100:4\n");
  CHECK(request("none").empty());
}

TEST_CASE("slurm/submit: time, memory and networks reach sbatch by its variables") {
  const Submission submission("model = lenet\n");
  const std::string text = printed(
      submission, "time = 1-2:00:00\nmemory = 64G\nnetwork = single_node_vni\nswitches = 1\n",
      {"--environment"});
  for (const char* part :
       {"export SBATCH_TIMELIMIT=1-2:00:00\n", "export SBATCH_MEM_PER_NODE=64G\n",
        "export SBATCH_NETWORK=single_node_vni\n", "export SBATCH_REQ_SWITCH=1\n"})
    CHECK_MESSAGE(contains(text, part), part << " is not in " << text);
  for (const char* wrong : {"gpu-request = gpus", "gpu-request = gres:", "time = soon",
                            "memory = 2 GB", "cores-per-rank = 0"})
    CHECK_MESSAGE(contains(refusal([&] {
                             printed(submission, std::string(wrong) + "\n", {"--environment"});
                           }),
                           "slurm/site:1: "),
                  wrong);
}

TEST_CASE("job arrays: tasks get every word that makes the grid, whatever is in it") {
  Submission submission("model = lenet\nranks = 1, 2\n");
  submission.submit({"--set", "variant=ab: lr=0.1", "--set", "batch-per-rank=8",
                     "--ranks-per-node=2", "--", "--data=$HOME; it's \"x\" *", "--no-augment"});
  CHECK(contains(submission.words(),
                 "--set\nvariant=ab: lr=0.1\n--set\nbatch-per-rank=8\n--ranks-per-node\n2\n--\n"
                 "--data=$HOME; it's \"x\" *\n--no-augment\n"));
}

TEST_CASE("job arrays: only what is missing, by the numbers of the folder's grid") {
  Submission submission("model = lenet\nranks = 1\nbatch-per-rank = 8\nseed = 1, 2, 3, 4\n");
  submission.submit({"--cell=2"});
  CHECK(contains(submission.words(), "--array=2%1\n"));
  write(submission.runs() / "lenet-ddp-r1-seed2.h5", "run");
  // Another order is the same grid, and numbers mean what they meant.
  CHECK(contains(submission.submit({"--set", "order=random"}), "cells 1,3-4\n"));
  CHECK(contains(submission.submit({"--cell=4"}), "cell 4\n"));
  CHECK(submission.submit({"--cell=2"}).empty());
  CHECK(contains(refusal([&] { submission.submit({"--", "--lr=0.5"}); }), "another grid"));
}

TEST_CASE("job arrays: the site's data folder is part of the grid") {
  Submission submission("model = lenet\nranks = 1\n");
  write(submission.folder() / "slurm/site", "data = /a b/cifar\n");
  submission.submit();
  CHECK(contains(read_text_file(submission.runs() / "grid.json"), "\"/a b/cifar\""));
  write(submission.folder() / "slurm/site", "dtaa = x\n");
  CHECK(contains(refusal([&] { submission.submit(); }),
                 "slurm/site:1: unknown key 'dtaa'; did you mean data"));
}

TEST_CASE("job arrays: what they need to know") {
  Submission submission("ranks = 1, 2\n");
  CHECK(contains(refusal([&] { submission.submit(); }), "--ranks-per-node"));
  CHECK(contains(refusal([&] {
                   submission.submit({"--set=ranks=1", "--set=results=a\\b"});
                 }),
                 "backslash"));
  CHECK(contains(submission.submit({"--set=ranks=1", "--set=results=100%", "--dry-run"}),
                 "/100%%/slurm/%x-%A_%a.log"));
  setenv("GRADSYNC_HOME", "/nowhere", 1);
  CHECK(contains(error_text(ExitCode::kEnvironment, [&] { submission.submit(); }),
                 "cannot run /nowhere/slurm/submit"));
}

TEST_CASE("job arrays: a refusal names what was submitted") {
  Submission submission(kShapes, 3);
  const std::string text = error_text(ExitCode::kEnvironment, [&] { submission.submit(); });
  CHECK(contains(text, "sbatch refused 2 nodes × 2 ranks, cells 1,4: exit code 1"));
  CHECK(contains(text, "submitted before it: 41 42"));
}

TEST_CASE("job arrays: --dry-run prints the commands, and does nothing") {
  Submission submission(kShapes);
  const std::string lines = submission.submit({"--dry-run"});
  CHECK_FALSE(fs::exists(submission.runs()));
  CHECK_FALSE(fs::exists(submission.folder() / "words"));
  const std::string at = submission.folder().path().string();
  CHECK(lines.starts_with("mkdir -p " + at + "/runs/slurm\njob1=$(" + at +
                          "/slurm/submit --parsable --array=2%1 --nodes=1 "));
  CHECK(contains(lines, "\njob3=$(" + at +
                            "/slurm/submit --parsable --dependency=afterany:$job1:$job2 "
                            "--array=1,4%1 --nodes=2 --ntasks-per-node=2 --job-name=test-2x2 "
                            "--output=" +
                            at + "/runs/slurm/%x-%A_%a.log grid '" + at +
                            "/it'\\''s a/test.cfg' --results " + at + "/runs)\n"));
}

TEST_CASE("slurm/submit: a template is the first word that names one") {
  const Submission submission("model = lenet\n");
  std::ostringstream out;
  write(submission.folder() / "slurm/site", "cores-per-rank = 3\n");
  CHECK(submit_template({"--nodes=4", "multi-node", "x.cfg", "--lr", "0.1"}, out) == 0);
  CHECK(submission.words() == "--cpus-per-task=3\n--nodes=4\n" +
                                  (submission.folder() / "slurm/multi-node.sbatch").string() +
                                  "\nx.cfg\n--lr\n0.1\n");
  CHECK(contains(refusal([&] {
                   submit_template({"--nodes=4", "five-gpu"}, out);
                 }),
                 "templates: calibrate cpu four-gpu grid"));
  CHECK(contains(refusal([&] {
                   submit_template({"grid", "x.cfg"}, out);
                 }),
                 "gradsync-sweep x.cfg --launcher slurm"));
}

TEST_CASE("site file: keys for jobs of Slurm may stand in the site file of all programs") {
  const Submission submission("model = lenet\n");
  write(submission.folder() / "site.cfg",
        "lr = 0.5\nreport-format = csv\naccount = physics # ours\n");
  setenv("GRADSYNC_SITE", (submission.folder() / "site.cfg").c_str(), 1);
  CHECK(this_site().at("account") == "physics");
  CHECK(this_site().at("launcher") == "srun");
  const char* const arguments[] = {"gradsync-train"};
  CHECK(resolve_options(train_option_table(), 1, arguments, {}, Foreign::kReject)
            .values.at("lr")
            .value == "0.5");
  write(submission.folder() / "slurm/site", "account = chemistry\n");
  CHECK(this_site().at("account") == "chemistry");
}
