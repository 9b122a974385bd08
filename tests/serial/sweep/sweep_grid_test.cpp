// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "base/cli/options.h"
#include "base/process.h"
#include "options/options.h"
#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/sweep_fixture.h"
#include "serial/test_folder.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"
#include "sweep/launcher.h"
#include "sweep/runner.h"

using namespace gradsync;
using namespace gradsync::sweep;
namespace fs = std::filesystem;
using Names = std::vector<std::string>;

namespace {

std::vector<std::string> expanded(const std::string& text) {
  return names_of(expand(job_of(text)));
}

}  // namespace

TEST_CASE("sweep: two axes, the last varies fastest") {
  const CleanEnvironment environment;
  CHECK(expanded("sync = ddp, none\nranks = 1, 2\nmodel = lenet") ==
        Names{"lenet-ddp-r1", "lenet-ddp-r2", "lenet-none-r1", "lenet-none-r2"});
  CHECK(expanded("ranks = 1, 2\nsync = ddp, none\nmodel = lenet") ==
        Names{"lenet-ddp-r1", "lenet-none-r1", "lenet-ddp-r2", "lenet-none-r2"});
}

TEST_CASE("sweep: names carry what varies, in the order of --help, and the repeats") {
  const CleanEnvironment environment;
  CHECK(expanded("model = vgg11\nsync = ddp\nranks = 4\nbatch-per-rank = 64, 128\nrepeats = 2") ==
        Names{"vgg11-ddp-r4-b64-x1", "vgg11-ddp-r4-b64-x2", "vgg11-ddp-r4-b128-x1",
              "vgg11-ddp-r4-b128-x2"});
  CHECK(expanded("lr = 0.1, 0.2\nbucket-cap = 4MiB, 25MiB\nbatch-global = 8") ==
        Names{"resnet18-ddp-r1-bucket-cap-4MiB-lr0.1", "resnet18-ddp-r1-bucket-cap-25MiB-lr0.1",
              "resnet18-ddp-r1-bucket-cap-4MiB-lr0.2", "resnet18-ddp-r1-bucket-cap-25MiB-lr0.2"});
  CHECK(expanded("iterations = 3") == Names{"resnet18-ddp-r1"});
  CHECK(expanded("data = a/b, a_b") ==
        Names{"resnet18-ddp-r1-data-a_b", "resnet18-ddp-r1-data-a_b_2"});
}

TEST_CASE("sweep: a cell holds the options of its job and no others") {
  const CleanEnvironment environment;
  const Grid grid =
      expand(job_of("sync = ddp, c10d\nranks = 2\nlr = 0.25\naugment = false\ndata = \"x, y\""));
  REQUIRE(grid.cells.size() == 2);
  const GridCell& cell = grid.cells[1];
  CHECK(cell.ranks == 2);
  CHECK(cell.repeat == 1);
  CHECK(cell.options.size() == 4);
  CHECK(option_of(cell, "sync") == "c10d");
  CHECK(option_of(cell, "lr") == "0.25");
  CHECK(option_of(cell, "augment") == "false");
  CHECK(option_of(cell, "data") == "x, y");
}

TEST_CASE("sweep: an exclusion leaves out what meets all its conditions") {
  const CleanEnvironment environment;
  CHECK(
      expanded("model = lenet\nsync = none, ddp\nranks = 1, 2, 4\nexclude = sync=none ranks=2,4") ==
      Names{"lenet-none-r1", "lenet-ddp-r1", "lenet-ddp-r2", "lenet-ddp-r4"});
  CHECK(expanded("model = lenet\nsync = none, ddp\nranks = 1, 2\nexclude = ranks=1 "
                 "sync=ddp\nexclude = ranks=2 sync=none") ==
        Names{"lenet-none-r1", "lenet-ddp-r2"});
  // A condition on an option that the job leaves alone meets its default.
  CHECK(expanded("ranks = 1, 2\nexclude = sync=ddp ranks=2") == Names{"resnet18-ddp-r1"});
  const Grid grid = expand(job_of("ranks = 1\nexclude = ranks=8"));
  REQUIRE(grid.remarks.size() == 1);
  CHECK(grid.remarks[0].find("test.cfg:2") == 0);
  // What --set took out of the grid needs no exclusion.
  const std::vector<KeyValue> fewer = {{"ranks", "1, 2", "--set ranks", false}};
  CHECK(expand(job_of("ranks = 1, 4\nexclude = ranks=4", fewer)).remarks.empty());
  CHECK(expand(job_of("ranks = 1, 4\nexclude = sync=none", fewer)).remarks.size() == 1);
}

