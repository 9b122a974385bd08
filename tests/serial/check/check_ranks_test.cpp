// SPDX-License-Identifier: BSD-3-Clause
#include <doctest/doctest.h>

#include "check/check.h"
#include "serial/check_facts.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::check;

namespace {

const Launcher kMpirunOf4{"mpirun", 4, "OMPI_COMM_WORLD_SIZE", 0, true, false, 0, false};
const Launcher kSrunOf4{"srun", 4, "SLURM_STEP_NUM_TASKS", 0, true, false, 0, true};

LaunchFacts launched(const Launcher& launcher, int ranks) {
  return {launcher, ranks, "Open MPI v4.1.4", "/usr/lib/libopen-pal.so.40",
          "/usr/lib/libopen-pal.so.40"};
}

DeviceFacts gpu(int rank, int local_rank, const std::string& host,
                const std::vector<std::string>& uuids) {
  DeviceFacts facts{rank, local_rank, host, "13.0", "13.0", {}, {}};
  for (const std::string& uuid : uuids)
    facts.gpus.push_back({"NVIDIA H200", uuid});
  return facts;
}

BindingFacts bound(const std::string& cores, int asked_of_slurm = 0,
                   const std::string& launcher = "srun") {
  return {cores, 8, asked_of_slurm, false, launcher};
}

}  // namespace

TEST_CASE("preflight: a launch as large as its launcher says passes, any other fails") {
  CHECK(finding(judge_launch(launched(kMpirunOf4, 4), {}), "launch.ranks").outcome ==
        Outcome::kPass);
  for (const auto& facts : {launched(kMpirunOf4, 1), launched(kSrunOf4, 1), launched(kSrunOf4, 2)})
    CHECK(finding(judge_launch(facts, {}), "launch.ranks").outcome == Outcome::kFail);
  const Launcher batch_script{"", 4, "SLURM_NTASKS", 0, false, false, 0, true};
  const auto alone = finding(judge_launch(launched(batch_script, 1), {}), "launch.ranks");
  CHECK(alone.outcome == Outcome::kFail);
  CHECK(contains(alone.seen, "SLURM_NTASKS says 4"));
  CHECK(contains(alone.fix, "srun --mpi=pmix -n 4"));
}

TEST_CASE("preflight: --ranks is held against MPI") {
  CheckOptions options;
  options.ranks = 4;
  CHECK(finding(judge_launch(launched({}, 1), options), "launch.ranks").outcome == Outcome::kFail);
  CHECK(finding(judge_launch(launched(kMpirunOf4, 4), options), "launch.ranks").outcome ==
        Outcome::kPass);
}

TEST_CASE("preflight: another MPI than the launcher's is reported") {
  auto facts = launched(kMpirunOf4, 4);
  CHECK(finding(judge_launch(facts, {}), "launch.mpi").outcome == Outcome::kPass);
  facts.launcher_path = "/opt/openmpi/lib/libopen-pal.so.80";
  CHECK(finding(judge_launch(facts, {}), "launch.mpi").outcome == Outcome::kWarn);
  facts.launcher_path.clear();
  CHECK(finding(judge_launch(facts, {}), "launch.mpi").outcome == Outcome::kSkip);
  facts.mpi_library = "MPICH Version: 4.1";
  CHECK(finding(judge_launch(facts, {}), "launch.mpi").outcome == Outcome::kFail);
  facts = launched({"mpiexec", 4, "PMI_SIZE", 0, false, true, 0, false}, 1);
  CHECK(finding(judge_launch(facts, {}), "launch.mpi").outcome == Outcome::kFail);
}

TEST_CASE("preflight: srun without PMIx fails where the ranks do not find each other") {
  Launcher no_pmix = kSrunOf4;
  no_pmix.pmix = false;
  CHECK(finding(judge_launch(launched(no_pmix, 1), {}), "launch.pmix").outcome == Outcome::kFail);
  CHECK(finding(judge_launch(launched(no_pmix, 4), {}), "launch.pmix").outcome == Outcome::kWarn);
  LaunchFacts mpich = launched(no_pmix, 4);
  mpich.mpi_library = "MPICH Version: 4.0.2";
  CHECK(finding(judge_launch(mpich, {}), "launch.pmix").outcome == Outcome::kPass);
  mpich.ranks = 1;
  CHECK(finding(judge_launch(mpich, {}), "launch.pmix").outcome == Outcome::kFail);
  CHECK(finding(judge_launch(launched(kSrunOf4, 4), {}), "launch.pmix").outcome == Outcome::kPass);
  CHECK(finding(judge_launch(launched(kMpirunOf4, 4), {}), "launch.pmix").outcome ==
        Outcome::kSkip);
}

