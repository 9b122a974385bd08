// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/hash.h"
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
    add_program("sbatch",
                "cd '" + folder_.path().string() +
                    "'\necho call >>calls\nprintf '%s\\n' \"$@\" >>words\nenv >environment\n"
                    "printf %s \"$GRADSYNC_SLURM_SITE\" >site; printf %s \"$GRADSYNC_SUBMITTED\" "
                    ">submitted\n"
                    "number=$(wc -l <calls)\n[ $number != " +
                    std::to_string(refused) + " ] || exit 1\necho \"$((40 + number));cluster\"");
    add_program("squeue", "printf '%s\\n' \"$@\" >>'" + (folder_ / "asked").string() + "'");
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

  // Of all jobs of the folder.
  std::string name() const {
    Sha256 digest;
    digest.update(fs::weakly_canonical(runs()).string());
    return "test-" + digest.hex().substr(0, 6);
  }

  // A program in sbatch's folder.
  void add_program(const std::string& name, const std::string& script) const {
    write(folder_ / name, "#!/bin/sh\n" + script + "\n");
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }

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
                 "--parsable\n--dependency=singleton\n--array=1%1\n--nodes=2\n"
                 "--ntasks-per-node=2\n--job-name=" +
                     submission.name() + "\n--output=" + at + "/runs/slurm/test-2x2-%A_%a.log\n" +
                     at + "/slurm/grid.sbatch\n" + at + "/it's a/test.cfg\n--results\n" + at +
                     "/runs\n"));
  CHECK_FALSE(contains(submission.words(), "--gpus"));
  CHECK(fs::exists(submission.runs() / "grid.json"));
  CHECK(fs::is_directory(submission.runs() / "slurm"));
  submission.submit({"--set=interleave=no"});
  CHECK(contains(submission.words(), "\n--array=1,4%1\n"));
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
  for (const char* part : {"--array=2%4\n", "--gpus-per-node=2\n", "--cpus-per-task=6\n",
                           "-2x2x6-%A_%a.log\n--time=1:00:00\n-pcpu\n--exclusive\n"})
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
                   "--cpus-per-task=6\n--comment=x\n--qos=y\n--parsable\n"
                   "--dependency=singleton\n--array=1%1\n"));
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
  CHECK_FALSE(fs::exists("a\\b"));
  for (const std::string option : {"--mpirun", "--launcher-options", "--gpu-request"})
    CHECK(contains(refusal([&] {
                     submission.submit({"--set=ranks=1", option + "=x"});
                   }),
                   option + " does not reach the tasks"));
  CHECK(contains(submission.submit({"--set=ranks=1", "--set=results=100%", "--dry-run"}),
                 "/100%%/slurm/test-1x1-%A_%a.log"));
  setenv("GRADSYNC_HOME", "/nowhere", 1);
  CHECK(contains(error_text(ExitCode::kEnvironment, [&] { submission.submit(); }),
                 "cannot run /nowhere/slurm/submit"));
}

TEST_CASE("job arrays: a refusal names what was submitted") {
  Submission submission(kShapes, 3);
  const std::string text = error_text(ExitCode::kEnvironment, [&] { submission.submit(); });
  CHECK(contains(text, "sbatch refused 2 nodes × 2 ranks, cells 1,4: exit code 1"));
  CHECK(contains(text, "submitted before it: 41 42"));
  CHECK(fs::exists(submission.runs() / "grid.json"));
}

TEST_CASE("job arrays: a cell beyond Slurm's largest index is refused before any is submitted") {
  Submission submission(kShapes);
  const auto most = [&](int size) {
    submission.add_program("scontrol", fmt::format("[ \"$1 $2\" = 'show config' ] && echo "
                                                   "'MaxArraySize            = {}'",
                                                   size));
  };
  most(3);
  const std::string text = error_text(ExitCode::kEnvironment, [&] { submission.submit(); });
  CHECK(contains(text, "cell 3 is no index of a job array here: MaxArraySize is 3"));
  CHECK_FALSE(fs::exists(submission.folder() / "calls"));
  CHECK_FALSE(fs::exists(submission.runs() / "grid.json"));
  most(4);
  CHECK(contains(submission.submit(), "job 43"));
}

