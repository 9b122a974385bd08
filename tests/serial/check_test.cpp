#include <limits>

#include <doctest/doctest.h>

#include "check/binding.h"
#include "check/clocks.h"
#include "check/data_set.h"
#include "check/gpus.h"
#include "check/launch.h"
#include "check/libraries.h"
#include "check/limits.h"
#include "check/links.h"
#include "check/nodes.h"
#include "check/ranks.h"
#include "check/results.h"
#include "check/shared_memory.h"
#include "check/start_guard.h"
#include "check_facts.h"

using namespace gradsync;

namespace {

const Launcher kMpirunOf4{"mpirun", 4, "OMPI_COMM_WORLD_SIZE", 0, true, false, 0, false};
const Launcher kSrunOf4{"srun", 4, "SLURM_STEP_NUM_TASKS", 0, true, false, 0, true};

LaunchFacts launched(const Launcher& launcher, int ranks) {
  return {launcher, ranks, "Open MPI v4.1.4", "/usr/lib/libopen-pal.so.40",
          "/usr/lib/libopen-pal.so.40"};
}

GpuFacts gpu(int local_rank, std::vector<std::string> uuids) {
  GpuFacts facts{local_rank, "13.0", {}, std::move(uuids)};
  facts.names.assign(facts.uuids.size(), "NVIDIA H200");
  return facts;
}

BindingFacts bound(const std::string& cores, int asked_of_slurm = 0) {
  return {cores, 8, asked_of_slurm, false};
}

LibraryFacts libraries(const std::string& hdf5_identity, const std::string& hdf5_path) {
  return {{{"MPI", "Open MPI 4.1.4", "Open MPI v4.1.4", "/lib/libmpi.so.40", "build ID 1"},
           {"HDF5", "1.10.8", "1.10.8", hdf5_path, hdf5_identity},
           {"NCCL", "none", "none", "", ""}}};
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

TEST_CASE("preflight: another MPI than the launcher's is told") {
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
  CHECK(finding(judge_launch(launched(kSrunOf4, 4), {}), "launch.pmix").outcome == Outcome::kPass);
  CHECK(finding(judge_launch(launched(kMpirunOf4, 4), {}), "launch.pmix").outcome ==
        Outcome::kSkip);
}

TEST_CASE("preflight: srun without any PMI is told before MPI starts") {
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
  const auto shared = on_ranks<GpuFacts>({gpu(0, {"GPU-a"}), gpu(1, {"GPU-a"})}, 2);
  const auto found = finding(judge_gpus(shared, {}), "gpus.shared");
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.seen, "GPU-a on node1: ranks 0, 1"));
  CheckOptions allowed;
  allowed.allow_shared_gpu = true;
  CHECK(finding(judge_gpus(shared, allowed), "gpus.shared").outcome == Outcome::kWarn);
}

TEST_CASE("preflight: a rank takes its only GPU, or the one of its local rank") {
  CHECK(chosen_gpu(gpu(3, {"GPU-a"})) == 0);
  CHECK(chosen_gpu(gpu(1, {"GPU-a", "GPU-b"})) == 1);
  CHECK(chosen_gpu(gpu(2, {"GPU-a", "GPU-b"})) == -1);
  CHECK(chosen_gpu(gpu(0, {})) == -1);
  const std::vector<std::string> both = {"GPU-a", "GPU-b"};
  const auto fine = judge_gpus(on_ranks<GpuFacts>({gpu(0, both), gpu(1, both)}, 2), {});
  CHECK(count_of(fine, Outcome::kPass) == 3);
  const auto three = on_ranks<GpuFacts>({gpu(0, both), gpu(1, both), gpu(2, both)}, 3);
  CHECK(finding(judge_gpus(three, {}), "gpus.seen").outcome == Outcome::kFail);
  // The same numbers on two hosts are two devices only if their UUIDs differ by host.
  CHECK(finding(judge_gpus(on_ranks<GpuFacts>({gpu(0, {"GPU-a"}), gpu(0, {"GPU-a"})}, 1), {}),
                "gpus.shared")
            .outcome == Outcome::kPass);
}

