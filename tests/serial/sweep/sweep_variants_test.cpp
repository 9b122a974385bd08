#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "serial/clean_environment.h"
#include "serial/expect_error.h"
#include "serial/sweep_fixture.h"
#include "sweep/grid.h"
#include "sweep/job_file.h"

using namespace gradsync;
using namespace gradsync::sweep;

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
                "test.cfg:2: variant: a is given twice, first at "
                "test.cfg:1"));
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
