// SPDX-License-Identifier: BSD-3-Clause
// What memory allows an all-reduce of two ranks of one host: two threads of one process do what it
// cannot avoid, each reading its half of both buffers once and writing their mean to both, and wait
// for nothing within a pass. Buffers of the size asked for, so that caches help it as much as they
// help the all-reduce. Prints seconds, the fastest pass and the median of all.
//
// usage: memory_bandwidth BYTES
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "stats/clock.h"
#include "stats/statistics.h"

namespace {

constexpr std::size_t kThreads = 2;
constexpr int kPasses = 100, kWarmup = 3;

void average(float* __restrict one, float* __restrict other, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    one[i] = other[i] = 0.5f * (one[i] + other[i]);
}

std::vector<double> pass_times_s(std::size_t values) {
  std::vector<float> one(values, 1.0f), other(values, 0.5f);
  std::vector<double> times_s;
  std::barrier meet(static_cast<std::ptrdiff_t>(kThreads));
  const auto work = [&](std::size_t thread) {
    const std::size_t first = values * thread / kThreads, last = values * (thread + 1) / kThreads;
    for (int pass = 0; pass < kWarmup + kPasses; ++pass) {
      meet.arrive_and_wait();
      const double begin_s = gradsync::now_s();
      average(one.data() + first, other.data() + first, last - first);
      meet.arrive_and_wait();
      if (thread == 0 && pass >= kWarmup) times_s.push_back(gradsync::now_s() - begin_s);
    }
  };
  std::jthread second(work, 1);
  work(0);
  return times_s;
}

}  // namespace

int main(int argc, char** argv) {
  const long bytes = argc == 2 ? std::atol(argv[1]) : 0;
  if (bytes < 1024) {
    std::fprintf(stderr, "usage: memory_bandwidth BYTES\n");
    return 64;
  }
  const auto times =
      gradsync::statistics(pass_times_s(static_cast<std::size_t>(bytes) / sizeof(float)));
  std::printf("%.6g %.6g\n", times.minimum, times.median);
}