TEST_CASE("preflight: no GPU is a skip, unless one is asked for or only some ranks have one") {
  const GpuFacts none{0, "none", {}, {}};
  CheckOptions options;
  const auto without = on_ranks<GpuFacts>({none, none}, 1);
  CHECK(finding(judge_gpus(without, options), "gpus.seen").outcome == Outcome::kSkip);
  options.device = "cuda";
  CHECK(finding(judge_gpus(without, options), "gpus.seen").outcome == Outcome::kFail);
  options.device = "cpu";
  CHECK(finding(judge_gpus(without, options), "gpus.seen").outcome == Outcome::kSkip);
  const auto some =
      finding(judge_gpus(on_ranks<GpuFacts>({gpu(0, {"GPU-a"}), none}, 1), {}), "gpus.seen");
  CHECK(some.outcome == Outcome::kFail);
  CHECK(contains(some.seen, "rank 1 (node2): no CUDA driver"));
}

TEST_CASE("preflight: GPUs of two kinds warn") {
  auto other = gpu(1, {"GPU-b"});
  other.names = {"NVIDIA A100"};
  const auto found =
      finding(judge_gpus(on_ranks<GpuFacts>({gpu(0, {"GPU-a"}), other}, 2), {}), "gpus.kind");
  CHECK(found.outcome == Outcome::kWarn);
  CHECK(contains(found.seen, "NVIDIA A100"));
}

TEST_CASE("preflight: lists of cores as the kernel writes them") {
  CHECK(core_numbers("0-3,8") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(core_numbers("5") == std::vector<int>{5});
  CHECK(core_numbers("").empty());
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

TEST_CASE("preflight: fewer cores than --cpus-per-task names srun's variable") {
  const auto found =
      finding(judge_binding(on_ranks<BindingFacts>({bound("0", 4)}, 1), {}), "binding.threads");
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.fix, "SRUN_CPUS_PER_TASK"));
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
}

TEST_CASE("preflight: ranks that mpirun left one core each of many warn") {
  const auto facts = on_ranks<BindingFacts>({bound("0"), bound("1")}, 2);
  CHECK(finding(judge_binding(facts, {}), "binding.cores").outcome == Outcome::kWarn);
  CheckOptions meant;
  meant.threads = 1;
  CHECK(finding(judge_binding(facts, meant), "binding.cores").outcome == Outcome::kPass);
}

TEST_CASE("preflight: another build of a library on one rank fails, another path warns") {
  const auto same = libraries("build ID 2", "/lib/libhdf5.so");
  const auto equal = [&](const LibraryFacts& other) {
    return finding(judge_libraries(on_ranks<LibraryFacts>({same, other}, 1)).findings,
                   "libraries.equal");
  };
  CHECK(equal(same).outcome == Outcome::kPass);
  CHECK(equal(libraries("build ID 2", "/opt/libhdf5.so")).outcome == Outcome::kWarn);
  const auto found = equal(libraries("build ID 3", "/opt/libhdf5.so"));
  CHECK(found.outcome == Outcome::kFail);
  CHECK(contains(found.seen, "HDF5: rank 0 (node1) has 1.10.8 /lib/libhdf5.so"));
  CHECK(contains(found.seen, "rank 1 (node2) has 1.10.8 /opt/libhdf5.so"));
  CHECK(finding(judge_libraries(on_ranks<LibraryFacts>({same}, 1)).findings, "libraries.equal")
            .outcome == Outcome::kSkip);
}

