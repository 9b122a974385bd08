#include "options/graph_obstacle.h"

#include <doctest/doctest.h>

using namespace gradsync;

namespace {

TrainOptions capturable() {
  TrainOptions options;
  options.device = "cuda";
  options.transport = "nccl";
  options.feed = "resident";
  return options;
}

/// Whether the obstacle of these options begins with `option`.
template <typename Change>
void check_obstacle(const std::string& option, Change change) {
  TrainOptions options = capturable();
  change(options);
  CAPTURE(option);
  CHECK(graph_obstacle(options).rfind(option, 0) == 0);
}

}  // namespace

TEST_CASE("graph: a step that the device does alone can be captured") {
  for (const char* mode : {"none", "gather-scatter", "allreduce", "ddp"}) {
    TrainOptions options = capturable();
    options.sync = mode;
    options.accumulate = 4;
    options.wire_dtype = "bf16";
    options.clip_norm = 1;
    CHECK(graph_obstacle(options).empty());
  }
}

TEST_CASE("graph: what the host takes part in is named") {
  check_obstacle("--device cpu", [](TrainOptions& o) { o.device = "cpu"; });
  check_obstacle("--transport mpi", [](TrainOptions& o) { o.transport = "mpi"; });
  check_obstacle("--feed loader", [](TrainOptions& o) { o.feed = "loader"; });
  check_obstacle("--sync c10d", [](TrainOptions& o) { o.sync = "c10d"; });
  check_obstacle("--sync data-parallel", [](TrainOptions& o) { o.sync = "data-parallel"; });
  check_obstacle("--verify all", [](TrainOptions& o) { o.verify = "all"; });
  check_obstacle("--inject-fault", [](TrainOptions& o) { o.inject_fault = "nan@0:3"; });
}
