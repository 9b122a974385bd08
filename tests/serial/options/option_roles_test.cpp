#include "options/option_roles.h"

#include <algorithm>
#include <set>

#include <doctest/doctest.h>

#include "analysis/figures/comparisons.h"
#include "analysis/figures/run_group.h"
#include "analysis/model/scaling_model.h"
#include "analysis/model/study.h"
#include "analysis/plots/run_marks.h"
#include "analysis/tables/columns.h"
#include "options/options.h"
#include "serial/expect_error.h"
#include "serial/report_view.h"
#include "serial/sample_run.h"

using namespace gradsync;
using namespace gradsync::report;
using namespace gradsync::testing;

namespace {

// A row without a role does not compile; one with a role does.
template <typename... Fields>
concept MakesTrainOption = requires {
  TrainOption{std::declval<Fields>()...};
};
static_assert(!MakesTrainOption<const char*, BoundValue<TrainOptions>, const char*>);
static_assert(MakesTrainOption<OptionRole, const char*, BoundValue<TrainOptions>, const char*>);

const std::set<std::string> kHeld = {"model", "sync", "batch-per-rank", "batch-global"};

void set_option(RunInfo& info, const std::string& name, const std::string& value) {
  std::erase_if(info.config, [&](const ConfigEntry& entry) { return entry.name == name; });
  info.config.push_back({name, value, "command line"});
}

/// What a run records that was started with another value of the option.
void differ_in(RunInfo& info, const std::string& name) {
  set_option(info, name, name == "batch-global" || name == "batch-per-rank" ? "1024" : "other");
  if (name == "batch-per-rank") set_option(info, "batch-global", "2048");
  for (RankPlace& place : info.topology) {
    if (name == "threads") place.threads = 7;
    if (name == "device") place.device = "NVIDIA H200";
  }
}

using Options = std::vector<std::pair<std::string, std::string>>;

void write_run(const std::filesystem::path& path, const SampleShape& shape,
               const Options& options) {
  RunInfo info = sample_info(shape);
  for (const auto& [name, value] : options)
    set_option(info, name, value);
  Recorder recorder(path, info);
  record_sample(recorder, shape);
  recorder.finish(RunStatus::kComplete);
}

RunSet pair_differing_in(const TestFolder& folder, const std::string& name) {
  write_sample(folder / "a.h5", {});
  RunInfo info = sample_info({});
  differ_in(info, name);
  Recorder recorder(folder / "b.h5", info);
  record_sample(recorder, {});
  recorder.finish(RunStatus::kComplete);
  return loaded(folder);
}

void check_different_cells(const RunSet& set, const TrainOption& option) {
  const auto groups = group_runs(set);
  REQUIRE(groups.size() == 2);
  const auto names = cell_names(pointers_to(groups));
  CHECK(names[0] != names[1]);
  const auto cells = study_cells(set);
  CHECK(cells[0].name != cells[1].name);
  const bool same_law = option.role == OptionRole::kTraining || option.name == "batch-global" ||
                        option.name == "batch-per-rank";
  CHECK((cells[0].family == cells[1].family) == same_law);
  if (kHeld.contains(option.name)) return;
  const GroupLabels labels(groups);
  CHECK(contains(labels.settings(groups[1]) + labels.settings(groups[0]), option.name + "=other"));
  const auto marks = labels_of(pointers_to(groups), {Trait::kModel, Trait::kMode});
  CHECK(contains(marks[0] + marks[1], option.name + "=other"));
}

void check_not_merged(const RunSet& set, const TrainOption& option) {
  REQUIRE(group_runs(set).size() == 1);
  const std::string text = error_text(ExitCode::kBadData, [&] { require_mergeable(set); });
  CHECK(contains(text, "differ in " + option.name));
  CHECK(merged_across(set) == "MERGED ACROSS " + option.name);
}

void check_repeats(const RunSet& set) {
  CHECK(group_runs(set).size() == 1);
  CHECK_NOTHROW(require_mergeable(set));
}

}  // namespace

TEST_CASE("option roles: every option of the trainer makes a cell, must match or is free") {
  REQUIRE(declared_train_options().size() == train_option_table().size());
  for (const TrainOption& option : declared_train_options()) {
    INFO(option.name);
    const TestFolder folder;
    const RunSet set = pair_differing_in(folder, option.name);
    switch (option.role) {
      case OptionRole::kMode:
      case OptionRole::kBetweenRanks:
      case OptionRole::kStep:
      case OptionRole::kTraining:
        check_different_cells(set, option);
        break;
      case OptionRole::kMachine:
      case OptionRole::kCourse:
        check_not_merged(set, option);
        break;
      case OptionRole::kFree:
        check_repeats(set);
        break;
    }
  }
}

TEST_CASE("option roles: a file from before an option is a repeat of what runs did then") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {});
  Options all;
  for (const TrainOption& option : declared_train_options())
    if (!kHeld.contains(option.name)) all.emplace_back(option.name, value_before(option));
  write_run(folder / "b.h5", {}, all);
  check_repeats(loaded(folder));
  CHECK(value_before(*declared_train_option("transport")) == "mpi");
}