TEST_CASE("preflight: versions compiled against and loaded are compared") {
  const auto versions = [](const std::string& compiled, const std::string& loaded) {
    const LibraryFacts facts{{{"MPI", compiled, loaded, "/lib/libmpi.so", "build ID 1"}}};
    return finding(judge_libraries(on_ranks<LibraryFacts>({facts}, 1)).findings,
                   "libraries.versions")
        .outcome;
  };
  CHECK(versions("Open MPI 4.1.4", "Open MPI v4.1.4") == Outcome::kPass);
  CHECK(versions("Open MPI 4.1.4", "Open MPI v4.1.6") == Outcome::kWarn);
  CHECK(versions("Open MPI 4.1.4", "Open MPI v5.0.1") == Outcome::kFail);
  CHECK(versions("none", "none") == Outcome::kPass);
}

TEST_CASE("preflight: a library from two files warns") {
  auto twice = libraries("build ID 2", "/lib/libhdf5.so");
  twice.libraries.push_back({"HDF5", "1.10.8", "1.10.8", "/opt/libhdf5.so", "build ID 3"});
  const auto found =
      finding(judge_libraries(on_ranks<LibraryFacts>({twice}, 1)).findings, "libraries.once");
  CHECK(found.outcome == Outcome::kWarn);
  CHECK(contains(found.seen, "/lib/libhdf5.so and /opt/libhdf5.so"));
}

TEST_CASE("preflight: data must be there and the same on all hosts") {
  const DataFacts good{true, "", "", "CIFAR-10 (official)", std::string(64, 'a'), 60000}, none{};
  const CheckOptions options;
  CHECK(judge_data(on_ranks<DataFacts>({good, none, good, none}, 2), options).at(0).outcome ==
        Outcome::kPass);
  DataFacts other = good;
  other.digest = std::string(64, 'b');
  const auto differs = judge_data(on_ranks<DataFacts>({good, other}, 1), options).at(0);
  CHECK(differs.outcome == Outcome::kFail);
  CHECK(contains(differs.seen, "node2 has bbbb"));
  const DataFacts missing{true, "no data set", "gradsync-dataset fetch", "", "", 0};
  const auto lacks = judge_data(on_ranks<DataFacts>({good, missing}, 1), options).at(0);
  CHECK(lacks.outcome == Outcome::kFail);
  CHECK(lacks.fix == "gradsync-dataset fetch");
  CHECK(contains(lacks.seen, "node2"));
}

TEST_CASE("preflight: what can be wrong with the results folder") {
  const std::vector<SeenFacts> one_host(2);
  FolderProbe good{"/scratch", "", "", "lustre", std::int64_t{1} << 40};
  auto findings = judge_results(good, on_ranks(one_host, 2));
  CHECK(count_of(findings, Outcome::kPass) == 3);
  CHECK(finding(findings, "results.shared").outcome == Outcome::kSkip);
  const auto local = on_ranks<SeenFacts>({{false, false}, {true, false}, {true, true}}, 1);
  const auto unseen = finding(judge_results(good, local), "results.shared");
  CHECK(unseen.outcome == Outcome::kWarn);
  CHECK(contains(unseen.seen, "not seen on node2"));
  good.lock_error = "flock: Function not implemented";
  CHECK(contains(finding(judge_results(good, local), "results.lock").fix, "HDF5_USE_FILE_LOCKING"));
  good.free_bytes = 1 << 20;
  CHECK(finding(judge_results(good, local), "results.space").outcome == Outcome::kFail);
  good.write_error = "Read-only file system";
  findings = judge_results(good, local);
  CHECK(findings.size() == 1);
  CHECK(findings.at(0).outcome == Outcome::kFail);
}

TEST_CASE("preflight: little shared memory and leftovers warn, with the line that removes them") {
  SharedMemoryFacts good{true, 2, std::int64_t{1} << 30, std::int64_t{1} << 30, {}};
  auto findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(count_of(findings, Outcome::kPass) == 2);
  good.free_bytes = 1 << 20;
  good.leftovers = {{"vader_segment.node1.0.1.0", 4 << 20}, {"nccl-abc", 1 << 20}};
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(finding(findings, "shared-memory.space").outcome == Outcome::kWarn);
  const auto left = finding(findings, "shared-memory.leftovers");
  CHECK(left.outcome == Outcome::kWarn);
  CHECK(contains(left.seen, "2 files of dead runs, 5 MiB"));
  CHECK(left.fix == "on node1: rm /dev/shm/vader_segment.node1.0.1.0 /dev/shm/nccl-abc");
}

