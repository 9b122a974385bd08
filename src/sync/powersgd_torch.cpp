// SPDX-License-Identifier: BSD-3-Clause
// PowerSGD (Vogels, Karimireddy and Jaggi, NeurIPS 2019): of the gradient of each matrix travel two
// thin factors, and what they leave out is added to the next gradient.
#include <optional>
#include <utility>
#include <vector>

#include "sync/compress.h"
#include "sync/flat_gradients.h"
#include "sync/sync_mode.h"

namespace gradsync {

namespace {

class PowerSgd : public SyncMode {
 public:
  PowerSgd(Exchange& exchange, const SyncSettings& settings)
      : exchange_(exchange), settings_(settings), wire_(wire_type(settings.wire_dtype)) {}

  void attach(Replica& replica) override {
    gradients_.emplace(replica, one_group(replica), exchange_);
    const auto buckets =
        buckets_of(replica, settings_.first_bucket_bytes, settings_.bucket_cap_bytes);
    // What travels has the layout of gradients: of each bucket p, and then q, are a group.
    Replica traveling;
    std::vector<std::vector<std::size_t>> messages(2 * buckets.size());
    for (std::size_t b = 0; b < buckets.size(); ++b)
      for (const std::size_t i : buckets[b]) {
        const auto sizes = LowRank::sizes_of(replica.parameters[i], settings_.powersgd_rank);
        for (const auto& [message, size] : {std::pair(2 * b, sizes.p), {2 * b + 1, sizes.q}}) {
          messages[message].push_back(traveling.parameters.size());
          traveling.parameters.push_back(torch::empty(size, replica.parameters[i].options()));
        }
      }
    messages_.emplace(traveling, GradientLayout(traveling, messages), exchange_);
    auto place = traveling.parameters.begin();
    std::uint64_t key = 1000;  // above those by which `orthonormalize` draws
    for (const std::vector<std::size_t>& bucket : buckets) {
      buckets_.emplace_back();
      for (const std::size_t i : bucket) {
        const torch::Tensor p = (place++)->grad(), q = (place++)->grad();
        buckets_.back().emplace_back(replica.parameters[i], p, q, key);
        if (!buckets_.back().back().whole()) ++key;
      }
    }
  }

  void synchronize() override {
    const torch::NoGradGuard no_grad;
    if (exchange_.log().current()->iteration < settings_.powersgd_start)
      return exchange_.run(gradients_->mean(0, wire_).call, Traffic::kGradients);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      each(b, &LowRank::encode);
      exchange_.start(messages_->mean(2 * b, wire_), exchange_.now());
    }
    exchange_.finish();
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      each(b, &LowRank::project);
      exchange_.start(messages_->mean(2 * b + 1, wire_), exchange_.now());
    }
    exchange_.finish();
    for (std::size_t b = 0; b < buckets_.size(); ++b)
      each(b, &LowRank::decode);
  }

  std::vector<NamedTensor> carried() override {
    const torch::NoGradGuard no_grad;
    std::vector<NamedTensor> all;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      std::size_t matrices = 0;
      for (LowRank& one : buckets_[b]) {
        if (one.whole()) continue;
        const std::string name = std::to_string(b) + "." + std::to_string(matrices++);
        all.push_back({"error/" + name, one.error()});
        all.push_back({"factor/" + name, one.factor()});
      }
    }
    return all;
  }

 private:
  void each(std::size_t bucket, void (LowRank::*step)()) {
    const EncodingScope timed(exchange_);
    for (LowRank& one : buckets_[bucket])
      (one.*step)();
  }

  Exchange& exchange_;
  SyncSettings settings_;
  ValueType wire_;
  std::optional<FlatGradients> gradients_, messages_;
  std::vector<std::vector<LowRank>> buckets_;
};

}  // namespace

std::unique_ptr<SyncMode> make_powersgd(Exchange& exchange, const SyncSettings& settings) {
  return std::make_unique<PowerSgd>(exchange, settings);
}

}  // namespace gradsync