namespace {

// The names of the cells of each job.
std::vector<Names> jobs(const std::string& text, std::vector<std::string>* remarks = nullptr) {
  const Grid grid = expand(job_of("model = lenet\n" + text));
  if (remarks != nullptr) *remarks = grid.remarks;
  std::vector<Names> all;
  for (const CellJob& job : jobs_of(grid.cells)) {
    all.emplace_back();
    for (const GridCell& cell : job)
      all.back().push_back(cell.name);
  }
  return all;
}

using Jobs = std::vector<Names>;

}  // namespace

TEST_CASE("sweep jobs: cells that differ only in what ranks exchange are one job") {
  const CleanEnvironment environment;
  const std::string modes = "sync = none, ddp\nranks = 1, 2\n";
  CHECK(jobs(modes) == Jobs{{"lenet-none-r1", "lenet-ddp-r1"}, {"lenet-none-r2", "lenet-ddp-r2"}});
  CHECK(jobs(modes + "exclude = sync=none ranks=2\n") ==
        Jobs{{"lenet-none-r1", "lenet-ddp-r1"}, {"lenet-ddp-r2"}});
  CHECK(jobs("ranks = 2\nbucket-cap = 1MiB, 4MiB\ntransport = mpi, auto\nlr = 0.1, 0.2").size() ==
        2);
  // Otherwise they are no contenders of each other.
  CHECK(jobs("ranks = 2\nseed = 1, 2\nbatch-per-rank = 8, 16\nthreads = 1, 2").size() == 8);
  CHECK(jobs("sync = none, ddp\nranks = 1\nrepeats = 2") ==
        Jobs{{"lenet-none-r1-x1", "lenet-ddp-r1-x1"}, {"lenet-none-r1-x2", "lenet-ddp-r1-x2"}});
  CHECK(jobs(modes + "interleave = no").size() == 4);
  CHECK(refused("interleave = perhaps", "test.cfg:1: interleave"));
  CHECK(refused("compare = none, ddp", "test.cfg:1: compare: the sweep compares"));
}

TEST_CASE("sweep jobs: the reference is the first cell of the job file, also in a random order") {
  const CleanEnvironment environment;
  std::set<std::string> first;
  for (int seed = 0; seed < 20; ++seed) {
    const auto all = jobs(
        "sync = none, allreduce, ddp\nranks = 1, 2\norder = random\n"
        "order-seed = " +
        std::to_string(seed));
    REQUIRE(all.size() == 2);
    CHECK(all[0].front().find("lenet-none-r") == 0);
    CHECK(all[0].size() == 3);
    first.insert(all[0].front());
  }
  CHECK(first.size() == 2);
}

TEST_CASE("sweep jobs: with options of single runs each cell is a job, and it is printed why") {
  const CleanEnvironment environment;
  for (const std::string option : {"target-accuracy = 50", "resume = some.safetensors"}) {
    std::vector<std::string> remarks;
    CHECK_MESSAGE(jobs("sync = none, ddp\nranks = 1, 2\n" + option, &remarks).size() == 4, option);
    REQUIRE(remarks.size() == 1);
    CHECK(contains(remarks[0], "each cell is a job of its own: test.cfg:4: "));
  }
  std::vector<std::string> remarks;
  jobs("sync = none\nranks = 1, 2\ntarget-accuracy = 50", &remarks);
  CHECK(remarks.empty());
}

