#include <algorithm>

#include <ATen/Parallel.h>

#include "model/image_batch.h"
#include "quantize/accuracy.h"
#include "quantize/int8_network.h"
#include "quantize/ranks.h"
#include "quantize/workers.h"

namespace gradsync::quantize {

namespace {

/// The logits of `count` images of `pixels`, by worker `worker`.
using Path = std::function<std::vector<float>(std::size_t worker, std::vector<float>& pixels,
                                              std::int64_t count)>;

std::vector<float> values_of(const torch::Tensor& logits) {
  const torch::Tensor dense = logits.contiguous();
  return {dense.data_ptr<float>(), dense.data_ptr<float>() + dense.numel()};
}

void count(const ImageRange& images, const ImageBatch& batch, const std::vector<float>& logits,
           const std::vector<float>& other, Verdicts& verdicts) {
  const std::size_t classes = logits.size() / static_cast<std::size_t>(batch.count);
  for (std::int64_t i = 0; i < batch.count; ++i) {
    const std::span one = std::span(logits).subspan(static_cast<std::size_t>(i) * classes, classes);
    ++verdicts.images;
    verdicts.correct +=
        static_cast<std::int64_t>(predicted(one)) == images.label(batch.first + i) ? 1 : 0;
    if (other.empty()) continue;
    const auto compared =
        other.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(i) * classes);
    verdicts.agreeing += std::equal(one.begin(), one.end(), compared) ? 1 : 0;
  }
}

Verdicts added_up(const StudyRanks& ranks, const std::vector<Verdicts>& workers) {
  Verdicts sum;
  for (const Verdicts& one : workers) {
    sum.images += one.images;
    sum.correct += one.correct;
    sum.agreeing += one.agreeing;
  }
  const std::vector<std::int64_t*> integers = {&sum.images, &sum.correct, &sum.agreeing};
  add_over_ranks(ranks.exchange, integers);
  return sum;
}

/// Judges by `path`; `other`, if there is one, must give the same logits.
Verdicts judged(const StudyRanks& ranks, const ImageRange& images, const Path& path,
                const Path& other = {}) {
  std::vector<Verdicts> verdicts(ranks.threads);
  const auto mine = batches_of_rank(images.count(), kImagesAtOnce, ranks.exchange.session().rank(),
                                    ranks.exchange.session().size());
  const auto work = [&](std::size_t worker, std::size_t item) {
    std::vector<float> pixels = images.load(mine[item].first, mine[item].count);
    const auto logits = path(worker, pixels, mine[item].count);
    const auto compared = other ? other(worker, pixels, mine[item].count) : std::vector<float>();
    count(images, mine[item], logits, compared, verdicts[worker]);
  };
  ranks.exchange.session().together(
      [&] { in_parallel(ranks.threads, mine.size(), work, [] { at::set_num_threads(1); }); });
  return added_up(ranks, verdicts);
}

template <typename Network>
Path by(const Network& network) {
  return [&network](std::size_t, std::vector<float>& pixels, std::int64_t images) {
    return values_of(network.forward(image_batch(pixels.data(), images, Layout::kNhwc)));
  };
}

/// One network a worker: each has memory of its own.
Path by(std::vector<Int8Network>& networks) {
  return [&networks](std::size_t worker, std::vector<float>& pixels, std::int64_t images) {
    std::vector<float> logits(static_cast<std::size_t>(images) * networks[worker].classes());
    networks[worker].run(pixels, logits);
    return logits;
  };
}

/// Logits as integers of `by`.
Path rounded(const Path& path, const Quantizer& by) {
  return [path, by](std::size_t worker, std::vector<float>& pixels, std::int64_t images) {
    std::vector<float> logits = path(worker, pixels, images);
    for (float& logit : logits)
      logit = static_cast<float>(by.quantize(static_cast<double>(logit)));
    return logits;
  };
}

}  // namespace

Verdicts judge(const StudyRanks& ranks, const FloatModel& model, const ImageRange& images) {
  const FloatNetwork network(model);
  return judged(ranks, images, by(network));
}

Verdicts judge_emulated(const StudyRanks& ranks, const Int8Model& model,
                        const FloatModel& float_bias, const ImageRange& images) {
  const EmulatedNetwork network(model, &float_bias);
  return judged(ranks, images, by(network));
}

Verdicts judge_int8(const StudyRanks& ranks, const Int8Model& model, const ImageRange& images,
                    const std::optional<Quantizer>& logits) {
  std::vector<Int8Network> networks(ranks.threads, Int8Network(model));
  const Path path = by(networks);
  return judged(ranks, images, logits ? rounded(path, *logits) : path);
}

Verdicts judge_both(const StudyRanks& ranks, const Int8Model& model, const ImageRange& images) {
  std::vector<Int8Network> networks(ranks.threads, Int8Network(model));
  const EmulatedNetwork emulated(model);
  return judged(ranks, images, by(networks), by(emulated));
}

}  // namespace gradsync::quantize
