// SPDX-License-Identifier: BSD-3-Clause
// The modes on real GPUs; several ranks may share one. Says SKIP where there is none.
#include <dlfcn.h>

#include <doctest/doctest.h>

#include "comm/session.h"
#include "machine/gpus.h"
#include "mpi/short_training.h"
#include "train/compute_settings.h"
#include "transport/rank_transport.h"

using namespace gradsync;
using gradsync::test::short_options;
using gradsync::test::train_shortly;
using gradsync::test::Trained;

namespace {

/// Sums in another order, and 50 steps for them to grow.
constexpr double kTolerance = 5e-3;
constexpr std::int64_t kSteps = 50;
/// By then cuDNN has tried its algorithms, NCCL has connected and memory is there.
constexpr std::int64_t kFirstSteady = 10;

bool no_gpu() {
  int mine = visible_gpus().empty() ? 0 : 1, fewest = 0;
  MPI_Allreduce(&mine, &fewest, 1, MPI_INT, MPI_MIN, test::session().world());
  if (fewest == 0) MESSAGE("SKIP: no GPU on every rank");
  return fewest == 0;
}

/// What a rank has on its GPU.
struct GpuRanks {
  explicit GpuRanks(const std::string& transport, VerifyLevel verify = VerifyLevel::kInit)
      : transports(test::session(), watchdog, {transport, "asked for"}, device.choice(),
                   device.lane()),
        exchange(test::session(), transports.get(), verify, device.lane()) {
    // Arithmetic of runs: products of 10 bits would be compared with the CPU's of 23.
    set_gpu_arithmetic(/*tf32=*/false);
  }

  RankDevice device{test::session(), {"cuda", true}};
  Watchdog& watchdog = test::session().watchdog();
  RankTransport transports;
  Exchange exchange;
};

double largest_difference(const Trained& a, const Trained& b) {
  return (a.parameters - b.parameters).abs().max().item<double>();
}

void check_modes(const std::string& transport, std::int64_t steps) {
  const test::SmallSet set;
  for (const Mode& entry : kModes) {
    const std::string mode(entry.name);
    CAPTURE(mode);
    const TrainOptions options = short_options(mode);
    test::Ranks host;
    const Trained there = train_shortly(host.exchange, *set.data, options, steps);
    GpuRanks ranks(transport);
    const Trained here =
        train_shortly(ranks.exchange, *set.data, options, steps, ranks.device.torch());
    CHECK(!(largest_difference(here, there) > kTolerance));
    if (entry.name == "none") continue;
    CHECK(equal_on_all(test::session().world(), std::stoull(here.hash, nullptr, 16)));
  }
}

}  // namespace

TEST_CASE("GPU: over NCCL every mode's ranks stay bit-equal, and are the CPU's within tolerance") {
  if (no_gpu()) return;
  check_modes("nccl", kSteps);
}

TEST_CASE("GPU: the same over MPI through the host's memory") {
  if (no_gpu()) return;
  check_modes("mpi", kSteps / 5);
}

TEST_CASE("GPU: events tell each phase, and the parts make up the whole") {
  if (no_gpu()) return;
  const test::SmallSet set;
  GpuRanks ranks("nccl", VerifyLevel::kOff);
  const Trained trained =
      train_shortly(ranks.exchange, *set.data, short_options("ddp"), kSteps, ranks.device.torch());
  double last_begin_s = -1;
  for (const FinishedIteration& step : trained.iterations) {
    const RankIteration& one = step.measured;
    CHECK(one.begin_s > last_begin_s);
    last_begin_s = one.begin_s;
    CHECK(one[Phase::kForward] > 0);
    CHECK(one[Phase::kBackward] > 0);
    CHECK(one[Phase::kOptimizer] > 0);
    CHECK(one[Phase::kHidden] + one[Phase::kExposed] == doctest::Approx(one[Phase::kCommBusy]));
    CHECK(one[Phase::kCompute] + one[Phase::kExposed] + one[Phase::kWait] + one[Phase::kOther] ==
          doctest::Approx(one[Phase::kIteration]));
    for (const BucketTimes& bucket : one.buckets)
      CHECK(bucket.ready_s <= bucket.end_s);
  }
}

TEST_CASE("GPU: replayed steps train the network that launched ones do") {
  if (no_gpu()) return;
  const test::SmallSet set;
  for (const char* mode : {"none", "allreduce", "gather-scatter", "ddp"}) {
    CAPTURE(mode);
    const TrainOptions options = short_options(mode);
    GpuRanks ranks("nccl", VerifyLevel::kOff);
    const DataSource data(*set.data, std::make_shared<ResidentData>(*set.data, ranks.device.torch(),
                                                                    ImageType::kFloat32));
    const Trained launched =
        train_shortly(ranks.exchange, data, options, kSteps, ranks.device.torch());
    StepGraph graph;
    const Trained replayed =
        train_shortly(ranks.exchange, data, options, kSteps, ranks.device.torch(), {}, &graph);
    CHECK(graph.why_not().empty());
    CHECK(graph.captured());
    CHECK(!(largest_difference(launched, replayed) > kTolerance));
    REQUIRE(launched.iterations.size() == replayed.iterations.size());
    for (std::size_t i = 0; i < launched.iterations.size(); ++i) {
      CHECK(replayed.iterations[i].measured.loss ==
            doctest::Approx(launched.iterations[i].measured.loss).epsilon(1e-2));
      CHECK(replayed.iterations[i].measured[Phase::kIteration] > 0);
    }
  }
}

TEST_CASE("GPU: in the steady loop over NCCL no call of CUDA's waits for the device") {
  if (no_gpu()) return;
  // Of tests/libraries/count_waits.cpp: the calls since it was called last.
  const auto waits = reinterpret_cast<long (*)(const char*)>(dlsym(RTLD_DEFAULT, "gradsync_waits"));
  if (waits == nullptr) {
    MESSAGE("SKIP: nobody counts; LD_PRELOAD=build/tests/libcount_waits.so does");
    return;
  }
  const test::SmallSet set;
  for (const char* mode : {"none", "allreduce", "gather-scatter", "ddp"})
    for (const char* optimizer : {"sgd", "lamb", "sgd, loader"}) {
      CAPTURE(mode);
      CAPTURE(optimizer);
      const bool loads = std::string_view(optimizer).ends_with("loader");
      TrainOptions options = short_options(mode);
      options.optimizer.name = loads ? "sgd" : optimizer;
      options.clip_norm = 1;
      GpuRanks ranks("nccl", VerifyLevel::kOff);
      const auto resident = loads ? nullptr
                                  : std::make_shared<ResidentData>(*set.data, ranks.device.torch(),
                                                                   ImageType::kFloat32);
      const DataSource data(*set.data, resident);
      long counted = 0;
      train_shortly(ranks.exchange, data, options, kSteps, ranks.device.torch(),
                    [&](GradientGuard&, std::int64_t iteration) {
                      const long since = waits(iteration > kFirstSteady ? "steady" : "before");
                      if (iteration > kFirstSteady) counted += since;
                    });
      CHECK(counted == 0);
    }
}

TEST_CASE("GPU: in the steady loop over NCCL the host waits for nothing") {
  if (no_gpu()) return;
  const test::SmallSet set;
  for (const char* mode : {"none", "allreduce", "gather-scatter", "ddp"}) {
    CAPTURE(mode);
    GpuRanks ranks("nccl", VerifyLevel::kOff);
    train_shortly(ranks.exchange, *set.data, short_options(mode), kSteps, ranks.device.torch());
    CHECK(ranks.device.lane()->device.host_waits() == 0);
  }
}
