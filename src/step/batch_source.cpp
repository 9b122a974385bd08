#include "step/batch_source.h"

#include <cstring>

#include "model/image_batch.h"
#include "step/resident_batches.h"
#include "support/error.h"

namespace gradsync {

namespace {

/// Batches of loader threads, in host memory.
class LoadedBatches : public BatchSource {
 public:
  explicit LoadedBatches(const Cifar10& data) : data_(data) {}

  void begin(Loader::Indices indices, const LoaderOptions& how) override {
    stop();
    layout_ = how.layout;
    loader_ = std::make_unique<Loader>(data_, std::move(indices), how);
  }

  void stop() override { loader_.reset(); }

  FeedBatch next() override {
    FeedBatch batch;
    batch.memory = loader_->next();
    const auto samples = static_cast<std::int64_t>(batch.memory.size);
    batch.images = image_batch(batch.memory.images.data(), samples, layout_);
    batch.labels = torch::from_blob(batch.memory.labels.data(), {samples}, torch::kInt64);
    return batch;
  }

  void recycle(FeedBatch&& batch) override { loader_->recycle(std::move(batch.memory)); }

 private:
  const Cifar10& data_;
  Layout layout_ = Layout::kNchw;
  std::unique_ptr<Loader> loader_;
};

/// The same on a device: each batch is copied to page-locked memory, from where the compute stream
/// fetches it. Such memory is taken again once its copy has happened, so the host waits for none.
class SentBatches : public BatchSource {
 public:
  SentBatches(const DataSource& data, DeviceLane& lane)
      : loaded_(data.files), options_(data.device), lane_(lane) {}

  void begin(Loader::Indices indices, const LoaderOptions& how) override {
    loaded_.begin(std::move(indices), how);
  }
  void stop() override { loaded_.stop(); }

  FeedBatch next() override {
    FeedBatch host = loaded_.next(), batch;
    Staging& staging = free_staging();
    batch.images = send(host.images, staging.images);
    batch.labels = send(host.labels, staging.labels);
    staging.sent = lane_.ring.mark(lane_.compute);
    loaded_.recycle(std::move(host));
    return batch;
  }

 private:
  struct Staging {
    explicit Staging(Device& device) : images(device), labels(device) {}
    PinnedBuffer images, labels;
    Mark sent;
  };

  /// A mark that is not in use any more is of an iteration whose numbers have come.
  Staging& free_staging() {
    for (const auto& staging : stagings_)
      if (!lane_.ring.in_use(staging->sent) || lane_.ring.happened(staging->sent)) return *staging;
    return *stagings_.emplace_back(std::make_unique<Staging>(lane_.device));
  }

  torch::Tensor send(const torch::Tensor& values, PinnedBuffer& staging) {
    torch::Tensor there = torch::empty_like(values, options_);
    if (values.numel() == 0) return there;
    void* here = staging.at_least(values.nbytes());
    std::memcpy(here, values.const_data_ptr(), values.nbytes());
    lane_.device.copy(there.data_ptr(), here, values.nbytes(), lane_.compute);
    return there;
  }

  LoadedBatches loaded_;
  torch::TensorOptions options_;
  DeviceLane& lane_;
  std::vector<std::unique_ptr<Staging>> stagings_;
};

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(const DataSource& data, ImageType type) {
  if (data.resident) return std::make_unique<ResidentBatches>(data.resident, type);
  if (data.lane) return std::make_unique<SentBatches>(data, *data.lane);
  return std::make_unique<LoadedBatches>(data.files);
}

void BatchSource::skip(std::int64_t) {
  throw Error(ExitCode::kInternal, "batches of loader threads cannot be skipped");
}

}  // namespace gradsync