TEST_CASE("sweep jobs: the trainer gets what is common, and in a contender what differs") {
  const CleanEnvironment environment;
  const auto start = [](const std::string& text) {
    return start_of(jobs_of(expand(job_of("model = lenet\n" + text)).cells).front());
  };
  const GridCell modes = start("sync = none, ddp\nlr = 0.5\nbucket-cap = 4MiB");
  CHECK(modes.name == "lenet-none-r1");
  CHECK(option_of(modes, "compare") == "none,ddp");
  CHECK(modes.option("sync") == nullptr);
  CHECK(option_of(modes, "lr") == "0.5");
  CHECK(option_of(modes, "bucket-cap") == "4MiB");
  const GridCell caps = start(
      "variant = a: bucket-cap=4MiB\nvariant = b: wire-dtype=bf16\n"
      "variant = c:\ntime-limit = 30s");
  CHECK(option_of(caps, "compare") == "ddp:bucket-cap=4MiB,ddp:wire-dtype=bf16,ddp");
  CHECK(caps.option("bucket-cap") == nullptr);
  // Three of them and the control.
  CHECK(option_of(caps, "time-limit") == "120s");
  const GridCell alone = start("sync = ddp\ntime-limit = 30s");
  CHECK(option_of(alone, "sync") == "ddp");
  CHECK(option_of(alone, "time-limit") == "30s");
}

TEST_CASE("sweep: a random order is the same cells, fixed by its seed") {
  const CleanEnvironment environment;
  const std::string text =
      "ranks = 1,2,3,4,5,6,7,8\nbatch-global = 840\norder = random\norder-seed = ";
  const Names first = expanded(text + "7"), again = expanded(text + "7"),
              other = expanded(text + "8");
  CHECK(first == again);
  CHECK(first != other);
  Names sorted = first;
  std::sort(sorted.begin(), sorted.end());
  CHECK(sorted != first);
  CHECK(std::set(first.begin(), first.end()) == std::set(other.begin(), other.end()));
  CHECK(first.size() == 8);
  // Two cells have two orders.
  std::set<Names> orders;
  for (int seed = 0; seed < 20; ++seed)
    orders.insert(expanded("ranks = 1,2\norder = random\norder-seed = " + std::to_string(seed)));
  CHECK(orders.size() == 2);
}

TEST_CASE("sweep: a job file that is wrong says where and what") {
  const CleanEnvironment environment;
  CHECK(refused("ranks = 1\nsnyc = ddp",
                "test.cfg:2: snyc is not a key of a job file; did you mean sync?"));
  CHECK(refused("rank = 1", "did you mean ranks?"));
  CHECK(refused("ranks =", "test.cfg:1: ranks: there is no value"));
  CHECK(refused("sync = ddp,,none", "a value of the list is empty"));
  CHECK(refused("ranks = 0", "test.cfg:1: ranks: \"0\" is out of range"));
  CHECK(refused("ranks = -1", "out of range"));
  CHECK(refused("ranks = 1.5", "is not a whole number"));
  CHECK(refused("ranks = 2, 2", "2 is listed twice"));
  CHECK(refused("ranks = 1\n\nranks = 2", "test.cfg:3: ranks is given twice"));
  CHECK(refused("repeats = 0", "out of range"));
  CHECK(expanded("ranks = 2\nrepeats = 1").size() == 1);
  CHECK(refused("repeats = 2, 3", "is not a whole number"));
  CHECK(refused("order = sorted", "as-written or random"));
  CHECK(refused("output = x.h5", "the sweep names the run files itself"));
  CHECK(refused("name = a/b", "is not a name"));
  CHECK(refused("results =", "no name"));
  CHECK(refused("exclude = ranks", "has no ="));
  CHECK(refused("exclude =", "no condition"));
  CHECK(refused("exclude = rakns=1", "did you mean ranks?"));
  CHECK(refused("ranks = 1\nexclude = ranks=1", "leave no cell"));
  CHECK(refused("sync = ddp, dpp", "test.cfg:1: sync: \"dpp\" is not a choice; did you mean ddp?"));
  CHECK(refused("lr = 0.1, nan", "test.cfg:1: lr"));
  CHECK(refused("batch-global = 10\nranks = 2, 4", "resnet18-ddp-r4"));
  CHECK(refused("batch-global = 10\nranks = 4", "does not divide by 4"));
  CHECK(refused("batch-global = 10\nbatch-per-rank = 4", "one of the two"));
  CHECK(refused("repeats = 1000\nseed = 1,2,3,4,5,6,7,8,9,10,11\nlr = 0,1,2,3,4,5,6,7,8,9",
                "more than 100000 cells"));
}

TEST_CASE("sweep: what is not given has a default") {
  const CleanEnvironment environment;
  const Job job = make_job(parse_key_values("lr = 0.1", "jobs/my-study.cfg"), {}, "my-study");
  CHECK(job.name == "my-study");
  CHECK(job.results == fs::path("results/my-study"));
  CHECK(job.repeats == 1);
  CHECK(expand(job).cells[0].ranks == 1);
}

