// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <torch/types.h>

#include "data/cifar10.h"
#include "data/loader.h"
#include "machine/kernels.h"
#include "machine/lane.h"
#include "options/options.h"

namespace gradsync {

/// Both splits of the data set as bytes in the memory of a device: 3,073 bytes an image, 184 MB for
/// CIFAR-10. From there a kernel makes each batch, so no host thread loads and nothing is copied.
class ResidentData {
 public:
  /// Copies every image. Batches of a rank's own images are of `type`.
  ResidentData(const Cifar10& data, torch::Device device, ImageType type);

  ResidentImages images(Split split) const;
  const torch::Device& device() const { return device_; }
  ImageType type() const { return type_; }

 private:
  struct Bytes {
    torch::Tensor pixels, labels;
  };

  torch::Device device_;
  ImageType type_;
  Bytes train_, test_;
  torch::Tensor levels_;
};

torch::ScalarType scalar_type(ImageType type);

class SyntheticData;

/// The data set of a run: its files, and where it also lies on the device the run computes on; or
/// samples that are drawn.
struct DataSource {
  DataSource(const Cifar10& all, std::shared_ptr<const ResidentData> on_device = nullptr,
             torch::Device where = torch::kCPU, DeviceLane* of_device = nullptr)
      : files(&all), resident(std::move(on_device)), device(where), lane(of_device) {}
  /// The samples lie on their own device.
  explicit DataSource(std::shared_ptr<const SyntheticData> samples);

  std::int64_t size(Split split) const;

  const Cifar10* files;  ///< null: samples are drawn
  std::shared_ptr<const SyntheticData> drawn = {};
  std::shared_ptr<const ResidentData> resident;  ///< none: loader threads prepare the batches
  torch::Device device;                          ///< where batches are wanted
  DeviceLane* lane;                              ///< of that device; null on the CPU
};

/// What a run trains on before its devices are known.
class RunData {
 public:
  /// Opens the files of --data, or checks that the network of --model FILE.pt can be trained.
  /// Throws as these do.
  explicit RunData(const TrainOptions& options);

  std::int64_t size(Split split) const;
  /// Digest of the files as Cifar10::verify; else of what the samples depend on, and of --model
  /// FILE.pt.
  DataDigest verify() const;
  /// Null: samples are drawn.
  const Cifar10* files() const { return files_ ? &*files_ : nullptr; }
  /// Draws them.
  DataSource draw(const torch::Device& device) const;

 private:
  NetworkInput input_;
  std::uint64_t seed_;
  std::string script_;  ///< of --model FILE.pt
  std::optional<Cifar10> files_;
};

/// A batch as the network takes it.
struct FeedBatch {
  /// [samples, 3, 32, 32] or as NetworkInput::sizes says, in the order of memory that was asked
  /// for.
  torch::Tensor images;
  torch::Tensor labels;  ///< [samples], of tokens [samples, tokens]; int64
  Batch memory;          ///< what they view, if a loader made them

  std::int64_t samples() const { return labels.size(0); }
};

/// Samples for networks that take no images of CIFAR-10, drawn from a seed: each is a window of one
/// stretch of random numbers on the device, so that a batch is copied, not computed. A sample of
/// tokens is followed by the token that is the last one's label. No test set: what is random has
/// nothing to be learned. A sample depends on the seed and its index only.
class SyntheticData {
 public:
  static constexpr std::int64_t kTrainingSamples = 50'000;

  SyntheticData(NetworkInput input, std::uint64_t seed, const torch::Device& device);

  static std::int64_t size(Split split) { return split == Split::kTrain ? kTrainingSamples : 0; }
  FeedBatch batch(const std::vector<std::int64_t>& samples, Layout layout) const;
  const torch::Device& device() const { return device_; }

 private:
  torch::Tensor window(std::int64_t sample, std::int64_t shift) const;
  NetworkInput input_;
  std::uint64_t seed_;
  torch::Device device_;
  torch::Tensor numbers_;
  torch::Tensor
      labels_;  ///< of every sample, on the device: a copy from the host would wait for it
};

/// Makes batches, epoch by epoch: loader threads do, or a kernel where the data lie on the device.
/// Both give the same images for the same seed (docs/gpu-data.md). Neither waits for the device.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Starts on the `how.steps` batches that `indices` names.
  virtual void begin(Loader::Indices indices, const LoaderOptions& how) = 0;
  /// Returns when `indices` will be called no more. To be called before what it reads changes.
  virtual void stop() {}
  /// The next batch. Its tensors are valid until it is handed to `recycle`.
  virtual FeedBatch next() = 0;
  virtual void recycle(FeedBatch&& /*batch*/) {}
  /// Counts so many batches that were made elsewhere (by a replayed graph), or that were counted
  /// and not made. Only of a source on the device.
  virtual void skip(std::int64_t batches);
  /// What a captured step reads of the epoch: the same over all epochs of a run. Null: nothing.
  virtual const void* place() const { return nullptr; }
};

/// Images are of `type`; of loader threads always float32.
std::unique_ptr<BatchSource> make_batch_source(const DataSource& data, ImageType type);

}  // namespace gradsync
