#include "step/gather_rows.h"

#include <algorithm>
#include <cmath>

namespace gradsync {

namespace {

// A rank's iteration as a block of doubles; whole numbers stay exact up to 2^53.
constexpr std::size_t kHead = 6;
constexpr std::size_t kFixed = kHead + kPhases + kRowCategories;
constexpr std::size_t kPerBucket = 4;

std::vector<double> pack(const StepResult& mine, double begin_s) {
  const RankIteration& measured = mine.measured;
  std::vector<double> block = {begin_s,
                               measured.loss,
                               static_cast<double>(measured.correct),
                               static_cast<double>(mine.samples),
                               static_cast<double>(mine.bad_tensor),
                               static_cast<double>(mine.stop)};
  block.insert(block.end(), measured.time_s.begin(), measured.time_s.end());
  for (const std::int64_t bytes : measured.traffic_bytes)
    block.push_back(static_cast<double>(bytes));
  for (const BucketTimes& bucket : measured.buckets)
    block.insert(block.end(), {bucket.ready_s, bucket.start_s, bucket.end_s, bucket.arrival_s});
  return block;
}

RankIteration unpack(std::span<const double> block) {
  RankIteration rank;
  rank.begin_s = block[0];
  rank.loss = block[1];
  rank.correct = static_cast<std::int64_t>(block[2]);
  std::copy_n(block.begin() + kHead, kPhases, rank.time_s.begin());
  for (std::size_t i = 0; i < kRowCategories; ++i)
    rank.traffic_bytes[i] = static_cast<std::int64_t>(block[kHead + kPhases + i]);
  for (std::size_t at = kFixed; at < block.size(); at += kPerBucket)
    rank.buckets.push_back({block[at], block[at + 1], block[at + 2], block[at + 3]});
  return rank;
}

void want_stop(Verdict& verdict, StopReason reason, std::size_t rank) {
  if (reason == StopReason::kNone || verdict.stop_rank >= 0) return;
  verdict.stop = reason;
  verdict.stop_rank = static_cast<std::int32_t>(rank);
}

Verdict judge(std::span<const double> all, std::size_t block) {
  Verdict verdict;
  for (std::size_t rank = 0; rank * block < all.size(); ++rank) {
    const double loss = all[rank * block + 1], bad_tensor = all[rank * block + 4];
    want_stop(verdict, static_cast<StopReason>(static_cast<int>(all[rank * block + 5])), rank);
    if (verdict.bad_rank >= 0 || (std::isfinite(loss) && bad_tensor < 0)) continue;
    verdict.bad_rank = static_cast<std::int32_t>(rank);
    verdict.bad_tensor = static_cast<std::int64_t>(bad_tensor);
  }
  return verdict;
}

}  // namespace

Verdict gather_rows(Exchange& exchange, const StepResult& mine, double begin_s, IterationRow& row) {
  const std::vector<double> block = pack(mine, begin_s);
  const bool root = exchange.rank() == 0;
  std::vector<double> all(root ? block.size() * static_cast<std::size_t>(exchange.size()) : 0);
  exchange.gather_control(std::as_bytes(std::span(block)), std::as_writable_bytes(std::span(all)));
  Verdict verdict;
  if (root) {
    verdict = judge(all, block.size());
    row.samples = 0;
    for (std::size_t at = 0; at < all.size(); at += block.size()) {
      row.ranks.push_back(unpack(std::span(all).subspan(at, block.size())));
      row.samples += static_cast<std::int64_t>(all[at + 3]);
    }
    row.buckets = mine.buckets;
  }
  exchange.broadcast_control(std::as_writable_bytes(std::span(&verdict, 1)));
  return verdict;
}

Verdict agree_on_stop(Exchange& exchange, StopReason mine) {
  std::vector<StopReason> all(exchange.rank() == 0 ? static_cast<std::size_t>(exchange.size()) : 0);
  exchange.gather_control(std::as_bytes(std::span(&mine, 1)),
                          std::as_writable_bytes(std::span(all)));
  Verdict verdict;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    want_stop(verdict, all[rank], rank);
  exchange.broadcast_control(std::as_writable_bytes(std::span(&verdict, 1)));
  return verdict;
}

}  // namespace gradsync