TEST_CASE("preflight: srun without any PMI is reported before MPI starts") {
  Launcher launcher = kSrunOf4;
  CHECK(!cannot_start(launcher));
  launcher.pmix = false;
  CHECK(cannot_start(launcher));
  launcher.pmi = true;
  CHECK(!cannot_start(launcher));
  launcher.pmi = false;
  launcher.ranks = 1;
  CHECK(!cannot_start(launcher));
}

TEST_CASE("preflight: hosts must have the ranks that were asked for") {
  const std::vector<RankFacts> four(4, RankFacts{0, "0-3"});
  CheckOptions options;
  auto result = judge_ranks(on_ranks(four, 2), options);
  CHECK(result.findings.at(0).outcome == Outcome::kPass);
  CHECK(result.tables.at(0).rows.size() == 2);
  options.ranks_per_node = 2;
  CHECK(judge_ranks(on_ranks(four, 2), options).findings.at(0).outcome == Outcome::kPass);
  result = judge_ranks(on_ranks(four, 4), options);
  CHECK(result.findings.at(0).outcome == Outcome::kFail);
  CHECK(contains(result.findings.at(0).seen, "node1 has 4"));
  options.ranks_per_node = 0;
  CHECK(judge_ranks(on_ranks(four, 3), options).findings.at(0).outcome == Outcome::kWarn);
}

TEST_CASE("preflight: two ranks on one GPU fail, and warn where it is allowed") {
  const std::vector<DeviceFacts> shared = {gpu(0, 0, "node1", {"GPU-a"}),
                                           gpu(1, 1, "node1", {"GPU-a"})};
  const auto found = finding(judge_gpus(shared, {}), "gpus.shared");
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.seen, "GPU-a on node1: ranks 0, 1"));
  CheckOptions allowed;
  allowed.allow_shared_gpu = true;
  CHECK(finding(judge_gpus(shared, allowed), "gpus.shared").outcome == Outcome::kWarn);
}

TEST_CASE("preflight: a rank takes its only GPU, or the one of its local rank") {
  const std::vector<std::string> both = {"GPU-a", "GPU-b"};
  const auto fine = judge_gpus({gpu(0, 0, "node1", both), gpu(1, 1, "node1", both)}, {});
  CHECK(count_of(fine, Outcome::kPass) == 4);
  const std::vector<DeviceFacts> three = {gpu(0, 0, "node1", both), gpu(1, 1, "node1", both),
                                          gpu(2, 2, "node1", both)};
  CHECK(finding(judge_gpus(three, {}), "gpus.seen").outcome == Outcome::kFail);
  CheckOptions shared;
  shared.allow_shared_gpu = true;
  CHECK(finding(judge_gpus(three, shared), "gpus.seen").outcome == Outcome::kPass);
  CHECK(contains(finding(judge_gpus(three, shared), "gpus.shared").seen, "ranks 0, 2"));
  // The same numbers on two hosts are two devices only if their UUIDs differ by host.
  CHECK(finding(judge_gpus({gpu(0, 0, "node1", {"GPU-a"}), gpu(1, 0, "node2", {"GPU-a"})}, {}),
                "gpus.shared")
            .outcome == Outcome::kPass);
}

TEST_CASE("preflight: no GPU is a skip, unless one is asked for or only some ranks have one") {
  DeviceFacts none = gpu(1, 0, "node2", {});
  none.driver = "none";
  CheckOptions options;
  CHECK(finding(judge_gpus({none, none}, options), "gpus.seen").outcome == Outcome::kSkip);
  options.device = "cuda";
  const auto asked = finding(judge_gpus({none, none}, options), "gpus.seen");
  CHECK(asked.outcome == Outcome::kFail);
  CHECK(contains(asked.fix, "run on a host with a GPU"));
  options.device = "cpu";
  CHECK(finding(judge_gpus({none, none}, options), "gpus.seen").outcome == Outcome::kSkip);
  const auto some = finding(judge_gpus({gpu(0, 0, "node1", {"GPU-a"}), none}, {}), "gpus.seen");
  CHECK(some.outcome == Outcome::kFail);
  CHECK(contains(some.seen, "rank 1 (node2): no CUDA driver"));
}

