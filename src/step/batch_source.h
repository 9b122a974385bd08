#pragma once

#include <memory>

#include <torch/types.h>

#include "data/loader.h"
#include "device/lane.h"
#include "step/resident_data.h"

namespace gradsync {

/// The data set of a run: its files, and where it also lies on the device the run computes on.
struct DataSource {
  DataSource(const Cifar10& all, std::shared_ptr<const ResidentData> on_device = nullptr,
             torch::Device where = torch::kCPU, DeviceLane* of_device = nullptr)
      : files(all), resident(std::move(on_device)), device(where), lane(of_device) {}

  const Cifar10& files;
  std::shared_ptr<const ResidentData> resident;  ///< none: loader threads prepare the batches
  torch::Device device;                          ///< where batches are wanted
  DeviceLane* lane;                              ///< of that device; null on the CPU
};

/// A batch as the network takes it.
struct FeedBatch {
  torch::Tensor images;  ///< [samples, 3, 32, 32], in the order of memory that was asked for
  torch::Tensor labels;  ///< [samples], int64
  Batch memory;          ///< what they view, if a loader made them

  std::int64_t samples() const { return labels.size(0); }
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