TEST_CASE("sweep: --set replaces a key and adds an exclusion") {
  const CleanEnvironment environment;
  const auto overrides = std::vector<KeyValue>{{"ranks", "1, 2", "--set", false},
                                               {"lr", "0.5", "--set", false},
                                               {"exclude", "ranks=2", "--set", false}};
  const Grid grid = expand(job_of("ranks = 8\nmodel = lenet", overrides));
  CHECK(names_of(grid) == Names{"lenet-ddp-r1"});
  CHECK(option_of(grid.cells[0], "lr") == "0.5");
  const fs::path demo = source_folder() / "jobs" / "demo.cfg";
  CHECK(contains(refusal([&] { read_job(demo, {"ranks"}); }), "not KEY=VALUE"));
  CHECK(contains(refusal([&] { read_job(demo, {"rnaks=1"}); }), "--set rnaks: rnaks is not a key"));
  CHECK(contains(refusal([&] { read_job(demo, {"ranks=1", "ranks=2"}); }), "given twice"));
  CHECK(contains(refusal([&] { read_job(demo, {"# ranks=1"}); }), "not KEY=VALUE"));
}

TEST_CASE("sweep: GRADSYNC_DATA counts where the job file is silent") {
  const CleanEnvironment environment;
  setenv("GRADSYNC_DATA", "/scratch/a,b", 1);
  CHECK(option_of(expand(job_of("ranks = 1")).cells[0], "data") == "/scratch/a,b");
  CHECK(option_of(expand(job_of("data = here")).cells[0], "data") == "here");
  unsetenv("GRADSYNC_DATA");
  CHECK(option_of(expand(job_of("ranks = 1")).cells[0], "data") == "");
}

TEST_CASE("sweep: GRADSYNC_CONFIG, which would change cells and not the grid, is refused") {
  const CleanEnvironment environment;
  setenv("GRADSYNC_CONFIG", "mine.cfg", 1);
  CHECK(contains(refusal([] { job_of("ranks = 1"); }), "and unset GRADSYNC_CONFIG"));
  unsetenv("GRADSYNC_CONFIG");
}

TEST_CASE("sweep: what makes a cell the same run") {
  const CleanEnvironment environment;
  const auto identity = [](const std::string& text) {
    return identity_of(expand(job_of(text)).cells.at(0));
  };
  const std::string one = "lr = 0.2\nranks = 2\n";
  CHECK(identity(one) == identity("ranks = 2, 4\nlr = 0.2, 0.3\nsync = ddp\nrepeats = 3"));
  CHECK(identity(one) == identity(one + "time-limit = 3h\ncheckpoint-every = 5\nname = other"));
  for (const char* line : {"seed = 2", "sync = allreduce", "data = elsewhere"})
    CHECK_MESSAGE(identity(one) != identity(one + line), line);
  CHECK(identity(one) != identity("lr = 0.2\nranks = 4\n"));
}

TEST_CASE("sweep: --cell takes a number, from 1, or a name") {
  const CleanEnvironment environment;
  const Grid grid = expand(job_of("ranks = 1, 2\nmodel = lenet"));
  CHECK(cell_named(grid, "2").name == "lenet-ddp-r2");
  CHECK(cell_named(grid, "lenet-ddp-r1").ranks == 1);
  for (const char* text : {"0", "3", "01", "-1", "lenet", ""})
    CHECK_MESSAGE(contains(refusal([&] { cell_named(grid, text); }), "is not a cell"), text);
}