TEST_CASE(
    "preflight: clocks of the day three seconds apart warn, whatever the steady clocks read") {
  // node2 was started 1000 s later, so its steady clock reads 1000 s less.
  const ClockFacts root{5000, 0, 0}, together{6000, 1000, 2e-6}, ahead{6003, 1000, 2e-6};
  CHECK(ahead_s(together, root) == doctest::Approx(0));
  CHECK(ahead_s(ahead, root) == doctest::Approx(3));
  CHECK(finding(judge_clocks(on_ranks<ClockFacts>({root, together}, 1)), "clocks.time-of-day")
            .outcome == Outcome::kPass);
  const auto apart =
      finding(judge_clocks(on_ranks<ClockFacts>({root, ahead}, 1)), "clocks.time-of-day");
  CHECK(apart.outcome == Outcome::kWarn);
  CHECK(contains(apart.seen, "node2 is +3.000 s"));
  const ClockFacts unknown{std::numeric_limits<double>::quiet_NaN(), 0, 0};
  CHECK(finding(judge_clocks(on_ranks<ClockFacts>({root, unknown}, 1)), "clocks.time-of-day")
            .outcome == Outcome::kWarn);
}

TEST_CASE("preflight: clocks that cannot be aligned closely warn") {
  const auto found =
      finding(judge_clocks(on_ranks<ClockFacts>({{0, 0, 0}, {0, 0, 5e-6}, {0, 0, 0.02}}, 1)),
              "clocks.alignment");
  CHECK(found.outcome == Outcome::kWarn);
  CHECK(contains(found.seen, "rank 2 (node3)"));
}

TEST_CASE("preflight: pairs of hosts, all of few and a ring of many") {
  CHECK(pairs_to_measure(1).empty());
  CHECK(pairs_to_measure(2) == std::vector<std::pair<int, int>>{{0, 1}});
  CHECK(pairs_to_measure(12).size() == 66);
  const auto ring = pairs_to_measure(100);
  CHECK(ring.size() == 100);
  CHECK(ring.front() == std::pair(0, 1));
  CHECK(ring.back() == std::pair(0, 99));
}

TEST_CASE("preflight: wrong sums and wrong data fail, a slow link warns") {
  CHECK(judge_sums(on_ranks<SumFacts>({{1e-6, 1e-3, 0}}, 1)).outcome == Outcome::kSkip);
  const SumFacts right{1e-6, 1e-3, 0}, wrong{1e-6, 1e-3, 7};
  CHECK(judge_sums(on_ranks<SumFacts>({right, right}, 1)).outcome == Outcome::kPass);
  const auto sums = judge_sums(on_ranks<SumFacts>({right, wrong}, 1));
  CHECK(sums.outcome == Outcome::kFail);
  CHECK(contains(sums.seen, "rank 1 (node2): 7 wrong values"));

  CHECK(judge_links({}).findings.at(0).outcome == Outcome::kSkip);
  std::vector<LinkFacts> links = {
      {"a and b", 1e-6, 10e9, 0}, {"a and c", 1e-6, 11e9, 0}, {"b and c", 1e-6, 9e9, 0}};
  CHECK(judge_links(links).findings.at(0).outcome == Outcome::kPass);
  links[1].bandwidth_Bps = 1e9;
  const auto slow = judge_links(links);
  CHECK(slow.findings.at(0).outcome == Outcome::kWarn);
  CHECK(contains(slow.findings.at(0).seen, "slowest a and c: 1.00 GB/s"));
  CHECK(slow.tables.at(0).rows.at(0).at(0).text == "a and c");
  links[2].wrong = 1;
  CHECK(judge_links(links).findings.at(0).outcome == Outcome::kFail);
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
