// SPDX-License-Identifier: BSD-3-Clause
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include <doctest/doctest.h>

#include "check/check.h"
#include "serial/check_facts.h"
#include "serial/test_folder.h"

using namespace gradsync;
using namespace gradsync::check;

namespace {

LibraryFacts libraries(const std::string& hdf5_identity, const std::string& hdf5_path) {
  return {{{"MPI", "Open MPI 4.1.4", "Open MPI v4.1.4", "/lib/libmpi.so.40", "build ID 1"},
           {"HDF5", "1.10.8", "1.10.8", hdf5_path, hdf5_identity},
           {"NCCL", "none", "none", "", ""}}};
}

}  // namespace

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
  const DataFacts missing{true, "no data set", "config/data", "", "", 0};
  const auto lacks = judge_data(on_ranks<DataFacts>({good, missing}, 1), options).at(0);
  CHECK(lacks.outcome == Outcome::kFail);
  CHECK(lacks.fix == "config/data");
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
  good.free_bytes = -1;
  CHECK(finding(judge_results(good, local), "results.space").outcome == Outcome::kSkip);
  good.write_error = "Read-only file system";
  findings = judge_results(good, local);
  CHECK(findings.size() == 1);
  CHECK(findings.at(0).outcome == Outcome::kFail);
}

TEST_CASE("preflight: a session folder that others can change is exposed") {
  const TestFolder folder;
  const std::filesystem::path top = folder.path() / "ompi.node1.0", job = top / "pid.1";
  std::filesystem::create_directories(job);
  const auto mode = [](const std::filesystem::path& path, mode_t bits) {
    REQUIRE(::chmod(path.c_str(), bits) == 0);
  };
  mode(top, 0700);
  mode(job, 0700);
  CHECK(why_exposed(job) == "");
  CHECK(why_exposed(job / "missing") == "");
  std::filesystem::create_symlink("loop", top / "loop");
  CHECK(contains(why_exposed(top / "loop/job"), "cannot be looked at"));
  mode(top, 0777);
  CHECK(contains(why_exposed(job), "others can write in '" + top.string() + "'"));
  mode(top, 01777);  // as /tmp
  CHECK(why_exposed(job) == "");
  mode(job, 0770);
  CHECK(contains(why_exposed(job), "others can write in '" + job.string() + "'"));
  mode(job, 0700);
  if (geteuid() != 0) {
    MESSAGE("SKIP: a folder of another user needs root");
    return;
  }
  REQUIRE(::chown(top.c_str(), 65534, 65534) == 0);
  CHECK(contains(why_exposed(job), "'" + top.string() + "' belongs to user 65534"));
}

TEST_CASE("preflight: little shared memory and leftovers warn, with the line that removes them") {
  SharedMemoryFacts good{true, 2, std::int64_t{1} << 30, std::int64_t{1} << 30, {}};
  auto findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(count_of(findings, Outcome::kPass) == 2);
  CHECK(finding(findings, "shared-memory.session").outcome == Outcome::kSkip);
  good.session = "/tmp/ompi.node1.7/pid.9";
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(finding(findings, "shared-memory.session").outcome == Outcome::kPass);
  good.exposed = "'/tmp/ompi.node1.7' belongs to user 8";
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(finding(findings, "shared-memory.session").outcome == Outcome::kWarn);
  CHECK(contains(finding(findings, "shared-memory.session").seen, "node1: '/tmp/ompi.node1.7'"));
  good.free_bytes = 1 << 20;
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  const auto none = finding(findings, "shared-memory.space");
  CHECK(none.outcome == Outcome::kFail);
  CHECK(contains(none.seen, "node1: 1 MiB of 1 GiB free for 2 ranks"));
  good.free_bytes = -1;
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(finding(findings, "shared-memory.space").outcome == Outcome::kSkip);
  SharedMemoryFacts first = good;
  first.free_bytes = first.size_bytes;
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({first, good}, 1));
  CHECK(contains(finding(findings, "shared-memory.space").seen, "of node2 does not say"));
  good.free_bytes = 1 << 20;
  good.ranks = 1;  // shares no memory
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good}, 1));
  CHECK(finding(findings, "shared-memory.space").outcome == Outcome::kWarn);
  good.ranks = 2;
  good.free_bytes = 2 << 20;
  good.leftovers = {{"vader_segment.node1.0.1.0", 4 << 20}, {"nccl-a;id>b", 1 << 20}};
  findings = judge_shared_memory(on_ranks<SharedMemoryFacts>({good, {}}, 2));
  CHECK(finding(findings, "shared-memory.space").outcome == Outcome::kWarn);
  const auto left = finding(findings, "shared-memory.leftovers");
  CHECK(left.outcome == Outcome::kWarn);
  CHECK(contains(left.seen, "2 files of dead runs, 5 MiB"));
  CHECK(left.fix == "on node1: rm /dev/shm/vader_segment.node1.0.1.0 '/dev/shm/nccl-a;id>b'");
}