TEST_CASE("sweep: mpirun's command line") {
  const CleanEnvironment environment;
  const Grid grid = expand(job_of("sync = ddp\nranks = 3\nmpirun-options = --map-by core"));
  const Mpirun open_mpi{"bin/mpirun", family_of_version("mpirun (Open MPI) 4.1.4")};
  const LocalLauncher launcher(open_mpi, "bin/gradsync-train", {"--map-by", "core"}, 3,
                               [] { return 0; });
  const GridCell& cell = grid.cells[0];
  const LaunchCommand command = launcher.command(cell, cell_files("results/x y", cell));
  const bool contained = std::filesystem::exists("/.dockerenv") ||
                         std::filesystem::exists("/run/.containerenv") ||
                         namespace_of("user") != kFirstUserNamespace;
  CHECK(command.environment.empty() != (geteuid() == 0 && contained));
  const auto& args = command.args;
  const auto has = [&](const std::string& arg) {
    return std::find(args.begin(), args.end(), arg) != args.end();
  };
  CHECK(Names(args.begin(), args.begin() + 3) == Names{"bin/mpirun", "-n", "3"});
  CHECK(has("--oversubscribe"));
  CHECK(has("--sync=ddp"));
  CHECK(has("--output=results/x y/resnet18-ddp-r3.h5"));
  CHECK(std::any_of(args.begin(), args.end(),
                    [](const auto& arg) { return arg.starts_with("--threads="); }));
  const auto program = std::find(args.begin(), args.end(), "bin/gradsync-train");
  CHECK(*(program - 1) == "core");

  const Grid set = expand(job_of("threads = 7"));
  const auto own = launcher.command(set.cells[0], cell_files("r", set.cells[0])).args;
  CHECK(std::count_if(own.begin(), own.end(),
                      [](const auto& arg) { return arg.starts_with("--threads="); }) == 1);
  CHECK(std::find(own.begin(), own.end(), "--threads=7") != own.end());
}

TEST_CASE("sweep: what the sweep passes is what the trainer reads") {
  const CleanEnvironment environment;
  const Grid grid =
      expand(job_of("augment = off\nverify-modes = true\nbatch-per-rank = 4\ntimeout = 90s"));
  const LocalLauncher launcher({}, "gradsync-train", {}, 1, [] { return 0; });
  for (const auto& cell : grid.cells) {
    const auto args = launcher.command(cell, cell_files("r", cell)).args;
    const auto program = std::find(args.begin(), args.end(), "gradsync-train");
    std::vector<const char*> words;
    for (auto arg = program; arg != args.end(); ++arg)
      words.push_back(arg->c_str());
    const auto options = train_options(
        resolve_options(train_option_table(), static_cast<int>(words.size()), words.data()).values);
    CHECK_FALSE(options.augment);
    CHECK(options.verify_modes);
    CHECK(options.batch_per_rank == 4);
    CHECK(options.timeout_s == 90);
    CHECK(options.output == "r/resnet18-ddp-r1.h5");
  }
}

TEST_CASE("sweep: commands are quoted for a shell") {
  const CleanEnvironment environment;
  CHECK(shell_text({{"A=1", "B=x y"}, {"run", "--a=b", "it's", "$HOME", ""}}) ==
        "A=1 B='x y' run --a=b 'it'\\''s' '$HOME' ''");
}

namespace {

constexpr const char* kRemedies =
    "model = lenet\n"
    "lr = 0.02\n"
    "variant = plain:\n"
    "variant = warmup-lars: optimizer=lars lr=2 lr-scaling=linear warmup-epochs=2\n"
    "seed = 1, 2\n"
    "epochs = 4\n";

}  // namespace

TEST_CASE("variants: each is a value of one axis, with its options in place of the file's") {
  const CleanEnvironment environment;
  const Grid grid = expand(job_of(kRemedies));
  CHECK(names_of(grid) == Names{"lenet-ddp-r1-plain-seed1", "lenet-ddp-r1-plain-seed2",
                                "lenet-ddp-r1-warmup-lars-seed1",
                                "lenet-ddp-r1-warmup-lars-seed2"});
  CHECK(grid.cells[2].variant == "warmup-lars");
  CHECK(option_of(grid.cells[0], "lr") == "0.02");
  CHECK(option_of(grid.cells[0], "optimizer") == "");
  CHECK(option_of(grid.cells[3], "lr") == "2");
  CHECK(option_of(grid.cells[3], "optimizer") == "lars");
  CHECK(option_of(grid.cells[3], "seed") == "2");
  CHECK(train_options_of(grid.cells[3]).learning_rate.warmup_epochs == 2);
  CHECK(cell_named(grid, "lenet-ddp-r1-warmup-lars-seed1").variant == "warmup-lars");
}