TEST_CASE("job arrays: a submission that is refused at once leaves nothing in the way of another") {
  Submission submission(kShapes, 1);
  error_text(ExitCode::kEnvironment, [&] { submission.submit(); });
  CHECK_FALSE(fs::exists(submission.runs() / "grid.json"));
  CHECK_FALSE(fs::exists(submission.runs() / "slurm"));
  CHECK(contains(submission.submit({"--", "--lr=0.5"}), "job 44: 2 nodes × 2 ranks, cells 1,4\n"));
  CHECK(fs::exists(submission.runs() / "grid.json"));
}

TEST_CASE("job arrays: a study that is queued already is named, and its folder names all jobs") {
  Submission submission("model = lenet\nranks = 1\nsbatch-options = -d afterok:7\n");
  submission.add_program(
      "squeue", "[ \"$5\" = --name=" + submission.name() + " ] && printf '10\\n10\\n12\\n'");
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  submission.submit();
  std::cerr.rdbuf(before);
  CHECK(contains(said.str(), "queued or runs already: jobs 10, 12; what is submitted now begins"));
  CHECK(contains(submission.words(), "--dependency=singleton\n"));
  CHECK(contains(submission.words(), "\n-dafterok:7,singleton\n"));
  CHECK(contains(submission.words(), "\n--job-name=" + submission.name() + "\n"));
}

TEST_CASE("job arrays: what is too large for the memory is not queued to be found so again") {
  Submission submission("model = lenet\nranks = 1\nbatch-per-rank = 8, 16, 32\n");
  submission.submit();
  const auto cells = expand(job_of("model = lenet\nranks = 1\nbatch-per-rank = 8, 16, 32\n")).cells;
  const auto fails = [&](std::size_t cell, CellState how) {
    record_failure(cell_files(submission.runs(), cells[cell]), cells[cell], {how, {81, 0}, "x"});
  };
  write(cell_files(submission.runs(), cells[0]).run, "run");
  fails(1, CellState::kOutOfMemory);
  fails(2, CellState::kNotRun);
  CHECK(submission.submit() == "");
  // Without the smaller one's record both are tried again.
  fs::remove(submission.runs() / (cells[1].name + ".failed.json"));
  CHECK(contains(submission.submit(), "cells 2-3"));
}

TEST_CASE("job arrays: --dry-run prints the commands, and does nothing") {
  Submission submission(kShapes);
  const std::string lines = submission.submit({"--dry-run"});
  CHECK_FALSE(fs::exists(submission.runs()));
  CHECK_FALSE(fs::exists(submission.folder() / "words"));
  const std::string at = submission.folder().path().string();
  CHECK(lines.starts_with("mkdir -p " + at + "/runs/slurm\n" + at +
                          "/slurm/submit --dependency=singleton --array=2%1 --nodes=1 "));
  CHECK(contains(lines, "\n" + at +
                            "/slurm/submit --dependency=singleton --array=1%1 --nodes=2 "
                            "--ntasks-per-node=2 --job-name=" +
                            submission.name() + " --output=" + at +
                            "/runs/slurm/test-2x2-%A_%a.log grid '" + at +
                            "/it'\\''s a/test.cfg' --results " + at + "/runs\n"));
}

