#include <array>

#include <ATen/Context.h>

#include "data/random.h"
#include "data/sampler.h"
#include "machine/lane.h"
#include "train/evaluate.h"
#include "train/loss.h"
#include "train/replica_facts.h"

namespace gradsync {

namespace {

/// Σ loss and right answers over this rank's share of the test images; repeats that only fill the
/// last batch are left out.
std::array<double, 2> sums_of_share(StepParts& parts, const DataSource& data,
                                    const Sampler& sampler, int rank, std::int64_t loader_threads) {
  LoaderOptions how;
  how.split = Split::kTest;
  how.steps = sampler.steps();
  how.layout = parts.compute.layout;
  how.threads = loader_threads;
  const auto source =
      make_batch_source(data, data.resident ? data.resident->type() : ImageType::kFloat32);
  source->begin([&](std::int64_t step) { return sampler.batch(step); }, how);
  const torch::Device device = parts.replica.parameters[0].device();
  torch::Tensor sums = torch::zeros({2}, torch::TensorOptions(device).dtype(torch::kFloat64));
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(parts.compute.precision, parts.compute.device.type());
  for (std::int64_t step = 0; step < sampler.steps(); ++step) {
    FeedBatch batch = source->next();
    const std::int64_t counted = sampler.unrepeated(step, rank);
    const torch::Tensor logits = parts.replica.network->forward(batch.images).narrow(0, 0, counted);
    if (counted > 0)
      sums += cross_entropy(logits, batch.labels.narrow(0, 0, counted), 1, 1).sums[0];
    source->recycle(std::move(batch));
  }
  parts.exchange.await(parts.exchange.now().mark);
  sums = sums.cpu();
  return {sums[0].item<double>(), sums[1].item<double>()};
}

}  // namespace

EvaluateHow evaluate_how(const TrainOptions& options, int ranks) {
  const bool each_rank = options.evaluate == "each-rank" || replicas_may_differ(options, ranks);
  return each_rank ? EvaluateHow::kEachRank : EvaluateHow::kShard;
}

Evaluation evaluate(StepParts& parts, const DataSource& data, std::int64_t batch,
                    std::int64_t loader_threads, EvaluateHow how) {
  const bool shard = how == EvaluateHow::kShard;
  const int rank = shard ? parts.exchange.session().rank() : 0,
            ranks = shard ? parts.exchange.session().size() : 1;
  const Stopwatch watch;
  const ProfilerRange range(parts.exchange.lane(), "evaluation");
  parts.mode.publish();
  if (shard) broadcast_buffers(parts.exchange, parts.replica);
  parts.replica.network->eval();
  at::manual_seed(mix(parts.feed.seed(), stream::kEvaluation,
                      static_cast<std::uint64_t>(parts.exchange.session().rank())));
  const Sampler sampler(data.size(Split::kTest), rank, ranks, batch, 0, LastBatch::kPad,
                        /*shuffle=*/false);
  auto all = sums_of_share(parts, data, sampler, rank, loader_threads);
  parts.replica.network->train();
  if (shard) parts.exchange.session().sum(all);
  const auto images = static_cast<double>(data.size(Split::kTest));
  return {all[0] / images, all[1] / images, watch.elapsed_s()};
}

void broadcast_buffers(Exchange& exchange, Replica& replica) {
  for (torch::Tensor& buffer : replica.buffers)
    if (buffer.is_floating_point())
      exchange.run(
          Collective::broadcast(
              std::span(buffer.data_ptr<float>(), static_cast<std::size_t>(buffer.numel())), kRoot),
          Traffic::kBuffers);
}

}  // namespace gradsync