TEST_CASE("variants: ranks, mode and batch may be a variant's") {
  const CleanEnvironment environment;
  const Grid grid = expand(job_of(
      "model = lenet\nbatch-global = 64\nranks = 4\nvariant = base: ranks=1 sync=none "
      "batch-per-rank=8\nvariant = large: accumulate=4 batch-schedule=0:64,1:128\nepochs = 2\n"
      "exclude = variant=large\nexclude = variant=base ranks=4"));
  CHECK(names_of(grid) == Names{"lenet-none-r1-base"});
  CHECK(grid.cells[0].ranks == 1);
  CHECK(option_of(grid.cells[0], "batch-per-rank") == "8");
  CHECK(option_of(grid.cells[0], "batch-global") == "");
  REQUIRE(grid.remarks.size() == 1);
  CHECK(contains(grid.remarks[0], "test.cfg:8"));
}

TEST_CASE("variants: one way to give the batch takes the place of the others") {
  const CleanEnvironment environment;
  const Grid grid =
      expand(job_of("batch-per-rank = 8\nepochs = 2\nvariant = plain:\nvariant = growing: "
                    "batch-schedule=0:32,1:64\nvariant = global: batch-global=16"));
  REQUIRE(grid.cells.size() == 3);
  CHECK(option_of(grid.cells[1], "batch-per-rank") == "");
  CHECK(option_of(grid.cells[1], "batch-schedule") == "0:32,1:64");
  CHECK(option_of(grid.cells[2], "batch-per-rank") == "");
  CHECK(train_options_of(grid.cells[2]).batch_per_rank == 16);
}

TEST_CASE("variants: what stands behind -- or in --set is given to all of them") {
  const CleanEnvironment environment;
  const Grid lr = expand(job_of(kRemedies, {{"lr", "0.5", "--lr 0.5", true}}));
  REQUIRE(lr.cells.size() == 4);
  for (const auto& cell : lr.cells)
    CHECK(option_of(cell, "lr") == "0.5");
  CHECK(option_of(lr.cells[2], "optimizer") == "lars");

  const Grid batch = expand(job_of("variant = a: batch-per-rank=8\nvariant = b: batch-per-rank=16",
                                   {{"batch-global", "32", "--set", true}}));
  for (const auto& cell : batch.cells)
    CHECK(option_of(cell, "batch-per-rank") == "");

  const Grid own = expand(job_of(kRemedies, {{"variant", "x: momentum=0", "--set", false},
                                             {"variant", "y:", "--set", false}}));
  CHECK(names_of(own) == Names{"lenet-ddp-r1-x-seed1", "lenet-ddp-r1-y-seed1",
                               "lenet-ddp-r1-x-seed2", "lenet-ddp-r1-y-seed2"});
}

TEST_CASE("job file: launchers get options and their values, and no program") {
  for (const char* key : {"mpirun-options", "srun-options", "sbatch-options"}) {
    CHECK(refused(std::string(key) + " = /tmp/x.sh", "\"/tmp/x.sh\" belongs to no option"));
    CHECK(refused(std::string(key) + " = --time=1 /tmp/x.sh", "belongs to no option"));
    CHECK(refused(std::string(key) + " = --mca a b /tmp/x.sh", "belongs to no option"));
  }
  CHECK(job_of("mpirun-options = --mca btl tcp --map-by core").mpirun_options.size() == 5);
  CHECK(job_of("sbatch-options = --comment=\"a b\" -p 'c d' --x=e\\ f\n").sbatch_options ==
        Names{"--comment=a b", "-p", "c d", "--x=e f"});
  CHECK(refused("sbatch-options = --comment=\"a b", "test.cfg:1: sbatch-options: the closing \""));
}

TEST_CASE("job file: one without a key is refused") {
  const TestFolder folder;
  write(folder / "empty.cfg", "# nothing\n");
  CHECK(contains(refusal([&] { read_job(folder / "empty.cfg"); }), "there is no key in it"));
  CHECK(read_job(folder / "empty.cfg", {"ranks=2"}).axes.size() == 1);
}

TEST_CASE("a grid that is too large: the message counts the values of an axis and lists none") {
  std::string values = "1";
  for (int i = 2; i <= 400; ++i)
    values += "," + std::to_string(i);
  const std::string text = refusal([&] {
    expand(job_of("seed = " + values, {{"ranks", values, "--set ranks", false}}));
  });
  CHECK(contains(text, "--set ranks: ranks has 400 values, and the grid more than 100000 cells"));
  CHECK(text.size() < 200);
}

