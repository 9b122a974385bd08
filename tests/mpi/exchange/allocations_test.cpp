// SPDX-License-Identifier: BSD-3-Clause
#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <doctest/doctest.h>

#include "mpi/ranks.h"
#include "optim/optimizer.h"

// Counts every `new` of this program while it is asked to, in whatever library. Memory of tensors
// comes from elsewhere: forward and backward passes are LibTorch's, and allocate in each step.
namespace {

std::atomic<bool> counting{false};
std::atomic<long> counted{0};

void* take(std::size_t bytes) {
  if (counting) ++counted;
  return std::malloc(bytes > 0 ? bytes : 1);
}

void* take_or_throw(std::size_t bytes) {
  if (void* memory = take(bytes)) return memory;
  throw std::bad_alloc();
}

/// Calls of `new` in `times` rounds of `work`, after as many to warm up.
template <typename Work>
long allocations(int times, Work work) {
  for (int i = 0; i < times; ++i)
    work();
  counted = 0;
  counting = true;
  for (int i = 0; i < times; ++i)
    work();
  counting = false;
  return counted;
}

}  // namespace

void* operator new(std::size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new[](std::size_t bytes) {
  return take_or_throw(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return take(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

using namespace gradsync;

TEST_CASE("allocations: they are counted" * test::once()) {
  long sum = 0;
  CHECK(allocations(10, [&] { sum += std::vector<long>(3, 1)[2]; }) == 10);
  CHECK(sum == 20);
}

TEST_CASE("allocations: none in the exchange of a steady step") {
  constexpr std::size_t kValues = 70'000;
  for (const char* name : {"shm", "mpi", "tcp-ring", "two-level", "two-level-unequal"}) {
    CAPTURE(name);
    test::Ranks ranks(name);
    Exchange exchange(test::session(), ranks.transport, VerifyLevel::kInit);
    const auto memory = exchange.allocate(kValues * sizeof(float));
    std::vector<float> elsewhere(memory ? 0 : kValues);
    const std::span<float> data(memory ? reinterpret_cast<float*>(memory.get()) : elsewhere.data(),
                                kValues);
    std::int64_t iteration = 0;
    const auto reduce = [&] {
      exchange.log().begin_iteration(++iteration);
      for (int message = 0; message < 4; ++message)
        exchange.run(Collective::all_reduce(data, Scale::kAverage), Traffic::kGradients);
    };
    CHECK(allocations(30, reduce) == 0);
    exchange.set_overlaps(true);
    const std::shared_ptr<const void> held = std::make_shared<int>();
    const auto start = [&] {
      exchange.log().begin_iteration(++iteration);
      for (std::size_t message = 0; message < 4; ++message)
        exchange.start({.call = Collective::all_reduce(data.subspan(message * 16'384, 16'384),
                                                       Scale::kAverage),
                        .memory = held},
                       exchange.now());
      exchange.finish();
    };
    CHECK(allocations(30, start) == 0);
  }
}

TEST_CASE("allocations: none in an update" * test::once()) {
  Replica replica = make_replica("resnet18", 1, Layout::kNhwc);
  for (torch::Tensor& parameter : replica.parameters)
    parameter.mutable_grad() = torch::ones_like(parameter);
  OptimizerSettings settings;
  settings.momentum = 0.9;
  const auto optimizer = make_optimizer(replica, settings);
  CHECK(allocations(5, [&] { optimizer->step(1e-3); }) == 0);
}
