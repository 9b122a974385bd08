// What memory allows a sum in place: `threads` threads add one array to another, each its own part,
// from arrays far larger than any cache. Prints bytes read and written per second (two reads and a
// write a value), median of 20 passes.
//
// usage: memory_bandwidth THREADS
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "timing/clock.h"
#include "timing/statistics.h"

namespace {

constexpr std::size_t kValues = std::size_t{32} << 20;
constexpr int kPasses = 20, kWarmup = 3;

void add(float* __restrict to, const float* __restrict from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i)
    to[i] += from[i];
}

std::vector<double> pass_times_s(std::size_t threads) {
  std::vector<float> to(kValues, 1.0f), from(kValues, 0.5f);
  std::vector<double> times_s;
  std::barrier meet(static_cast<std::ptrdiff_t>(threads));
  const auto work = [&](std::size_t thread) {
    const std::size_t first = kValues * thread / threads, last = kValues * (thread + 1) / threads;
    for (int pass = 0; pass < kWarmup + kPasses; ++pass) {
      meet.arrive_and_wait();
      const double begin_s = gradsync::now_s();
      add(to.data() + first, from.data() + first, last - first);
      meet.arrive_and_wait();
      if (thread == 0 && pass >= kWarmup) times_s.push_back(gradsync::now_s() - begin_s);
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t thread = 1; thread < threads; ++thread)
      others.emplace_back(work, thread);
    work(0);
  }
  return times_s;
}

}  // namespace

int main(int argc, char** argv) {
  const long threads = argc == 2 ? std::atol(argv[1]) : 0;
  if (threads < 1 || threads > 1024) {
    std::fprintf(stderr, "usage: memory_bandwidth THREADS\n");
    return 64;
  }
  const double time_s =
      gradsync::statistics(pass_times_s(static_cast<std::size_t>(threads))).median;
  std::printf("%.6g bytes/s\n", 3.0 * sizeof(float) * static_cast<double>(kValues) / time_s);
}