TEST_CASE("variants: the environment counts where neither file nor variant speaks") {
  const CleanEnvironment environment;
  setenv("GRADSYNC_MOMENTUM", "0.5", 1);
  const Grid grid = expand(job_of("variant = a: momentum=0.1\nvariant = b:"));
  unsetenv("GRADSYNC_MOMENTUM");
  CHECK(option_of(grid.cells[0], "momentum") == "0.1");
  CHECK(option_of(grid.cells[1], "momentum") == "0.5");
}

TEST_CASE("variants: what is wrong in one is refused with its line") {
  const CleanEnvironment environment;
  CHECK(refused("lr = 1\nvariant = a: optimzer=lars",
                "test.cfg:2: variant: optimzer is not an option of a run; did you mean "
                "optimizer?"));
  CHECK(refused("variant = a: rnaks=2", "did you mean ranks?"));
  CHECK(refused("variant = a: results=x", "results is not an option of a run"));
  CHECK(refused("variant = a: output=x.h5", "output is not an option of a run"));
  CHECK(refused("variant = a", "no colon"));
  CHECK(refused("variant = : lr=1", "\"\" is not a name"));
  CHECK(refused("variant = a b: lr=1", "\"a b\" is not a name"));
  CHECK(refused("variant = a/b:", "is not a name"));
  CHECK(refused("variant = a: lr", "\"lr\" has no ="));
  CHECK(refused("variant = a: lr=", "lr has no value"));
  CHECK(refused("variant = a: lr=1 lr=2", "lr is given twice"));
  CHECK(refused("variant = a:\nvariant = a: lr=2",
                "test.cfg:2: variant: a is given twice, first at test.cfg:1"));
  CHECK(refused("variant = a: ranks=0", "out of range"));
  CHECK(refused("lr = 1, 2\nvariant = a: lr=3", "variant a sets lr, and lr is an axis"));
  CHECK(refused("batch-global = 64, 128\nvariant = a: batch-per-rank=3",
                "variant a sets batch-per-rank, and batch-global is an axis"));
  CHECK(refused("ranks = 1, 2\nvariant = a: ranks=1", "ranks is an axis"));
  CHECK(refused("lr = 1\nvariant = a: lr=nan", "test.cfg:2: lr"));
  CHECK(refused("lr = 1\nvariant = a: optimizer=lasr", "test.cfg:2: optimizer"));
}

TEST_CASE("variants: a folder of other variants is refused with the difference") {
  Sweep sweep("model = lenet\nvariant = a: lr=0.5");
  sweep.run();
  sweep.job = job_in(sweep.folder, "model = lenet\nvariant = a: lr=0.25");
  std::string text;
  CHECK(code_of([&] { ResultsFolder(sweep.job, expand(sweep.job)); }, &text) == ExitCode::kUsage);
  CHECK(contains(text, "lr: 0.5 there, 0.25 here"));
}

TEST_CASE("variants: another run under a name of the folder is refused") {
  Sweep sweep("model = lenet\nvariant = a:\nvariant = b: lr=0.5");
  sweep.run();
  const char* const text = "model = lenet\nvariant = a:\nvariant = b: lr=0.25";
  sweep.job = job_in(sweep.folder, text);
  CHECK(code_of([&] { ResultsFolder(sweep.job, expand(sweep.job)); }) == ExitCode::kUsage);
}

TEST_CASE("variants: an interrupted grid runs what is missing") {
  Sweep sweep("model = lenet\nvariant = a:\nvariant = b: lr=0.25");
  sweep.launcher.scripts["lenet-ddp-r1-b"] = {{7, 0}, false, false, "error\n"};
  sweep.run();
  CHECK(sweep.launcher.launched == Names{"lenet-ddp-r1-a", "lenet-ddp-r1-b"});
  sweep.launcher.scripts.clear();
  sweep.run();
  CHECK(sweep.launcher.launched == Names{"lenet-ddp-r1-b"});
}

namespace {

// The commands of this suite in a text: lines that hold one of its programs and no more than that.
std::vector<Names> commands_in(const std::string& text) {
  std::vector<Names> commands;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Names command;
    for (std::string word; words >> word && (word != "#" || command.empty());)
      if (word != "#") command.push_back(word);
    if (command.empty()) continue;
    const std::string first = fs::path(command[0]).filename().string();
    if (first == "mpirun" || first == "gradsync-train" || first == "gradsync-sweep")
      commands.push_back(command);
  }
  return commands;
}