TEST_CASE(
    "preflight: ranks from which the GPUs of their host are hidden are named with srun's option") {
  DeviceFacts confined = gpu(1, 1, "node1", {"GPU-b"});
  const DeviceFacts first = gpu(0, 0, "node1", {"GPU-a"});
  CHECK(finding(judge_gpus({first, confined}, {}), "gpus.peers").outcome == Outcome::kPass);
  confined.unseen = {"GPU-a"};
  const auto found = finding(judge_gpus({first, confined}, {}), "gpus.peers");
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.seen, "GPU-a, the GPU of another rank, from rank 1 (node1)"));
  CHECK(contains(found.fix, "--gpu-bind=none"));
}

TEST_CASE("preflight: a driver that fails is no host without a GPU") {
  DeviceFacts failing = gpu(0, 0, "node1", {});
  failing.error = "802: system not yet initialized";
  const auto found = finding(judge_gpus({failing}, {}), "gpus.seen");
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.seen, "802: system not yet initialized"));
  CHECK(contains(found.fix, "Fabric Manager"));
}

TEST_CASE("preflight: GPUs of two kinds warn") {
  DeviceFacts other = gpu(1, 0, "node2", {"GPU-b"});
  other.gpus[0].name = "NVIDIA A100";
  const auto found = finding(judge_gpus({gpu(0, 0, "node1", {"GPU-a"}), other}, {}), "gpus.kind");
  CHECK(found.outcome == Outcome::kWarn);
  CHECK(contains(found.seen, "NVIDIA A100"));
}

TEST_CASE("preflight: one core for four threads fails") {
  CheckOptions options;
  options.threads = 4;
  const auto found =
      finding(judge_binding(on_ranks<BindingFacts>({bound("0"), bound("1")}, 2), options),
              "binding.threads");
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.seen, "rank 1 (node1) may use 1 core (1), needs 4"));
  CHECK(contains(found.fix, "--cpus-per-task=4"));
  CHECK(finding(judge_binding(on_ranks<BindingFacts>({bound("0-3"), bound("4-7")}, 2), options),
                "binding.threads")
            .outcome == Outcome::kPass);
}

TEST_CASE("preflight: fewer cores than --cpus-per-task names srun's variable, or mpirun's option") {
  for (const auto& [launcher, fix] : {std::pair{"srun", "SRUN_CPUS_PER_TASK"},
                                      {"mpirun", "mpirun --map-by ppr:RANKS:node:PE=4"}}) {
    const auto ranks = on_ranks<BindingFacts>({bound("0", 4, launcher)}, 1);
    const auto found = finding(judge_binding(ranks, {}), "binding.threads");
    CHECK(found.outcome == Outcome::kFail);
    CHECK(found.fix.find("SRUN") == (found.fix.starts_with("export") ? 7 : std::string::npos));
    CHECK(contains(found.fix, fix));
  }
}

TEST_CASE("preflight: cores that two ranks need warn") {
  CheckOptions one_thread;
  one_thread.threads = 1;
  const auto cores = [&](const std::vector<BindingFacts>& facts) {
    return finding(judge_binding(on_ranks(facts, 4), one_thread), "binding.cores");
  };
  CHECK(cores({bound("0"), bound("1")}).outcome == Outcome::kPass);
  CHECK(cores({bound("0"), bound("0"), bound("1")}).outcome == Outcome::kWarn);
  CHECK(cores({bound("0-1"), bound("0-1")}).outcome == Outcome::kPass);
  CHECK(cores({bound("0-1"), bound("1-2"), bound("0-2"), bound("0,2")}).outcome == Outcome::kWarn);
  CHECK(cores({bound("0-7"), bound("0"), bound("1")}).outcome == Outcome::kPass);
  CHECK(contains(cores({bound("0"), bound("0"), bound("1-7")}).seen,
                 "node1: 2 ranks with 2 threads on 1 core"));
}

TEST_CASE("preflight: the cores of a host are those of the container") {
  const FakeRoot root;
  const int online = cores_of_host(root.path());
  CHECK(online >= 1);
  root.state("proc/self/cgroup", "0::/");
  root.state("sys/fs/cgroup/cpuset.cpus.effective", "6-7,70");
  CHECK(cores_of_host(root.path()) == 3);
  root.state("proc/self/cgroup", "3:cpuset:/box\n0::/");
  root.state("sys/fs/cgroup/cpuset/box/cpuset.effective_cpus", "0-3");
  CHECK(cores_of_host(root.path()) == 4);
}

TEST_CASE("preflight: ranks that mpirun left one core each of many warn") {
  const auto facts = on_ranks<BindingFacts>({bound("0"), bound("1")}, 2);
  CHECK(finding(judge_binding(facts, {}), "binding.cores").outcome == Outcome::kWarn);
  CheckOptions meant;
  meant.threads = 1;
  CHECK(finding(judge_binding(facts, meant), "binding.cores").outcome == Outcome::kPass);
}

