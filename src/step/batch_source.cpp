#include "step/batch_source.h"

#include "model/image_batch.h"
#include "step/resident_batches.h"
#include "support/error.h"

namespace gradsync {

namespace {

class LoadedBatches : public BatchSource {
 public:
  LoadedBatches(const Cifar10& data, const torch::Device& device) : data_(data), device_(device) {}

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
    batch.images = image_batch(batch.memory.images.data(), samples, layout_).to(device_);
    batch.labels =
        torch::from_blob(batch.memory.labels.data(), {samples}, torch::kInt64).to(device_);
    return batch;
  }

  void recycle(FeedBatch&& batch) override { loader_->recycle(std::move(batch.memory)); }

 private:
  const Cifar10& data_;
  torch::Device device_;
  Layout layout_ = Layout::kNchw;
  std::unique_ptr<Loader> loader_;
};

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(const DataSource& data, ImageType type) {
  if (data.resident) return std::make_unique<ResidentBatches>(data.resident, type);
  return std::make_unique<LoadedBatches>(data.files, data.device);
}

void BatchSource::skip(std::int64_t) {
  throw Error(ExitCode::kInternal, "batches of loader threads cannot be skipped");
}

}  // namespace gradsync