// Resolves a command as its program would, as far as that needs no machine. True if it was one.
bool parses(Names command) {
  while (!command.empty() && command[0].find("gradsync-") == std::string::npos)
    command.erase(command.begin());
  if (command.empty()) return false;
  const bool train = fs::path(command[0]).filename() == "gradsync-train";
  std::vector<const char*> args;
  for (const auto& word : command)
    args.push_back(word.c_str());
  const int count = static_cast<int>(args.size());
  if (train) {
    TrainOptions options =
        train_options(resolve_options(train_option_table(), count, args.data()).values);
    resolve_batch(options, 4);
    return true;
  }
  const auto [given, options, trainer_options] = read_sweep_command(count, args.data());
  REQUIRE(given.positional.size() == 1);
  const fs::path file = source_folder() / given.positional.front();
  return !expand(read_job(file, options.set, trainer_options)).cells.empty();
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::vector<fs::path> job_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(source_folder() / "jobs"))
    if (entry.path().extension() == ".cfg") files.push_back(entry.path());
  REQUIRE(files.size() >= 7);
  return files;
}

}  // namespace

TEST_CASE("sweep: the job files of the suite") {
  const CleanEnvironment environment;
  const Grid demo = expand(read_job(source_folder() / "jobs" / "demo.cfg"));
  CHECK(demo.cells.size() == 18);  // six modes on 1, 2 and 4 ranks
  CHECK(demo.remarks.empty());
  CHECK(jobs_of(demo.cells).size() == 3);
  const Grid modes = expand(read_job(source_folder() / "jobs" / "sync-modes.cfg"));
  CHECK(modes.cells.size() == 5);
  CHECK(modes.remarks.empty());
  CHECK(jobs_of(modes.cells).size() == 2);
  const Grid networks = expand(read_job(source_folder() / "jobs" / "networks.cfg"));
  CHECK(networks.cells.size() == 24);
  CHECK(jobs_of(networks.cells).size() == 6);
  const std::map<std::string, std::size_t> cells = {
      {"batch-size", 5},   {"speedup", 12},    {"compute-comm", 9},  {"large-batch", 36},
      {"scaling", 13},     {"report-a", 10},   {"report-b", 4},      {"report-c", 21},
      {"report-d", 15},    {"report-e", 14},   {"report-ladder", 5}, {"report-large-batch", 18},
      {"report-pair", 27}, {"report-c-cpu", 7}};
  for (const auto& expected : cells) {
    const std::string& name = expected.first;
    const Grid grid = expand(read_job(source_folder() / "jobs" / (name + ".cfg")));
    CHECK_MESSAGE(grid.cells.size() == expected.second, name);
    CHECK_MESSAGE(grid.remarks.empty(), name);
  }
}

TEST_CASE("sweep: each job file says what it shows, its command and the time, and has commands") {
  const CleanEnvironment environment;
  for (const auto& file : job_files()) {
    const std::string text = text_of(file);
    const std::string command = "#   build/bin/gradsync-sweep jobs/" + file.filename().string();
    CHECK_MESSAGE(contains(text, command), file);
    CHECK_MESSAGE(contains(text, "# Expected: "), file);
    const Job job = read_job(file);
    const LocalLauncher launcher({}, "gradsync-train", job.mpirun_options, 8, [] { return 0; });
    for (const auto& cell : expand(job).cells)
      CHECK(parses(launcher.command(cell, cell_files(job.results, cell)).args));
  }
}

TEST_CASE("sweep: every documented command works") {
  const CleanEnvironment environment;
  std::vector<Names> commands = commands_in(full_help_text(sweep_help(), sweep_option_table()));
  std::vector<std::string> texts = {full_help_text(train_help(), train_option_table()),
                                    text_of(source_folder() / "docs" / "grids.md")};
  for (const auto& file : job_files())
    texts.push_back(text_of(file));
  for (const auto& text : texts) {
    const auto more = commands_in(text);
    CHECK_FALSE(more.empty());
    commands.insert(commands.end(), more.begin(), more.end());
  }
  CHECK(commands.size() >= 20);
  for (const auto& command : commands)
    CHECK(parses(command));
}