namespace {

/// What a rank found in a second of which it used `own_s` itself.
LoadFacts load(const std::string& cores, std::map<int, double> busy_s, double own_s = 0,
               std::vector<GroupLoad> groups = {}) {
  return {cores, 1, own_s, std::move(busy_s), std::move(groups)};
}

Finding load_of(const std::vector<LoadFacts>& facts, int per_host, int threads = 0) {
  CheckOptions options;
  options.threads = threads;
  return judge_load(on_ranks(facts, per_host), options);
}

}  // namespace

TEST_CASE("preflight: other processes on the cores of a host warn, with the host's name") {
  const std::map<int, double> idle = {{0, 0}, {1, 0.02}, {2, 0}, {3, 0}},
                              half = {{0, 1}, {1, 0}, {2, 1}, {3, 0}};
  CHECK(load_of({load("0-3", idle)}, 1).outcome == Outcome::kPass);
  const auto busy = load_of({load("0-3", idle), load("0-3", half)}, 1);
  CHECK(busy.outcome == Outcome::kWarn);
  CHECK(busy.id == "load");
  CHECK(contains(busy.seen,
                 "node2: 50 % of the cores that its ranks need are free: other "
                 "processes use 2.0 of 4 cores"));
  CHECK_FALSE(contains(busy.seen, "node1"));
  // 9 % is still enough, 11 % is not.
  CHECK(load_of({load("0", {{0, 0.09}})}, 1).outcome == Outcome::kPass);
  CHECK(load_of({load("0", {{0, 0.11}})}, 1).outcome == Outcome::kWarn);
  // Busy cores that no rank may use, and cores that its threads do not need.
  CHECK(load_of({load("1,3", half)}, 1).outcome == Outcome::kPass);
  CHECK(load_of({load("0-3", half)}, 1, 2).outcome == Outcome::kPass);
  CHECK(load_of({load("0-3", half)}, 1, 3).outcome == Outcome::kWarn);
  // One bound rank of two has to share its core.
  CHECK(load_of({load("0", half), load("1", {})}, 2).outcome == Outcome::kWarn);
  CHECK(load_of({load("0-3", half), load("0-3", {})}, 2, 1).outcome == Outcome::kPass);
}

TEST_CASE("preflight: what the ranks use themselves is no load") {
  const std::map<int, double> busy = {{0, 0.9}, {1, 0.9}};
  CHECK(load_of({load("0-1", busy, 0.9), load("0-1", {}, 0.9)}, 2).outcome == Outcome::kPass);
  CHECK(load_of({load("0-1", busy, 0.9), load("0-1", {}, 0)}, 2).outcome == Outcome::kWarn);
}

TEST_CASE("preflight: limits of control groups, and what others of the group use") {
  const std::map<int, double> idle = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
  const auto limited = [&](const std::vector<GroupLoad>& of_first,
                           const std::vector<GroupLoad>& of_second, int threads = 0) {
    return load_of({load("0-3", idle, 0, of_first), load("0-3", {}, 0, of_second)}, 2, threads);
  };
  CHECK(limited({{1, 4, 0}}, {{1, 4, 0}}).outcome == Outcome::kPass);
  const auto half = limited({{1, 2, 0}}, {{1, 2, 0}});
  CHECK(half.outcome == Outcome::kWarn);
  CHECK(contains(half.seen,
                 "50 % of the cores that its ranks need are free: the limit of their control "
                 "group is 2 cores"));
  CHECK(limited({{1, 2, 0}}, {{1, 2, 0}}, 1).outcome == Outcome::kPass);
  CHECK(limited({{1, 4, 1}}, {{1, 4, 1}}).outcome == Outcome::kWarn);
  // More threads than cores is what binding.cores warns of.
  CHECK(limited({{1, 4, 0}}, {{1, 4, 0}}, 4).outcome == Outcome::kPass);
  // A container for each rank, and the tightest of nested groups.
  CHECK(limited({{1, 2, 0}}, {{2, 2, 0}}).outcome == Outcome::kPass);
  CHECK(limited({{1, 2, 0}, {3, 3, 0}}, {{2, 2, 0}, {3, 3, 0}}).outcome == Outcome::kWarn);
}