TEST_CASE("slurm/submit: a template is the last word in front of the job file that names one") {
  const Submission submission("model = lenet\n");
  std::ostringstream out;
  write(submission.folder() / "slurm/site", "cores-per-rank = 3\n");
  const std::string file = submission.file().string();
  CHECK(submit_template({"--nodes=4", "multi-node", file, "--lr", "0.1"}, out) == 0);
  CHECK(submission.words() == "--cpus-per-task=3\n--nodes=4\n" +
                                  (submission.folder() / "slurm/multi-node.sbatch").string() +
                                  "\n" + file + "\n--lr\n0.1\n");
  CHECK(submit_template({"-p", "cpu", "multi-node", file}, out) == 0);
  CHECK(contains(submission.words(),
                 "-p\ncpu\n" + (submission.folder() / "slurm/multi-node.sbatch").string() + "\n" +
                     file + "\n"));
  const auto told = [&](const Names& words) {
    return refusal([&] { submit_template(words, out); });
  };
  CHECK(contains(told({"--nodes", "4", "for-gpu", file}),
                 "'for-gpu' is no template; did you mean four-gpu?"));
  CHECK(contains(told({"--hold", "eight-gpu", file}), "'eight-gpu' is no template"));
  CHECK(contains(told({"--hold"}), "no template is named"));
  CHECK(contains(told({"five-gpu"}), "templates: one-gpu two-gpu four-gpu multi-node cpu grid"));
  CHECK(contains(told({"grid", "x.cfg"}),
                 "gradsync-sweep x.cfg --launcher slurm --ranks-per-node 4"));
  CHECK(contains(told({"grid", file, "--lr", "2", "--set", "ranks=1"}),
                 " --set ranks=1 --launcher slurm --ranks-per-node 4 -- --lr 2"));
  out.str("");
  CHECK(submit_template({"--help"}, out) == 0);
  CHECK(contains(out.str(), "usage: slurm/submit [SBATCH OPTIONS] TEMPLATE"));
}

TEST_CASE("slurm/submit: nothing is queued that could not run") {
  const Submission submission("model = lenet\nranks = 1\n");
  std::ostringstream out;
  const std::string file = submission.file().string();
  const auto told = [&](ExitCode code, const Names& words) {
    return error_text(code, [&] { submit_template(words, out); });
  };
  CHECK(contains(told(ExitCode::kNoInput, {"four-gpu", "nowhere.cfg"}), "nowhere.cfg"));
  CHECK(contains(told(ExitCode::kUsage, {"four-gpu"}), "four-gpu: give a job file"));
  CHECK(contains(told(ExitCode::kUsage, {"four-gpu", file, "--bogus", "3"}), "--bogus"));
  CHECK(contains(told(ExitCode::kUsage, {"four-gpu", file, "--lr", "fast"}), "lr"));
  CHECK(contains(told(ExitCode::kUsage, {"four-gpu", file, "--set", "rnaks=2"}), "rnaks"));
  // A folder that holds another grid. The job's ranks would compute on GPUs, which is a setting.
  unsetenv("GRADSYNC_DEVICE");
  const Job job = read_job(submission.file());
  fs::create_directories(submission.runs() / "slurm");
  record_grid(job, grid_in_folder(job, expand(job)));
  CHECK(contains(told(ExitCode::kUsage, {"four-gpu", file}), "device: not set there, cuda here"));
  CHECK_FALSE(fs::exists(submission.folder() / "words"));
  // As seen from the folder of the job.
  fs::remove_all(submission.runs());
  unsetenv("GRADSYNC_DEVICE");
  CHECK(submit_template({"-D", submission.file().parent_path().string(), "cpu", "test.cfg"}, out) ==
        0);
  CHECK(submit_template({"calibrate", "-b", "1KiB"}, out) == 0);
}