TEST_CASE("option roles: an option that this version does not know must match") {
  const TestFolder folder;
  write_sample(folder / "a.h5", {});
  write_run(folder / "b.h5", {}, {{"of-a-later-version", "on"}});
  const RunSet set = loaded(folder);
  CHECK(contains(error_text(ExitCode::kBadData, [&] { require_mergeable(set); }),
                 "of-a-later-version"));
}

TEST_CASE("option roles: what was taken for auto decides, where the run says it") {
  const TestFolder folder;
  for (const char* taken : {"fp32", "bf16"}) {
    RunInfo info = sample_info({});
    set_option(info, "precision", "auto");
    info.provenance.push_back({"precision", taken});
    Recorder recorder(folder / (std::string(taken) + ".h5"), info);
    record_sample(recorder, {});
    recorder.finish(RunStatus::kComplete);
  }
  CHECK(group_runs(loaded(folder)).size() == 2);
}

TEST_CASE("option roles: one rank is of the family of several, whose transport it cannot have") {
  const TestFolder folder;
  write_run(folder / "one.h5", {"ddp", 1}, {{"transport", "mpi"}});
  write_run(folder / "two.h5", {"ddp", 2}, {{"transport", "shm"}});
  {
    const RunSet set = loaded(folder);
    const auto cells = study_cells(set);
    REQUIRE(cells.size() == 2);
    CHECK(cells[0].family == cells[1].family);
    // Nor is its label burdened with it.
    CHECK(GroupLabels(group_runs(set)).settings(group_runs(set)[0]).empty());
  }
  write_run(folder / "mpi.h5", {"ddp", 2}, {{"transport", "mpi"}});
  const RunSet set = loaded(folder);
  const auto cells = study_cells(set);
  REQUIRE(cells.size() == 3);
  CHECK(cells[1].family != cells[2].family);
  const std::size_t over_mpi = cells[1].run().name == "mpi" ? 1 : 2;
  CHECK(cells[0].family == cells[over_mpi].family);
  CHECK(cells[over_mpi].mode_text() == "ddp, transport=mpi");
  CHECK(cells[3 - over_mpi].mode_text() == "ddp, transport=shm");
}

TEST_CASE("option roles: a base that differs in what changes the time is named") {
  const TestFolder folder;
  write_run(folder / "two.h5", {"ddp", 2}, {{"transport", "shm"}, {"feed", "loader"}});
  write_run(folder / "four.h5", {"ddp", 4, 12, 5, 16},
            {{"transport", "two-level"}, {"feed", "resident"}, {"lr", "9"}});
  const RunSet set = loaded(folder);
  const auto groups = group_runs(set);
  const auto all = comparisons(groups);
  const auto four = std::find_if(all.begin(), all.end(), [](const Comparison& one) {
    return one.group->first().ranks == 4 && one.base->first().ranks == 2;
  });
  REQUIRE(four != all.end());
  const std::string text = unfairness(*four);
  CHECK(contains(text, "transport shm in the base, two-level here"));
  CHECK(contains(text, "feed loader in the base, resident here"));
  CHECK_FALSE(contains(text, "lr"));
}

TEST_CASE("option roles: the law of a family is of its own transport") {
  StudyCell two;
  two.mode = "ddp";
  two.ranks = 2;
  std::vector<CalibrationPoint> calibration;
  double alpha_s = 1e-6;
  for (const char* name : {"nccl", "shm", "two-level", "tcp-ring", "mpi-ring", "mpi"}) {
    for (const double bytes : {1e3, 1e4, 1e5, 1e6})
      calibration.push_back(
          {CollectiveKind::kAllReduce, name, "isolated", 2, bytes, alpha_s + bytes * 1e-9});
    alpha_s *= 2;
  }
  const auto law_over = [&](const char* transport, const char* mode) {
    two.transport = transport;
    two.mode = mode;
    return choose_law(CollectiveKind::kAllReduce, {&two}, calibration).source;
  };
  CHECK(law_over("nccl", "ddp") == "calibration (nccl, isolated)");
  CHECK(law_over("shm", "ddp") == "calibration (shm, isolated)");
  CHECK(law_over("two-level", "allreduce") == "calibration (two-level, isolated)");
  CHECK(law_over("tcp-ring", "ddp") == "calibration (tcp-ring, isolated)");
  CHECK(law_over("mpi", "ddp") == "calibration (mpi-ring, isolated)");
  CHECK(law_over("mpi", "allreduce") == "calibration (mpi, isolated)");
  std::erase_if(calibration,
                [](const CalibrationPoint& point) { return point.transport == "shm"; });
  CHECK(law_over("shm", "ddp") ==
        "measured in training (over shm; the calibration is of mpi, mpi-ring, nccl, tcp-ring, "
        "two-level)");
}
