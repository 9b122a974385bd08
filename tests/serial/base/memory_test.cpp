#include "base/memory.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "serial/test_folder.h"

namespace gradsync {
namespace {

constexpr std::int64_t kMiB_bytes = 1 << 20;

/// A control group of cgroup v2, all in MiB.
struct Group {
  std::int64_t most = -1;  ///< -1: "max"
  std::int64_t used = 0, inactive_file = 0, active_file = 0, slab_reclaimable = 0;
};

void state(const FakeRoot& root, const std::string& folder, const Group& group) {
  const std::string place = "sys/fs/cgroup" + folder;
  root.state(place + "/memory.max",
             group.most < 0 ? "max" : std::to_string(group.most * kMiB_bytes));
  root.state(place + "/memory.current", std::to_string(group.used * kMiB_bytes));
  root.state(place + "/memory.stat",
             fmt::format("anon 1\nfile 99999999999\nshmem 99999999\ninactive_file {}\nactive_file "
                         "{}\nslab_reclaimable {}\nslab 99999999999",
                         group.inactive_file * kMiB_bytes, group.active_file * kMiB_bytes,
                         group.slab_reclaimable * kMiB_bytes));
}

std::int64_t left_MiB(const FakeRoot& root) {
  return available_memory_bytes(root.path()).value_or(-kMiB_bytes) / kMiB_bytes;
}

TEST_CASE("memory left: files and slabs that the kernel gives back are not in use") {
  const FakeRoot root;
  CHECK_FALSE(available_memory_bytes(root.path()).has_value());
  root.state("proc/meminfo", "MemTotal:   8388608 kB\nMemAvailable:  4194304 kB");
  CHECK(left_MiB(root) == 4096);
  root.state("proc/self/cgroup", "0::/");
  state(root, "", {1024, 1020, 600, 300, 20});
  CHECK(left_MiB(root) == 1024 - 100);
  state(root, "", {1024, 1020, 0, 0, 0});
  CHECK(left_MiB(root) == 4);
  state(root, "", {1024, 1030, 0, 0, 0});
  CHECK(left_MiB(root) == 0);
  state(root, "", {1024, 100, 600, 0, 0});  // the parts are read a moment later than the sum
  CHECK(left_MiB(root) == 1024);
  state(root, "", {-1, 1020, 0, 0, 0});
  CHECK(left_MiB(root) == 4096);
  state(root, "", {1 << 20, 1020, 0, 0, 0});  // more than the host has
  CHECK(left_MiB(root) == 4096);
}

TEST_CASE("memory left: the limit of a group around ours holds as well") {
  const FakeRoot root;
  root.state("proc/self/cgroup", "0::/slurm/job_7/step_0");
  state(root, "/slurm/job_7/step_0", {-1, 50, 0, 0, 0});
  state(root, "/slurm/job_7", {1000, 990, 890, 0, 0});
  state(root, "/slurm", {4000, 3500, 100, 100, 0});
  state(root, "/other", {10, 10, 0, 0, 0});
  CHECK(left_MiB(root) == 700);
  state(root, "/slurm/job_7", {600, 590, 490, 0, 0});
  CHECK(left_MiB(root) == 500);
  state(root, "/slurm/job_7/step_0", {200, 50, 0, 10, 0});
  CHECK(left_MiB(root) == 160);
}

TEST_CASE("memory left: a container that sees its group at the mount point") {
  const FakeRoot root;
  state(root, "", {512, 500, 400, 0, 0});
  for (const char* path : {"0::/docker/abc", "0::/../../outside", "0::/"}) {
    root.state("proc/self/cgroup", path);
    CHECK_MESSAGE(left_MiB(root) == 412, path);
  }
}

TEST_CASE("memory left: cgroup v1, of which a container may see its own group only") {
  const FakeRoot root;
  const auto limit = [&](const std::string& folder, std::int64_t most, std::int64_t used,
                         std::int64_t inactive, std::int64_t active) {
    const std::string place = "sys/fs/cgroup/memory" + folder;
    root.state(place + "/memory.limit_in_bytes", std::to_string(most));
    root.state(place + "/memory.usage_in_bytes", std::to_string(used * kMiB_bytes));
    root.state(place + "/memory.stat",
               fmt::format("cache 1\ninactive_file 1\nactive_file 1\ntotal_inactive_file {}\n"
                           "total_active_file {}",
                           inactive * kMiB_bytes, active * kMiB_bytes));
  };
  constexpr std::int64_t kNoLimit = 9223372036854771712;
  root.state("proc/meminfo", "MemAvailable:  4194304 kB");
  root.state("proc/self/cgroup", "9:name=systemd:/\n4:memory:/job/task\n1:cpu,cpuacct:/\n0::/");
  limit("/job/task", kNoLimit, 900, 0, 0);
  limit("/job", 1000 * kMiB_bytes, 990, 500, 300);
  limit("", kNoLimit, 3000, 0, 0);
  CHECK(left_MiB(root) == 810);
  limit("/job/task", 300 * kMiB_bytes, 290, 100, 50);
  CHECK(left_MiB(root) == 160);
  root.state("proc/self/cgroup", "4:memory:/docker/abc");
  limit("", 200 * kMiB_bytes, 190, 60, 30);
  CHECK(left_MiB(root) == 100);
}

}  // namespace
}  // namespace gradsync