TEST_CASE("preflight: files that processes outside of a container may use are not for removal") {
  SharedMemoryFacts outside{true, 2, std::int64_t{1} << 30, std::int64_t{1} << 30, {}};
  SharedMemoryFacts inside = outside;
  inside.in_container = true;
  const auto leftovers = [&](const std::vector<SharedMemoryFacts>& facts) {
    return finding(judge_shared_memory(on_ranks(facts, 1)), "shared-memory.leftovers");
  };
  CHECK(leftovers({inside, outside}).outcome == Outcome::kPass);
  inside.leftovers = {{"nccl-abc", 1 << 20}};
  const auto unknown = leftovers({inside, outside});
  CHECK(unknown.outcome == Outcome::kSkip);
  CHECK(unknown.fix.empty());
  CHECK(contains(unknown.seen, "node1: no process of this container uses 1 file of 1 MiB"));
  outside.leftovers = {{"psm_shm.1", 1 << 20}};
  const auto left = leftovers({inside, outside});
  CHECK(left.outcome == Outcome::kWarn);
  CHECK(left.fix == "on node2: rm /dev/shm/psm_shm.1");
}

TEST_CASE("preflight: ranks of a host in different user namespaces, which CMA does not cross") {
  const auto facts = [](std::uint64_t cma_namespace, bool fast_network = false) {
    SharedMemoryFacts one{true, 1, std::int64_t{1} << 30, std::int64_t{1} << 30, {}};
    one.cma_namespace = cma_namespace;
    one.fast_network = fast_network;
    return one;
  };
  const auto single_copy = [](const std::vector<SharedMemoryFacts>& all) {
    return finding(judge_shared_memory(on_ranks(all, 2)), "shared-memory.cma");
  };
  CHECK(single_copy({facts(0), facts(0)}).outcome == Outcome::kSkip);
  CHECK(single_copy({facts(7), facts(7), facts(8), facts(8)}).outcome == Outcome::kPass);
  CHECK(single_copy({facts(7), facts(0)}).outcome == Outcome::kPass);
  const auto apart = single_copy({facts(7), facts(7), facts(8), facts(9)});
  CHECK(apart.outcome == Outcome::kFail);
  CHECK(contains(apart.seen, "ranks of node2 are in different user namespaces"));
  CHECK(contains(apart.fix, "--mca btl_vader_single_copy_mechanism none"));
  CHECK(single_copy({facts(7, true), facts(9, true)}).outcome == Outcome::kWarn);
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

TEST_CASE(
    "preflight: links are held against their nominal rate, a uniformly slow cluster as well") {
  std::vector<LinkFacts> links(3, {"a and b", 1e-6, 5.6e9, 0, {"mlx5_0 port 1", 12.5e9}});
  const auto nominal = [&](double least_share) {
    return finding(judge_links(links, least_share).findings, "links.nominal");
  };
  CHECK(nominal(0).outcome == Outcome::kWarn);
  CHECK(contains(nominal(0).seen,
                 "a and b has 5.60 GB/s each way, 45 % of 12.5 GB/s of mlx5_0 port 1"));
  CHECK(nominal(0.7).outcome == Outcome::kFail);
  CHECK(nominal(0.4).outcome == Outcome::kPass);
  CHECK(judge_links(links).tables.at(0).rows.at(0).at(4).shown() == "44.8");
  for (LinkFacts& link : links)
    link.bandwidth_Bps = 11e9;
  CHECK(nominal(0).outcome == Outcome::kPass);
  for (LinkFacts& link : links)
    link.nominal = {};
  CHECK(nominal(0.7).outcome == Outcome::kSkip);
}

TEST_CASE("preflight: rates of ports and slots as the kernel states them") {
  const TestFolder folder;
  const auto state = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((folder / file).parent_path());
    write_file_atomically(folder / file, text + "\n");
  };
  CHECK(nominal_rate(folder / "none").rate_Bps == 0);
  // A bridge states 10 Gbit/s that nothing backs, and a port that is down counts for nothing.
  state("class/net/br0/speed", "10000");
  state("class/net/br0/operstate", "up");
  for (const auto& [name, speed, operation] : {std::tuple{"eth0", "1000", "up"},
                                               {"eth1", "25000", "up"},
                                               {"eth2", "100000", "down"},
                                               {"eth3", "-1", "up"}}) {
    const std::string interface = std::string("class/net/") + name;
    state(interface + "/speed", speed);
    state(interface + "/operstate", operation);
    std::filesystem::create_directories(folder / interface / "device");
  }
  CHECK(nominal_rate(folder / "").name == "eth1");
  CHECK(nominal_rate(folder / "").rate_Bps == doctest::Approx(3.125e9));
  for (const auto& [port, rate, active] :
       {std::tuple{"1", "100 Gb/sec (4X EDR)", "4: ACTIVE"}, {"2", "200 Gb/sec", "1: DOWN"}}) {
    state(std::string("class/infiniband/mlx5_0/ports/") + port + "/rate", rate);
    state(std::string("class/infiniband/mlx5_0/ports/") + port + "/state", active);
  }
  CHECK(nominal_rate(folder / "").name == "mlx5_0 port 1");
  CHECK(nominal_rate(folder / "").rate_Bps == doctest::Approx(12.5e9));

  const auto slot = [&](const std::string& device, const std::string& speed, int width) {
    state(device + "/current_link_speed", speed);
    state(device + "/max_link_speed", "16.0 GT/s PCIe");
    state(device + "/current_link_width", std::to_string(width));
    state(device + "/max_link_width", "16");
  };
  slot("class/infiniband/mlx5_0/device", "16.0 GT/s PCIe", 16);
  CHECK(narrow_slots(folder / "").empty());
  slot("class/net/eth1/device", "8.0 GT/s PCIe", 16);
  for (const auto& [gpu, width] : {std::pair{"0000:17:00.0", 16}, {"0000:65:00.0", 8}}) {
    const std::string device = std::string("bus/pci/devices/") + gpu;
    slot(device, "2.5 GT/s PCIe", width);  // both idle
    state(device + "/vendor", "0x10de");
    state(device + "/class", "0x030200");
  }
  const auto narrow = narrow_slots(folder / "");
  REQUIRE(narrow.size() == 2);
  CHECK(narrow[0].device == "eth1");
  CHECK(narrow[0].now == "x16 8.0 GT/s PCIe");
  CHECK(narrow[1].device == "GPU 0000:65:00.0");
  const auto found = judge_slots(on_ranks<SlotFacts>({{true, narrow}, {false, {}}}, 1));
  CHECK(found.outcome == Outcome::kWarn);
  CHECK(contains(found.seen, "node1: eth1 has x16 8.0 GT/s PCIe of x16 16.0 GT/s PCIe"));
  CHECK(judge_slots(on_ranks<SlotFacts>({{true, {}}}, 1)).outcome == Outcome::kPass);
}

