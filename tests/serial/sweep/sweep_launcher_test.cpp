// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "base/file.h"
#include "base/process.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/sample_run.h"
#include "serial/sweep_fixture.h"
#include "serial/test_folder.h"
#include "stats/clock.h"
#include "sweep/grid.h"
#include "sweep/launcher.h"
#include "sweep/runner.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

namespace {

std::optional<Allocation> allocation_in(const Variables& variables) {
  return allocation_of([&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

GridCell cell_of(const std::string& text) {
  const CleanEnvironment environment;
  return expand(job_of(text)).cells.at(0);
}

bool has(const Names& args, const std::string& arg) {
  return std::find(args.begin(), args.end(), arg) != args.end();
}

SrunLauncher srun_on(const Allocation& allocation, std::int64_t ranks_per_node = 0,
                     const Names& options = {}, const std::string& gpu_request = "gpus-per-node") {
  return {"bin/gradsync-train", options, allocation, ranks_per_node, gpu_request, [] { return 0; }};
}

Names words_of(const SrunLauncher& launcher, const std::string& job) {
  const GridCell cell = cell_of(job);
  return launcher.command(cell, cell_files("runs", cell)).args;
}

// A script in the place of mpirun: it ends in its own way for each signal.
LaunchCommand listener(const TestFolder& folder) {
  const fs::path file = folder / "listener";
  std::ofstream(file)
      << "#!/bin/sh\ntrap 'echo usr1; case \"$1\" in stubborn) ;; slow) sleep 4; exit "
         "75 ;; *) exit 75 ;; esac' USR1\n"
         "trap 'echo term; exit 143' TERM\necho out; echo err >&2\n"
         "i=0; while [ $i -lt 600 ]; do sleep 0.05; i=$((i+1)); done\n";
  fs::permissions(file, fs::perms::owner_all);
  return {{}, {file.string()}};
}

// Asks once the script is there to listen.
int once_it_listens(const CellFiles& files, int requests) {
  return fs::exists(files.log) && contains(read_text_file(files.log), "err") ? requests : 0;
}

}  // namespace

namespace {

struct RecordedVersion {
  const char *text, *family;
};

// Recorded from the programs but for the majors 3, 6 and 7; those without a family must get no
// option.
const RecordedVersion kVersions[] = {
    {"mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n",
     "open-mpi-4"},
    {"mpirun.openmpi (OpenRTE) 4.1.4\n\nReport bugs to …\n", "open-mpi-4"},
    {"mpiexec (OpenRTE) 3.1.6\n", "open-mpi-4"},
    {"mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n",
     "open-mpi-5"},
    {"mpirun (Open MPI) 6.0.0a1\n", "open-mpi-5"},
    {"HYDRA build details:\n    Version:                                 4.0.2\n", "hydra"},
    {"Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626 (id: b44796a)\n"
     "Copyright 2003-2026, Intel Corporation.\n",
     "intel"},
    {"mpirun (Open MPI) 7.0.0\n", "unknown"},
    {"mpiexec version 1.2.12 revision 4b1a2d1\n", "unknown"},
    {"warning\nmpirun (Open MPI) 4.1.4\n", "unknown"},
    {"HYDRA build details: 4.0.2\n", "unknown"},
    {"Intel(R) MPI Library for Linux* OS, Version 4.1\n", "unknown"},
    {"", "unknown"},
};

fs::path program_that_prints(const TestFolder& folder, const std::string& text) {
  std::ofstream(folder / "text") << text;
  const fs::path file = folder / "mpirun";
  std::ofstream(file)
      << "#!/bin/sh\necho trouble >&2\n[ \"$1\" = --version ] && cat \"${0%/*}/text\"\n";
  fs::permissions(file, fs::perms::owner_all);
  return file;
}

}  // namespace

TEST_CASE("mpirun: its family is read strictly") {
  for (const auto& [text, family] : kVersions) {
    const auto& version = text;  // clang 14 captures no binding
    CAPTURE(version);
    CHECK(family_of_version(text).name == family);
  }
}

TEST_CASE("mpirun: no family is given an option of another") {
  const auto options = [](const std::string& version) {
    return family_of_version(version).options;
  };
  const std::string four = options("mpirun (Open MPI) 4.1.4"),
                    five = options("mpirun (Open MPI) 5.0.1");
  CHECK(four.starts_with("--oversubscribe --bind-to none --quiet --mca "));
  CHECK(five.starts_with("--oversubscribe --bind-to none --prtemca "));
  // Open MPI 5 ends with 213 for --quiet, MPICH and Intel MPI with 255 for --oversubscribe.
  CHECK_FALSE(contains(five, "--quiet"));
  CHECK_FALSE(contains(five, "--mca "));
  CHECK(options("HYDRA build details:").empty());
  CHECK(options("Intel(R) MPI Library for Linux* OS, Version 2021.1") == "-genv I_MPI_PIN 0");
  CHECK(options("").empty());
}

TEST_CASE("mpirun: the program is asked once, and Intel's script is passed over") {
  const TestFolder folder;
  for (const auto& [text, family] : kVersions) {
    const auto& version = text;  // clang 14 captures no binding
    CAPTURE(version);
    const Mpirun asked = ask_mpirun(program_that_prints(folder, text).string());
    CHECK(asked.family.name == family);
    CHECK(fs::path(asked.program).filename() ==
          (asked.family.name == "intel" ? "mpiexec.hydra" : "mpirun"));
    CHECK(fs::path(asked.program).parent_path() == folder.path());
  }
  CHECK(ask_mpirun("/nonexistent/mpirun").family.name == "unknown");
}

TEST_CASE("mpirun: what a family puts on each node") {
  const auto words = [](const std::string& version) {
    const LocalLauncher launcher({"mpirun", family_of_version(version)}, "t", {"env"}, 1, {});
    std::string text;
    for (const auto& word : launcher.command_on({2, 4}, {"check", "--x"}).args)
      text += word + ' ';
    return text;
  };
  for (const char* version : {"mpirun (Open MPI) 4.1.4", "mpirun (Open MPI) 5.0.1"})
    CHECK(contains(words(version), " --map-by ppr:4:node env check --x "));
  CHECK(words("HYDRA build details:") == "mpirun -n 8 -ppn 4 env check --x ");
  CHECK(contains(words("Intel(R) MPI Library for Linux* OS, Version 2021.1"), " -ppn 4 env "));
  CHECK(words("") == "mpirun -n 8 env check --x ");
}

namespace {

// What config/find makes of a compiler wrapper that answers these options and refuses all others.
struct RecordedWrapper {
  const char* what;
  std::map<std::string, std::string> answers;
  const char *cflags, *libs;
};

const std::string kMpichShow =
    "g++ -Wl,-z,relro -I/usr/include/x86_64-linux-gnu/mpich -L/usr/lib/x86_64-linux-gnu "
    "-lmpichcxx -lmpich";
const std::string kIntelShow =
    "g++ -I\"ROOT/include\" -L\"ROOT/lib/release\" -L\"ROOT/lib\" -Xlinker --enable-new-dtags "
    "-Xlinker -rpath -Xlinker \"ROOT/lib/release\" -lmpicxx -lmpifort -lmpi -lrt -lpthread "
    "-Wl,-z,now -ldl";

std::string intel_in(const std::string& root) {
  std::string text = kIntelShow;
  for (std::size_t at; (at = text.find("ROOT")) != std::string::npos;)
    text.replace(at, 4, root);
  return text;
}

const RecordedWrapper kWrappers[] = {
    {"Open MPI",
     {{"--showme:compile", "-I/opt/openmpi/include -pthread"},
      {"--showme:link", "-pthread -L/opt/openmpi/lib -Wl,-rpath -Wl,/opt/openmpi/lib -lmpi"}},
     "-isystem /opt/openmpi/include -pthread",
     "-L/opt/openmpi/lib -Wl,-rpath,/opt/openmpi/lib -Wl,-rpath -Wl,/opt/openmpi/lib -lmpi"},
    {"MPICH 4",
     {{"-show", kMpichShow}, {"-compile-info", kMpichShow}, {"-link-info", kMpichShow}},
     "-isystem /usr/include/x86_64-linux-gnu/mpich",
     "-Wl,-z,relro -L/usr/lib/x86_64-linux-gnu -lmpichcxx -lmpich"},
    {"only -show",
     {{"-show", "g++ -I/opt/mpich/include -L/opt/mpich/lib -lmpi"}},
     "-isystem /opt/mpich/include",
     "-L/opt/mpich/lib -Wl,-rpath,/opt/mpich/lib -lmpi"},
    {"Intel MPI, which quotes paths",
     {{"-show", intel_in("/opt/impi")}, {"-compile-info", intel_in("/opt/impi")}},
     "-isystem /opt/impi/include",
     "-L/opt/impi/lib/release -Wl,-rpath,/opt/impi/lib/release -L/opt/impi/lib "
     "-Wl,-rpath,/opt/impi/lib -lmpicxx -lmpifort -lmpi -lrt -lpthread -Wl,-z,now -ldl"},
    {"Cray's CC",
     {{"--cray-print-opts=cflags", "-I/opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/include"},
      {"--cray-print-opts=libs",
       "-L/opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/lib "
       "-Wl,--as-needed,-lmpi_gnu_123,--no-as-needed"}},
     "-isystem /opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/include",
     "-L/opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/lib "
     "-Wl,-rpath,/opt/cray/pe/mpich/8.1.28/ofi/gnu/12.3/lib "
     "-Wl,--as-needed,-lmpi_gnu_123,--no-as-needed"},
    {"no wrapper", {}, "", ""},
};

fs::path wrapper_that_answers(const TestFolder& folder,
                              const std::map<std::string, std::string>& answers) {
  fs::create_directories(folder / "bin");
  const fs::path file = folder / "bin/mpicxx";
  std::ofstream script(file);
  script << "#!/bin/sh\ncase $1 in\n";
  for (const auto& [option, text] : answers)
    script << option << ") echo '" << text << "' ;;\n";
  script << "*) exit 1 ;;\nesac\n";
  fs::permissions(file, fs::perms::owner_all);
  return file;
}

// "cflags|libs", without the switches that keep MPI's C++ bindings out.
std::string flags_by(const fs::path& wrapper) {
  return capture_process({"bash", "-euc",
                          "cd \"$1\"; . config/common.sh; . config/find/probe.sh; "
                          ". config/find/libraries.sh; wanted_mpicxx=$2; ask_mpicxx; "
                          "echo \"${mpi_cflags%-DOMPI_SKIP*}|$mpi_libs\"",
                          "bash", source_folder().string(), wrapper.string()})
      .output;
}

}  // namespace

TEST_CASE("mpicxx: flags of every family's wrapper are understood") {
  for (const auto& [what, answers, cflags, libs] : kWrappers) {
    const auto& wrapper = what;
    CAPTURE(wrapper);
    const TestFolder folder;
    const auto after = [](const std::string& text) { return text.empty() ? text : text + ' '; };
    CHECK(flags_by(wrapper_that_answers(folder, answers)) ==
          after(cflags) + '|' + after(libs) + '\n');
  }
}

TEST_CASE("mpicxx: Intel's wheel stands for its own folder where I_MPI_ROOT is not set") {
  const TestFolder folder;
  const auto file =
      wrapper_that_answers(folder, {{"-show", intel_in("I_MPI_SUBSTITUTE_INSTALLDIR")}});
  const std::string root = fs::canonical(folder.path()).string();
  CHECK(contains(flags_by(file), "-isystem " + root + "/include |-L" + root + "/lib/release "));
}

TEST_CASE("allocation: what Slurm says of a job") {
  CHECK_FALSE(allocation_in({{"SLURM_NTASKS", "4"}}).has_value());
  const auto two = allocation_in({{"SLURM_JOB_ID", "7"},
                                  {"SLURM_JOB_NUM_NODES", "2"},
                                  {"SLURM_NTASKS_PER_NODE", "4"},
                                  {"SLURM_JOB_CPUS_PER_NODE", "32(x2)"},
                                  {"SLURM_GPUS_ON_NODE", "4"}});
  REQUIRE(two.has_value());
  CHECK(two->job == "7");
  CHECK(two->nodes == 2);
  CHECK(two->ranks_per_node == 4);
  CHECK(two->cpus_per_node == 32);
  CHECK(two->cpus_per_rank == 8);
  CHECK(two->gpus_per_node == 4);
}

TEST_CASE("allocation: ranks per node from tasks and nodes, else a rank a GPU, else one") {
  const auto ranks = [](Variables variables) {
    variables["SLURM_JOB_ID"] = "7";
    return allocation_in(variables)->ranks_per_node;
  };
  CHECK(ranks({{"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_NTASKS", "4"}}) == 2);
  CHECK(ranks({{"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_NTASKS", "3"}}) == 2);
  CHECK(ranks({{"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_GPUS_PER_NODE", "h200:8"}}) == 8);
  CHECK(ranks({{"SLURM_GPUS_PER_NODE", "a100:2,v100:2"}}) == 4);
  CHECK(ranks({{"SLURM_GPUS_PER_NODE", "a100:1,h100_1g.10gb:7,v100:2"}}) == 10);
  CHECK(ranks({{"SLURM_GPUS_ON_NODE", "gpu:a100:2,gpu:v100:1"}}) == 3);
  CHECK(ranks({{"SLURM_JOB_GPUS", "0,1,3"}}) == 3);
  CHECK(ranks({}) == 1);
}

TEST_CASE("allocation: the smallest node counts, and CPUs that were asked for a rank") {
  const auto mixed = allocation_in({{"SLURM_JOB_ID", "7"},
                                    {"SLURM_JOB_NUM_NODES", "3"},
                                    {"SLURM_JOB_CPUS_PER_NODE", "16(x2),8"},
                                    {"SLURM_CPUS_PER_TASK", "3"}});
  CHECK(mixed->cpus_per_node == 8);
  CHECK(mixed->cpus_per_rank == 3);
  error_text(ExitCode::kEnvironment, [] {
    allocation_in({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "many"}});
  });
}

TEST_CASE("shape: as few nodes as hold the ranks") {
  CHECK(shape_of(1, 4) == Shape{1, 1});
  CHECK(shape_of(4, 4) == Shape{1, 4});
  CHECK(shape_of(5, 4) == Shape{2, 4});
  CHECK(shape_of(8, 1) == Shape{8, 1});
  CHECK(shape_text({2, 4}) == "2 nodes × 4 ranks");
  CHECK(shape_text({1, 1}) == "1 node × 1 rank");
}

TEST_CASE("srun: nodes, ranks, cores and GPUs of a cell") {
  const Allocation gpus{"7", 2, 4, 32, 8, 4};
  const Names all = words_of(srun_on(gpus), "ranks = 8\nsync = ddp");
  for (const char* word :
       {"--mpi=pmix", "--kill-on-bad-exit=1", "--wait=60", "--cpu-bind=cores", "--nodes=2",
        "--ntasks=8", "--ntasks-per-node=4", "--cpus-per-task=8", "--gpus-per-node=4",
        "--threads=8", "--sync=ddp", "--output=runs/resnet18-ddp-r8.h5"})
    CHECK_MESSAGE(has(all, word), word);
  CHECK(all.front() == "srun");

  const Names few = words_of(srun_on(gpus), "ranks = 2\nthreads = 3");
  for (const char* word : {"--nodes=1", "--ntasks=2", "--ntasks-per-node=2", "--cpus-per-task=8",
                           "--gpus-per-node=2", "--threads=3"})
    CHECK_MESSAGE(has(few, word), word);
  CHECK_FALSE(has(few, "--threads=8"));

  CHECK(has(words_of(srun_on(gpus, 0, {}, "gres"), "ranks = 8"), "--gres=gpu:4"));
  CHECK(has(words_of(srun_on(gpus, 0, {}, "gres:h100"), "ranks = 2"), "--gres=gpu:h100:2"));
  CHECK(has(words_of(srun_on(gpus, 0, {}, "gres:a"), "ranks = 2"), "--gres=gpu:a:2"));
  for (const char* form : {"gres", "gres:h100", "none"})
    CHECK_FALSE(has(words_of(srun_on(gpus, 0, {}, form), "ranks = 8"), "--gpus-per-node=4"));
  for (const char* wrong : {"", "gres:", "gpu", "--gres=gpu"})
    CHECK_MESSAGE(contains(refusal([&] { srun_on(gpus, 0, {}, wrong); }), "--gpu-request"), wrong);
}

TEST_CASE("srun: no task is confined to a GPU, whatever the allocation's environment says") {
  const Allocation gpus{"7", 2, 4, 32, 8, 4};
  const auto unbound = [&](const std::string& form) {
    return has(words_of(srun_on(gpus, 0, {}, form), "ranks = 8"), "--gpu-bind=none");
  };
  CHECK_FALSE(unbound("gpus-per-node"));
  CHECK(unbound("gpus-per-task"));
  for (const char* name : {"SLURM_GPU_BIND", "SLURM_GPUS_PER_TASK"}) {
    setenv(name, "1", 1);
    CHECK(unbound("gpus-per-node"));
    unsetenv(name);
  }
}

TEST_CASE("srun: a program on all ranks of the job") {
  const Allocation gpus{"7", 2, 4, 32, 8, 4};
  const Names words =
      srun_on(gpus, 0, {"env"}).command_on({2, 4}, {"bin/gradsync-check", "--x"}).args;
  for (const char* word : {"--mpi=pmix", "--job-name=gradsync-check", "--nodes=2", "--ntasks=8",
                           "--ntasks-per-node=4", "--cpus-per-task=8", "--gpus-per-node=4"})
    CHECK_MESSAGE(has(words, word), word);
  CHECK(Names(words.end() - 3, words.end()) == Names{"env", "bin/gradsync-check", "--x"});
}

TEST_CASE("srun: without GPUs none are asked for; ranks per node and options are the job's") {
  const Allocation cpus{"7", 4, 1, 8, 8, 0};
  const Names args = words_of(srun_on(cpus, 2, {"--cpu-bind=none"}), "ranks = 4");
  CHECK(has(args, "--nodes=2"));
  CHECK(has(args, "--ntasks-per-node=2"));
  CHECK(has(args, "--cpus-per-task=4"));
  CHECK(std::none_of(args.begin(), args.end(),
                     [](const auto& arg) { return arg.starts_with("--gpus"); }));
  // Of an allocation for one rank a node, that rank has all cores that it was given.
  CHECK(has(words_of(srun_on({"7", 1, 1, 8, 8, 0, 1}, 2), "ranks = 1"), "--cpus-per-task=8"));
  // srun takes the last of two.
  CHECK(std::find(args.begin(), args.end(), "--cpu-bind=none") >
        std::find(args.begin(), args.end(), "--cpu-bind=cores"));
}

TEST_CASE("srun: a hint, of the options or of the job, goes before the binding to cores") {
  const Allocation cpus{"7", 1, 2, 8, 4, 0};
  CHECK(has(words_of(srun_on(cpus, 2), "ranks = 2"), "--cpu-bind=cores"));
  const Names hinted = words_of(srun_on(cpus, 2, {"--hint=nomultithread"}), "ranks = 2");
  CHECK_FALSE(has(hinted, "--cpu-bind=cores"));
  CHECK(has(hinted, "--hint=nomultithread"));
  setenv("SLURM_HINT", "nomultithread", 1);
  const Names of_the_job = words_of(srun_on(cpus, 2), "ranks = 2");
  unsetenv("SLURM_HINT");
  CHECK_FALSE(has(of_the_job, "--cpu-bind=cores"));
}

TEST_CASE("srun: a cell that the allocation cannot hold is exit 69 and says what to ask for") {
  const auto refused = [](const SrunLauncher& launcher, const std::string& job) {
    return error_text(ExitCode::kEnvironment, [&] { launcher.require_room(cell_of(job)); });
  };
  const Allocation small{"7", 1, 2, 4, 2, 0};
  CHECK_NOTHROW(srun_on(small).require_room(cell_of("ranks = 2")));
  const std::string text = refused(srun_on(small), "ranks = 4\nmodel = lenet");
  CHECK(contains(text, "cell lenet-ddp-r4: 4 ranks do not fit the allocation (job 7)"));
  CHECK(contains(text, "1 node with 2 ranks on each"));
  CHECK(contains(text, "--nodes=2 --ntasks-per-node=2"));
  CHECK(contains(refused(srun_on({"7", 1, 4, 8, 2, 2}), "ranks = 4"),
                 "4 ranks on a node that has 2 GPUs"));
  CHECK(contains(refused(srun_on({"7", 2, 1, 4, 4, 0, 1}, 2), "ranks = 2"),
                 "2 nodes with 1 rank on each | request --nodes=1 --ntasks-per-node=2"));
}

TEST_CASE("mpirun on several nodes: the job's cores of a rank, and no more ranks than it has") {
  const auto on = [](std::int64_t nodes) {
    return LocalLauncher({}, "t", {}, 8, {}, Allocation{"7", nodes, 4, 32, 8, 0});
  };
  CHECK(on(2).threads() == 8);
  CHECK_NOTHROW(on(2).require_room(cell_of("ranks = 8")));
  const std::string text =
      error_text(ExitCode::kEnvironment, [&] { on(2).require_room(cell_of("ranks = 9")); });
  CHECK(contains(text, "9 ranks do not fit the allocation (job 7): 2 nodes with 4 ranks on each"));
  CHECK_NOTHROW(on(1).require_room(cell_of("ranks = 9")));
  // The templates ask for ranks of one node: 4 of 8 cores.
  const LocalLauncher stated({}, "t", {}, 1, {}, Allocation{"7", 1, 4, 32, 8, 0, 4});
  CHECK(stated.threads() == 8);
  error_text(ExitCode::kEnvironment, [&] { stated.require_room(cell_of("ranks = 9")); });
}

TEST_CASE("launcher: a run that is resumed keeps its threads") {
  const TestFolder folder;
  const GridCell cell = cell_of("ranks = 2");
  const CellFiles files = cell_files(folder.path(), cell);
  const LocalLauncher launcher({}, "t", {}, 2, {}, Allocation{"7", 2, 2, 16, 8, 0});
  const auto words = [&] { return shell_text(launcher.command(cell, files)); };
  CHECK(contains(words(), "--threads=8"));
  RunInfo info = testing::sample_info({"ddp", 2});
  info.config.push_back({"threads", "4", "command line"});
  {
    Recorder recorder(files.run, info);
    testing::record_sample(recorder, {"ddp", 2});
    recorder.sync();
  }
  CHECK(contains(words(), "--threads=8"));  // without a checkpoint it begins again
  std::filesystem::create_directories(files.checkpoints);
  write_file_atomically(files.checkpoints / "iteration-000000002.safetensors", "");
  CHECK(contains(words(), "--threads=4"));
}

TEST_CASE("sweep command: what stands behind -- goes to every cell, in place of the job's keys") {
  const CleanEnvironment environment;
  const TestFolder folder;
  const std::string file = folder / "test.cfg";
  std::ofstream(file) << "batch-global = 64\nlr = 0.1, 0.2\nmodel = lenet\nranks = 1, 2\n";
  const auto cells = [&](const Names& behind) {
    std::vector<const char*> words = {"gradsync-sweep", file.c_str(), "--results", "r", "--"};
    for (const auto& word : behind)
      words.push_back(word.c_str());
    const auto command = read_sweep_command(static_cast<int>(words.size()), words.data());
    CHECK(command.options.results == "r");
    return expand(read_job(file, {}, command.trainer_options)).cells;
  };
  const auto given = cells({"--lr=0.5", "--no-augment", "--batch-per-rank", "8"});
  REQUIRE(given.size() == 2);
  const Names args = trainer_arguments(given[1]);
  for (const char* word : {"--lr=0.5", "--no-augment", "--batch-per-rank=8", "--model=lenet"})
    CHECK_MESSAGE(has(args, word), word);
  CHECK_FALSE(has(args, "--batch-global=64"));
  CHECK(cells({}).size() == 4);
  CHECK(contains(refusal([&] { cells({"--lr", "0.1,0.2"}); }), "--lr"));
  CHECK(contains(refusal([&] { cells({"--bacth-per-rank=1"}); }), "did you mean --batch-per-rank"));
  CHECK(contains(refusal([&] { cells({"--bogus"}); }), "gradsync-train --help-all lists"));
  CHECK(contains(refusal([&] { cells({"lr"}); }), "not expected after the --"));
  CHECK(contains(refusal([&] { cells({"--output=x.h5"}); }), "names the run files itself"));
  CHECK(contains(refusal([&] {
                   cells({"--batch-global=8", "--batch-per-rank=8"});
                 }),
                 "one of the two"));
}

TEST_CASE("stoppable run: the first request is SIGUSR1, and the log is gone on with") {
  const TestFolder folder;
  const CellFiles files = cell_files(folder.path(), {"cell", 1, 1, {}});
  std::ofstream(files.log) << "earlier\n";
  const auto result =
      run_stoppable(listener(folder), files, [&] { return once_it_listens(files, 1); });
  CHECK(result.exit_code == 75);
  CHECK(read_text_file(files.log) == "earlier\nout\nerr\nusr1\n");
}

TEST_CASE("stoppable run: a terminal that closes, which signals twice, is one request") {
  const TestFolder folder;
  const CellFiles files = cell_files(folder.path(), {"cell", 1, 1, {}});
  LaunchCommand command = listener(folder);
  command.args.push_back("slow");
  const auto result = run_stoppable(command, files, [&] { return once_it_listens(files, 2); });
  CHECK(result.exit_code == 75);
  CHECK(read_text_file(files.log) == "out\nerr\nusr1\n");
}

TEST_CASE("stoppable run: a second request after a grace is SIGTERM") {
  const TestFolder folder;
  const CellFiles files = cell_files(folder.path(), {"cell", 1, 1, {}});
  LaunchCommand command = listener(folder);
  command.args.push_back("stubborn");
  std::optional<Stopwatch> since_heard;
  const auto result = run_stoppable(command, files, [&] {
    if (once_it_listens(files, 1) == 0) return 0;
    if (!since_heard) since_heard.emplace();
    return since_heard->elapsed_s() > 4 ? 2 : 1;
  });
  CHECK(result.exit_code == 143);
  CHECK(since_heard->elapsed_s() > 4);
  CHECK(read_text_file(files.log) == "out\nerr\nusr1\nterm\n");
}

TEST_CASE("stoppable run: without a request nothing is signalled") {
  const TestFolder folder;
  const CellFiles files = cell_files(folder.path(), {"cell", 1, 1, {}});
  LaunchCommand command;
  command.args = {"sleep", "0.3"};
  const auto result = run_stoppable(command, files, [] { return 0; });
  CHECK(result.succeeded());
}
