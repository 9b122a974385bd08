// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/error.h"
#include "base/hash.h"
#include "data/augment.h"
#include "model/current_stream.h"
#include "model/image_batch.h"
#include "stats/random.h"
#include "train/batch_source.h"

namespace gradsync {

namespace {

torch::Tensor pixels_of(const Cifar10& data, Split split) {
  const std::int64_t size = data.size(split);
  torch::Tensor pixels =
      torch::empty({size, static_cast<std::int64_t>(kImageBytes)}, torch::kUInt8);
  for (std::int64_t image = 0; image < size; ++image)
    std::memcpy(pixels.data_ptr<std::uint8_t>() + image * static_cast<std::int64_t>(kImageBytes),
                data.pixels(split, image).data(), kImageBytes);
  return pixels;
}

torch::Tensor labels_of(const Cifar10& data, Split split) {
  torch::Tensor labels = torch::empty({data.size(split)}, torch::kUInt8);
  for (std::int64_t image = 0; image < labels.numel(); ++image)
    labels.data_ptr<std::uint8_t>()[image] = static_cast<std::uint8_t>(data.label(split, image));
  return labels;
}

torch::Tensor levels_of_bytes() {
  const auto levels = ImageTransform(Layout::kNchw).levels();
  std::vector<float> all;
  for (const auto& channel : levels)
    all.insert(all.end(), channel.begin(), channel.end());
  return torch::tensor(all);
}

}  // namespace

ResidentData::ResidentData(const Cifar10& data, torch::Device device, ImageType type)
    : device_(device),
      type_(type),
      train_{pixels_of(data, Split::kTrain).to(device), labels_of(data, Split::kTrain).to(device)},
      test_{pixels_of(data, Split::kTest).to(device), labels_of(data, Split::kTest).to(device)},
      levels_(levels_of_bytes().to(device)) {}

ResidentImages ResidentData::images(Split split) const {
  const Bytes& bytes = split == Split::kTrain ? train_ : test_;
  return {bytes.pixels.const_data_ptr<std::uint8_t>(), bytes.labels.const_data_ptr<std::uint8_t>(),
          levels_.const_data_ptr<float>()};
}

torch::ScalarType scalar_type(ImageType type) {
  if (type == ImageType::kFloat32) return torch::kFloat32;
  return type == ImageType::kBfloat16 ? torch::kBFloat16 : torch::kHalf;
}

namespace {

/// Batches made on the device from resident data. `begin` sends the epoch's order there; `next`
/// only launches a kernel on the device's current stream (on the CPU it fills the batch).
///
/// The order and the cursor keep their places in memory over all epochs of at most
/// LoaderOptions::longest images, so that a captured step that makes its own batch can be replayed
/// in later epochs.
class ResidentBatches : public BatchSource {
 public:
  ResidentBatches(std::shared_ptr<const ResidentData> data, ImageType type);

  void begin(Loader::Indices indices, const LoaderOptions& how) override;
  FeedBatch next() override;
  void skip(std::int64_t batches) override { next_ += static_cast<std::size_t>(batches); }
  const void* place() const override { return order_.const_data_ptr(); }

 private:
  void send_order(const std::vector<std::int64_t>& order, std::int64_t longest);
  void make(const BatchMemory& memory);

