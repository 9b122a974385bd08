// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include <doctest/doctest.h>

#include "analysis/model/scaling_model.h"
#include "analysis/model/what_if.h"
#include "serial/expect_error.h"
#include "sync/buckets.h"

using namespace gradsync;
using namespace gradsync::report;
using doctest::Approx;

namespace {

MessageCost constant_cost(double time_s) {
  return [time_s](const BucketMessage&) { return time_s; };
}

}  // namespace

TEST_CASE("model: two terms are found again, whatever the scale of the points") {
  // y = 3·u + 0.5·v
  const std::vector<TwoTermPoint> points = {{2, 8, 10}, {2, 8000, 4006}, {6, 100, 68}};
  const TwoTermFit fit = fit_two_terms(points);
  CHECK(fit.first == Approx(3));
  CHECK(fit.second == Approx(0.5));
  CHECK(fit.points == 3);
  CHECK(fit.relative_rms() == Approx(0).epsilon(1e-9));
  CHECK_FALSE(fit.constrained);
}

TEST_CASE("model: relative least squares by hand") {
  // y = p·u with v = 0 is one direction; with two orthogonal directions each is its own problem:
  // p = Σ(u/y)/Σ(u/y)² over y = 1 and 2 at u = 1: (1 + 1/2)/(1 + 1/4) = 1.2.
  const TwoTermFit fit = fit_two_terms(std::vector<TwoTermPoint>{{1, 0, 1}, {1, 0, 2}, {0, 1, 5}});
  CHECK(fit.first == Approx(1.2));
  CHECK(fit.second == Approx(5));
  // residuals measured/fitted − 1: 1/1.2 − 1, 2/1.2 − 1, 0
  CHECK(fit.residuals[0] == Approx(-1.0 / 6));
  CHECK(fit.residuals[1] == Approx(2.0 / 3));
  // fitted/measured − 1: 0.2, −0.4, 0
  CHECK(fit.relative_rms() == Approx(std::sqrt((0.04 + 0.16) / 3)));
}

TEST_CASE("model: what does not determine two terms gives none") {
  CHECK_FALSE(fit_two_terms({}).usable());
  CHECK_FALSE(fit_two_terms(std::vector<TwoTermPoint>{{2, 8, 10}}).usable());
  CHECK_FALSE(fit_two_terms(std::vector<TwoTermPoint>{{2, 8, 10}, {4, 16, 21}}).usable());
  for (const double scale : {1e-6, 1e6})
    CHECK_FALSE(
        fit_two_terms(std::vector<TwoTermPoint>{
                          {2.1, 8.4 * scale, 10}, {4.3, 17.2 * scale, 21}, {0.7, 2.8 * scale, 4}})
            .usable());
  const double nan = std::nan("");
  CHECK_FALSE(
      fit_two_terms(std::vector<TwoTermPoint>{{2, 8, 10}, {4, 1, nan}, {4, 2, 0}}).usable());
  CHECK(std::isnan(fit_two_terms({}).relative_rms()));
  CHECK(usable(TwoTermPoint{1, 1, 1e-9}));
  CHECK_FALSE(usable(TwoTermPoint{1, 1, 0}));
}

TEST_CASE("model: a negative coefficient is set to 0, and that is said") {
  // y = −1 + 2v at v = 1, 2, 3
  const TwoTermFit fit = fit_two_terms(std::vector<TwoTermPoint>{{1, 1, 1}, {1, 2, 3}, {1, 3, 5}});
  CHECK(fit.constrained);
  CHECK(fit.first == 0);
  // q = Σ(v/y)/Σ(v/y)² with v/y = 1, 2/3, 3/5
  CHECK(fit.second == Approx((1 + 2.0 / 3 + 0.6) / (1 + 4.0 / 9 + 0.36)));
}

