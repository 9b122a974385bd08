// SPDX-License-Identifier: BSD-3-Clause
#include "train/compute_settings.h"

#include <sched.h>

#include <algorithm>

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include "mpi/short_training.h"

using namespace gradsync;

TEST_CASE("compute: ranks that share some of a host's cores divide them, and are told if short") {
  const Session& session = test::session();
  const int threads_before = at::get_num_threads();
  cpu_set_t before, one = {};
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  const Cores cores = core_mask().cores;
  TrainOptions options = test::short_options("ddp");
  options.threads = 0;
  // As in a cpuset, or bound to a part of the host: fewer cores than are online.
  CPU_SET(cores.front(), &one);
  REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
  const ComputeSettings on_one = settle_compute(session, options);
  REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
  const ComputeSettings on_all = settle_compute(session, options);
  at::set_num_threads(threads_before);
  CHECK(on_one.threads == 1);
  CHECK(on_one.warnings.size() == (session.root() && session.local_size() > 1 ? 1 : 0));
  const auto bound = static_cast<std::int64_t>(
      sharers_of(cores_on_node(session), static_cast<std::size_t>(session.local_rank())).size());
  CHECK(on_all.threads ==
        std::max<std::int64_t>(1, static_cast<std::int64_t>(cores.size()) / bound));
}

TEST_CASE("compute: precision auto is one that all ranks are fast with") {
  const Session& session = test::session();
  const int threads_before = at::get_num_threads();
  TrainOptions options = test::short_options("ddp");
  options.precision = options.layout = "auto";
  const ComputeSettings settled =
      settle_compute(session, options, torch::kCPU, /*fast_here=*/session.root());
  at::set_num_threads(threads_before);
  CHECK(settled.probed.size() == (session.size() == 1 ? 4 : 2));
  if (session.size() > 1) CHECK(settled.precision == Precision::kFp32);
}
