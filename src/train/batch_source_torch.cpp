#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/random.h"
#include "model/image_batch.h"
#include "train/batch_source.h"
#include "train/resident_batches.h"

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
      : loaded_(*data.files), options_(data.device), lane_(lane) {}

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

/// Batches of samples that are drawn.
class DrawnBatches : public BatchSource {
 public:
  explicit DrawnBatches(std::shared_ptr<const SyntheticData> data) : data_(std::move(data)) {}

  void begin(Loader::Indices indices, const LoaderOptions& how) override {
    indices_ = std::move(indices);
    layout_ = how.layout;
    next_ = 0;
  }
  FeedBatch next() override { return data_->batch(indices_(next_++), layout_); }

 private:
  std::shared_ptr<const SyntheticData> data_;
  Loader::Indices indices_;
  Layout layout_ = Layout::kNchw;
  std::int64_t next_ = 0;
};

/// Where windows may begin.
constexpr std::int64_t kWindows = 1 << 16;

}  // namespace

std::unique_ptr<BatchSource> make_batch_source(const DataSource& data, ImageType type) {
  if (data.resident) return std::make_unique<ResidentBatches>(data.resident, type);
  if (data.drawn) return std::make_unique<DrawnBatches>(data.drawn);
  if (data.lane) return std::make_unique<SentBatches>(data, *data.lane);
  return std::make_unique<LoadedBatches>(*data.files);
}

DataSource::DataSource(std::shared_ptr<const SyntheticData> samples)
    : files(nullptr), drawn(std::move(samples)), device(drawn->device()), lane(nullptr) {}

std::int64_t DataSource::size(Split split) const {
  return files ? files->size(split) : SyntheticData::size(split);
}

RunData::RunData(const TrainOptions& options)
    : input_(network_input(options)), seed_(options.seed) {
  if (input_.cifar10) files_.emplace(options.data);
  if (is_script(options.model)) script_ = options.model;
}

std::int64_t RunData::size(Split split) const {
  return files_ ? files_->size(split) : SyntheticData::size(split);
}

DataDigest RunData::verify() const {
  if (files_) return files_->verify();
  DataDigest digest;
  digest.name = fmt::format("drawn (seed {}): {}", seed_, input_.text());
  Sha256 all;
  all.update(digest.name);
  if (!script_.empty()) {
    digest.files.push_back(
        {std::filesystem::path(script_).filename().string(), sha256_file(script_)});
    all.update(digest.files.back().sha256);
  }
  digest.combined = all.hex();
  return digest;
}

DataSource RunData::draw(const torch::Device& device) const {
  return DataSource(std::make_shared<SyntheticData>(input_, seed_, device));
}

SyntheticData::SyntheticData(NetworkInput input, std::uint64_t seed, const torch::Device& device)
    : input_(std::move(input)), seed_(seed), device_(device) {
  const auto generator = at::detail::createCPUGenerator(mix(seed, stream::kSynthetic));
  const std::int64_t count = input_.values() + 1 + kWindows;
  const torch::Tensor numbers = input_.tokens() ? torch::randint(input_.classes, {count}, generator)
                                                : torch::randn({count}, generator);
  numbers_ = numbers.to(torch::kFloat32).to(device);
}

/// Of its values, or of those `shift` behind them.
torch::Tensor SyntheticData::window(std::int64_t sample, std::int64_t shift) const {
  const auto random = mix(seed_, stream::kSynthetic, static_cast<std::uint64_t>(sample));
  const auto begin = static_cast<std::int64_t>(below(random, kWindows));
  return numbers_.narrow(0, begin + shift, input_.values()).view(input_.sizes);
}

torch::Tensor SyntheticData::labels(const std::vector<std::int64_t>& samples) const {
  std::vector<std::int64_t> all;
  for (const std::int64_t sample : samples) {
    const auto random = mix(seed_, stream::kSynthetic, static_cast<std::uint64_t>(sample), 1);
    all.push_back(
        static_cast<std::int64_t>(below(random, static_cast<std::uint64_t>(input_.classes))));
  }
  return torch::tensor(all, torch::kInt64).to(device_);
}

FeedBatch SyntheticData::batch(const std::vector<std::int64_t>& samples, Layout layout) const {
  const auto sizes = batch_sizes(input_, static_cast<std::int64_t>(samples.size()));
  std::vector<torch::Tensor> values, next;
  for (const std::int64_t sample : samples) {
    values.push_back(window(sample, 0));
    if (input_.tokens()) next.push_back(window(sample, 1));
  }
  FeedBatch batch;
  batch.images = torch::empty_strided(sizes, batch_strides(sizes, layout), numbers_.options());
  if (!values.empty()) batch.images.copy_(torch::stack(values));
  batch.labels = next.empty() ? labels(samples) : torch::stack(next).to(torch::kInt64);
  return batch;
}

void BatchSource::skip(std::int64_t) {
  throw Error(ExitCode::kInternal, "batches of loader threads cannot be skipped");
}

}  // namespace gradsync