TEST_CASE("model: steps and bytes of collectives") {
  CHECK(law_factors(CollectiveKind::kAllReduce, 4).steps == 6);
  CHECK(law_factors(CollectiveKind::kAllReduce, 4).share == 1.5);
  CHECK(law_factors(CollectiveKind::kGather, 4).share == 3);
  CHECK(law_factors(CollectiveKind::kBroadcast, 8).steps == 3);
  CHECK(law_factors(CollectiveKind::kBarrier, 8).share == 0);
  CHECK(law_factors(CollectiveKind::kAllReduce, 1).steps == 0);
  CollectiveLaws laws;
  laws[CollectiveKind::kAllReduce] = {1e-5, 1e-9};
  // 6 · 10 µs + 1.5 · 1e6 B · 1 ns = 1.56 ms
  CHECK(collective_s(laws, CollectiveKind::kAllReduce, 1e6, 4) == Approx(1.56e-3));
  CHECK(collective_s(laws, CollectiveKind::kAllReduce, 1e6, 1) == 0);
  CHECK(std::isnan(collective_s(laws, CollectiveKind::kGather, 1e6, 4)));
}

TEST_CASE("model: replay on one channel, by hand") {
  const std::vector<BucketMessage> messages = {{1, 10}, {2, 10}, {9, 10}};
  const BucketReplay replay = replay_overlapped(messages, constant_cost(3), 10);
  // 1–4, 4–7 (held up by the first), 9–12 (the channel was idle)
  CHECK(replay.start_s == std::vector<double>{1, 4, 9});
  CHECK(replay.end_s == std::vector<double>{4, 7, 12});
  CHECK(replay.busy_s == 9);
  CHECK(replay.exposed_s == 2);
  CHECK(replay_overlapped(messages, constant_cost(0.5), 10).exposed_s == 0);
  CHECK(replay_blocking(messages, constant_cost(3), 10).exposed_s == 9);
  CHECK(replay_overlapped({}, constant_cost(3), 10).exposed_s == 0);
}

TEST_CASE("model: what was not measured stays so through a replay") {
  const double nan = std::nan("");
  CHECK(std::isnan(replay_overlapped({{nan, 1}, {2, 1}}, constant_cost(1), 10).exposed_s));
  CHECK(std::isnan(replay_overlapped({{1, 1}}, constant_cost(nan), 10).exposed_s));
  CHECK(std::isnan(replay_overlapped({{1, 1}}, constant_cost(1), nan).exposed_s));
}

TEST_CASE("model: other buckets of the same bytes, by hand") {
  // 100 bytes ready evenly from 1 to 3 s, then 300 bytes from 3 to 6 s.
  const std::vector<BucketMessage> recorded = {{3, 100}, {6, 300}};
  const auto halves = rebucket(recorded, 1, 50, 150);
  REQUIRE(halves.size() == 4);
  CHECK(halves[0].bytes == 50);
  CHECK(halves[0].ready_s == Approx(2));
  CHECK(halves[1].bytes == 150);
  CHECK(halves[1].ready_s == Approx(4));  // byte 200: a third into the second bucket
  CHECK(halves[2].ready_s == Approx(5.5));
  CHECK(halves[3].bytes == 50);
  CHECK(halves[3].ready_s == Approx(6));
  const auto one = rebucket(recorded, 1, 1000, 1000);
  REQUIRE(one.size() == 1);
  CHECK(one[0].bytes == 400);
  CHECK(one[0].ready_s == Approx(6));
  const auto same = rebucket(recorded, 1, 100, 300);
  CHECK(same[0].ready_s == Approx(3));
  CHECK(same[1].ready_s == Approx(6));
}

TEST_CASE("model: other buckets keep the order of bytes and times") {
  // The second bucket was ready before the first, and is exchanged after it.
  const auto cut = rebucket({{5, 100}, {2, 100}}, 1, 150, 150);
  CHECK(cut[0].ready_s == Approx(5));
  CHECK(cut[1].ready_s == Approx(5));
  CHECK(rebucket({}, 1, 10, 10).empty());
  CHECK(rebucket({{1, 1}}, 0, 1, 1).size() == 1);
  // What holds no bytes keeps none back.
  CHECK(rebucket({{1, 100}, {5, 0}, {6, 100}}, 0, 150, 150)[0].ready_s == Approx(3.5));
  CHECK(rebucket({{1, 100, CollectiveKind::kGather}}, 0, 10, 10).empty());
  CHECK(std::isnan(rebucket({{std::nan(""), 100}}, 0, 10, 10)[0].ready_s));
  error_text(ExitCode::kInternal, [] { rebucket({{1, 100}}, 0, 0, 10); });
  CHECK(contains(error_text(ExitCode::kBadData,
                            [] {
                              rebucket({{1, 1e18}}, 0, 1, 1);
                            }),
                 "more than 1e+06 buckets"));
}