TEST_CASE("slurm/submit: what sbatch takes as options alone, and values for one template") {
  const Submission submission("model = lenet\nranks = 1\n");
  std::ostringstream out;
  write(submission.folder() / "slurm/site",
        "licenses = scratch:2\nnice = 5\nmail-user = a@b\nmail-type = END,FAIL\n"
        "hint = nomultithread\ngpu-bind = closest\npartition = gpu,big\npartition-cpu = thin\n"
        "time-cpu = 8:00:00\ntime = 1:00:00\nsbatch-options = --comment=\"a b\" '--x=c d'\n"
        "gpu-request = gpus-per-task\n");
  const auto setting = [&](const std::string& name) {
    const std::string text = '\n' + read_text_file(submission.folder() / "environment");
    const std::size_t begin = text.find('\n' + name + '=') + name.size() + 2;
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  submit_template({"cpu", submission.file().string()}, out);
  CHECK(submission.words().starts_with(
      "--licenses=scratch:2\n--nice=5\n--mail-user=a@b\n--mail-type=END,FAIL\n--comment=a b\n"
      "--x=c d\n/"));
  CHECK(setting("SBATCH_PARTITION") == "thin");
  CHECK(setting("SBATCH_TIMELIMIT") == "8:00:00");
  CHECK(setting("SBATCH_HINT") == "nomultithread");
  CHECK(setting("SBATCH_GPU_BIND") == "closest");
  submit_template({"--gpus-per-node=2", "one-gpu", submission.file().string()}, out);
  CHECK(setting("SBATCH_PARTITION") == "gpu,big");
  CHECK(setting("SBATCH_TIMELIMIT") == "1:00:00");
  CHECK(contains(submission.words(), "\n--gpus-per-task=1\n"));
  CHECK(contains(printed(submission, "gpu-request = gpus-per-task\n", {"--print", "four-gpu"}),
                 "#SBATCH --gpus-per-task=1\n"));
  // Each template of slurm/ has such keys.
  Names templates;
  for (const auto& file : fs::directory_iterator(source_folder() / "slurm"))
    if (file.path().extension() == ".sbatch") templates.push_back(file.path().stem());
  Names known = slurm_templates();
  std::sort(known.begin(), known.end());
  std::sort(templates.begin(), templates.end());
  CHECK(templates == known);
}

TEST_CASE("slurm/submit: the job keeps the site of its submission, and the command as typed") {
  const Submission submission("model = lenet\nranks = 1\n");
  std::ostringstream out;
  write(submission.folder() / "slurm/site", "mpi = pmi2\ncontainer = run \"a b\" # c\n");
  setenv("GRADSYNC_MAX_RESTARTS", "3", 1);
  setenv("SBATCH_QOS", "long one", 1);
  submit_template({"--comment=a b", "cpu", submission.file().string()}, out);
  unsetenv("SBATCH_QOS");
  const SlurmSite kept = slurm_site_of(read_text_file(submission.folder() / "site"), "x");
  CHECK(kept == this_site());
  CHECK(kept.at("container") == "run \"a b\"");
  CHECK(read_text_file(submission.folder() / "submitted")
            .starts_with("GRADSYNC_MAX_RESTARTS=3 SBATCH_QOS='long one' " +
                         (submission.folder() / "slurm/submit").string() +
                         " '--comment=a b' cpu '"));
}

TEST_CASE("site file: one that others may write is refused") {
  const Submission submission("model = lenet\n");
  const fs::path site = submission.folder() / "slurm/site";
  write(site, "container = evil\n");
  fs::permissions(site, fs::perms::others_write, fs::perm_options::add);
  CHECK(contains(refusal([&] { this_site(); }), "others can write this file"));
  fs::permissions(site, fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(site, fs::perms::group_write, fs::perm_options::add);
  CHECK(this_site().at("container") == "evil");  // our own group
  if (::geteuid() != 0) return;
  CHECK(::chown(site.c_str(), static_cast<uid_t>(-1), 65534) == 0);
  CHECK(contains(refusal([&] { this_site(); }), "others can write this file"));
  CHECK(::chown(site.c_str(), 65534, 65534) == 0);
  fs::permissions(site, fs::perms::group_write, fs::perm_options::remove);
  CHECK(contains(refusal([&] { this_site(); }), "others can write this file"));
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
