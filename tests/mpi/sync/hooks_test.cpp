// SPDX-License-Identifier: BSD-3-Clause
// What may go wrong around the hooks of the backward pass: a parameter without a gradient, a mode
// that ends while its thread communicates.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include <doctest/doctest.h>

#include "base/error.h"
#include "mpi/ranks.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

using namespace gradsync;
using gradsync::test::Ranks;

namespace {

torch::Tensor images() {
  return torch::randn({2, 3, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
}

SyncSettings small_buckets(bool cross_iteration) {
  SyncSettings settings{"flat", 2048, 40000, "fp32"};
  settings.overlap = cross_iteration ? Overlap::kStep : Overlap::kBackward;
  return settings;
}

/// A replica with one more parameter, which no forward pass uses.
Replica with_unused(const torch::Tensor& parameter) {
  Replica replica = make_replica("lenet", 1, Layout::kNhwc);
  replica.parameters.push_back(parameter.set_requires_grad(true));
  replica.names.push_back("unused");
  return replica;
}

void run_hooked_pass(SyncMode& mode, Replica& replica) {
  mode.before_forward(true);
  const torch::Tensor outputs = replica.network->forward(images());
  mode.before_backward(outputs, true);
  outputs.sum().backward();
}

/// A Transport whose all-reduce waits for `go`, in memory that says when it is given back.
class Stuck : public Transport {
 public:
  Stuck() : Transport("stuck", 0, 1) {}
  double run(const Collective& call) override {
    if (call.kind == CollectiveKind::kAllReduce) wait(call.receive);
    return 0;
  }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
    return {new std::byte[bytes], [this](const std::byte* memory) {
              delete[] memory;
              const std::lock_guard lock(mutex);
              given_back = true;
              changed.notify_all();
            }};
  }

  std::mutex mutex;
  std::condition_variable changed;
  bool waits = false, go = false, given_back = false;

 private:
  void wait(std::span<std::byte> data) {
    std::unique_lock lock(mutex);
    waits = true;
    changed.notify_all();
    changed.wait(lock, [&] { return go; });
    lock.unlock();
    std::fill(data.begin(), data.end(), std::byte{1});
  }
};

}  // namespace

TEST_CASE("a parameter without a gradient is named, not left out of the exchange") {
  for (const bool cross_iteration : {false, true}) {
    CAPTURE(cross_iteration);
    Ranks ranks;
    Replica replica = with_unused(torch::zeros({10}));
    const auto mode = make_sync_mode("ddp", ranks.exchange, small_buckets(cross_iteration));
    mode->attach(replica);
    run_hooked_pass(*mode, replica);
    std::string what;
    try {
      mode->synchronize();
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kInternal);
      what = error.what();
    }
    CHECK(what.find("no gradient for parameter unused of the network") != std::string::npos);
  }
}

TEST_CASE("an empty parameter is exchanged as nothing" * test::several_ranks()) {
  for (const char* name : {"gather-scatter", "allreduce"}) {
    CAPTURE(name);
    Ranks ranks;
    Replica replica = with_unused(torch::zeros({0}));
    const auto mode = make_sync_mode(name, ranks.exchange, {"tensor", 1, 1, "fp32"});
    mode->attach(replica);
    run_hooked_pass(*mode, replica);
    mode->synchronize();
    CHECK(replica.parameters[0].grad().isfinite().all().item<bool>());
  }
}

TEST_CASE("gradients outlive a mode whose thread is left to the end of the job" * test::once()) {
  for (const char* name : {"ddp", "ddp across iterations"}) {
    CAPTURE(name);
    auto transport = std::make_unique<Stuck>();
    {
      Exchange exchange(test::session(), *transport, VerifyLevel::kOff);
      Replica replica = make_replica("lenet", 1, Layout::kNhwc);
      try {
        const auto mode =
            make_sync_mode("ddp", exchange, small_buckets(std::string(name) != "ddp"));
        mode->attach(replica);
        run_hooked_pass(*mode, replica);
        std::unique_lock lock(transport->mutex);
        transport->changed.wait(lock, [&] { return transport->waits; });
        lock.unlock();
        throw std::runtime_error("an error elsewhere");
      } catch (const std::runtime_error&) {
      }
      for (torch::Tensor& parameter : replica.parameters)
        parameter.mutable_grad().reset();
      std::unique_lock lock(transport->mutex);
      CHECK(!transport->given_back);  // the thread still works on them
      transport->go = true;
      transport->changed.notify_all();
      CHECK(transport->changed.wait_for(lock, std::chrono::seconds(20),
                                        [&] { return transport->given_back; }));
    }
  }
}

TEST_CASE("an order of buckets that is not each parameter once is refused" * test::once()) {
  using Order = std::vector<std::int64_t>;
  CHECK(checked_order(Order{2, 0, 1}, 3) == std::vector<std::size_t>{2, 0, 1});
  for (const Order& order : {Order{}, {0, 1}, {0, 1, 1}, {0, 1, 3}, {-1, 0, 1}, {0, 1, 2, 2}}) {
    try {
      checked_order(order, 3);
      FAIL_CHECK("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadData);
    }
  }
}
