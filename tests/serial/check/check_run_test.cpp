// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <utime.h>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "check/check.h"
#include "data/cifar10.h"
#include "serial/check_facts.h"
#include "serial/option_sandbox.h"

using namespace gradsync;
using namespace gradsync::check;

namespace {

CheckOptions options_of(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "gradsync-check");
  return check_options(
      resolve_options(check_option_table(), static_cast<int>(arguments.size()), arguments.data())
          .values);
}

/// A file as a run that died an hour ago left it.
void plant(const std::filesystem::path& path, std::time_t age_s = 3600) {
  write_file_atomically(path, "left");
  const std::time_t then = std::time(nullptr) - age_s;
  const utimbuf times{then, then};
  REQUIRE(::utime(path.c_str(), &times) == 0);
}

std::vector<Finding> one_of_each() {
  return {passed("a.one", "fine"), warned("a.two", "slow <link>", "fix it"),
          failed("b", "broken & gone", "rm \"it\""), skipped("c", "no GPU")};
}

}  // namespace

TEST_CASE("preflight: each check runs on a lone rank and names itself") {
  const Sandbox sandbox;
  FakeJob job;
  CheckOptions options;
  options.data = (sandbox.folder / "none").string();
  options.results = sandbox.folder.path().string();
  for (const Check& check : checks()) {
    const CheckResult result = check.run(job, options);
    CHECK_MESSAGE(!result.findings.empty(), check.id);
    for (const Finding& one : result.findings) {
      CHECK_MESSAGE(one.id.starts_with(check.id), one.id);
      CHECK_MESSAGE(
          one.fix.empty() == (one.outcome == Outcome::kPass || one.outcome == Outcome::kSkip),
          one.id);
      CHECK(!one.seen.empty());
    }
  }
  CHECK(sandbox.folder.entries() == 0);
}

TEST_CASE("preflight: a network that adds or carries wrongly is caught") {
  FakeJob job;
  job.where.size = 2;
  // Rank 1 contributes twice what rank 0 does.
  job.sum_factor = 3;
  job.swap_factor = 2;
  auto found = check_links(job, {}).findings;
  CHECK(finding(found, "links.sum").outcome == Outcome::kPass);
  CHECK(finding(found, "links.hosts").outcome == Outcome::kPass);
  job.sum_factor = 2;
  job.swap_factor = 1;
  found = check_links(job, {}).findings;
  CHECK(finding(found, "links.sum").outcome == Outcome::kFail);
  CHECK(finding(found, "links.hosts").outcome == Outcome::kFail);
}

TEST_CASE("preflight: a rank's GPUs are what the job says they are") {
  FakeJob job;
  job.visible = {{"NVIDIA H200", "GPU-a"}};
  auto found = check_gpus(job, {}).findings;
  CHECK(count_of(found, Outcome::kPass) == 4);
  CHECK(finding(found, "gpus.health").outcome == Outcome::kSkip);
  job.visible = {{"NVIDIA H200", "GPU-fake"}};
  const std::string ill = finding(check_gpus(job, {}).findings, "gpus.health").seen;
  CHECK_MESSAGE(contains(ill, "2 uncorrected memory errors"), ill);
  CHECK_MESSAGE(contains(ill, "power cap"), ill);
  job.visible.clear();
  CHECK(check_gpus(job, {}).findings.at(0).outcome == Outcome::kSkip);
}

TEST_CASE("preflight: NCCL sums where each rank has a GPU of its own, on the rank's GPU") {
  FakeJob job;
  const auto nccl = [&] { return finding(check_nccl_sum(job, {}).findings, "nccl.sum"); };
  CHECK(contains(nccl().seen, "no CUDA driver"));
  job.visible = {{"NVIDIA H200", "GPU-a"}, {"NVIDIA H200", "GPU-b"}};
  job.where.local_rank = 1;
  CHECK(nccl().outcome == Outcome::kPass);
  CHECK(job.nccl_index == 1);
  job.nccl_index = -1;
  CheckOptions without;
  without.transport = "mpi";
  CHECK(finding(check_nccl_sum(job, without).findings, "nccl.sum").seen == "--transport mpi");
  CHECK(job.nccl_index == -1);
  job.where.size = 2;  // the other one states the same GPU
  CHECK(nccl().outcome == Outcome::kSkip);

  Ranks<NcclTrial> two(2);
  for (auto& rank : two)
    rank.facts = {true, 1e-3, "network IB"};
  // 64 MiB · 2 (n − 1) / n in 2 ms of the slower rank.
  two[1].facts.time_s = 2e-3;
  const std::string seen = judge_nccl(two).seen;
  CHECK_MESSAGE(contains(seen, "in 2.00 ms, busbw 33.6 GB/s; network IB"), seen);
  two[1].facts.right = false;
  CHECK(judge_nccl(two).outcome == Outcome::kFail);
}