  std::shared_ptr<const ResidentData> data_;
  ImageType type_;
  Split split_ = Split::kTrain;
  Layout layout_ = Layout::kNchw;
  torch::Tensor order_, cursor_;     ///< int64; the cursor is an EpochCursor
  std::vector<std::int64_t> sizes_;  ///< of the epoch's batches
  std::size_t next_ = 0;
};

constexpr std::int64_t kCursorWords = sizeof(EpochCursor) / sizeof(std::int64_t);

/// Copies from pageable memory, without waiting for what the device is doing.
void send(torch::Tensor& to, const torch::Tensor& from) {
  to.narrow(0, 0, from.numel()).copy_(from, /*non_blocking=*/true);
}

ResidentBatches::ResidentBatches(std::shared_ptr<const ResidentData> data, ImageType type)
    : data_(std::move(data)),
      type_(type),
      cursor_(torch::zeros({kCursorWords}, torch::dtype(torch::kInt64).device(data_->device()))) {}

void ResidentBatches::begin(Loader::Indices indices, const LoaderOptions& how) {
  split_ = how.split;
  layout_ = how.layout;
  sizes_.clear();
  next_ = 0;
  std::vector<std::int64_t> order;
  for (std::int64_t step = 0; step < how.steps; ++step) {
    const std::vector<std::int64_t> batch = indices(step);
    sizes_.push_back(static_cast<std::int64_t>(batch.size()));
    order.insert(order.end(), batch.begin(), batch.end());
  }
  send_order(order, how.longest);
  send(cursor_, torch::tensor({static_cast<std::int64_t>(how.seed), how.epoch, std::int64_t{0},
                               std::int64_t{how.augment}}));
}

void ResidentBatches::send_order(const std::vector<std::int64_t>& order, std::int64_t longest) {
  const auto count = static_cast<std::int64_t>(order.size());
  if (!order_.defined() || order_.numel() < count)
    order_ = torch::empty({std::max(count, longest)},
                          torch::dtype(torch::kInt64).device(data_->device()));
  if (count > 0) send(order_, torch::tensor(order));
}

FeedBatch ResidentBatches::next() {
  if (next_ >= sizes_.size()) throw Error(ExitCode::kInternal, "a batch after the epoch's last");
  const std::int64_t samples = sizes_[next_++];
  FeedBatch batch;
  batch.images = torch::empty(
      {samples, 3, kImageSide, kImageSide},
      torch::dtype(scalar_type(type_)).device(data_->device()),
      layout_ == Layout::kNhwc ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  batch.labels = torch::empty({samples}, torch::dtype(torch::kInt64).device(data_->device()));
  make({batch.images.data_ptr(), batch.labels.data_ptr<std::int64_t>(), samples, type_,
        layout_ == Layout::kNhwc});
  return batch;
}

void ResidentBatches::make(const BatchMemory& memory) {
  auto* cursor = reinterpret_cast<EpochCursor*>(cursor_.data_ptr<std::int64_t>());
  const std::int64_t* order = order_.const_data_ptr<std::int64_t>();
  if (data_->device().is_cuda())
    launch_batch(data_->images(split_), order, cursor, memory, current_stream(data_->device()));
  else
    batch_on_host(data_->images(split_), order, *cursor, memory);
}

}  // namespace

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

/// Batches of loader threads on a device: each is copied to page-locked memory, from where the
/// compute stream fetches it. Such memory is taken again once its copy has happened, so the host
/// waits for none.
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
  if (input_.tokens()) return;
  std::vector<std::int64_t> labels;
  for (std::int64_t sample = 0; sample < kTrainingSamples; ++sample) {
    const auto random = mix(seed_, stream::kSynthetic, static_cast<std::uint64_t>(sample), 1);
    labels.push_back(
        static_cast<std::int64_t>(below(random, static_cast<std::uint64_t>(input_.classes))));
  }
  labels_ = torch::tensor(labels, torch::kInt64).to(device);
}

/// The values of a sample, or those `shift` behind them.
torch::Tensor SyntheticData::window(std::int64_t sample, std::int64_t shift) const {
  const auto random = mix(seed_, stream::kSynthetic, static_cast<std::uint64_t>(sample));
  const auto begin = static_cast<std::int64_t>(below(random, kWindows));
  return numbers_.narrow(0, begin + shift, input_.values()).view(input_.sizes);
}

FeedBatch SyntheticData::batch(const std::vector<std::int64_t>& samples, Layout layout) const {
  const auto sizes = batch_sizes(input_, static_cast<std::int64_t>(samples.size()));
  std::vector<torch::Tensor> values, labels;
  for (const std::int64_t sample : samples) {
    values.push_back(window(sample, 0));
    labels.push_back(input_.tokens() ? window(sample, 1) : labels_[sample]);
  }
  FeedBatch batch;
  batch.images = torch::empty_strided(sizes, batch_strides(sizes, layout), numbers_.options());
  if (!values.empty()) batch.images.copy_(torch::stack(values));
  batch.labels = labels.empty()
                     ? torch::empty({0}, torch::TensorOptions(device_).dtype(torch::kInt64))
                     : torch::stack(labels).to(torch::kInt64);
  return batch;
}

void BatchSource::skip(std::int64_t) {
  throw Error(ExitCode::kInternal, "batches of loader threads cannot be skipped");
}

}  // namespace gradsync