TEST_CASE("model: the slowest of n ranks") {
  // Of 101 values 0.50, 0.51, … 1.50 the 0.5^(1/2) = 0.7071 quantile is 1.2071.
  std::vector<double> imbalance;
  for (int i = 0; i <= 100; ++i)
    imbalance.push_back(0.5 + 0.01 * i);
  CHECK(expected_wait(imbalance, 1) == 0);
  CHECK(expected_wait(imbalance, 2) == Approx(0.2071).epsilon(1e-3));
  CHECK(expected_wait(imbalance, 1000) > 0.49);
  CHECK(expected_wait({1.0}, 8) == 0);
  CHECK(std::isnan(expected_wait({}, 2)));
}

namespace {

/// The same by small steps of time, independently of the formulas.
struct Stepped {
  double compute_end_s = 0, last_end_s = 0;
};
Stepped step_through(const std::vector<BucketMessage>& messages, double cost_s, double compute_s,
                     double contention_s_per_byte) {
  constexpr double kStep_s = 1e-4;
  Stepped result;
  double work_s = 0, left_s = 0;
  std::size_t next = 0;
  for (long step = 0; work_s < compute_s || left_s > 0 || next < messages.size(); ++step) {
    const double now_s = static_cast<double>(step) * kStep_s;
    if (left_s <= 0 && next < messages.size() && messages[next].ready_s <= work_s) {
      left_s = cost_s;
      ++next;
    }
    const double share = left_s > 0 ? contention_s_per_byte * messages[next - 1].bytes / cost_s : 0;
    if (work_s < compute_s) result.compute_end_s = now_s + kStep_s;
    work_s += (1 - share) * kStep_s;
    if (left_s > 0) result.last_end_s = now_s + kStep_s;
    left_s -= kStep_s;
  }
  return result;
}

}  // namespace

TEST_CASE("model: what messages take from compute delays it, and what it makes ready") {
  // Ready while idle, while another travels, and both after a delay; 0.3 s for each 100 bytes.
  const std::vector<BucketMessage> messages = {{1, 100}, {1.5, 100}, {6, 200}, {7.5, 50}};
  for (const double cost_s : {0.7, 2.0, 4.0}) {
    CAPTURE(cost_s);
    const double contention = 3e-3;
    const BucketReplay replay = replay_overlapped(messages, constant_cost(cost_s), 8, contention);
    const Stepped stepped = step_through(messages, cost_s, 8, contention);
    CHECK(replay.compute_end_s == Approx(stepped.compute_end_s).epsilon(1e-3));
    CHECK(replay.end_s.back() == Approx(stepped.last_end_s).epsilon(1e-3));
    CHECK(replay.exposed_s ==
          Approx(std::fmax(0, stepped.last_end_s - stepped.compute_end_s)).epsilon(5e-3));
    // Freed of the delays, everything is back where compute alone has it.
    CHECK(undelayed_s(messages, replay, contention, replay.compute_end_s) == Approx(8));
    for (const BucketMessage& message : messages) {
      std::vector<BucketMessage> until(messages.begin(),
                                       messages.begin() + (&message - messages.data()));
      const double delayed_s =
          replay_overlapped(until, constant_cost(cost_s), message.ready_s, contention)
              .compute_end_s;
      CHECK(undelayed_s(messages, replay, contention, delayed_s) == Approx(message.ready_s));
    }
  }
}

TEST_CASE("model: bytes beside compute are those before it ends") {
  const std::vector<BucketMessage> messages = {{1, 100}, {5, 100}, {9, 100}};
  const BucketReplay replay = replay_overlapped(messages, constant_cost(2), 6);
  CHECK(replay.compute_end_s == 6);
  CHECK(replay.bytes_beside_compute(messages) == Approx(150));
  // However much a byte takes, compute continues.
  CHECK(replay_overlapped({{0, 100}}, constant_cost(1), 1, 1).compute_end_s == Approx(1.95));
  CHECK(std::isnan(replay_overlapped({{1, 1}}, constant_cost(1), std::nan(""), 1e-3).exposed_s));
}