TEST_CASE("preflight: data is read, missing and damaged data tell the command") {
  const Sandbox sandbox;
  FakeJob job;
  CheckOptions options;
  options.data = (sandbox.folder / "set").string();
  auto found = check_data(job, options).findings.at(0);
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.fix, "config/data " + options.data));
  synthesize(options.data, 1, 50, 10);
  found = check_data(job, options).findings.at(0);
  CHECK(found.outcome == Outcome::kPass);
  CHECK(contains(found.seen, "synthetic (seed 1), 60 images"));
  const auto file = sandbox.folder / "set/test_batch.bin";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  CHECK(check_data(job, options).findings.at(0).outcome == Outcome::kFail);
}

TEST_CASE("preflight: a folder below a file cannot hold results, one that is to come can") {
  const Sandbox sandbox;
  const std::string file = sandbox.file("file", "text");
  std::string mark;
  CHECK(!probe_folder(file + "/runs", mark).write_error.empty());
  CHECK(mark.empty());
  std::filesystem::create_symlink("nowhere", sandbox.folder / "scratch");
  CHECK(!probe_folder((sandbox.folder / "scratch/runs").string(), mark).write_error.empty());
  std::filesystem::remove(sandbox.folder / "scratch");
  const FolderProbe probe = probe_folder((sandbox.folder / "to/come").string(), mark);
  CHECK(probe.write_error.empty());
  CHECK(probe.folder == sandbox.folder.path().string());
  CHECK(probe.free_bytes > 0);
  CHECK(std::filesystem::remove(mark));
  CHECK(sandbox.folder.entries() == 1);
}

TEST_CASE("preflight: leftovers are old files with a segment's name that nobody maps") {
  const Sandbox sandbox;
  const auto& folder = sandbox.folder;
  plant(folder / "vader_segment.node1.0.1.0");
  plant(folder / "nccl-abc");
  plant(folder / "osc_sm.node1.7f51.0.3");
  plant(folder / "vader_segment.node1.0.2.0", 5);
  plant(folder / "database");
  plant(folder / "sm_segment.in-use");
  std::filesystem::create_directory(folder / "nccl-folder");
  const MappedFile in_use(folder / "sm_segment.in-use");
  const auto found = find_leftovers(folder.path());
  REQUIRE(found.size() == 3);
  CHECK(found[0].name == "nccl-abc");
  CHECK(found[1].name == "osc_sm.node1.7f51.0.3");
  CHECK(found[2].name == "vader_segment.node1.0.1.0");
  CHECK(found[0].bytes == 4);
  CHECK(folder.entries() == 7);
  CHECK(find_leftovers(folder / "none").empty());
}

TEST_CASE("preflight: a loaded library is found once, with what tells builds apart") {
  const auto files = loaded_files("libc.so");
  REQUIRE(files.size() == 1);
  CHECK(files[0].path.front() == '/');
  CHECK(!files[0].identity.empty());
  CHECK(loaded_path("libc.so") == files[0].path);
  CHECK(loaded_files("libnonsense").empty());
  CHECK(loaded_files("").size() == 1);
}

TEST_CASE("preflight: rows, fixes and the summary") {
  const auto findings = one_of_each();
  CHECK(summary_text(findings) == "1 pass, 1 warn, 1 fail, 1 skip");
  CHECK(row_text(findings[2]) == "fail  b                         broken & gone\n");
  auto reversed = findings;
  std::ranges::reverse(reversed);
  // What failed comes last, whatever the order of the checks.
  for (const auto& all : {findings, reversed})
    CHECK(closing_text(all, true) == "\n1 pass, 1 warn, 1 fail, 1 skip\n" + row_text(findings[1]) +
                                         "  fix: fix it\n" + row_text(findings[2]) +
                                         "  fix: rm \"it\"\n");
  CHECK(closing_text({passed("a", "fine")}, false) ==
        "\n1 pass, 0 warn, 0 fail, 0 skip (--verbose prints every row and the tables)\n");
  CHECK(first_few({"a", "b", "c", "d", "e", "f"}) == "a; b; c; d; and 2 more");
}

TEST_CASE("preflight: JSON holds every finding and table") {
  CheckResult result{one_of_each(), {}};
  Table table{"hosts", "Hosts", {}, {{"host", "host", true}, {"ranks", "ranks"}}, {}};
  table.add({"node1", Cell::count(2)});
  result.tables.push_back(table);
  const auto json = nlohmann::json::parse(json_text(result, "gradsync-check --ranks 4"));
  CHECK(json["format"] == "gradsync-check/1");
  CHECK(json["result"] == "fail");
  CHECK(json["summary"]["skip"] == 1);
  CHECK(json["checks"].size() == 4);
  CHECK(json["checks"][1]["fix"] == "fix it");
  CHECK(json["tables"]["hosts"][0]["ranks"] == 2);
}