TEST_CASE("preflight: NVLinks that are down or slower than others of the job are named") {
  const NvlinkFacts whole{"H100", 18, 18, 26.5e9}, down{"H100", 12, 18, 26.5e9},
      slow{"H100", 18, 18, 13.25e9}, none{"L40", 0, 0, 0};
  const auto judge = [](const std::vector<NvlinkFacts>& facts, double least_share = 0) {
    return judge_nvlinks(on_ranks<NvlinkFacts>(facts, 2), least_share);
  };
  CHECK(judge({none, none}).outcome == Outcome::kSkip);
  CHECK(judge({{"A6000", 0, 4, 0}}).outcome == Outcome::kSkip);
  CHECK(judge({whole, whole, none}).outcome == Outcome::kPass);
  CHECK(judge({whole, none}).seen == "H100: 18 of 18 NVLinks up, 477 GB/s each way");
  CHECK(judge({whole, whole, down}).outcome == Outcome::kWarn);
  CHECK(contains(judge({whole, whole, down}).seen,
                 "rank 2 (node2): 12 of 18 NVLinks up, 318 GB/s each way, 67 % of what H100 has"));
  CHECK(contains(judge({whole, slow}).seen, "18 of 18 NVLinks up, 238 GB/s each way, 50 %"));
  CHECK(judge({whole, down}, 0.6).outcome == Outcome::kWarn);
  CHECK(judge({whole, down}, 0.7).outcome == Outcome::kFail);
  // All of them lack the same links.
  CHECK(judge({down, down}).outcome == Outcome::kWarn);
  CHECK(judge({{"H100", 12, 18, 0}, {"H100", 18, 18, 0}}, 0.7).outcome == Outcome::kFail);
  CHECK(judge({whole, {"H100", 0, 18, 0}}, 0.1).outcome == Outcome::kFail);
  const NvlinkFacts unknown{"H100", -1, -1, 0};
  CHECK(judge({whole, unknown}, 0.7).outcome == Outcome::kSkip);
  CHECK(contains(judge({whole, unknown}).seen, "NVML does not say of rank 1"));
}