TEST_CASE("preflight: a load that the kernel does not state is no pass") {
  const auto unknown = load_of({load("0-3", {{0, 0}, {1, 0}})}, 1);
  CHECK(unknown.outcome == Outcome::kSkip);
  CHECK(contains(unknown.seen, "n/a on node1"));
  CHECK(load_of({load("0-3", {}, 0, {{1, 1, 0}})}, 1).outcome == Outcome::kWarn);
  const auto one = load_of({load("0", {}), load("0", {{0, 0}})}, 1);
  CHECK(one.outcome == Outcome::kPass);
  CHECK(contains(one.seen, "n/a on node1"));
  CHECK(load_of({load("", {}, 0, {{1, 1, 0}})}, 1).outcome == Outcome::kSkip);
}

TEST_CASE("preflight: load as the kernel counts it") {
  const FakeRoot root;
  CHECK(read_load(root.path()).busy_s.empty());
  CHECK(read_load(root.path()).groups.empty());
  const auto stat = [&](const std::string& of_core_1) {
    root.state("proc/stat",
               "cpu  900 0 900 9000 0 0 0 0 0 0\ncpu0 100 0 0 5000 70 0 0 0 0 0\ncpu1 " +
                   of_core_1 + "\nintr 1 2\nctxt 5");
  };
  // user nice system idle iowait irq softirq steal guest guest_nice
  stat("100 10 20 5000 40 1 2 3 100 0");
  root.state("proc/self/cgroup", "0::/pod/box");
  root.state("sys/fs/cgroup/pod/box/cpu.max", "max 100000");
  root.state("sys/fs/cgroup/pod/cpu.max", "150000 100000");
  root.state("sys/fs/cgroup/pod/cpu.stat", "usage_usec 7000000\nuser_usec 1");
  const LoadReading before = read_load(root.path());
  CHECK(before.busy_s.size() == 2);
  CHECK(before.busy_s.at(1) == doctest::Approx(1.36));
  REQUIRE(before.groups.size() == 1);
  CHECK(before.groups[0].limit_cores == doctest::Approx(1.5));
  stat("130 10 20 5060 50 1 2 13 130 0");
  root.state("sys/fs/cgroup/pod/cpu.stat", "usage_usec 7500000");
  const LoadFacts facts = load_between(before, read_load(root.path()), 1);
  CHECK(facts.busy_s.at(0) == doctest::Approx(0));
  CHECK(facts.busy_s.at(1) == doctest::Approx(0.4));
  CHECK(facts.groups.at(0).used_s == doctest::Approx(0.5));
  // cgroup v1, which may count in another controller.
  root.state("proc/self/cgroup", "2:cpuacct:/box\n1:cpu:/box");
  root.state("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000");
  root.state("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
  root.state("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  root.state("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  root.state("sys/fs/cgroup/cpuacct/box/cpuacct.usage", "2500000000");
  const LoadReading v1 = read_load(root.path());
  REQUIRE(v1.groups.size() == 1);
  CHECK(v1.groups[0].limit_cores == doctest::Approx(0.5));
  CHECK(v1.groups[0].used_s == doctest::Approx(2.5));
}

TEST_CASE("preflight: limits that break runs later") {
  LimitFacts good{kUnlimited, 65536, true, "1"};
  CheckOptions options;
  CHECK(count_of(judge_limits(on_ranks<LimitFacts>({good, good}, 2), options), Outcome::kPass) ==
        3);
  options.threads = 4;
  CHECK(finding(judge_limits(on_ranks<LimitFacts>({good}, 1), options), "limits.omp-threads")
            .outcome == Outcome::kWarn);
  LimitFacts bad{65536, 256, true, "8"};
  const auto findings = judge_limits(on_ranks<LimitFacts>({good, bad}, 1), {});
  CHECK(count_of(findings, Outcome::kWarn) == 3);
  bad.infiniband = false;
  CHECK(finding(judge_limits(on_ranks<LimitFacts>({bad}, 1), {}), "limits.locked-memory").outcome ==
        Outcome::kSkip);
}

TEST_CASE("preflight: hosts of two kinds warn") {
  const NodeFacts one{true, "EPYC", "6.1", {{"eth0", 1500}, {"ib0", 2044}}}, none{};
  CHECK(judge_nodes(on_ranks<NodeFacts>({one, none}, 2)).at(0).outcome == Outcome::kSkip);
  CHECK(count_of(judge_nodes(on_ranks<NodeFacts>({one, one}, 1)), Outcome::kPass) == 3);
  const NodeFacts other{true, "Xeon", "5.14", {{"eth0", 9000}, {"eth1", 1500}}};
  const auto findings = judge_nodes(on_ranks<NodeFacts>({one, other}, 1));
  CHECK(count_of(findings, Outcome::kWarn) == 3);
  CHECK(contains(finding(findings, "nodes.mtu").seen, "eth0: 1500 B on node1, 9000 B on node2"));
}