TEST_CASE("preflight: JUnit counts a warning as passed and says it") {
  const std::string xml = junit_text(one_of_each());
  CHECK(contains(xml, "tests=\"4\" failures=\"1\" errors=\"0\" skipped=\"1\""));
  CHECK(
      contains(xml, "name=\"a.two\"><system-out>warning: slow &lt;link&gt;; fix it</system-out>"));
  CHECK(contains(xml, "<failure message=\"broken &amp; gone; rm &quot;it&quot;\""));
  CHECK(contains(xml, "<skipped message=\"no GPU\"/>"));
}

TEST_CASE("preflight: options, with what is shared and what is not") {
  const Sandbox sandbox;
  const auto options =
      options_of({"--ranks", "4", "--ranks-per-node", "2", "--device", "cuda", "--allow-shared-gpu",
                  "--skip", "data, links", "--timeout", "10s"});
  CHECK(options.ranks == 4);
  CHECK(options.ranks_per_node == 2);
  CHECK(options.device == "cuda");
  CHECK(options.allow_shared_gpu);
  CHECK(options.skip == std::vector<std::string>{"data", "links"});
  CHECK(options.timeout_s == 10);
  const Variable data("GRADSYNC_DATA", "/data"), other("GRADSYNC_RESULTS", "/trainers"),
      results("GRADSYNC_CHECK_RESULTS", "/results");
  CHECK(options_of({}).data == "/data");
  CHECK(options_of({}).results == "/results");
  CHECK(contains(refusal([] { options_of({"--skip", "dat"}); }), "did you mean data"));
  CHECK(contains(refusal([] { options_of({"--threads", "-1"}); }), "--threads"));
  CHECK(contains(help_text(check_help(), check_option_table()), "shared-memory"));
}

TEST_CASE("launcher: mpirun's word counts before srun's and the batch script's") {
  const Sandbox sandbox;
  const Variable tasks("SLURM_NTASKS", "8"), id("SLURM_JOB_ID", "1");
  Launcher found = find_launcher();
  CHECK(found.name == "");
  CHECK(found.ranks == 8);
  CHECK(found.ranks_from == "SLURM_NTASKS");
  CHECK(found.in_slurm_job);
  const Variable step("SLURM_STEP_ID", "0"), process("SLURM_PROCID", "3"),
      step_tasks("SLURM_STEP_NUM_TASKS", "4"), cores("SLURM_CPUS_PER_TASK", "6");
  found = find_launcher();
  CHECK(found.name == "srun");
  CHECK(found.ranks == 4);
  CHECK(found.rank == 3);
  CHECK(found.cores_per_rank == 6);
  CHECK(!found.pmix);
  const Variable size("OMPI_COMM_WORLD_SIZE", "2"), rank("OMPI_COMM_WORLD_RANK", "1"),
      pmix("PMIX_RANK", "1");
  found = find_launcher();
  CHECK(found.name == "mpirun");
  CHECK(found.ranks == 2);
  CHECK(found.rank == 1);
  CHECK(found.pmix);
}

TEST_CASE("launcher: Hydra inside a Slurm job counts before the step that its own processes are") {
  const Sandbox sandbox;
  const Variable id("SLURM_JOB_ID", "1"), step("SLURM_STEP_ID", "0"), process("SLURM_PROCID", "0"),
      tasks("SLURM_STEP_NUM_TASKS", "1"), of_proxy("PMIX_RANK", "0"), size("PMI_SIZE", "4"),
      rank("PMI_RANK", "3");
  // Without Hydra's own variable they are those of srun --mpi=pmi2.
  CHECK(find_launcher().name == "srun");
  CHECK(find_launcher().rank == 0);
  const Variable on_node("MPI_LOCALNRANKS", "2");
  const Launcher found = find_launcher();
  CHECK(found.name == "mpiexec");
  CHECK(found.ranks == 4);
  CHECK(found.ranks_from == "PMI_SIZE");
  CHECK(found.rank == 3);
  CHECK(found.pmi);
}

TEST_CASE("launcher: srun with Cray's plugin connects the ranks") {
  const Sandbox sandbox;
  const Variable step("SLURM_STEP_ID", "0"), process("SLURM_PROCID", "1"),
      tasks("SLURM_STEP_NUM_TASKS", "2");
  CHECK(cannot_start(find_launcher()));
  const Variable port("PMI_CONTROL_PORT", "20000");
  CHECK_FALSE(cannot_start(find_launcher()));
}
