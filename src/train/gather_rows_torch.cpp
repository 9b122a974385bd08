#include <cmath>

#include "record/schema.h"
#include "train/gather_rows.h"

namespace gradsync {

namespace {

// A rank's iteration as a block of doubles: samples, bad tensor and stop, then the fields of
// RankIteration (record/schema.h), its buckets last. Whole numbers stay exact up to 2^53.
constexpr std::size_t kSamples = 0, kBadTensor = 1, kStop = 2, kHead = 3;

class FieldPacker {
 public:
  explicit FieldPacker(std::vector<double>& block) : block_(block) {}

  template <typename Value>
  void operator()(const Field&, const Value& value) {
    block_.push_back(static_cast<double>(value));
  }
  template <typename Row>
  void operator()(const Nested&, const std::vector<Row>& rows) {
    for (const Row& row : rows)
      visit_fields(row, *this);
  }

 private:
  std::vector<double>& block_;
};

class FieldUnpacker {
 public:
  explicit FieldUnpacker(std::span<const double> block) : block_(block) {}

  template <typename Value>
  void operator()(const Field&, Value& value) {
    value = static_cast<Value>(block_[at_++]);
  }
  template <typename Row>
  void operator()(const Nested&, std::vector<Row>& rows) {
    while (at_ < block_.size())
      visit_fields(rows.emplace_back(), *this);
  }

 private:
  std::span<const double> block_;
  std::size_t at_ = kHead;
};

std::vector<double> pack(const StepResult& mine, double begin_s) {
  std::vector<double> block = {static_cast<double>(mine.samples),
                               static_cast<double>(mine.bad_tensor),
                               static_cast<double>(mine.stop)};
  RankIteration measured = mine.measured;
  measured.begin_s = begin_s;
  FieldPacker packer(block);
  visit_fields(measured, packer);
  return block;
}

RankIteration unpack(std::span<const double> block) {
  RankIteration rank;
  FieldUnpacker unpacker(block);
  visit_fields(rank, unpacker);
  return rank;
}

void want_stop(Verdict& verdict, StopReason reason, std::size_t rank) {
  if (reason == StopReason::kNone || verdict.stop_rank >= 0) return;
  verdict.stop = reason;
  verdict.stop_rank = static_cast<std::int32_t>(rank);
}

void judge(Verdict& verdict, std::size_t rank, const RankIteration& measured,
           std::span<const double> block) {
  want_stop(verdict, static_cast<StopReason>(static_cast<int>(block[kStop])), rank);
  if (verdict.bad_rank >= 0 || (std::isfinite(measured.loss) && block[kBadTensor] < 0)) return;
  verdict.bad_rank = static_cast<std::int32_t>(rank);
  verdict.bad_tensor = static_cast<std::int64_t>(block[kBadTensor]);
}

}  // namespace

Verdict gather_rows(Exchange& exchange, const StepResult& mine, double begin_s, IterationRow& row) {
  const std::vector<double> block = pack(mine, begin_s);
  const std::vector<double> all = exchange.session().gather(std::span(block));
  Verdict verdict;
  if (exchange.session().root()) {
    row.samples = 0;
    for (std::size_t at = 0; at < all.size(); at += block.size()) {
      const auto one = std::span(all).subspan(at, block.size());
      row.ranks.push_back(unpack(one));
      row.samples += static_cast<std::int64_t>(one[kSamples]);
      judge(verdict, at / block.size(), row.ranks.back(), one);
    }
    row.buckets = mine.buckets;
  }
  exchange.session().broadcast(verdict);
  return verdict;
}

Verdict agree_on_stop(Exchange& exchange, StopReason mine) {
  const std::vector<StopReason> all = exchange.session().gather(mine);
  Verdict verdict;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    want_stop(verdict, all[rank], rank);
  exchange.session().broadcast(verdict);
  return verdict;
}

}  // namespace gradsync