TEST_CASE("preflight: a rank's NVLinks are those that NVML states of its GPU") {
  FakeJob job;
  CheckOptions options;
  const auto found = [&] { return finding(check_links(job, options).findings, "links.nvlink"); };
  CHECK(found().outcome == Outcome::kSkip);
  job.visible = {{"NVIDIA H200", "GPU-fake"}};
  CHECK(found().outcome == Outcome::kWarn);
  CHECK(contains(found().seen, "rank 0 (node1): 3 of 4 NVLinks up, 79.7 GB/s each way, 75 %"));
  options.least_link = 0.8;
  CHECK(found().outcome == Outcome::kFail);
  options.device = "cpu";
  CHECK(found().outcome == Outcome::kSkip);
  options.device = "auto";
  job.visible = {{"NVIDIA L40", "GPU-bare"}};
  CHECK(found().outcome == Outcome::kSkip);
}

TEST_CASE("preflight: rates have three significant digits, small ones too") {
  CHECK(rate_text(12.34e9) == "12.3 GB/s");
  CHECK(rate_text(1e9) == "1.00 GB/s");
  CHECK(rate_text(999.4e6) == "999 MB/s");
  CHECK(rate_text(999.9e6) == "1.00 GB/s");
  CHECK(rate_text(2.6e6) == "2.60 MB/s");
  CHECK(rate_text(1234) == "1.23 kB/s");
  CHECK(contains(judge_sums(on_ranks<SumFacts>({{1e-6, 1.61886, 0}, {1e-6, 1.61886, 0}}, 1)).seen,
                 "(2.59 MB/s busbw)"));
}