TEST_CASE("model: what-if is read strictly") {
  const WhatIf change =
      parse_what_if("bucket-cap=4MiB, wire=bf16,bandwidth=1GB/s,latency=20us,ranks=16");
  CHECK(change.bucket_cap_bytes == 4 * 1024.0 * 1024);
  CHECK(change.wire_bytes == 2);
  CHECK(change.bandwidth_bytes_per_s == 1e9);
  CHECK(*change.latency_s == Approx(20e-6));
  CHECK(change.ranks == 16);
  CHECK_FALSE(change.batch);
  CHECK_FALSE(parse_what_if("").ranks);
  const auto refused = [](const std::string& text) {
    return error_text(ExitCode::kUsage, [&] { parse_what_if(text); });
  };
  CHECK(contains(refused("bucketcap=4MiB"), "did you mean bucket-cap?"));
  CHECK(contains(refused("wire=bf61"), "did you mean bf16?"));
  CHECK(contains(refused("ranks=2,ranks=4"), "ranks is given twice"));
  CHECK(contains(refused("ranks"), "is not key=value"));
  CHECK(contains(refused("ranks=0"), "is not from 1 to 1000000"));
  for (const auto& [text, bytes] : {std::pair{"10Gbit/s", 1.25e9},
                                    {"100Mbit/s", 12.5e6},
                                    {"2.5Gbit/s", 312.5e6},
                                    {"800kbit/s", 1e5},
                                    {"1.6Tbit/s", 2e11},
                                    {"8bit/s", 1.0},
                                    {"1.25GB/s", 1.25e9},
                                    {"12.5MB/s", 12.5e6},
                                    {"1GiB/s", 1024.0 * 1024 * 1024}}) {
    CHECK(parse_what_if(std::string("bandwidth=") + text).bandwidth_bytes_per_s == bytes);
  }
  CHECK(contains(refused("bandwidth=1GB"), "is not like 10Gbit/s or 1.25GB/s"));
  CHECK(contains(refused("bandwidth=10Gb/s"), "could mean 10Gbit/s or 10GB/s"));
  CHECK(contains(refused("bandwidth=10Gbps"), "could mean 10Gbit/s or 10GB/s"));
  CHECK(contains(refused("bandwidth=10Pbit/s"), "not a finite number"));
  CHECK(contains(refused("bandwidth=0Gbit/s"), "above 0"));
  CHECK(contains(refused("bandwidth=-1Gbit/s"), "above 0"));
  CHECK(contains(refused("bandwidth=0GB/s"), "above 0"));
  CHECK(contains(refused("bucket-cap=1023B"), "below 1 KiB"));
  CHECK_NOTHROW(parse_what_if("bucket-cap=1024B"));
  CHECK(contains(refused("latency=-1ms"), "latency"));
  CHECK(contains(refused(","), "is not key=value"));
}

TEST_CASE("model: the ladder of caps ends with the first that holds everything") {
  CHECK(cap_ladder(100e3) == std::vector<double>{65536, 131072});
  CHECK(cap_ladder(1).size() == 1);
  CHECK(cap_ladder(1e12).size() == 13);
  CHECK(cap_ladder(1e12).back() == 256.0 * 1024 * 1024);
}

TEST_CASE("model: steps and share of a collective, and none of one rank") {
  CollectiveLaws laws;
  laws[CollectiveKind::kGather].first = 3;
  laws[CollectiveKind::kGather].second = 0.5;
  CHECK(collective_s(laws, CollectiveKind::kGather, 10, 1) == 0);
  CHECK(collective_s(laws, CollectiveKind::kGather, 10, 2) == Approx(3 + 5));
  CHECK(collective_s(laws, CollectiveKind::kGather, 10, 4) == Approx(3 * (3 + 5)));
  CHECK(std::isnan(collective_s(laws, CollectiveKind::kReduce, 10, 2)));
}
